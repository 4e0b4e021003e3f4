"""Optimizers that use the sign of the gradient, or averages of the weights: Lion, Rprop, ASGD."""

from __future__ import annotations

from typing import Any

from weft.core.operands import as_number
from weft.core.tensor import Tensor
from weft.ops.creation import full, full_like, zeros_like
from weft.ops.update_rules import by_evaluation, descent, number, rule
from weft.optim.optimizer import Group, OptimizerError, Params
from weft.optim.rule_optimizer import RuleOptimizer

# --- the rules ---------------------------------------------------------------------------------


def _lion(
    xp: Any,
    p: Any,
    m: Any,
    g: Any,
    lr: Any,
    *,
    betas: tuple[float, float],
    weight_decay: float,
    maximize: bool,
) -> tuple[Any, ...]:
    d = -g if maximize else g
    if weight_decay:
        p = p - lr * weight_decay * p
    p = p - lr * xp.sign(betas[0] * m + (1 - betas[0]) * d)
    return p, betas[1] * m + (1 - betas[1]) * d


def _rprop(
    xp: Any,
    p: Any,
    before: Any,
    width: Any,
    step: Any,
    g: Any,
    *,
    etas: tuple[float, float],
    step_sizes: tuple[float, float],
    maximize: bool,
) -> tuple[Any, ...]:
    d = -g if maximize else g
    turn = xp.sign(d * before)
    factor = xp.where(turn > 0, etas[1], xp.where(turn < 0, etas[0], 1.0))
    width = width * factor
    width = xp.where(width < step_sizes[0], step_sizes[0], width)
    width = xp.where(width > step_sizes[1], step_sizes[1], width)
    d = xp.where(turn < 0, 0.0, d)  # where the sign has changed, wait
    return p - xp.sign(d) * width, d, width, step + 1


def _asgd(
    xp: Any,
    p: Any,
    ax: Any,
    eta: Any,
    mu: Any,
    step: Any,
    g: Any,
    lr: Any,
    *,
    lambd: float,
    alpha: float,
    t0: float,
    weight_decay: float,
    maximize: bool,
) -> tuple[Any, ...]:
    d = descent(p, g, weight_decay, maximize)
    step = step + 1
    t = number(xp, step, xp.float64)
    rate, share = number(xp, eta, p.dtype), number(xp, mu, p.dtype)
    p = p * (1 - lambd * rate) - rate * d
    ax = xp.where(share == 1, p, ax + (p - ax) * share)
    eta = number(xp, lr / (1 + lambd * lr * t) ** alpha, eta.dtype)
    mu = number(xp, 1 / xp.maximum(t - t0, xp.ones_like(t)), mu.dtype)
    return p, ax, eta, mu, step


lion_update = rule(
    "lion_update",
    "p m g lr",
    "betas weight_decay maximize",
    _lion,
    by_evaluation("p m g lr", 2, _lion),
    outputs=2,
)
rprop_update = rule(
    "rprop_update",
    "p before width step g",
    "etas step_sizes maximize",
    _rprop,
    by_evaluation("p before width step g", 4, _rprop),
    outputs=4,
)
asgd_update = rule(
    "asgd_update",
    "p ax eta mu step g lr",
    "lambd alpha t0 weight_decay maximize",
    _asgd,
    by_evaluation("p ax eta mu step g lr", 5, _asgd),
    outputs=5,
)

# --- the optimizers ----------------------------------------------------------------------------


class Lion(RuleOptimizer):
    """Lion (Chen and others, 2023): steps of one size, in the direction of the sign of a mean.

    m = b2 * m + (1 - b2) * grad; p -= lr * (sign(b1 * m + (1 - b1) * grad) + weight_decay * p).
    It keeps half of Adam's state, and takes a rate three to ten times smaller.

    >>> x = weft.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = weft.optim.Lion([x], lr=0.25)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.75, -1.75]
    """

    _rule = lion_update
    _state = ("exp_avg",)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params, flags, lr=lr, betas=tuple(betas), weight_decay=weight_decay, maximize=maximize
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "weight_decay")
        self._below_one(group, "betas")


class Rprop(RuleOptimizer):
    """Resilient propagation (Riedmiller and Braun, 1993), for gradients of whole datasets.

    Each weight has a step of its own that grows while the gradient keeps its sign, and shrinks when
    the sign changes.
    """

    _rule = rprop_update
    _state = ("prev", "step_size")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params, flags, lr=lr, etas=tuple(etas), step_sizes=tuple(step_sizes), maximize=maximize
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr")
        if not 0 < group["etas"][0] < 1 < group["etas"][1]:
            raise OptimizerError(
                f"etas are a factor below 1 and one above it: {group['etas']}", op="Rprop"
            )

    def first_value(self, name: str, p: Tensor, group: Group) -> Tensor:
        return zeros_like(p) if name == "prev" else full_like(p, as_number(group["lr"], "Rprop"))


class ASGD(RuleOptimizer):
    """Averaged gradient descent (Polyak and Juditsky, 1992): state["ax"] is the mean weight.

    The rate falls as lr / (1 + lambd * lr * step) ** alpha; the mean begins after `t0` steps.
    """

    _rule = asgd_update
    _state = ("ax", "eta", "mu")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            lambd=lambd,
            alpha=alpha,
            t0=t0,
            weight_decay=weight_decay,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "weight_decay")

    def first_value(self, name: str, p: Tensor, group: Group) -> Tensor:
        if name == "ax":
            return zeros_like(p)
        value = 1.0 if name == "mu" else as_number(group["lr"], "ASGD")
        return full((), value, dtype="float32", device=p.device)
