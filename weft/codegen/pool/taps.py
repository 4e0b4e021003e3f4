"""Loops over the elements of windows: a vector of windows at a time, tap by tap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from weft.base.dims import has_dims, typical
from weft.codegen.conv.element import Element
from weft.codegen.conv.loops import inside
from weft.codegen.index import Ptr, Size
from weft.codegen.pool.problem import Pooling
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function
from weft.ops.windows import Window, window_count

__all__ = ["Row", "each_row", "each_tap", "lanes_of", "lies_inside"]

#: Maximum taps along the last axis that are unrolled, and maximum taps in all to unroll leading
#: axes; more taps are a loop.
WRITTEN, WRITTEN_IN_ALL = 8, 9


def lanes_of(problem: Pooling) -> int:
    """How many neighbouring windows are processed at once."""
    element, last = problem.element, problem.last
    if typical(last.out) < 3 or has_dims((last.stride,)):
        return 1
    return element.row_lanes(last.out, last.stride)


class Row:
    """Loads from one row of elements; loads of every second element share their vectors."""

    def __init__(self, f: Function, element: Element, base: Ptr, window: Window) -> None:
        self._f = f
        self._element = element
        self._base = base
        self._window = window
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
        return element.load_strided(f, self._base, start, window.size, window.stride, lanes)

    def _pair(self, x: Size, shift: int, lanes: int) -> tuple[str, str]:
        f, element = self._f, self._element
        halves = []
        for part in range(2):
            start = x * 2 + (shift + part * lanes)
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
) -> None:
    """Write the code of each tap of a vector of windows: `body(offset, number, shift, mask)`.

    The windows are those at `places` along the leading axes and x, x + 1, … along the last one.
    `offset` is the start of the tap's row in its plane, `shift` the tap's distance from stride * x
    in that row; `number` counts taps; a mask says which lanes read elements (None: all valid ones).
    """
    last = problem.last

    def one(offset: Size, first: Size, tap: Size) -> None:
        shift = tap * last.dilation - last.low
        mask = None
        if not lies_inside(last):
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
