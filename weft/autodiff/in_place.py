"""Another value for the same tensor: `x.data = v`, `copy_`, `zero_`, `detach_`."""

from __future__ import annotations

from sys import getrefcount

from weft.base.errors import DeviceError, DTypeError, ShapeError
from weft.core.bind import rebind, written
from weft.core.operands import cast
from weft.core.public import attach, attach_properties
from weft.core.structure import changed
from weft.core.temporaries import METHOD_OF_TEMPORARY, lost_method
from weft.core.tensor import Tensor
from weft.ops.creation import zeros_like
from weft.ops.identity import detached

__all__: list[str] = []


def _get_data(self: Tensor) -> Tensor:
    """The value without history; as a value, it can be set."""
    return detached(self)


def _set_data(self: Tensor, value: Tensor) -> None:
    """Give this tensor another value, of any shape and floating dtype; its history stays."""
    if not isinstance(value, Tensor):
        raise DTypeError(
            f".data is a tensor, not {type(value).__name__} {value!r:.40}",
            op="data",
            hint="make a tensor of it first: weft.asarray(value)",
        )
    old, new = self.type, value.type
    if self._node is not None:
        if new.dtype.kind not in ("float", "complex"):
            raise DTypeError(
                f"a tensor that requires a gradient cannot hold {new.dtype.name}",
                op="data",
                operands=[old, new],
                hint="cast it first: x.astype(weft.float32)",
            )
        if not self._node.is_leaf and old != new:
            raise ShapeError(
                f"a tensor with a history stays {old}: its gradient will be one of that",
                op="data",
                operands=[old, new],
                hint="make a new tensor, or detach this one first: x.detach_()",
            )
    if old.layout != new.layout:
        raise DeviceError(f"a {old.layout} tensor cannot become {new.layout}", op="data")
    bare = detached(value)
    if old != new:
        changed()
    written(self)
    self._data = bare._data


def _detach(self: Tensor) -> Tensor:
    """The same value without history."""
    return detached(self)


def _detach_(self: Tensor) -> Tensor:
    """Forget this tensor's own history."""
    lost = getrefcount(self) <= METHOD_OF_TEMPORARY
    written(self)
    self._data = detached(self)._data
    if self._node is not None and (type(self) is not self._result_class or self._node.is_leaf):
        changed()
    self._node = None
    if lost:
        lost_method()
    return self


def _copy_(self: Tensor, source: Tensor) -> Tensor:
    """Give this tensor the values of another, cast and broadcast to its own type."""
    lost = getrefcount(self) <= METHOD_OF_TEMPORARY
    value = cast(source, self.dtype)
    rebind(self, value if value.shape == self.shape else value.expand(*self.shape), "copy_")
    if lost:
        lost_method()
    return self


def _zero_(self: Tensor) -> Tensor:
    """Give this tensor the value zero."""
    lost = getrefcount(self) <= METHOD_OF_TEMPORARY
    rebind(self, zeros_like(self), "zero_")
    if lost:
        lost_method()
    return self


attach({"detach": _detach, "detach_": _detach_, "copy_": _copy_, "zero_": _zero_})
attach_properties({"data": _get_data}, {"data": _set_data})
