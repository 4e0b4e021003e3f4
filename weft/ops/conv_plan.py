"""The plan of a convolution on NumPy arrays: everything that follows from the shapes."""

from __future__ import annotations

import math
from functools import lru_cache

from weft.base.dataclass import dataclass
from weft.base.shapes import Shape
from weft.ops.conv_rules import result_sizes
from weft.ops.windows import Padding, Window, windows_of

Steps = tuple[tuple[int, Window], ...]  # axes whose taps are unfolded, in order

#: Bytes of the largest matrix of a chunk.
CHUNK = 4 << 20
#: Separate products per image are as fast as one for many images if the matrices are thin (at most
#: this many rows of inputs), and save copies if the kernel has size 1 and there are at least this
#: many positions.
THIN, WIDE = 32, 16


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """How one convolution is computed."""

    groups: int
    kernel: Shape  # taps per axis
    channels: int  # of the input, per group
    outputs: int  # of the output, per group
    counts: Shape  # of the output
    unfolded: Steps  # axes unfolded on the input side
    split: Steps  # axis 0 if it is split on the output side, else empty
    middle: Shape  # spatial sizes where the two sides meet
    apart: bool  # whether images have separate products
    chunk: int  # images at a time

    @property
    def rows(self) -> int:
        """Rows of the input's matrix, per group."""
        taps = self.kernel[1:] if self.split else self.kernel
        return self.channels * math.prod(taps)

    @property
    def results(self) -> int:
        """Rows of the output's matrix, per group."""
        return self.outputs * (self.kernel[0] if self.split else 1)

    def chunks(self, batch: int) -> list[slice]:
        return [slice(i, min(i + self.chunk, batch)) for i in range(0, batch, self.chunk)]

    def order(self) -> Shape:
        """The axes of the weight (groups, outputs, channels, *kernel) as the matrix has them."""
        last = tuple(range(len(self.kernel) + 2, 2, -1))
        return (0, 1, 3, 2, *last[:-1]) if self.split else (0, 1, 2, *last)


@lru_cache(maxsize=1024)
def plan_for(
    image: Shape,
    weight: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int,
    itemsize: int,
    worth: int,
) -> ConvPlan:
    """The plan for images (channels, *sizes) and a weight (outputs, channels / groups, *kernel).

    `worth` is how much a split gains, as measured: 2 in the transposed convolution, where the
    input side is added instead of copied, else 1; 0 forbids a split. There is also none if a
    window lies entirely in the padding.
    """
    result_sizes(image, weight, stride, padding, dilation, groups)
    channels, *sizes = image
    outputs, _, *taps = weight
    kernel = tuple(taps)
    windows = windows_of(tuple(sizes), kernel, stride, dilation, padding)
    inner = channels * math.prod(kernel[1:])
    first = windows[0]
    splits = first.taps > 1 and first.stride == 1 and 2 * outputs <= worth * inner
    splits = splits and not first.has_empty
    unfolded = [
        (axis, w) for axis, w in enumerate(windows) if not w.trivial and (axis or not splits)
    ]
    counts = tuple(w.out for w in windows)
    middle = (sizes[0], *counts[1:]) if splits else counts
    rows = max(inner, outputs * kernel[0]) if splits else max(inner * kernel[0], outputs)
    columns = math.prod(middle)
    direct = not unfolded and not splits
    apart = not splits and (inner * kernel[0] <= THIN * groups or (direct and columns >= WIDE))
    if direct and apart:  # nothing is copied: the product per image is the largest matrix
        columns = max(outputs // groups, 1)
    return ConvPlan(
        groups,
        kernel,
        channels // groups,
        outputs // groups,
        counts,
        tuple(reversed(unfolded)),
        ((0, first.reversed()),) if splits else (),
        middle,
        apart,
        max(CHUNK // max(rows * columns * itemsize, 1), 1),
    )
