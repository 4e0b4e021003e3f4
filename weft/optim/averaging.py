"""Averages of a model's weights while it trains: stochastic weight averaging, and EMA."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from weft.base import dtypes
from weft.base.errors import RangeError
from weft.core.grad_mode import no_grad
from weft.core.operands import assign, cast
from weft.core.tensor import Tensor
from weft.nn.module import Module
from weft.nn.normalization import BatchNorm
from weft.ops.creation import zeros

Average = Callable[[Tensor, Tensor, Any], Tensor]
Averages = Callable[[list[Tensor], list[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """An exponential moving average of one tensor: decay * average + (1 - decay) * value."""
    _check_decay(decay)

    def average(average: Tensor, value: Tensor, _count: Any) -> Tensor:
        return decay * average + (1 - decay) * value

    return average


def get_swa_avg_fn() -> Average:
    """The plain mean of all values so far, of one tensor."""

    def average(average: Tensor, value: Tensor, count: Any) -> Tensor:
        return average + (value - average) / cast(count + 1, average.dtype)

    return average


def _of_each(average: Average) -> Averages:
    def averages(averages: list[Tensor], values: list[Tensor], count: Any) -> None:
        with no_grad():
            for mean, value in zip(averages, values, strict=True):
                if mean.dtype.kind in ("float", "complex"):
                    assign(mean, average(mean.detach(), value.detach(), count), "update_parameters")
                else:
                    assign(mean, value.detach(), "update_parameters")

    return averages


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """An exponential moving average of a list of tensors."""
    return _of_each(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Averages:
    """The plain mean of all values so far, of a list of tensors."""
    return _of_each(get_swa_avg_fn())


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise RangeError(f"decay is from 0 to 1, not {decay}", op="EMA")


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's while it trains.

    Call `update_parameters(model)` after each step, or each epoch. The average is the plain mean
    unless another is given: multi_avg_fn=get_ema_multi_avg_fn(0.999). With `use_buffers` buffers
    are averaged too (integers are copied); otherwise they are copied.

    >>> model = weft.nn.Linear(2, 1)
    >>> mean = weft.optim.swa_utils.AveragedModel(model)
    >>> mean.update_parameters(model)
    >>> mean(weft.ones(2)).shape
    (1,)
    """

    module: Any
    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise RangeError("give avg_fn or multi_avg_fn, not both", op="AveragedModel")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device=device)
        self.register_buffer("n_averaged", zeros((), dtype=dtypes.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's parameters of now into the averages."""
        mine, theirs = _tensors(self.module, self.use_buffers), _tensors(model, self.use_buffers)
        with no_grad():
            if self.n_averaged == 0:
                for mean, value in zip(mine, theirs, strict=True):
                    assign(mean, cast(value.detach(), mean.dtype), "update_parameters")
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(mine, theirs, self.n_averaged)
            else:
                average = self.avg_fn or get_swa_avg_fn()
                _of_each(average)(mine, theirs, self.n_averaged)
            if not self.use_buffers:
                pairs = zip(self.module.buffers(), model.buffers(), strict=True)
                for copied, value in pairs:
                    assign(copied, value.detach(), "update_parameters")
            assign(self.n_averaged, self.n_averaged + 1, "update_parameters")


def _tensors(module: Module, buffers: bool) -> list[Tensor]:
    return [*module.parameters(), *(module.buffers() if buffers else ())]


class EMA(AveragedModel):
    """An exponential moving average of a model's parameters: `ema.update()` after each step.

    >>> model = weft.nn.Linear(2, 1)
    >>> ema = weft.optim.EMA(model, decay=0.99)
    >>> ema.update()
    >>> ema(weft.ones(2)).shape
    (1,)
    """

    def __init__(self, model: Module, decay: float = 0.999, use_buffers: bool = False) -> None:
        super().__init__(model, None, None, get_ema_multi_avg_fn(decay), use_buffers)
        self.decay = decay
        # In a list, the model is no submodule of its own average.
        self._source = [model]
        self.update_parameters(model)

    def update(self) -> None:
        """Take the model's parameters of now into the averages."""
        self.update_parameters(self._source[0])


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of batch norms, as means over all batches.

    A batch is a tensor, or a list or tuple that begins with one. Averaged weights need this before
    they are used.
    """
    norms = [module for module in model.modules() if isinstance(module, BatchNorm)]
    norms = [module for module in norms if module.track_running_stats]
    if not norms:
        return
    momenta = [module.momentum for module in norms]
    was_training = model.training
    model.train()
    try:
        for module in norms:
            module.reset_running_stats()
            module.momentum = None
        with no_grad():
            for batch in loader:
                given = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(given if device is None else given.to_device(device))
    finally:
        for module, momentum in zip(norms, momenta, strict=True):
            module.momentum = momentum
        model.train(was_training)
