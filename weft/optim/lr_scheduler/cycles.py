"""Schedules that rise and fall: cosine with restarts, and one cycle."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

from weft.core.changing_numbers import deferred
from weft.optim.lr_scheduler.base import LRScheduler, per_group
from weft.optim.optimizer import Group, Optimizer, OptimizerError


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` along half a cosine, then at once back up, and again.

    The first cycle lasts T_0 epochs, each further one T_mult times as many. `step(epoch)` with a
    fraction goes on within an epoch: step(epoch + batch / batches).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise OptimizerError(
                    f"{name} must be an int of at least 1: {value!r}",
                    op="CosineAnnealingWarmRestarts",
                )
        self.T_0 = T_0
        self.T_i: float = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def restart_lr(self) -> list[float]:
        self._place(0)
        return self.get_lr()

    @deferred
    def step(self, epoch: float | None = None) -> None:
        """Go on to the next epoch, or to the one given."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            self.last_epoch += 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise OptimizerError(f"there is no epoch {epoch}", op=type(self).__name__)
            self._place(epoch)
            self.last_epoch = math.floor(epoch)
        self._use(self.get_lr())

    def _place(self, epoch: float) -> None:
        """Find the cycle that an epoch lies in, and the place in it."""
        self.T_cur, self.T_i = epoch, self.T_0
        if epoch >= self.T_0 and self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        elif epoch >= self.T_0:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**cycle


def _cosine(start: float, end: float, part: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


def _line(start: float, end: float, part: float) -> float:
    return (end - start) * part + start


WAYS = {"cos": _cosine, "linear": _line}


class OneCycleLR(LRScheduler):
    """One cycle (Smith and Topin, 2017): up to max_lr, then far down; momentum the other way.

    It is called after each batch. The rate starts at max_lr / div_factor, peaks after `pct_start`
    of all steps, and ends at its start / final_div_factor. With `three_phase` it first returns to
    its start.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self._attach(optimizer)
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise OptimizerError(f"pct_start is from 0 to 1, not {pct_start}", op="OneCycleLR")
        if anneal_strategy not in WAYS:
            raise OptimizerError(
                f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}", op="OneCycleLR"
            )
        self._way = anneal_strategy
        peak = pct_start * self.total_steps - 1
        # Each phase: its last step, then the keys of a group between whose values the rate and
        # the momentum go.
        up: tuple[Any, ...] = (peak, "initial_lr", "max_lr", "max_momentum", "base_momentum")
        end = self.total_steps - 1
        if three_phase:
            back = 2 * pct_start * self.total_steps - 2
            self._phases = [
                up,
                (back, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                (end, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            self._phases = [up, (end, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        self.cycle_momentum = cycle_momentum
        self._momentum = momentum_option(optimizer, "OneCycleLR") if cycle_momentum else ""
        if last_epoch == -1:
            rates = per_group(max_lr, optimizer, "max_lr")
            low = per_group(base_momentum, optimizer, "base_momentum")
            high = per_group(max_momentum, optimizer, "max_momentum")
            for i, group in enumerate(optimizer.param_groups):
                group["initial_lr"] = rates[i] / div_factor
                group["max_lr"] = rates[i]
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["base_momentum"], group["max_momentum"] = low[i], high[i]
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch > self.total_steps:
            raise OptimizerError(
                f"step {self.last_epoch} of a cycle of {self.total_steps} steps",
                op="OneCycleLR",
                hint="total_steps is the number of batches in all epochs together",
            )
        ends = [phase[0] for phase in self._phases[:-1]]
        now = bisect_left(ends, self.last_epoch)
        start = ends[now - 1] if now else 0.0
        end, rate_from, rate_to, momentum_from, momentum_to = self._phases[now]
        part = (self.last_epoch - start) / (end - start)
        way = WAYS[self._way]
        for group in self.optimizer.param_groups:
            if self.cycle_momentum:
                value = way(group[momentum_from], group[momentum_to], part)
                set_momentum(group, self._momentum, value)
        return [
            way(group[rate_from], group[rate_to], part) for group in self.optimizer.param_groups
        ]


def set_momentum(group: Group, option: str, value: float) -> None:
    """A new momentum, or first beta, of a group."""
    group[option] = (value, *group["betas"][1:]) if option == "betas" else value


def _total(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None and epochs is not None and steps_per_epoch is not None:
        total_steps = epochs * steps_per_epoch
    if not isinstance(total_steps, int) or total_steps < 1:
        raise OptimizerError(
            "the number of steps is not known, or not an int of at least 1",
            op="OneCycleLR",
            hint="give total_steps, or epochs and steps_per_epoch",
        )
    return total_steps


def momentum_option(optimizer: Optimizer, schedule: str) -> str:
    """What option of an optimizer is its momentum."""
    for option in ("betas", "momentum"):
        if option in optimizer.defaults:
            return option
    raise OptimizerError(
        f"{type(optimizer).__name__} has no momentum to cycle",
        op=schedule,
        hint="say cycle_momentum=False",
    )
