"""Adagrad and Adadelta: steps scaled by the squares of all gradients so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.ops.creation import full_like
from weft.ops.update_rules import Array, chunks, descent, rule
from weft.optim.optimizer import Group, OptimizerError, Params
from weft.optim.rule_optimizer import RuleOptimizer

# --- Adagrad -----------------------------------------------------------------------------------


def _adagrad(
    xp: Any,
    p: Any,
    total: Any,
    step: Any,
    g: Any,
    lr: Any,
    *,
    lr_decay: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> tuple[Any, ...]:
    d = descent(p, g, weight_decay, maximize)
    rate = lr / (1 + xp.astype(step, p.dtype) * lr_decay)
    total = total + d * d
    return p - rate * (d / (xp.sqrt(total) + eps)), total, step + 1


def _adagrad_in_place(
    p: Array,
    total: Array,
    step: Array,
    g: Array,
    lr: Array,
    *,
    lr_decay: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    rate = float(lr) / (1 + float(step) * lr_decay)
    step += 1
    for piece in chunks(p, total, g):
        p, total, g = piece
        g = descent(p, g, weight_decay, maximize)
        scratch = g * g
        total += scratch
        np.sqrt(total, out=scratch)
        scratch += eps
        np.divide(g, scratch, out=scratch)
        scratch *= rate
        p -= scratch


adagrad_update = rule(
    "adagrad_update",
    "p total step g lr",
    "lr_decay eps weight_decay maximize",
    _adagrad,
    _adagrad_in_place,
    outputs=3,
)


class Adagrad(RuleOptimizer):
    """Adagrad (Duchi and others, 2011): p -= lr * grad / (sqrt(sum of all grad²) + eps).

    The sum starts from `initial_accumulator_value`; after n steps the learning rate is
    lr / (1 + n * lr_decay).

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adagrad([x], lr=0.5)
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5, 1.5]
    """

    _rule = adagrad_update
    _state = ("sum",)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            lr_decay=lr_decay,
            eps=eps,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        start = "initial_accumulator_value"
        self._at_least_zero(group, "lr", "lr_decay", "eps", "weight_decay", start)

    def first_value(self, name: str, p: Tensor, group: Group) -> Tensor:
        return full_like(p, group["initial_accumulator_value"])


# --- Adadelta ----------------------------------------------------------------------------------


def _adadelta(
    xp: Any,
    p: Any,
    square: Any,
    moved: Any,
    step: Any,
    g: Any,
    lr: Any,
    *,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> tuple[Any, ...]:
    d = descent(p, g, weight_decay, maximize)
    square = rho * square + (1 - rho) * (d * d)
    d = xp.sqrt(moved + eps) / xp.sqrt(square + eps) * d
    return p - lr * d, square, rho * moved + (1 - rho) * (d * d), step + 1


def _adadelta_in_place(
    p: Array,
    square: Array,
    moved: Array,
    step: Array,
    g: Array,
    lr: Array,
    *,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    rate = float(lr)
    step += 1
    for piece in chunks(p, square, moved, g):
        p, square, moved, g = piece
        g = descent(p, g, weight_decay, maximize)
        scratch = g * g
        scratch *= 1 - rho
        square *= rho
        square += scratch
        delta = square + eps
        np.add(moved, eps, out=scratch)
        np.divide(scratch, delta, out=delta)
        np.sqrt(delta, out=delta)
        delta *= g
        np.multiply(delta, delta, out=scratch)
        scratch *= 1 - rho
        moved *= rho
        moved += scratch
        delta *= rate
        p -= delta


adadelta_update = rule(
    "adadelta_update",
    "p square moved step g lr",
    "rho eps weight_decay maximize",
    _adadelta,
    _adadelta_in_place,
    outputs=4,
)


class Adadelta(RuleOptimizer):
    """Adadelta (Zeiler, 2012): each step is as large as the steps before it were on average.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.Adadelta([x])
    >>> (x**2).sum().backward()
    >>> optimizer.step()
    >>> bool((x < weft.tensor([1.0, 2.0])).all())
    True
    """

    _rule = adadelta_update
    _state = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params, flags, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "rho", "eps", "weight_decay")
        if group["rho"] > 1:
            raise OptimizerError(f"rho must not exceed 1: {group['rho']}", op="Adadelta")
