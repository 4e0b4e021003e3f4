"""What learning-rate schedules have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import DTypeError
from weft.core.changing_numbers import deferred
from weft.core.grad_mode import no_grad
from weft.core.operands import as_number, assign
from weft.core.tensor import Tensor
from weft.ops.creation import full_like
from weft.optim.optimizer import Group, Optimizer, OptimizerError


def lr_of(group: Group) -> float:
    rate: float = as_number(group["lr"], "lr_scheduler")
    return rate


def set_lr(group: Group, value: float) -> None:
    """A new learning rate; one that is a tensor stays that tensor, as a captured step reads it."""
    if isinstance(group["lr"], Tensor):
        with no_grad():
            assign(group["lr"], full_like(group["lr"], value), "lr_scheduler")
    else:
        group["lr"] = value


def per_group(value: Any, optimizer: Optimizer, name: str) -> list[Any]:
    """An option that is one value for all groups, or a list with one for each."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise OptimizerError(
            f"{name} has {len(value)} values, and the optimizer {count} parameter groups",
            op="lr_scheduler",
        )
    return list(value)


class LRScheduler:
    """Base of schedules: call `step` after each epoch, or each step, of training.

    A schedule of your own overrides `get_lr`, which gives the learning rates of the groups at
    `last_epoch`. Where it computes them from the rates before (`rates`), several schedules can
    work on one optimizer. `restart_lr` says where it begins.
    """

    #: attributes that are not part of the state
    _left_out: tuple[str, ...] = ("optimizer",)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self._attach(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", lr_of(group))
            elif "initial_lr" not in group:
                raise OptimizerError(
                    f"group {i} has no initial_lr to resume from at last_epoch={last_epoch}",
                    op=type(self).__name__,
                    hint="load the optimizer's state dict first, or start with last_epoch=-1",
                )
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._begin()

    def _attach(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DTypeError(
                f"a schedule is given an optimizer, not {type(optimizer).__name__}",
                op=type(self).__name__,
            )
        self.optimizer = optimizer

    def _begin(self) -> None:
        self._first = True
        self.step()
        self._first = False

    def _undo(self) -> None:
        """Take back the first step: SequentialLR has its schedules begin later."""
        self.last_epoch -= 1

    def rates(self) -> list[float]:
        """The learning rates of the groups as they are now."""
        return [lr_of(group) for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The learning rates at `last_epoch`, one for each parameter group."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def restart_lr(self) -> list[float]:
        """The learning rates at `last_epoch` 0, whatever came before."""
        return self.get_lr()

    def get_last_lr(self) -> list[float]:
        """The learning rates that this schedule set last."""
        return list(self._last_lr)

    @deferred
    def step(self) -> None:
        """Go on to the next epoch."""
        self.last_epoch += 1
        self._use(self.get_lr())

    def restart(self) -> None:
        """Start again when another schedule has ended: see SequentialLR."""
        self.last_epoch = 0
        self._use(self.restart_lr())

    def _use(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_lr(group, rate)
        self._last_lr = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule has to remember."""
        return {
            key: list(value) if isinstance(value, list) else value
            for key, value in vars(self).items()
            if key not in self._left_out
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        unknown = set(state_dict) ^ set(self.state_dict())
        if unknown:
            raise OptimizerError(
                f"this is no state dict of {type(self).__name__}: {sorted(unknown)} differ",
                op="load_state_dict",
                hint="give what state_dict() of the same kind of schedule returned",
            )
        vars(self).update(state_dict)
