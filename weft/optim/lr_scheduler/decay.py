"""Schedules that lower, or first raise, the learning rate by a formula of the epoch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.core.changing_numbers import deferred
from weft.optim.lr_scheduler.base import LRScheduler, per_group, set_lr
from weft.optim.optimizer import Optimizer, OptimizerError

Factor = Callable[[int], float]


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(epoch); a list of functions has one for each group.

    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=8.0)
    >>> schedule = weft.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [4.0]
    """

    _left_out = ("optimizer", "lr_lambdas")

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1
    ) -> None:
        self._attach(optimizer)
        self.lr_lambdas: list[Factor] = per_group(lr_lambda, optimizer, "lr_lambda")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * factor(self.last_epoch) for base, factor in pairs]


class StepLR(LRScheduler):
    """Times `gamma` after every `step_size` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise OptimizerError(f"step_size must be at least 1: {step_size}", op="StepLR")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma if falls else rate for rate in self.rates()]

    def restart_lr(self) -> list[float]:
        return self.base_lrs


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the epochs `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        times = self.milestones.get(self.last_epoch, 0)
        return [rate * self.gamma**times if times else rate for rate in self.rates()]

    def restart_lr(self) -> list[float]:
        return [base * self.gamma ** self.milestones.get(0, 0) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times `gamma` each epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [rate if self._first else rate * self.gamma for rate in self.rates()]

    def restart_lr(self) -> list[float]:
        return self.base_lrs


class LinearLR(LRScheduler):
    """From start_factor to end_factor times the initial rate within `total_iters`: warm-up.

    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    >>> for epoch in range(4):
    ...     print(optimizer.param_groups[0]["lr"])
    ...     schedule.step()
    0.25
    0.5
    0.75
    1.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not (0 < start_factor <= 1 and 0 <= end_factor <= 1):
            raise OptimizerError(
                f"factors are above 0 (the end: from 0 up) and at most 1, not {start_factor} and "
                f"{end_factor}",
                op="LinearLR",
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self.rates()]
        if self._first or self.last_epoch > self.total_iters:
            return self.rates()
        span = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * span
        return [rate * (1.0 + span / before) for rate in self.rates()]

    def restart_lr(self) -> list[float]:
        return [base * self.start_factor for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Down to `eta_min` within `T_max` epochs along half a cosine, then up again."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> list[float]:
        epoch = self.last_epoch
        if self._first:
            return self.rates()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the rate before was eta_min
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - self.eta_min) * rise
                for base, rate in zip(self.base_lrs, self.rates(), strict=True)
            ]
        factor = self._height(epoch) / self._height(epoch - 1)
        return [factor * (rate - self.eta_min) + self.eta_min for rate in self.rates()]

    def restart_lr(self) -> list[float]:
        return self.base_lrs


class SequentialLR(LRScheduler):
    """One schedule after the other: the next one begins at each of the epochs `milestones`.

    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=1.0)
    >>> warm_up = weft.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> decay = weft.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> schedule = weft.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [2])
    >>> for epoch in range(4):
    ...     print(optimizer.param_groups[0]["lr"])
    ...     schedule.step()
    0.5
    0.75
    1.0
    0.5
    """

    _left_out = ("optimizer", "_schedulers")

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self._attach(optimizer)
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise OptimizerError(
                f"{len(schedulers)} schedules need {max(len(schedulers) - 1, 0)} milestones "
                f"between them, not {len(milestones)}",
                op="SequentialLR",
            )
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "base_lrs"):
                raise OptimizerError(
                    f"schedule {i}, {type(scheduler).__name__}, needs more than the epoch to go on",
                    op="SequentialLR",
                )
            if scheduler.optimizer is not optimizer:
                raise OptimizerError(
                    f"schedule {i} belongs to another optimizer", op="SequentialLR"
                )
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        # Each schedule took its first step when it was made: that is undone, for all but the first
        # are not to begin yet.
        for group in optimizer.param_groups:
            set_lr(group, group["initial_lr"])
        for scheduler in schedulers:
            scheduler._undo()
        scheduler = self._schedulers[bisect_right(self._milestones, 0)]
        scheduler._begin()
        self._last_lr = scheduler.get_last_lr()

    def _undo(self) -> None:
        for scheduler in self._schedulers:
            scheduler._undo()

    @deferred
    def step(self) -> None:
        """Go on to the next epoch."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at and self._milestones[at - 1] == self.last_epoch:
            scheduler.restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule and its parts have to remember."""
        parts = [scheduler.state_dict() for scheduler in self._schedulers]
        return super().state_dict() | {"_schedulers": parts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        own = {key: value for key, value in state_dict.items() if key != "_schedulers"}
        parts = state_dict.get("_schedulers", ())
        if len(parts) != len(self._schedulers):
            raise OptimizerError(
                f"the state dict has {len(parts)} schedules, and here are {len(self._schedulers)}",
                op="SequentialLR",
            )
        super().load_state_dict(own | {"_schedulers": self._schedulers})
        for scheduler, part in zip(self._schedulers, parts, strict=True):
            scheduler.load_state_dict(part)
