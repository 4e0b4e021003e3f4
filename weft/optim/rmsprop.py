"""RMSprop: the gradient divided by the root of its running mean square."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ops.update_rules import Array, chunks, descent, rule
from weft.optim.optimizer import Group, Params
from weft.optim.rule_optimizer import RuleOptimizer

# --- the rule ----------------------------------------------------------------------------------
# `square` is the running mean of grad². Then come, as far as the options ask for them, `mean`, the
# running mean of grad (centered), and `buf` (momentum).


def _rule(
    xp: Any,
    p: Any,
    square: Any,
    *rest: Any,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
    maximize: bool,
) -> tuple[Any, ...]:
    *state, step, g, lr = rest
    d = descent(p, g, weight_decay, maximize)
    square = alpha * square + (1 - alpha) * (d * d)
    spread = square
    if centered:
        state[0] = state[0] + (1 - alpha) * (d - state[0])
        spread = square - state[0] * state[0]
    d = d / (xp.sqrt(spread) + eps)
    if momentum:
        d = state[-1] = momentum * state[-1] + d
    return p - lr * d, square, *state, step + 1


def _in_place(
    p: Array,
    square: Array,
    *rest: Array,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
    maximize: bool,
) -> None:
    *kept, step, gradient, lr = rest
    step += 1
    rate = float(lr)
    for piece in chunks(p, square, gradient, *kept):
        p, square, g, *state = piece
        g = descent(p, g, weight_decay, maximize)
        scratch = g * g
        scratch *= 1 - alpha
        square *= alpha
        square += scratch
        if centered:
            mean = state[0]
            np.subtract(g, mean, out=scratch)
            scratch *= 1 - alpha
            mean += scratch
            np.multiply(mean, mean, out=scratch)
            np.subtract(square, scratch, out=scratch)
            np.sqrt(scratch, out=scratch)
        else:
            np.sqrt(square, out=scratch)
        scratch += eps
        np.divide(g, scratch, out=scratch)
        if momentum:
            buf = state[-1]
            buf *= momentum
            buf += scratch
            np.multiply(buf, rate, out=scratch)
        else:
            scratch *= rate
        p -= scratch


ATTRS = "alpha eps weight_decay momentum centered maximize"
#: by (centered, with momentum)
RULES = {
    (centered, momentum): rule(
        f"rmsprop{'_centered' * centered}{'_momentum' * momentum}_update",
        f"p square {'mean ' * centered}{'buf ' * momentum}step g lr",
        ATTRS,
        _rule,
        _in_place,
        outputs=3 + centered + momentum,
    )
    for centered in (False, True)
    for momentum in (False, True)
}


class RMSprop(RuleOptimizer):
    """RMSprop (Hinton, 2012): p -= lr * grad / (sqrt(mean of grad²) + eps).

    The mean is a running one: alpha * mean + (1 - alpha) * grad². `centered` divides by the
    standard deviation instead; `momentum` averages the steps.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.RMSprop([x], lr=0.25, alpha=0.75)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5, 1.5]
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "alpha", "eps", "weight_decay", "momentum")

    def rule_of(self, group: Group) -> tuple[Op, list[str]]:
        names = ["square_avg"]
        names += ["grad_avg"] if group["centered"] else []
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        return RULES[bool(group["centered"]), bool(group["momentum"] > 0)], names
