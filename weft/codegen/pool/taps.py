"""Loops over the elements of windows: a vector of windows at a time, tap by tap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from weft.base.dims import has_dims, typical
from weft.codegen.conv.element import Element
from weft.codegen.conv.loops import inside
from weft.codegen.index import Ptr, Size
from weft.codegen.pool.problem import Pooling
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function
from weft.ops.windows import Window, window_count

__all__ = ["Row", "each_row", "each_tap", "each_vector", "interleaved", "lanes_of", "lies_inside"]

#: Maximum taps along the last axis that are unrolled, and maximum taps in all to unroll leading
#: axes; more taps are a loop.
WRITTEN, WRITTEN_IN_ALL = 8, 9


def lanes_of(problem: Pooling) -> int:
    """How many neighbouring windows are processed at once."""
    element, last = problem.element, problem.last
    if typical(last.out) < 3 or has_dims((last.stride,)):
        return 1
    return element.row_lanes(last.out, last.stride)


def each_vector(
    f: Function, problem: Pooling, lanes: int, body: Callable[[Size, str | None, bool], None]
) -> None:
    """Write `body(x, mask, sure)` for all vectors of windows along the last axis.

    If only the run knows how many there are, vectors whose windows all exist and read only elements
    of the row have code of their own, without masks: `sure`."""
    last = problem.last
    with f.loop(0, last.out, lanes) as x:
        if lanes == 1:
            body(x, None, False)
        elif not has_dims((last.size, last.out)):
            body(x, inside(f, 0, last.out - x, lanes), False)
        else:
            sure = _reads_inside(f, last, x, lanes)
            with f.when(sure):
                body(x, None, True)
            with f.when(f(f"xor i1 {sure}, true")):
                body(x, inside(f, 0, last.out - x, lanes), False)


def _reads_inside(f: Function, last: Window, x: Size, lanes: int) -> str:
    """Whether x, x + 1, … are windows, and loads of all of their taps lie in the row."""
    shift = (last.taps - 1) * last.dilation - last.low
    most = own = shift + (lanes - 1) * last.stride + 1
    if last.stride == 2:  # loads of pairs begin at even distances
        most = shift - shift % 2 + 2 * lanes
    there = f(f"icmp sle i64 {f.size(x + lanes)}, {f.size(last.out)}")
    if lies_inside(last) and last.low == 0 and most == own:
        return there  # windows lie in the row, and nothing else is read
    read = f(f"icmp sle i64 {f.size(x * last.stride + most)}, {f.size(last.size)}")
    sure = f(f"and i1 {there}, {read}")
    if last.low == 0:
        return sure
    least = -last.low - last.low % 2 if last.stride == 2 else -last.low
    return f(f"and i1 {sure}, {f(f'icmp sge i64 {f.size(x * last.stride + least)}, 0')}")


class Row:
    """Loads from one row of elements; loads of every second element share their vectors. `sure`:
    all of them lie in the row."""

    def __init__(
        self, f: Function, element: Element, base: Ptr, window: Window, sure: bool = False
    ) -> None:
        self._f = f
        self._element = element
        self._base = base
        self._window = window
        self._sure = sure
        self._pairs: dict[int, tuple[str, str]] = {}

    def load(self, x: Size, shift: Size, lanes: int) -> str:
        """The elements at (x + lane) * stride + shift: 0 outside of the axis."""
        f, element, window = self._f, self._element, self._window
        if lanes > 1 and window.stride == 2 and isinstance(shift, int):
            even = shift - shift % 2
            if even not in self._pairs:
                self._pairs[even] = self._pair(x, even, lanes)
            return self._pairs[even][shift % 2]
        start = x * window.stride + shift
        if self._sure and window.stride == 1:
            return element.load(f, self._base + start, lanes)
        return element.load_strided(f, self._base, start, window.size, window.stride, lanes)

    def _pair(self, x: Size, shift: int, lanes: int) -> tuple[str, str]:
        f, element = self._f, self._element
        halves = []
        for part in range(2):
            start = x * 2 + (shift + part * lanes)
            if self._sure:
                halves.append(element.load(f, self._base + start, lanes))
            else:
                halves.append(element.load_row(f, self._base, start, self._window.size, lanes))
        whole = vector_type(element.kind, lanes)
        made = []
        for odd in range(2):
            order = ", ".join(f"i32 {2 * i + odd}" for i in range(lanes))
            made.append(
                f(
                    f"shufflevector {whole} {halves[0]}, {whole} {halves[1]}, "
                    f"<{lanes} x i32> <{order}>"
                )
            )
        return made[0], made[1]


def interleaved(f: Function, kind: str, values: Sequence[str], lanes: int) -> list[str]:
    """Two vectors as two others: the first elements of both, the second of both, …"""
    whole = vector_type(kind, lanes)
    made = []
    for part in range(2):
        first = part * lanes // 2
        order = ", ".join(f"i32 {first + i // 2 + i % 2 * lanes}" for i in range(lanes))
        both = f"{whole} {values[0]}, {whole} {values[1]}"
        made.append(f(f"shufflevector {both}, <{lanes} x i32> <{order}>"))
    return made


@contextmanager
def each_row(
    f: Function, problem: Pooling, places: list[Size], chosen: tuple[int, ...] | None = None
) -> Iterator[tuple[Size, Size]]:
    """The rows of elements that the windows at leading positions read: the offset of each in its
    plane, and the index of its first tap. `chosen` selects one tap along each leading axis."""
    offset: Size = 0
    number: Size = 0
    with ExitStack() as stack:
        leading = zip(problem.windows, places, problem.strides(), strict=False)
        for axis, (window, place, stride) in enumerate(leading):
            tap: Size = 0
            if chosen is not None:
                tap = chosen[axis]
            elif window.taps > 1:
                tap = stack.enter_context(f.loop(0, window.taps))
            here = place * window.stride + tap * window.dilation - window.low
            if not lies_inside(window):
                valid = inside(f, here, window.size, 1)
                stack.enter_context(f.when(valid))
            offset = offset + here * stride
            number = number * window.taps + tap
        yield offset, number * problem.last.taps


def each_tap(
    f: Function,
    problem: Pooling,
    places: list[Size],
    x: Size,
    lanes: int,
    body: Callable[[Size, Size, Size, str | None], None],
    *,
    sure: bool = False,
) -> None:
    """Write the code of each tap of a vector of windows: `body(offset, number, shift, mask)`.

    The windows are those at `places` along the leading axes and x, x + 1, … along the last one.
    `offset` is the start of the tap's row in its plane, `shift` the tap's distance from stride * x
    in that row; `number` counts taps; a mask says which lanes read elements (None: all valid ones).
    `sure`: along the last axis, all of them do.
    """
    last = problem.last

    def one(offset: Size, first: Size, tap: Size) -> None:
        shift = tap * last.dilation - last.low
        mask = None
        if not sure and not lies_inside(last):
            start = x * last.stride + shift
            mask = inside(f, start, last.size, lanes, last.stride)
        body(offset, first + tap, shift, mask)

    leading = (range(w.taps) for w in problem.windows[:-1])
    every = [*itertools.product(*leading)] if _few(problem.taps, WRITTEN_IN_ALL) else [None]
    for chosen in every:
        with each_row(f, problem, places, chosen) as (offset, first):
            if _few(last.taps, WRITTEN):
                for number in range(last.taps):
                    one(offset, first, number)
            else:
                with f.loop(0, last.taps) as tap:
                    one(offset, first, tap)


def _few(taps: int, most: int) -> bool:
    return not has_dims((taps,)) and taps <= most


def lies_inside(window: Window) -> bool:
    """Whether all windows are inside the axis, for all sizes."""
    if has_dims((window.size, window.out, window.taps, window.stride)):
        padding = window.low, 0
        rest = window.size, window.taps, window.stride, window.dilation
        return window.low <= 0 and window_count(*rest, padding) == window.out
    end = (window.out - 1) * window.stride + (window.taps - 1) * window.dilation - window.low
    return window.low <= 0 and end < window.size
