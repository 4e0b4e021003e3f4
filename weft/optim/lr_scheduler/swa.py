"""SWALR: down, or up, to a constant rate for the time in which weights are averaged."""

from __future__ import annotations

import math

from weft.optim.lr_scheduler.base import LRScheduler, per_group
from weft.optim.optimizer import Optimizer, OptimizerError


class SWALR(LRScheduler):
    """From the rate of now to `swa_lr` within `anneal_epochs`, and then that rate."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        self._attach(optimizer)
        if anneal_strategy not in ("cos", "linear"):
            raise OptimizerError(
                f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}", op="SWALR"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise OptimizerError(f"anneal_epochs must be an int from 0 up: {anneal_epochs}")
        rates = per_group(swa_lr, optimizer, "swa_lr")
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self._strategy = anneal_strategy
        self._steps = -1  # of this schedule: another may have come before it
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """How far on the way to swa_lr a step is."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        self._steps += 1
        step = self._steps if self.anneal_epochs else max(1, self._steps)
        before, now = self._part(step - 1), self._part(step)
        found = []
        for group, rate in zip(self.optimizer.param_groups, self.rates(), strict=True):
            end = group["swa_lr"]
            start = end if before == 1 else (rate - before * end) / (1 - before)
            found.append(end * now + start * (1 - now))
        return found
