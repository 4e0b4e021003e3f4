"""Tiles of convolutions whose spatial sizes each run tells.

A tile has as many elements as for known sizes, and each run cuts its own: the names that `let`
makes have the sizes of tiles, and distances in panels are expressions of them. The room of a panel
is that of the largest tile.
"""

from __future__ import annotations

import math

from weft.base.dims import ceil_div, has_dims
from weft.base.shapes import Shape
from weft.codegen.conv.geometry import Axis
from weft.codegen.sizes import RunSizes

__all__ = ["LONGEST", "hold_small", "run_tile"]

#: Code counts positions along an axis with 32 bits.
LONGEST = 1 << 30


def hold_small(axes: tuple[Axis, ...], sizes: RunSizes) -> None:
    """Have runs interpreted whose axes are too long for the code."""
    for axis in axes:
        for size in (axis.size, axis.result):
            if has_dims((size,)):
                sizes.need(LONGEST - size)


def run_tile(axes: tuple[Axis, ...], most: int, least: int, sizes: RunSizes) -> tuple[Shape, int]:
    """The tile of each run, and how many elements a plane of its panel has at most.

    The plane has `most` elements at most, unless the last axis of a tile would be shorter than
    `least`. Leading axes are cut first, as for known sizes (`weft.codegen.conv.plan.tiled`), and
    into equal parts.
    """
    reaches = [axis.reach for axis in axes]
    leading = math.prod(1 + reach for reach in reaches[:-1])
    most = max(most, leading * (least + reaches[-1]))
    inner: int = 1  # elements of a plane along the axes that are cut already
    shortest = 1  # the same for the smallest tile
    tile: list[int] = []
    own: int
    for number in reversed(range(len(axes))):
        outer = math.prod(1 + reach for reach in reaches[:number])
        limit = most // (outer * shortest) - reaches[number]
        count = axes[number].count
        if has_dims((count, inner)):
            longest = f"({most} // ({outer * inner}) - {reaches[number]})"
            parts = f"(({count} + {longest} - 1) // {longest})"
            own = sizes.let(f"({count} + {parts} - 1) // {parts}", high=limit)
        else:
            own = ceil_div(count, ceil_div(count, limit))
        tile.insert(0, own)
        inner = inner * (own + reaches[number])
        shortest *= 1 + reaches[number]
    return tuple(tile), most
