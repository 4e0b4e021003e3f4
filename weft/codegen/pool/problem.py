"""What pooling kernels share: planes, windows, and how items are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dims import has_dims
from weft.base.shapes import Shape
from weft.codegen.conv.element import Element
from weft.ops.windows import Window

__all__ = ["ITEMS", "Pooling", "merged_windows"]

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
        return all(w.disjoint for w in self.windows)

    @property
    def along(self) -> bool:
        """Whether vectors run along the last axis of one window: windows are long and disjoint."""
        last = self.last
        return last.disjoint and last.taps >= 3 and (last.out == 1 or last.stride > 2)

    def strides(self) -> Shape:
        """Strides of the elements of a plane."""
        sizes = [w.size for w in self.windows]
        return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    def out_strides(self) -> Shape:
        sizes = [w.out for w in self.windows]
        return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    def parts(self, rows: int) -> int:
        """How many parts the rows of a plane are cut into, if there are few planes."""
        if has_dims((self.planes,)):
            return 1
        return 1 if self.planes >= self.items else min(rows, -(-self.items // self.planes))


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
