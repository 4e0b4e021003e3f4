"""Padding layers: constants, reflections, copies of the edge, or the other end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.errors import ShapeError
from weft.core.tensor import Tensor, type_of
from weft.nn import functional as F
from weft.nn.module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """`padding`: one number for all sides, or (left, right, top, bottom, front, back)."""

    _axes = 0
    _mode = "constant"
    value: Any = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        amounts = (padding,) * (2 * self._axes) if isinstance(padding, int) else tuple(padding)
        if len(amounts) != 2 * self._axes:
            raise ShapeError(
                f"padding is one number or {2 * self._axes} of them, not {padding}",
                op=type(self).__name__,
            )
        self.padding = amounts

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim < self._axes or (
            self._mode != "constant" and input.ndim not in (self._axes + 1, self._axes + 2)
        ):
            raise ShapeError(
                f"the input has {input.ndim} axes, not {self._axes + 2}, or {self._axes + 1} "
                "without a batch",
                op=type(self).__name__,
                operands=[type_of(input)],
            )
        value = self.value if self._mode == "constant" else None
        return F.pad(input, self.padding, self._mode, value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """One value added at both ends of the last axis."""

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """One value added at both ends of the last two axes."""

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """One value added at both ends of the last three axes."""

    _axes = 3


class ZeroPad1d(_Pad):
    """Zeros added at both ends of the last axis."""

    _axes = 1


class ZeroPad2d(_Pad):
    """Zeros added at both ends of the last two axes.

    >>> weft.nn.ZeroPad2d((1, 0, 0, 1))(weft.ones((1, 1, 2)))
    tensor([[[0., 1., 1.],
             [0., 0., 0.]]])
    """

    _axes = 2


class ZeroPad3d(_Pad):
    """Zeros added at both ends of the last three axes."""

    _axes = 3


class ReflectionPad1d(_Pad):
    """The last axis continued by its mirror image; the edge itself is not repeated."""

    _axes, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two axes continued by their mirror image; the edge itself is not repeated."""

    _axes, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The last three axes continued by their mirror image; the edge itself is not repeated."""

    _axes, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The last axis continued by copies of its edge."""

    _axes, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The last two axes continued by copies of their edge."""

    _axes, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The last three axes continued by copies of their edge."""

    _axes, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """The last axis continued by its other end."""

    _axes, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """The last two axes continued by their other end."""

    _axes, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """The last three axes continued by their other end."""

    _axes, _mode = 3, "circular"
