"""Further schedules: constant and polynomial factors, products, cycles, and several at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.changing_numbers import deferred
from weft.optim.lr_scheduler.base import LRScheduler, lr_of, per_group, set_lr
from weft.optim.lr_scheduler.cycles import momentum_option, set_momentum
from weft.optim.lr_scheduler.decay import Factor
from weft.optim.optimizer import Optimizer, OptimizerError


class ConstantLR(LRScheduler):
    """The initial rate times `factor` until `total_iters` epochs have passed."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < factor <= 1:
            raise OptimizerError(f"factor is above 0 and at most 1, not {factor}", op="ConstantLR")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self.rates()]
        if self.last_epoch == self.total_iters:
            return [rate / self.factor for rate in self.rates()]
        return self.rates()

    def restart_lr(self) -> list[float]:
        return [base * self.factor for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to 0 within `total_iters` epochs: (1 - epoch / total_iters) ** power.

    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._first or not 0 < self.last_epoch <= self.total_iters:
            return self.rates()
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return [rate * (left / before) ** self.power for rate in self.rates()]

    def restart_lr(self) -> list[float]:
        return self.base_lrs


class MultiplicativeLR(LRScheduler):
    """Each epoch times lr_lambda(epoch); a list of functions has one for each group."""

    _left_out = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1
    ) -> None:
        self._attach(optimizer)
        self.lr_lambdas: list[Factor] = per_group(lr_lambda, optimizer, "lr_lambda")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._first:
            return self.rates()
        pairs = zip(self.rates(), self.lr_lambdas, strict=True)
        return [rate * factor(self.last_epoch) for rate, factor in pairs]

    def restart_lr(self) -> list[float]:
        return self.base_lrs


_SCALES: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "triangular": ("cycle", lambda _gamma, _count: 1.0),
    "triangular2": ("cycle", lambda _gamma, cycle: 1 / 2.0 ** (cycle - 1)),
    "exp_range": ("iterations", lambda gamma, count: gamma**count),
}


class CyclicLR(LRScheduler):
    """Up and down between base_lr and max_lr in straight lines (Smith, 2015); called each batch.

    mode    "triangular"; "triangular2", where each cycle is half as high as the one before; or
            "exp_range", where the height falls by gamma ** iterations
    scale_fn, scale_mode    a height of your own, of the number of the "cycle" or of "iterations"

    Momentum goes the other way, between max_momentum and base_momentum.
    """

    _left_out = ("optimizer", "_scale_fn")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self._attach(optimizer)
        if mode not in _SCALES and scale_fn is None:
            raise OptimizerError(
                f"mode is one of {', '.join(_SCALES)}, not {mode!r}",
                op="CyclicLR",
                hint="or give a scale_fn",
            )
        if scale_mode not in ("cycle", "iterations"):
            raise OptimizerError(
                f"scale_mode is 'cycle' or 'iterations', not {scale_mode!r}", op="CyclicLR"
            )
        lows = per_group(base_lr, optimizer, "base_lr")
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                set_lr(group, low)
                group["initial_lr"] = low
        self.max_lrs = per_group(max_lr, optimizer, "max_lr")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _SCALES[mode][0]
        self.cycle_momentum = cycle_momentum
        self.base_momentums = per_group(base_momentum, optimizer, "base_momentum")
        self.max_momentums = per_group(max_momentum, optimizer, "max_momentum")
        self._momentum = momentum_option(optimizer, "CyclicLR") if cycle_momentum else ""
        super().__init__(optimizer, last_epoch)
        self.base_lrs = [float(low) for low in lows]

    def _height(self) -> float:
        """How far between the lowest and the highest value this step is."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        part = place / self.step_ratio if place <= self.step_ratio else None
        rise = part if part is not None else (place - 1) / (self.step_ratio - 1)
        at = float(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self._scale_fn is not None:
            return rise * self._scale_fn(at)
        return rise * _SCALES[self.mode][1](self.gamma, at)

    def get_lr(self) -> list[float]:
        height = self._height()
        if self.cycle_momentum:
            pairs = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, pairs, strict=True):
                set_momentum(group, self._momentum, high - (high - low) * height)
        limits = zip(self.base_lrs, self.max_lrs, strict=True)
        return [low + (high - low) * height for low, high in limits]


class ChainedScheduler:
    """Several schedules at once: each works on what the one before has left.

    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=1.0)
    >>> s = weft.optim.lr_scheduler
    >>> parts = [s.ConstantLR(optimizer, 0.5, total_iters=1), s.ExponentialLR(optimizer, 0.5)]
    >>> schedule = s.ChainedScheduler(parts)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise OptimizerError("there are no schedules to chain", op="ChainedScheduler")
        self.optimizer = optimizer or schedulers[0].optimizer
        for i, schedule in enumerate(schedulers):
            if not hasattr(schedule, "get_last_lr") or not hasattr(schedule, "rates"):
                raise OptimizerError(
                    f"schedule {i}, {type(schedule).__name__}, needs more than the epoch to go on",
                    op="ChainedScheduler",
                )
            if schedule.optimizer is not self.optimizer:
                raise OptimizerError(
                    f"schedule {i} belongs to another optimizer", op="ChainedScheduler"
                )
        self._schedulers = list(schedulers)

    @deferred
    def step(self) -> None:
        """Go on to the next epoch with each schedule in turn."""
        for schedule in self._schedulers:
            schedule.step()

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last schedule has set."""
        return [lr_of(group) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All that the schedules have to remember."""
        return {"_schedulers": [schedule.state_dict() for schedule in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        parts = state_dict.get("_schedulers", ())
        if len(parts) != len(self._schedulers):
            raise OptimizerError(
                f"the state dict has {len(parts)} schedules, and here are {len(self._schedulers)}",
                op="ChainedScheduler",
            )
        for schedule, part in zip(self._schedulers, parts, strict=True):
            schedule.load_state_dict(part)
