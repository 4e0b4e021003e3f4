"""Code that copies a tile of the source to a panel."""

from __future__ import annotations

from weft.codegen.conv.element import Element
from weft.codegen.conv.geometry import Panel
from weft.codegen.conv.loops import add, at, inside, mul, nest, table
from weft.codegen.scalar.forms import memory_type
from weft.codegen.text import Function

__all__ = ["fill_panel"]


def fill_panel(
    f: Function,
    panel: Panel,
    element: Element,
    source: str,
    target: str,
    channels: str,
    starts: list[str],
    stops: list[str] | None = None,
    apart: int = 0,
) -> None:
    """Copy `channels` channels, from `source` on, to `target`.

    `starts` says, for each axis, the number of the tile's first result in its class. `stops` are
    ends of the axes before their true ones: what is beyond counts as padding. Channels are `apart`
    by more than their size, if told. Whole vectors are written: the end of a row reaches into the
    next, which is written later, and the last one over the end of the panel, where there must be
    room for a vector more.
    """
    axes = panel.axes
    lanes = element.row_lanes(panel.extents[-1], axes[-1].step)
    planes = [str(len(axis.planes)) for axis in axes]
    rows = [str(size) for size in panel.extents[:-1]]
    ends = stops or [str(axis.size) for axis in axes]
    size = 1
    for axis in axes:
        size *= axis.size
    with nest(f, [channels, *planes, *rows]) as (channel, *places):
        # The element of each axis that the row stands for; its first one along the last axis.
        along = [*places[len(axes) :], "0"]
        element_at = []
        for axis, plane, i, start in zip(axes, places, along, starts, strict=False):
            moved = mul(f, add(f, start, i, axis.low), axis.step)
            element_at.append(add(f, moved, table(f, axis.planes, plane)))
        offset = mul(f, channel, size)
        outside: list[str] = []
        stride = size
        for number, here in enumerate(element_at[:-1]):
            stride //= axes[number].size
            offset = add(f, offset, mul(f, here, stride))
            if stops is not None or not panel.covered(number):
                outside.append(inside(f, here, ends[number], 1))
        last = axes[-1]
        stop = ends[-1]
        for condition in outside:
            stop = f(f"select i1 {condition}, i64 {stop}, i64 0")
        base = at(f, memory_type(element.dtype), source, offset)
        counts = [*(len(axis.planes) for axis in axes), *panel.extents[:-1]]
        row_number = places[0]
        for count, place in zip(counts[1:], places[1:], strict=True):
            row_number = add(f, mul(f, row_number, count), place)
        row = add(f, mul(f, channel, apart or panel.channel), mul(f, row_number, panel.extents[-1]))
        with f.loop("0", str(panel.extents[-1]), str(lanes)) as i:
            first = add(f, element_at[-1], mul(f, i, last.step))
            value = element.load_strided(f, base, first, stop, last.step, lanes)
            element.put(f, at(f, element.kind, target, row, i), value, lanes)
