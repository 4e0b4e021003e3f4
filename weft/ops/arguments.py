"""Checks of arguments that are passed along with tensors; errors name the operands."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import normalize_axes
from weft.core.tensor import Tensor, type_of

__all__ = ["axes_of", "axis_of", "integer", "shared_axis"]


def integer(value: Any, name: str, op: str, *operands: Tensor) -> int:
    """`value` as an int; floats are refused, even whole ones."""
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(
            f"{name} must be an int, not {value!r}", op=op, operands=[type_of(x) for x in operands]
        ) from None


def axes_of(x: Tensor, axes: int | Sequence[int] | None, op: str) -> tuple[int, ...]:
    """`axes` of x as nonnegative numbers, in the given order; None means all axes."""
    try:
        return normalize_axes(axes, x.ndim, op)
    except (ShapeError, DTypeError) as error:
        raise error.about(op, [type_of(x)]) from None


def axis_of(x: Tensor, axis: int, op: str) -> int:
    """An axis of x as a nonnegative number."""
    return axes_of(x, integer(axis, "axis", op, x), op)[0]


def shared_axis(axis: int, x1: Tensor, x2: Tensor, op: str) -> int:
    """An axis of two operands, counted from the end so that it is the same axis in both."""
    fewest, most = sorted((x1.ndim, x2.ndim))
    index = integer(axis, "axis", op, x1, x2)
    if 0 <= index < fewest == most:
        index -= most
    if not -fewest <= index < 0:
        counted = f"use {-fewest} to -1: axes are counted from the last one"
        raise ShapeError(
            f"axis {axis} is out of range for operands of {x1.ndim} and {x2.ndim} axes",
            op=op,
            operands=[type_of(x1), type_of(x2)],
            hint=counted if fewest else "each operand needs at least one axis",
        )
    return index
