"""Indices with numbers that Python knows in each call, but that change: x[i], x[i : i + 4] = v.

An int is an input of the graph. The bounds of a slice are symbolic sizes. Where they lie on the
axis becomes a guard, no stronger than what decides about the length: x[i : i + 4] has four elements
in each call in which i is not negative and i + 4 does not reach beyond the axis.
"""

from __future__ import annotations

from typing import Any

from weft.base.asked_sizes import active
from weft.base.dim_algebra import Dim
from weft.capture.watch.settled_numbers import settled
from weft.core.number import is_outside
from weft.core.tensor import Tensor
from weft.ops.sized_slices import placed, sizes_along


def in_range(x: Tensor, key: Any) -> Any:
    """An index, in which numbers that Python knows in each call are inside of their axis: that they
    stay so becomes a guard. Others are the numbers themselves, for their error."""
    parts = list(key) if type(key) is tuple else [key]
    if any(map(_has_bounds, parts)):
        parts = [
            _sized(part, size) if size is not None and _has_bounds(part) else part
            for part, size in zip(parts, sizes_along(parts, x), strict=True)
        ]
        key = tuple(parts) if type(key) is tuple else parts[0]
    if not any(map(is_outside, parts)):
        return key
    if not all(is_outside(part) or type(part) in (int, slice) for part in parts):
        return settled(key, keeps=True)
    made = [
        settled(part) if is_outside(part) and not _is_inside(part, size) else part
        for part, size in zip(parts, (*x.shape, *[0] * len(parts)), strict=False)
    ]
    return tuple(made) if type(key) is tuple else made[0]


def _is_inside(number: Any, size: Any) -> bool:
    return type(size) is int and number.kind == "int" and bool(-size <= number < size)


# --- slices --------------------------------------------------------------------------------------


def _has_bounds(part: Any) -> bool:
    return type(part) is slice and (is_outside(part.start) or is_outside(part.stop))


def _sized(part: slice, size: int) -> slice:
    """A slice with symbolic sizes as bounds, on the axis; settled where that cannot be."""
    step = settled(part.step)
    if (step is not None and not (type(step) is int and step > 0)) or active() is None:
        return slice(settled(part.start, True), settled(part.stop, True), step)
    start, stop = _size(part.start), _size(part.stop)
    if not all(bound is None or type(bound) in (int, Dim) for bound in (start, stop)):
        return slice(settled(part.start, True), settled(part.stop, True), step)
    return placed(slice(start, stop, step), size)


def _size(bound: Any) -> Any:
    return bound.outside.size() if is_outside(bound) and bound.kind == "int" else bound
