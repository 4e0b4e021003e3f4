"""Where the elements lie that a convolution multiplies.

A convolution and its transpose are one thing here: each result is a sum, over source channels and
taps, of a weight times the source element at `m * step + base`, where `m` counts results and each
tap has a `base` of its own. In the transpose of a stride s, the results fall into s classes
(`spread`) with taps of their own: result number `m * s + class`.

The source is copied, a tile at a time, to a *panel*: padded with zeros, and cut into `step` planes
along each axis (plane p has the elements p, p + step, …). In it every tap is a constant distance
away from the result's position, for all positions of the tile: sums over taps are sums of shifted
vectors, whatever the stride, the dilation and the padding are. The positions of a tile are counted
along the panel, so at the end of each row some stand for no result; they are computed and dropped.

Sizes of the source may be those of a run. Then the tile is one too, and with it all distances in
the panel: `weft.codegen.conv.sized`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from weft.base.dims import has_dims
from weft.base.shapes import Shape
from weft.codegen.index import Size
from weft.codegen.text import Function
from weft.ops.windows import Window

__all__ = ["Axis", "Panel", "backward_axis", "forward_axis", "merged"]


@dataclass(frozen=True, slots=True)
class Axis:
    """size     elements of the source
    result   elements of the result
    step     how far the source moves from one result of a class to the next
    classes  for each class of results, its taps: the number in the kernel, and the base
    kernel   how many taps the kernel has
    """

    size: int
    result: int
    step: int
    classes: tuple[tuple[tuple[int, int], ...], ...]
    kernel: int

    @property
    def spread(self) -> int:
        return len(self.classes)

    @property
    def count(self) -> int:
        """Results of the largest class."""
        return -(-self.result // self.spread)

    @property
    def bases(self) -> list[int]:
        return [base for taps in self.classes for _, base in taps] or [0]

    @property
    def planes(self) -> tuple[int, ...]:
        """The planes that some tap reads."""
        return tuple(sorted({base % self.step for base in self.bases}))

    @property
    def low(self) -> int:
        """The index, in its plane, of the first element that result 0 reads."""
        return min(base // self.step for base in self.bases)

    @property
    def reach(self) -> int:
        """How many more elements of a plane than results a tile has."""
        return max(base // self.step for base in self.bases) - self.low

    @property
    def varies(self) -> bool:
        """Whether it has sizes of the run."""
        return has_dims((self.size, self.result))

    @property
    def trivial(self) -> bool:
        return self.classes == (((0, 0),),) and self.step == 1 and self.size == self.result


def forward_axis(window: Window) -> Axis:
    """The sums over the windows of an axis."""
    taps = tuple((k, k * window.dilation - window.low) for k in range(window.taps))
    return Axis(window.size, window.out, window.stride, (taps,), window.taps)


def backward_axis(window: Window) -> Axis:
    """The transpose: the windows that each element of the axis is part of."""
    classes = []
    for number in range(window.stride):
        places = [(k, number + window.low - k * window.dilation) for k in range(window.taps)]
        taps = [(k, at // window.stride) for k, at in places if at % window.stride == 0]
        classes.append(tuple(taps))
    return Axis(window.out, window.size, 1, tuple(classes), window.taps)


def merged(axes: list[Axis]) -> list[Axis]:
    """Merge neighbouring axes along which nothing is summed."""
    found: list[Axis] = []
    for axis in axes:
        if found and axis.trivial and found[-1].trivial:
            size = found[-1].size * axis.size
            found[-1] = Axis(size, size, 1, axis.classes, 1)
        else:
            found.append(axis)
    return found


@dataclass(frozen=True, slots=True)
class Panel:
    """One channel of a tile of the source: all planes, one after the other."""

    axes: tuple[Axis, ...]
    tile: Shape

    @property
    def extents(self) -> Shape:
        return tuple(t + axis.reach for t, axis in zip(self.tile, self.axes, strict=True))

    @property
    def strides(self) -> Shape:
        """The distance between neighbouring results, for each axis."""
        sizes = self.extents
        return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))

    @property
    def plane(self) -> int:
        return math.prod(self.extents)

    @property
    def channel(self) -> int:
        return self.plane * math.prod(len(axis.planes) for axis in self.axes)

    @property
    def positions(self) -> int:
        """Positions from the first result of a tile to the last, including gaps."""
        return 1 + sum((t - 1) * s for t, s in zip(self.tile, self.strides, strict=True))

    @property
    def tiles(self) -> Shape:
        """The number of tiles along each axis."""
        return tuple(-(-a.count // t) for a, t in zip(self.axes, self.tile, strict=True))

    def covered(self, number: int) -> bool:
        """Whether all elements that the tiles of an axis read exist; False if the run decides."""
        axis = self.axes[number]
        if axis.varies or has_dims((self.tile[number],)):
            return False
        asked = self.tiles[number] * self.tile[number] + axis.reach + axis.low
        return axis.low >= 0 and (asked - 1) * axis.step + max(axis.planes) < axis.size

    def taps(self) -> list[list[tuple[int, int]]]:
        """For each class of results: the offset of each tap in the panel and in the kernel."""
        chosen = itertools.product(*(axis.classes for axis in self.axes))
        return [[self._tap(taps) for taps in itertools.product(*classes)] for classes in chosen]

    def _tap(self, taps: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        plane = place = number = 0
        for axis, stride, (k, base) in zip(self.axes, self.strides, taps, strict=True):
            plane = plane * len(axis.planes) + axis.planes.index(base % axis.step)
            place += (base // axis.step - axis.low) * stride
            number = number * axis.kernel + k
        return plane * self.plane + place, number

    def distances(self, f: Function) -> list[Size]:
        """The offsets of the taps of all classes, which code computes where the run tells them."""
        strides = [f.size(stride) for stride in self.strides]
        plane = f.size(self.plane)
        found = []
        classes = itertools.product(*(axis.classes for axis in self.axes))
        for taps in itertools.chain(*(itertools.product(*one) for one in classes)):
            number = 0
            place: Size = 0
            for axis, stride, (_, base) in zip(self.axes, strides, taps, strict=True):
                number = number * len(axis.planes) + axis.planes.index(base % axis.step)
                place = stride * (base // axis.step - axis.low) + place
            found.append(plane * number + place)
        return found
