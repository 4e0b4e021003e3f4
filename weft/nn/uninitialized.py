"""Parameters and buffers whose shape is not known yet: those of lazy modules."""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.core.operands import cast
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.nn.parameter import Buffer, Parameter
from weft.ops.creation import empty

__all__ = ["UninitializedBuffer", "UninitializedParameter"]


def _unknown(_self: Any) -> Any:
    raise ShapeError(
        "the shape is not known yet",
        op="UninitializedParameter",
        hint="call the lazy module once with an input; then it has its shapes",
    )


class _Uninitialized:
    shape = property(_unknown)
    size = property(_unknown)
    ndim = property(_unknown)

    def materialize(self: Any, value: Tensor) -> None:
        """Take on a value, and with it a shape. It is the same object as before."""
        fitting = cast(value.detach(), self.dtype).clone()
        learned = self.requires_grad
        object.__setattr__(self, "__class__", self._then)
        self._node = None  # it knows the shape
        self._data = fitting._data
        self.requires_grad = learned
        changed()

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        options = {"device": self.device, "dtype": self.dtype}
        if self._then is Parameter:
            options["requires_grad"] = self.requires_grad
        memo[id(self)] = made = type(self)(**options)
        return made


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter without a shape. An optimizer may have it already."""

    _then = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        made = Parameter(empty(0, dtype=dtype, device=device), requires_grad)
        object.__setattr__(made, "__class__", cls)
        return made

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer without a shape."""

    _then = Buffer

    def __new__(cls, device: Any = None, dtype: Any = None) -> Any:
        return super().__new__(cls, empty(0, dtype=dtype, device=device))

    def __repr__(self) -> str:
        return "<UninitializedBuffer>"
