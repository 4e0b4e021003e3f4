"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.ops.creation import zeros_like
from weft.ops.update_rules import Array, apply, descent, rule
from weft.optim.blas import add_scaled, scale
from weft.optim.optimizer import Group, OptimizerError, Params
from weft.optim.rate import rate_of
from weft.optim.rule_optimizer import RuleOptimizer

# --- p - lr * g --------------------------------------------------------------------------------


def _plain(xp: Any, p: Any, g: Any, lr: Any, *, weight_decay: float, maximize: bool) -> Any:
    d = descent(p, g, weight_decay, maximize)
    return p - lr * d


def _plain_in_place(p: Array, g: Array, lr: Array, *, weight_decay: float, maximize: bool) -> None:
    rate = float(lr)
    if weight_decay:
        scale(p, 1 - rate * weight_decay)
    add_scaled(p, g, rate if maximize else -rate)


sgd_update = rule(
    "sgd_update",
    "p g lr",
    "weight_decay maximize",
    _plain,
    _plain_in_place,
    outputs=1,
    kinds="floating",
)

# --- the same with momentum: p - lr * buf, buf = momentum * buf + (1 - dampening) * g -------------


def _momentum(
    xp: Any,
    p: Any,
    buf: Any,
    g: Any,
    lr: Any,
    *,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
) -> tuple[Any, Any]:
    d = descent(p, g, weight_decay, maximize)
    buf = momentum * buf + (1 - dampening) * d
    return p - lr * (d + momentum * buf if nesterov else buf), buf


def _momentum_in_place(
    p: Array,
    buf: Array,
    g: Array,
    lr: Array,
    *,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    rate = float(lr)
    sign = -1.0 if maximize else 1.0
    scale(buf, momentum)
    add_scaled(buf, g, sign * (1 - dampening))
    if weight_decay:
        add_scaled(buf, p, weight_decay * (1 - dampening))
    if nesterov:  # lr * (g + weight_decay * p + momentum * buf)
        if weight_decay:
            scale(p, 1 - rate * weight_decay)
        add_scaled(p, g, -rate * sign)
        rate *= momentum
    add_scaled(p, buf, -rate)


sgd_momentum_update = rule(
    "sgd_momentum_update",
    "p buf g lr",
    "momentum dampening weight_decay nesterov maximize",
    _momentum,
    _momentum_in_place,
    outputs=2,
    kinds="floating",
)


class SGD(RuleOptimizer):
    """Stochastic gradient descent: p -= lr * grad, optionally with momentum.

    With momentum the gradients are first averaged into `momentum_buffer`:
    buf = momentum * buf + (1 - dampening) * grad. Nesterov's variant looks one step ahead.
    `weight_decay` adds weight_decay * p to the gradient; `maximize` climbs.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=0.1)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.800000011920929, 1.600000023841858]
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise OptimizerError(
                "nesterov needs a momentum above 0 and no dampening",
                op="SGD",
                hint="say SGD(…, momentum=0.9, nesterov=True)",
            )

    def keeps_state(self, group: Group) -> bool:
        return bool(group["momentum"] != 0)

    def first_state(self, p: Tensor, state: dict[str, Any], group: Group) -> None:
        if group["dampening"] == 0:  # else the first step is another one than those that follow
            state["momentum_buffer"] = zeros_like(p)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        lr = rate_of(p, group)
        if group["momentum"] == 0:
            apply(
                sgd_update,
                p,
                grad,
                lr,
                weight_decay=group["weight_decay"],
                maximize=group["maximize"],
            )
            return
        first = state.get("momentum_buffer") is None
        if first:  # the buffer becomes the first gradient, undamped
            state["momentum_buffer"] = zeros_like(p)
        apply(
            sgd_momentum_update,
            p,
            state["momentum_buffer"],
            grad,
            lr,
            momentum=group["momentum"],
            dampening=0.0 if first else group["dampening"],
            weight_decay=group["weight_decay"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
