"""Slices of axes, with symbolic sizes as bounds: x[:, n - 2 : n - 1].

Where such a bound lies on its axis decides how long the slice is. While code is recorded, that is
asked here, once: the answer is a guard, and the bounds then carry what is known of their names, so
that all who read the slice later find the same length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import active, is_less
from weft.base.dim_algebra import Dim, replaced
from weft.base.dims import dim
from weft.core.tensor import Tensor

__all__ = ["placed", "placed_slices", "sizes_along"]

_BOOLEAN = (dtypes.bool, np.dtype(bool))


def placed_slices(x: Tensor, key: Any) -> Any:
    """An index whose slices with symbolic bounds are counted from the front, and on their axes."""
    parts = list(key) if key.__class__ is tuple else [key]
    if active() is None or not any(map(_has_dims, parts)):
        return key
    found = [
        placed(part, size) if size is not None and _has_dims(part) else part
        for part, size in zip(parts, sizes_along(parts, x), strict=True)
    ]
    return tuple(found) if key.__class__ is tuple else found[0]


def _has_dims(part: Any) -> bool:
    """Whether it is a slice to be placed: with a symbolic bound, and a step that is known."""
    if part.__class__ is not slice or not (
        part.start.__class__ is Dim or part.stop.__class__ is Dim
    ):
        return False
    return part.step is None or (part.step.__class__ is int and part.step > 0)


def placed(part: slice, size: int) -> slice:
    """A slice with bounds that are counted from the front, and on the axis, as Python has it. Asks
    what decides where they are."""
    # The end first: of x[i : i + 4], that i + 4 is on the axis says that i is.
    stop = _on_axis(part.stop, size, size)
    start = _on_axis(part.start, size, 0)
    return slice(_bounded(start), _bounded(stop), part.step)


def _on_axis(bound: int | None, size: int, default: int) -> int:
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


def sizes_along(parts: list[Any], x: Tensor) -> list[int | None]:
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
