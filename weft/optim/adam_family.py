"""Relatives of Adam: NAdam, RAdam, Adamax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ops.creation import ones, zeros_like
from weft.ops.update_rules import by_evaluation, descent, number, rule
from weft.optim.optimizer import Group, Params
from weft.optim.rate import option_of
from weft.optim.rule_optimizer import RuleOptimizer

# --- the rules ---------------------------------------------------------------------------------


def _decayed(p: Any, g: Any, lr: Any, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """The parameter and the direction after weight decay."""
    decay = attrs["weight_decay"]
    if decay and attrs["decoupled"]:
        return p - lr * decay * p, descent(p, g, 0, attrs["maximize"])
    return p, descent(p, g, decay, attrs["maximize"])


def _moments(m: Any, v: Any, d: Any, betas: tuple[float, float]) -> tuple[Any, Any]:
    m = m + (1 - betas[0]) * (d - m)
    return m, betas[1] * v + (1 - betas[1]) * (d * d)


def _nadam(
    xp: Any, p: Any, m: Any, v: Any, mu_product: Any, step: Any, g: Any, lr: Any, **attrs: Any
) -> tuple[Any, ...]:
    beta1, beta2 = attrs["betas"]
    p, d = _decayed(p, g, lr, attrs)
    m, v = _moments(m, v, d, attrs["betas"])
    step = step + 1
    t = number(xp, step, xp.float64)
    mu = beta1 * (1 - 0.5 * 0.96 ** (t * attrs["momentum_decay"]))
    after = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * attrs["momentum_decay"]))
    mu_product = mu_product * number(xp, mu, mu_product.dtype)
    product = number(xp, mu_product, xp.float64)
    root = xp.sqrt(v / number(xp, 1 - beta2**t, p.dtype)) + attrs["eps"]
    p = p - number(xp, lr * (1 - mu) / (1 - product), p.dtype) * (d / root)
    p = p - number(xp, lr * after / (1 - product * after), p.dtype) * (m / root)
    return p, m, v, mu_product, step


def _radam(
    xp: Any, p: Any, m: Any, v: Any, step: Any, g: Any, lr: Any, **attrs: Any
) -> tuple[Any, ...]:
    beta1, beta2 = attrs["betas"]
    p, d = _decayed(p, g, lr, attrs)
    m, v = _moments(m, v, d, attrs["betas"])
    step = step + 1
    t = number(xp, step, xp.float64)
    rest = 1 - beta2**t
    most = 2 / (1 - beta2) - 1
    length = most - 2 * t * (1 - rest) / rest
    enough = length > 5  # before, the variance is not known well enough to divide by
    safe = xp.where(enough, length, 6.0)
    shrink = ((safe - 4) * (safe - 2) * most) / ((most - 4) * (most - 2) * safe)
    scale = number(xp, xp.sqrt(shrink * rest), p.dtype) / (xp.sqrt(v) + attrs["eps"])
    rate = number(xp, lr / (1 - beta1**t), p.dtype)
    return p - rate * m * xp.where(enough, scale, 1.0), m, v, step


def _adamax(
    xp: Any, p: Any, m: Any, u: Any, step: Any, g: Any, lr: Any, **attrs: Any
) -> tuple[Any, ...]:
    beta1, beta2 = attrs["betas"]
    p, d = _decayed(p, g, lr, attrs)
    m = m + (1 - beta1) * (d - m)
    u = xp.maximum(beta2 * u, xp.abs(d) + attrs["eps"])
    step = step + 1
    t = number(xp, step, xp.float64)
    return p - number(xp, lr / (1 - beta1**t), p.dtype) * (m / u), m, u, step


def _card(name: str, operands: str, attrs: str, evaluate: Any, outputs: int) -> Op:
    kernel = by_evaluation(operands, outputs, evaluate)
    return rule(name, operands, attrs, evaluate, kernel, outputs=outputs)


_ATTRS = "betas eps weight_decay decoupled maximize"
nadam_update = _card(
    "nadam_update", "p m v mu_product step g lr", f"{_ATTRS} momentum_decay", _nadam, 5
)
radam_update = _card("radam_update", "p m v step g lr", _ATTRS, _radam, 4)
adamax_update = _card("adamax_update", "p m v step g lr", _ATTRS, _adamax, 4)

# --- the optimizers ----------------------------------------------------------------------------


class _Moments(RuleOptimizer):
    """What the three share: two averages and a count of steps for each parameter."""

    _state: Sequence[str] = ("exp_avg", "exp_avg_sq")

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "eps", "weight_decay")
        self._below_one(group, "betas")

    def first_value(self, name: str, p: Tensor, group: Group) -> Tensor:
        if name == "mu_product":
            return ones((), dtype="float32", device=p.device)
        return zeros_like(p)

    def attrs_of(self, rule: Op, group: Group) -> dict[str, Any]:
        attrs = {name: option_of(group, name) for name in rule.attrs if name != "decoupled"}
        return {**attrs, "decoupled": bool(group.get("decoupled_weight_decay", False))}


class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat, 2016): the step looks ahead to the next average.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.NAdam([x], lr=0.1)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> bool((x < weft.tensor([1.0, 2.0])).all())
    True
    """

    _rule = nadam_update
    _state = ("exp_avg", "exp_avg_sq", "mu_product")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
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
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        super()._check_options(group)
        self._at_least_zero(group, "momentum_decay")


class RAdam(_Moments):
    """Rectified Adam (Liu and others, 2019): plain momentum until the variance is known."""

    _rule = radam_update

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
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
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )


class Adamax(_Moments):
    """Adam with the largest gradient in place of the mean square (Kingma and Ba, 2014)."""

    _rule = adamax_update
    _state = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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
            maximize=maximize,
        )
