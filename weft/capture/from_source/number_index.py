"""Indices with numbers that Python knows in each call, but that change: x[i], x[i : i + 4] = v.

An int is an input of the graph. The bounds of a slice are symbolic sizes. Where they lie on the
axis becomes a guard, no stronger than what decides about the length: x[i : i + 4] has four elements
in each call in which i is not negative and i + 4 does not reach beyond the axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import active, is_less
from weft.base.dim_algebra import Dim, replaced
from weft.base.dims import dim
from weft.capture.watch.settled_numbers import settled
from weft.core.number import is_outside
from weft.core.tensor import Tensor

_BOOLEAN = (dtypes.bool, np.dtype(bool))


def in_range(x: Tensor, key: Any) -> Any:
    """An index, in which numbers that Python knows in each call are inside of their axis: that they
    stay so becomes a guard. Others are the numbers themselves, for their error."""
    parts = list(key) if type(key) is tuple else [key]
    if any(map(_has_bounds, parts)):
        parts = [
            _sized(part, size) if size is not None and _has_bounds(part) else part
            for part, size in zip(parts, _sizes(parts, x), strict=True)
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


def _sizes(parts: list[Any], x: Tensor) -> list[int | None]:
    """For each part of an index, the size of the axis that it begins with; None: it has none."""
    used = [_axes_of(part) for part in parts]
    found: list[int | None] = []
    axis = 0
    for i, part in enumerate(parts):
        found.append(x.shape[axis] if axis < x.ndim else None)
        if part is ...:
            axis = max(x.ndim - sum(used[i + 1 :]), axis)
        else:
            axis += used[i]
    return found


def _axes_of(part: Any) -> int:
    if part is None or part is ... or isinstance(part, (bool, np.bool_)):
        return 0
    if isinstance(part, (Tensor, np.ndarray)) and part.dtype in _BOOLEAN:
        return part.ndim
    if isinstance(part, list):  # perhaps a mask
        return np.ndim(part) if np.asarray(part).dtype == bool else 1
    return 1


def _sized(part: slice, size: int) -> slice:
    """A slice with symbolic sizes as bounds, on the axis; settled where that cannot be."""
    step = settled(part.step)
    if (step is not None and not (type(step) is int and step > 0)) or active() is None:
        return slice(settled(part.start, True), settled(part.stop, True), step)
    bounds = [_size(part.start), _size(part.stop)]
    if not all(bound is None or type(bound) in (int, Dim) for bound in bounds):
        return slice(settled(part.start, True), settled(part.stop, True), step)
    # The end first: of x[i : i + 4], that i + 4 is on the axis says that i is.
    stop = _placed(bounds[1], size, size)
    start = _placed(bounds[0], size, 0)
    return slice(_bounded(start), _bounded(stop), step)


def _size(bound: Any) -> Any:
    return bound.outside.size() if is_outside(bound) and bound.kind == "int" else bound


def _placed(bound: int | None, size: int, default: int) -> int:
    """A bound counted from the front, and on the axis, as Python has it. Asks what decides it."""
    if bound is None:
        return default
    if is_less(bound, 0):
        bound = bound + size
        return 0 if is_less(bound, 0) else bound
    return size if is_less(size, bound) else bound


def _bounded(bound: int) -> int:
    """A bound with what is known of its names, so that the length of the slice is simple."""
    sizes = active()
    if not isinstance(bound, Dim) or sizes is None:
        return bound
    known = {name: dim(name, *ends) for name, ends in sizes.bounds().items() if name in bound.names}
    return replaced(bound, known)
