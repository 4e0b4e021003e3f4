"""The axes of a loop nest, and along which of them each dimension of a value runs.

The nodes of a group share one iteration space. A dimension of a value runs along one or several of
its axes (a reshape may join axes, or split one), or along none, where the value is broadcast. Views
inside a group cost nothing: they only change this map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.ir.op import Op
from weft.ops.cards import BROADCAST_TO, PERMUTE_DIMS, RESHAPE

__all__ = ["Map", "Space"]

#: For each dimension of a value, its axes; () if its size is 1 or it is broadcast.
Map = tuple[tuple[int, ...], ...]


class Space:
    """The axes of a group: a number for each, their sizes, their order from outer to inner."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.order: list[int] = []
        self.maps: list[dict[Any, Map]] = []  # changed when an axis is split
        self.may_split = True

    def full(self, shape: Sequence[int]) -> Map:
        """New axes for a shape."""
        made: list[tuple[int, ...]] = []
        for size in shape:
            if size == 1:
                made.append(())
                continue
            axis = len(self.sizes)
            self.sizes[axis] = size
            self.order.append(axis)
            made.append((axis,))
        return tuple(made)

    def size_of(self, axes: Sequence[int]) -> int:
        size = 1
        for axis in axes:
            size *= self.sizes[axis]
        return size

    def split(self, axis: int, inner: int) -> tuple[int, int]:
        """Split an axis into an outer and an inner one, in all maps."""
        outer_axis, inner_axis = len(self.sizes), len(self.sizes) + 1
        self.sizes[outer_axis] = self.sizes[axis] // inner
        self.sizes[inner_axis] = inner
        at = self.order.index(axis)
        self.order[at : at + 1] = [outer_axis, inner_axis]
        for maps in self.maps:
            for value, found in maps.items():
                if any(axis in part for part in found):
                    maps[value] = tuple(_cut(part, axis, outer_axis, inner_axis) for part in found)
        return outer_axis, inner_axis

    def viewed(
        self, found: Map, old: Sequence[int], op: Op, attrs: Mapping[str, Any], new: Sequence[int]
    ) -> Map | None:
        """The map of a view of a value of shape `old`; None where axes cannot express it."""
        if op.alias:
            return found
        if op is PERMUTE_DIMS:
            return tuple(found[i] for i in attrs["axes"])
        if op is BROADCAST_TO:
            return ((),) * (len(new) - len(old)) + found
        if op is RESHAPE:
            return self._reshaped(found, old, new)
        return None

    def _reshaped(self, found: Map, old: Sequence[int], new: Sequence[int]) -> Map | None:
        if 0 in old:
            return None  # without elements, sizes do not tell dimensions apart
        # The axes of the old dimensions, in order; None for a dimension that is broadcast.
        parts: list[tuple[int | None, int]] = []
        for size, axes in zip(old, found, strict=True):
            if axes:
                parts += [(axis, self.sizes[axis]) for axis in axes]
            elif size != 1:
                parts.append((None, size))
        parts.reverse()
        made: list[tuple[int, ...]] = []
        for size in new:
            if size == 1:
                made.append(())
                continue
            here: list[int | None] = []
            left = size
            while left != 1:
                if not parts:
                    return None
                axis, length = parts.pop()
                if left % length == 0:
                    here.append(axis)
                    left //= length
                    continue
                if length % left != 0 or (axis is not None and not self.may_split):
                    return None
                rest = length // left
                if axis is None:
                    parts.append((None, rest))
                    here.append(None)
                else:
                    outer, inner = self.split(axis, rest)
                    # Axes of this value that were visited before keep their numbers unless split.
                    parts.append((inner, rest))
                    here.append(outer)
                left = 1
            if any(axis is None for axis in here):
                if any(axis is not None for axis in here):
                    return None
                made.append(())
            else:
                made.append(tuple(axis for axis in here if axis is not None))
        return tuple(made)


def _cut(part: tuple[int, ...], axis: int, outer: int, inner: int) -> tuple[int, ...]:
    if axis not in part:
        return part
    at = part.index(axis)
    return (*part[:at], outer, inner, *part[at + 1 :])
