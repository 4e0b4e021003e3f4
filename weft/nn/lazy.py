"""Lazy modules: they learn the size of their input from the first one.

Each takes the arguments of the layer that it becomes, without the first: `LazyLinear(2)` becomes a
`Linear(n, 2)` with the first input of n features. Its parameters stay the same objects, so that an
optimizer may have them already. Call it once before it is compiled, or before first values are set.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from weft.base.errors import CaptureError
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.nn import conv, init, linear, normalization
from weft.nn.module import Module
from weft.nn.uninitialized import UninitializedBuffer, UninitializedParameter
from weft.record.control.loops import makes_graph

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class _Lazy(Module):
    _kind: Any  # the layer that it becomes
    _defaults: ClassVar[dict[str, Any]] = {}  # where they differ from the layer's

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Module.__init__(self)
        bound: dict[str, Any] = inspect.signature(self._kind).bind(1, *args, **kwargs).arguments
        given = dict(list(bound.items())[1:])
        self._made_with = {**self._defaults, **given}
        size = given.get("groups", 1)  # any that works: the names of its parts are wanted
        with init.skipped():
            sample = self._kind(size, **self._made_with)
        for name, kind in sample._member_kinds.items():
            part = sample.__dict__[name]
            if kind == "parameter":
                options = {} if part is None else {"dtype": part.dtype, "device": part.device}
                own = None if part is None else UninitializedParameter(**options)
                self.register_parameter(name, own)
            elif part is None or not part.ndim:  # a count
                self.register_buffer(name, part)
            else:
                self.register_buffer(name, UninitializedBuffer(part.device, part.dtype))

    def _size(self, input: Tensor) -> int:
        raise NotImplementedError

    def initialize_parameters(self, input: Tensor) -> None:
        """Become the layer for inputs like this one."""
        if makes_graph():
            raise CaptureError(
                f"{type(self).__name__} does not know its input's size yet",
                op=type(self).__name__,
                hint="call the module once with an input before you compile it",
            )
        made = self._kind(self._size(input), **self._made_with)
        for name in self._member_kinds:
            own = self.__dict__[name]
            if isinstance(own, (UninitializedParameter, UninitializedBuffer)):
                own.materialize(made.__dict__[name])
        for name, value in made.__dict__.items():
            if name not in self.__dict__:
                self.__dict__[name] = value
        del self.__dict__["_made_with"]
        object.__setattr__(self, "__class__", self._kind)
        changed()

    def has_uninitialized_params(self) -> bool:
        """Whether the sizes are not known yet."""
        return True

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        return self.forward(input, *args, **kwargs)  # that of the layer it is now

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._made_with.items())


class LazyLinear(_Lazy, linear.Linear):
    """A Linear that takes as many features as its first input has.

    >>> layer = weft.nn.LazyLinear(2)
    >>> layer(weft.ones((5, 3))).shape, layer
    ((5, 2), Linear(in_features=3, out_features=2, bias=True))
    """

    _kind = linear.Linear

    def _size(self, input: Tensor) -> int:
        return input.shape[-1]


class _LazyChannels(_Lazy):
    def _size(self, input: Tensor) -> int:
        axes = int(self._kind.__name__[-2])
        return input.shape[-axes - 1] if input.ndim > axes else input.shape[-1]


class LazyConv1d(_LazyChannels, conv.Conv1d):
    """A Conv1d that takes as many channels as its first input has."""

    _kind = conv.Conv1d


class LazyConv2d(_LazyChannels, conv.Conv2d):
    """A Conv2d that takes as many channels as its first input has."""

    _kind = conv.Conv2d


class LazyConv3d(_LazyChannels, conv.Conv3d):
    """A Conv3d that takes as many channels as its first input has."""

    _kind = conv.Conv3d


class LazyConvTranspose1d(_LazyChannels, conv.ConvTranspose1d):
    """A ConvTranspose1d that takes as many channels as its first input has."""

    _kind = conv.ConvTranspose1d


class LazyConvTranspose2d(_LazyChannels, conv.ConvTranspose2d):
    """A ConvTranspose2d that takes as many channels as its first input has."""

    _kind = conv.ConvTranspose2d


class LazyConvTranspose3d(_LazyChannels, conv.ConvTranspose3d):
    """A ConvTranspose3d that takes as many channels as its first input has."""

    _kind = conv.ConvTranspose3d


class LazyBatchNorm1d(_LazyChannels, normalization.BatchNorm1d):
    """A BatchNorm1d for as many channels as its first input has."""

    _kind = normalization.BatchNorm1d

    def _size(self, input: Tensor) -> int:
        return input.shape[1]  # (batch, channels), too


class LazyBatchNorm2d(_LazyChannels, normalization.BatchNorm2d):
    """A BatchNorm2d for as many channels as its first input has."""

    _kind = normalization.BatchNorm2d


class LazyBatchNorm3d(_LazyChannels, normalization.BatchNorm3d):
    """A BatchNorm3d for as many channels as its first input has."""

    _kind = normalization.BatchNorm3d


class _LazyInstanceNorm(_LazyChannels):
    # as PyTorch has it here
    _defaults: ClassVar[dict[str, Any]] = {"affine": True, "track_running_stats": True}


class LazyInstanceNorm1d(_LazyInstanceNorm, normalization.InstanceNorm1d):
    """An InstanceNorm1d for as many channels as its first input has."""

    _kind = normalization.InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, normalization.InstanceNorm2d):
    """An InstanceNorm2d for as many channels as its first input has."""

    _kind = normalization.InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, normalization.InstanceNorm3d):
    """An InstanceNorm3d for as many channels as its first input has."""

    _kind = normalization.InstanceNorm3d
