"""Sliding windows along an axis, for convolutions and pooling.

Window `o` reads, with its tap `j`, the position `o * stride + j * dilation - low`. Positions
outside the axis are padding. A negative `low` skips the first elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.dataclass import dataclass
from weft.base.dim_algebra import known_less
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import Shape, as_shape

#: For each spatial axis, the padding before and after it (negative: elements are removed).
Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """All windows along one axis of `size` elements: `out` of them, `taps` positions in each."""

    size: int
    out: int
    taps: int
    stride: int = 1
    dilation: int = 1
    low: int = 0

    @property
    def trivial(self) -> bool:
        """Whether each window o has one tap, which reads element o."""
        return self.taps == self.stride == 1 and self.low == 0 and self.out == self.size

    @property
    def disjoint(self) -> bool:
        """Whether no element is in two windows."""
        return self.dilation == 1 and self.stride >= self.taps

    @property
    def tiling(self) -> bool:
        """Whether each element is in exactly one window, and there is no padding."""
        whole = self.size == self.out * self.taps and self.low == 0
        return whole and self.dilation == 1 and self.stride == self.taps

    @property
    def has_empty(self) -> bool:
        """Whether a window lies entirely outside of the axis."""
        reached = 0
        for start, stop in sorted((outside.start, outside.stop) for outside, _ in slices(self)):
            if start > reached:
                break
            reached = max(reached, stop)
        return reached < self.out

    def reversed(self) -> Window:
        """For each input, the window of outputs that it contributes to; only for stride 1."""
        return Window(self.out, self.size, self.taps, 1, -self.dilation, -self.low)


@lru_cache(maxsize=1024)
def slices(window: Window) -> tuple[tuple[slice, slice], ...]:
    """For each tap: the windows for which it lies inside the axis, and the elements they read."""
    found = []
    for tap in range(window.taps):
        offset = tap * window.dilation - window.low
        first = max(0, -(offset // window.stride))
        end = min(window.out, (window.size - 1 - offset) // window.stride + 1)
        if end <= first:
            found.append((slice(0, 0), slice(0, 0)))
            continue
        start = first * window.stride + offset
        stop = start + (end - first - 1) * window.stride + 1
        found.append((slice(first, end), slice(start, stop, window.stride)))
    return tuple(found)


def taps(windows: Sequence[Window]) -> Iterator[tuple[Any, Any]]:
    """For each tap over several last axes: the windows and the elements, as indices."""
    for combined in itertools.product(*map(slices, windows)):
        outside, inside = zip(*combined, strict=True)
        yield (..., *outside), (..., *inside)


def extent(taps: int, dilation: int) -> int:
    """The extent of one window."""
    return (taps - 1) * dilation + 1


def window_count(size: int, taps: int, stride: int, dilation: int, padding: tuple[int, int]) -> int:
    """The number of whole windows along an axis; less than 1 if none fits."""
    room = size + sum(padding) - extent(taps, dilation)
    return 0 if known_less(room, 0) else room // stride + 1


def sliding_shape(
    sizes: Shape, kernel: Shape, stride: Shape, dilation: Shape, padding: Padding
) -> Shape:
    """The number of windows along each axis; an error if none fits.

    For an axis of symbolic size, kernels check this again.
    """
    given = (sizes, kernel, stride, dilation, padding)
    if len({len(part) for part in given}) != 1:
        raise ShapeError(
            f"{len(sizes)} spatial axes of sizes {sizes} do not go with kernel {kernel}, "
            f"stride {stride}, dilation {dilation} and padding {padding}"
        )
    for name, part in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
        if any(is_less(number, 1) for number in part):
            raise ShapeError(f"{name} must be at least 1 along each axis, not {part}")
    counts = tuple(itertools.starmap(window_count, zip(*given, strict=True)))
    if any(is_less(count, 1) for count in counts):
        raise too_large(sizes, kernel, dilation, padding)
    return counts


def too_large(sizes: Shape, kernel: Shape, dilation: Shape, padding: Padding) -> ShapeError:
    """The error for windows that do not fit."""
    padded = tuple(size + sum(pad) for size, pad in zip(sizes, padding, strict=True))
    reach = tuple(map(extent, kernel, dilation))
    dilated = f" (dilated to {reach})" if reach != kernel else ""
    return ShapeError(
        f"the kernel of size {kernel}{dilated} is larger than the padded input of size {padded}",
        hint="use a smaller kernel or dilation, more padding, or a larger input",
    )


@lru_cache(maxsize=1024)
def windows_of(
    sizes: Shape, kernel: Shape, stride: Shape, dilation: Shape, padding: Padding
) -> tuple[Window, ...]:
    """The windows along each axis; an error if they do not fit."""
    counts = sliding_shape(sizes, kernel, stride, dilation, padding)
    return tuple(
        Window(size, count, k, s, d, low)
        for size, count, k, s, d, (low, _) in zip(
            sizes, counts, kernel, stride, dilation, padding, strict=True
        )
    )


# --- what users pass ---------------------------------------------------------------------------


def per_axis(value: Any, axes: int, name: str, op: str, *, least: int) -> Shape:
    """One int for each spatial axis, from one int for all of them or a sequence."""
    try:
        given = as_shape(value, op)
    except DTypeError:
        raise DTypeError(
            f"{name} must be an int or a tuple of {axes} ints, not {value!r}", op=op
        ) from None
    if len(given) == 1:
        given *= axes
    if len(given) != axes:
        raise ShapeError(f"{name} {value!r} does not fit {axes} spatial axes", op=op)
    if any(is_less(number, least) for number in given):
        raise ShapeError(f"{name} must be at least {least} along each axis, not {value!r}", op=op)
    return given
