"""Arithmetic on shapes and axes, with errors that say what does not fit."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import is_less, same_size
from weft.base.dim_algebra import Dim
from weft.base.errors import AxisError, DTypeError, ShapeError, UnknownSizeError

Shape = tuple[int, ...]  # or Dims, which are ints to type checkers
Axis = int | Sequence[int] | None  # the argument of reductions: None is all axes


def size_of(shape: Shape) -> int:
    return math.prod(shape)


def as_shape(shape: Any, op: str) -> Shape:
    """A shape from an int or a sequence of ints or Dims."""
    kind = shape.__class__
    if kind is not tuple and kind is not list:
        if isinstance(shape, (str, bytes)):
            raise _no_shape(shape, op)
        if kind is Dim:
            return (shape,)
        try:
            return (operator.index(shape),)
        except TypeError:
            pass
    try:
        return tuple([part if part.__class__ is Dim else operator.index(part) for part in shape])
    except TypeError:
        raise _no_shape(shape, op) from None


def _no_shape(shape: Any, op: str) -> DTypeError:
    return DTypeError(f"{shape!r} is not a shape", op=op, hint="give an int or a tuple of ints")


def new_shape(shape: Any, op: str) -> Shape:
    """The shape of a new tensor: sizes below 0 are errors; symbolic sizes are checked later."""
    sizes = as_shape(shape, op)
    if any(size < 0 if size.__class__ is int else is_less(size, 0) for size in sizes):
        raise ShapeError(f"the shape {sizes} has a negative size", op=op)
    return sizes


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all broadcast to, compared from the last axis to the first."""
    if len(set(shapes)) == 1:
        return shapes[0]
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for axis, size in enumerate(shape, offset):
            if same_size(size, 1) or same_size(size, result[axis]):
                continue
            if not same_size(result[axis], 1):
                if size == result[axis] or size == 1:  # a recording answers
                    continue
                if result[axis] == 1:
                    result[axis] = size
                    continue
                listed = " and ".join(str(s) for s in shapes)
                raise unfit(
                    f"shapes {listed} do not broadcast: "
                    f"axis {axis - ndim} has sizes {result[axis]} and {size}",
                    result[axis],
                    size,
                    hint="sizes must be equal or 1, counted from the last axis; "
                    "add axes of size 1 with x[:, None] or expand_dims",
                )
            result[axis] = size
    return tuple(result)


def unfit(message: str, *sizes: int, **more: Any) -> ShapeError:
    """The error for sizes that do not fit or, if they are symbolic, cannot be shown to fit."""
    if any(size.__class__ is Dim for size in sizes):
        return UnknownSizeError(f"{message}: it cannot be shown that they are equal", **more)
    return ShapeError(message, **more)


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether `shape` broadcasts to `target` without changing it."""
    extra = len(target) - len(shape)
    pairs = list(zip(shape, target[extra:], strict=True)) if extra >= 0 else []
    if extra < 0 or all(same_size(a, 1) or same_size(a, b) for a, b in pairs):
        return extra >= 0
    return all(a == b or a == 1 for a, b in pairs)


def normalize_axis(axis: Any, ndim: int, op: str) -> int:
    """A negative axis counted from the front."""
    try:
        if axis.__class__ is bool:  # PyTorch's std(False) is about the correction
            raise TypeError
        index = operator.index(axis)
    except TypeError:
        raise DTypeError(f"axis must be an int, not {axis!r}", op=op) from None
    if not -ndim <= index < ndim:
        raise AxisError(
            f"axis {index} is out of range for {ndim} axes",
            op=op,
            hint=f"use {-ndim} to {ndim - 1}" if ndim else "a 0-d tensor has no axes",
        )
    return index % ndim


def normalize_axes(axes: int | Sequence[int] | None, ndim: int, op: str) -> tuple[int, ...]:
    """Axes counted from the front, in the given order; None means all of them."""
    if axes is None:
        return tuple(range(ndim))
    given = axes if isinstance(axes, (tuple, list)) else (axes,)
    found = tuple(normalize_axis(axis, ndim, op) for axis in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"an axis is named twice in {tuple(given)}", op=op)
    return found


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape of a reduction over `axes`."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)
