"""What pooling kernels share: planes, windows, and how items are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dim_algebra import dim_min, known_less
from weft.base.dims import ceil_div, has_dims, typical
from weft.base.shapes import Shape
from weft.codegen.conv.element import Element
from weft.codegen.index import Size, minimum
from weft.ops.windows import Window

__all__ = ["ITEMS", "Pooling", "disjoint", "merged_windows", "rows_of"]

#: Enough items for any number of threads.
ITEMS = 16


@dataclass(frozen=True, slots=True)
class Pooling:
    """Windows over the last axes of (batch, channels, *sizes), whose first two number planes.

    `items`: into how many items of work all is cut at least, if there are as many rows.
    """

    batch: int
    channels: int
    windows: tuple[Window, ...]
    element: Element
    items: int = ITEMS

    @property
    def planes(self) -> int:
        return self.batch * self.channels

    @property
    def size(self) -> int:
        """Elements of a plane."""
        return math.prod(w.size for w in self.windows)

    @property
    def out(self) -> int:
        """Windows of a plane."""
        return math.prod(w.out for w in self.windows)

    @property
    def taps(self) -> int:
        return math.prod(w.taps for w in self.windows)

    @property
    def last(self) -> Window:
        return self.windows[-1]

    @property
    def disjoint(self) -> bool:
        """Whether no element is in two windows."""
        return all(map(disjoint, self.windows))

    @property
    def along(self) -> bool:
        """Whether vectors run along the last axis of one window: windows are long and disjoint."""
        last = self.last
        long = typical(last.taps) >= 3 and (last.out == 1 or typical(last.stride) > 2)
        return long and disjoint(last)

    def strides(self) -> Shape:
        """Strides of the elements of a plane."""
        sizes = [w.size for w in self.windows]
        return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    def out_strides(self) -> Shape:
        sizes = [w.out for w in self.windows]
        return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    def parts(self, rows: int) -> tuple[int, int]:
        """The rows of an item, and how many parts the rows of a plane are cut into: several, if
        there are few planes."""
        if has_dims((self.planes,)) or self.planes >= self.items:
            return rows, 1
        each = ceil_div(rows, dim_min(rows, ceil_div(self.items, self.planes)))
        return each, ceil_div(rows, each)


def rows_of(part: Size, rows: int, cut: tuple[int, int]) -> tuple[Size, Size]:
    """The first row of a part, and how many there are; `cut` is what `parts` says."""
    each, parts = cut
    begin = part * each
    return begin, rows if parts == 1 else minimum(rows - begin, each)


def disjoint(window: Window) -> bool:
    """Whether no element is in two windows, for all sizes."""
    return window.dilation == 1 and known_less(window.taps, window.stride + 1)


def merged_windows(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Merge neighbouring axes if each window covers all of both, or neither is pooled."""
    found: list[Window] = []
    for window in windows:
        before = found[-1] if found else None
        if before is not None and _whole(before) and _whole(window):
            size = before.size * window.size
            found[-1] = Window(size, 1, size, size)
        elif before is not None and before.trivial and window.trivial:
            size = before.size * window.size
            found[-1] = Window(size, size, 1)
        else:
            found.append(window)
    return tuple(found)


def _whole(window: Window) -> bool:
    """Whether there is one window, of exactly all elements."""
    return (
        window.out == 1 and window.low == 0 and window.dilation == 1 and window.taps == window.size
    )
