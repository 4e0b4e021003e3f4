"""Copies a tile of the source to a panel."""

from __future__ import annotations

import math

from weft.codegen.conv.element import Element
from weft.codegen.conv.geometry import Panel
from weft.codegen.conv.loops import inside, nest, table
from weft.codegen.index import Ptr, Size
from weft.codegen.text import Function

__all__ = ["fill_panel"]


def fill_panel(
    f: Function,
    panel: Panel,
    element: Element,
    source: Ptr,
    target: Ptr,
    channels: Size,
    starts: list[Size],
    stops: list[Size] | None = None,
    apart: Size | None = None,
) -> None:
    """Copy `channels` channels, beginning with `source`, to `target`.

    `starts` are the first results of the tile along each axis, counted within their class. `stops`
    are earlier ends of the axes: elements beyond them count as padding. `apart` is the distance
    between channels, by default their size. Whole vectors are written: the end of a row overlaps
    the next row, which is written later, and the last row overlaps the end of the panel, which must
    have space for another vector.
    """
    axes = panel.axes
    each = panel.channel if apart is None else apart
    lanes = element.whole_lanes(panel.extents[-1], axes[-1].step)
    planes = [len(axis.planes) for axis in axes]
    rows = panel.extents[:-1]
    ends = stops or [axis.size for axis in axes]
    size = math.prod(axis.size for axis in axes)
    with nest(f, [channels, *planes, *rows]) as (channel, *places):
        # The element along each axis that the row begins with.
        along = [*places[len(axes) :], 0]
        element_at = []
        for axis, plane, i, start in zip(axes, places, along, starts, strict=False):
            moved = (start + i + axis.low) * axis.step
            element_at.append(moved + table(f, axis.planes, plane))
        offset = channel * size
        outside: list[str] = []
        for number, here in enumerate(element_at[:-1]):
            offset = offset + here * math.prod(axis.size for axis in axes[number + 1 :])
            if stops is not None or not panel.covered(number):
                outside.append(inside(f, here, ends[number], 1))
        last = axes[-1]
        stop = ends[-1]
        for condition in outside:
            stop = f.index(f(f"select i1 {condition}, i64 {f.size(stop)}, i64 0"))
        base = source + offset
        counts = [*(len(axis.planes) for axis in axes), *panel.extents[:-1]]
        row_number = places[0]
        for count, place in zip(counts[1:], places[1:], strict=True):
            row_number = row_number * count + place
        row = channel * each + row_number * panel.extents[-1]
        with f.loop(0, panel.extents[-1], lanes) as i:
            first = element_at[-1] + i * last.step
            value = element.load_strided(f, base, first, stop, last.step, lanes)
            element.put(f, target + (row + i), value, lanes)
