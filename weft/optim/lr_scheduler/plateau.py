"""A schedule that looks at how training goes."""

from __future__ import annotations

import math
from typing import Any

from weft.core.changing_numbers import deferred
from weft.optim.lr_scheduler.base import LRScheduler, lr_of, per_group, set_lr
from weft.optim.optimizer import Optimizer, OptimizerError


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a metric has not become better for more than `patience` epochs.

    mode            "min" where less is better, "max" where more is
    threshold       what counts as better: by this part of the best ("rel") or by this much ("abs")
    cooldown        epochs after a change in which nothing counts
    min_lr          where to stop, for all groups or each; changes smaller than `eps` are not made

    >>> x = weft.tensor([1.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([x], lr=1.0)
    >>> schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        self._attach(optimizer)
        if factor >= 1:
            raise OptimizerError(f"factor must be below 1: {factor}", op="ReduceLROnPlateau")
        for name, value, known in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            if value not in known:
                raise OptimizerError(
                    f"{name} is one of {known}, not {value!r}", op="ReduceLROnPlateau"
                )
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs: list[float] = per_group(min_lr, optimizer, "min_lr")
        self.eps = eps
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = self.rates()

    @deferred
    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Go on to the next epoch, of which `metrics` is what counts: a number or 0-d tensor."""
        current = float(metrics)
        self.last_epoch += 1
        if self._better(current):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self.rates()

    def _better(self, current: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bar = self.best * (1 + sign * self.threshold)
        else:
            bar = self.best + sign * self.threshold
        return sign * current > sign * bar

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            before = lr_of(group)
            after = max(before * self.factor, least)
            if before - after > self.eps:
                set_lr(group, after)
