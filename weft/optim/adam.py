"""Adam and AdamW: steps scaled by running averages of the gradient and of its square."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.ops.creation import zeros_like
from weft.ops.update_rules import Array, apply, chunks, number, rule
from weft.optim.optimizer import Group, Params, new_count
from weft.optim.rate import option_of, rate_of
from weft.optim.rule_optimizer import RuleOptimizer

# --- the rule ----------------------------------------------------------------------------------
# m, v, peak: the averages of the gradient and of its square, and (amsgrad) the largest v so far.


def _rule(
    xp: Any,
    p: Any,
    m: Any,
    v: Any,
    step: Any,
    g: Any,
    lr: Any,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
    peak: Any = None,
) -> tuple[Any, ...]:
    d = -g if maximize else g
    if weight_decay:
        if decoupled:
            p = p - lr * weight_decay * p
        else:
            d = d + weight_decay * p
    m = m + (1 - betas[0]) * (d - m)
    v = betas[1] * v + (1 - betas[1]) * (d * d)
    step = step + 1
    t = number(xp, step, xp.float64)
    root = xp.sqrt(1 - betas[1] ** t)
    rate = number(xp, lr * root / (1 - betas[0] ** t), p.dtype)
    root = number(xp, root, p.dtype)
    if peak is None:
        return p - rate * (m / (xp.sqrt(v) + eps * root)), m, v, step
    peak = xp.maximum(peak, v)
    return p - rate * (m / (xp.sqrt(peak) + eps * root)), m, v, peak, step


def _in_place(
    p: Array,
    m: Array,
    v: Array,
    step: Array,
    g: Array,
    lr: Array,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
    peak: Array | None = None,
) -> None:
    beta1, beta2 = betas
    step += 1
    root = math.sqrt(1 - beta2 ** float(step))
    rate = float(lr) * root / (1 - beta1 ** float(step))
    for piece in chunks(p, m, v, g, *(() if peak is None else (peak,))):
        p, m, v, g, *peaks = piece
        if weight_decay and decoupled:
            p *= 1 - float(lr) * weight_decay
        if maximize:
            g = -g
        if weight_decay and not decoupled:
            g = g + weight_decay * p
        scratch = g - m
        scratch *= 1 - beta1
        m += scratch
        np.multiply(g, g, out=scratch)
        scratch *= 1 - beta2
        v *= beta2
        v += scratch
        for largest in peaks:
            np.maximum(largest, v, out=largest)
        np.sqrt(peaks[0] if peaks else v, out=scratch)
        scratch += eps * root
        np.divide(m, scratch, out=scratch)
        scratch *= rate
        p -= scratch


ATTRS = "betas eps weight_decay decoupled maximize"
adam_update = rule("adam_update", "p m v step g lr", ATTRS, _rule, _in_place, outputs=4)


def _amsgrad(
    xp: Any, p: Any, m: Any, v: Any, peak: Any, step: Any, g: Any, lr: Any, **attrs: Any
) -> tuple[Any, ...]:
    return _rule(xp, p, m, v, step, g, lr, peak=peak, **attrs)


def _amsgrad_in_place(
    p: Array, m: Array, v: Array, peak: Array, step: Array, g: Array, lr: Array, **attrs: Any
) -> None:
    _in_place(p, m, v, step, g, lr, peak=peak, **attrs)


amsgrad_update = rule(
    "amsgrad_update", "p m v peak step g lr", ATTRS, _amsgrad, _amsgrad_in_place, outputs=5
)

# --- the optimizers ----------------------------------------------------------------------------


class Adam(RuleOptimizer):
    """Adam (Kingma and Ba, 2014).

    m = b1 * m + (1 - b1) * grad, v = b2 * v + (1 - b2) * grad², both corrected for their start
    at zero: p -= lr * m / (sqrt(v) + eps). `amsgrad` divides by the largest v so far.
    `weight_decay` adds weight_decay * p to the gradient; AdamW shrinks p itself instead.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adam([x], lr=0.5)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5, 1.5]
    """

    _decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            betas=tuple(betas),
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "eps", "weight_decay")
        self._below_one(group, "betas")

    def first_state(self, p: Tensor, state: dict[str, Any], group: Group) -> None:
        state["step"] = new_count(p)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        if "step" not in state:
            self.first_state(p, state, group)
        moments = [state["exp_avg"], state["exp_avg_sq"]]
        if group["amsgrad"]:
            if "max_exp_avg_sq" not in state:  # the option was set after the first step
                state["max_exp_avg_sq"] = zeros_like(p)
            moments.append(state["max_exp_avg_sq"])
        apply(
            amsgrad_update if group["amsgrad"] else adam_update,
            p,
            *moments,
            state["step"],
            grad,
            rate_of(p, group),
            betas=option_of(group, "betas"),
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            decoupled=self._decoupled,
            maximize=group["maximize"],
        )


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017): p *= 1 - lr * weight_decay.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> weft.optim.AdamW([x])
    AdamW (
    Parameter Group 0: 1 tensors, 2 numbers
        amsgrad: False
        betas: (0.9, 0.999)
        eps: 1e-08
        lr: 0.001
        maximize: False
        weight_decay: 0.01
    )
    """

    _decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, **flags)
