"""Ops whose result is their operand: as a new tensor, without a gradient, on another device."""

from __future__ import annotations

from typing import Any

from weft.base.device import CPU, ENGINES, Device, as_device
from weft.base.errors import ShapeError
from weft.base.shapes import Shape
from weft.core.bind import bind, recorder
from weft.core.public import attach
from weft.core.tensor import Tensor, wrap
from weft.ir.dispatch import family_for, family_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batching import leading, sized
from weft.ops.rules import apply
from weft.ops.ways import same_axes

__all__: list[str] = []


def _to_device_type(x: TensorType, *, device: Device) -> TensorType:
    family_for(device, x.layout)
    return TensorType(x.dtype, x.shape, device, x.layout)


def _moved(_xp: Any, x: Any, *, device: Device) -> Any:
    here = family_of(x)
    return family_for(device, here.layout).from_numpy(here.to_numpy(x), device)


def _moved_back(xp: Any, g: Any, _out: Any, x: Any, *, device: Device) -> Any:
    home = x.device if isinstance(x, Tensor) else family_of(x).device_of(x)
    return apply(_to_device, g, device=home)


def _checked_alike(value: TensorType, source: TensorType) -> TensorType:
    if value != source:
        raise ShapeError(f"the value is {value}, and what has its gradient {source}")
    return value


_identity = Op(
    "identity",
    lambda x: x,
    lambda xp, x: x,
    numpy=lambda x: x,
    vjp=(lambda xp, g, _out, _x: g,),
    traits=Trait.ELEMENTWISE | Trait.VIEW | Trait.LINEAR | Trait.ANYWHERE | Trait.ALIAS,
)
STOP_GRADIENT = Op(
    "stop_gradient",
    lambda x: x,
    lambda xp, x: x,
    numpy=lambda x: x,
    vjp=(None,),
    traits=Trait.ELEMENTWISE | Trait.VIEW | Trait.LINEAR | Trait.ANYWHERE | Trait.ALIAS,
)
#: The value of one tensor with the gradient of another: the result of a write under no_grad() to a
#: tensor that has a history. Like stop_gradient, it is dropped from graphs that are only run.
WITH_GRADIENT_OF = Op(
    "with_gradient_of",
    _checked_alike,
    lambda xp, value, source: value,
    vjp=(None, lambda xp, g, _out, _value, _source: g),
    batch=leading,
    traits=Trait.ANYWHERE,
    may_fail=False,
    ways=same_axes,
)
#: Keeps recomputation apart from the first computation: equal calls are merged, but not behind
#: different fences.
FENCE = Op(
    "fence",
    lambda x: x,
    lambda xp, x: x,
    numpy=lambda x: x,
    vjp=(lambda xp, g, _out, _x: g,),
    batch=leading,
    traits=Trait.VIEW | Trait.LINEAR | Trait.ANYWHERE | Trait.RANDOM | Trait.ALIAS,
    ways=same_axes,
)
#: A value with a name, for policies of `weft.checkpoint`.
NAMED = Op(
    "named",
    lambda x, *, name: x,
    lambda xp, x, *, name: x,
    vjp=(lambda xp, g, _out, _x, *, name: g,),
    batch=leading,
    traits=Trait.VIEW | Trait.LINEAR | Trait.ANYWHERE | Trait.ALIAS,
    ways=same_axes,
)


def _checked_shape(_xp: Any, x: Any, *, shape: Shape) -> Any:
    if tuple(x.shape) != shape:
        raise ShapeError(f"the shape is {tuple(x.shape)}, where {shape} was recorded")
    return x


#: Checks the shape that a run found: what follows was recorded for this shape only.
ASSUME_SHAPE = Op(
    "assume_shape",
    lambda x, *, shape: x.like(shape=shape),
    _checked_shape,
    vjp=(lambda xp, g, _out, _x, *, shape: g,),
    batch=sized,
    traits=Trait.VIEW | Trait.LINEAR | Trait.ANYWHERE | Trait.ALIAS,
    may_fail=True,
    ways=same_axes,
)
_to_device = Op(
    "to_device",
    _to_device_type,
    _moved,
    vjp=(_moved_back,),
    batch=leading,
    traits=Trait.LINEAR | Trait.ANYWHERE | Trait.ALIAS,
    ways=same_axes,
)


#: In captured code: what is computed of it asks to run on a device of `ENGINES`, or again where it
#: was. The value stays where it is.
SENT = Op(
    "sent",
    lambda x, *, target: x,
    lambda xp, x, *, target: x,
    vjp=(lambda _xp, g, _out, _x, *, target: g,),
    batch=leading,
    traits=Trait.VIEW | Trait.LINEAR | Trait.ANYWHERE | Trait.RANDOM | Trait.ALIAS,
    ways=same_axes,
)


def _clone(self: Tensor) -> Tensor:
    """A new tensor with the same value. Costs nothing until one of them is written."""
    out: Tensor = bind(_identity, self)
    return out


def detached(x: Tensor) -> Tensor:
    """The same value without history."""
    if recorder() is None:
        return wrap(x._data, x)
    out: Tensor = bind(STOP_GRADIENT, x)
    return out


#: Devices that captured code has sent tensors to; then "cpu" is where they come back to.
_SENT_TO: set[str] = set()


def _to_device_method(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The same value on another device."""
    if stream is not None:
        raise ValueError("streams are not supported: pass stream=None")
    name = str(device)
    if name.partition(":")[0] in ENGINES:
        if recorder() is None:
            return _clone(self)
        _SENT_TO.update((name, "cpu"))
    if name in _SENT_TO and recorder() is not None and self.device == CPU:
        sent: Tensor = bind(SENT, self, target=name)
        return sent
    target = as_device(device)
    if target == self.device:
        return _clone(self)
    out: Tensor = bind(_to_device, self, device=target)
    return out


attach({"clone": _clone, "to_device": _to_device_method})
