"""max_pool_input and sum_pool_input: each window's gradient goes to its elements.

Each element gathers from the windows that contain it, in the order of its taps in them, so results
do not depend on timing. For max_pool_input, the index of each window's winning tap is found first
and kept: in local memory if those of a plane fit, else in scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from weft.base import dtypes
from weft.base.dims import has_dims, typical
from weft.codegen.conv.geometry import backward_axis
from weft.codegen.conv.loops import inside, lane_numbers, nest, splat_i32
from weft.codegen.index import Ptr, Size, divide, maximum, minimum, unravel
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, Store, argument, each_item
from weft.codegen.pool.problem import Pooling, disjoint, rows_of
from weft.codegen.pool.taps import each_row, interleaved, lanes_of
from weft.codegen.pool.tiled import can_tile, emit_tiled
from weft.codegen.pool.winners import find_winners
from weft.codegen.scalar.forms import load, store
from weft.codegen.scalar.vec import Vec, constant, vector_type
from weft.codegen.text import Function, Module
from weft.ops.windows import Window

__all__ = ["emit_backward"]

#: Maximum bytes of winners' indices in local memory.
KEPT = 128 << 10
#: Maximum taps along the last axis that are unrolled.
WRITTEN = 8


def emit_backward(
    module: Module, name: str, problem: Pooling, result: Store, *, largest: bool
) -> list[Kernel]:
    """g is at position 0; for max pooling x and out at 1 and 2; then the result, then scratch."""
    rows = problem.windows[0].size if len(problem.windows) > 1 else 1
    _, parts = problem.parts(rows)
    every, taps = problem.size, typical(problem.taps) / max(problem.element.moved / 4, 1)
    cost = item_cost(40, (taps, every // parts))
    if largest and can_tile(problem):
        return [cost.kernel(name, emit_tiled(module, name, problem, result))]
    f = module.function(name, "i32", PARAMS)
    small = not has_dims((problem.out,)) and problem.out * 4 <= KEPT and parts == 1
    if not largest or small:
        _Backward(f, problem, result, "stack" if largest else "").write()
        return [cost.kernel(name, problem.planes * parts)]
    scratch = problem.planes * problem.out * 4
    first = module.function(f"{name}.winners", "i32", PARAMS)
    each = problem.windows[0].out if len(problem.windows) > 1 else 1
    _write_winners(first, problem, each)
    _Backward(f, problem, result, "scratch").write()
    return [
        item_cost(0, (taps, every // each)).kernel(first.name, problem.planes * each, scratch),
        cost.kernel(name, problem.planes * parts, scratch),
    ]


# --- winners --------------------------------------------------------------------------------------


def _write_winners(f: Function, problem: Pooling, rows: int) -> None:
    """A kernel whose items are rows of windows, of all planes."""
    kept = argument(f, 4, "i32")
    with each_item(f) as item:
        plane, row = unravel(item, [problem.planes, rows])
        own = kept + plane * problem.out
        _find(f, problem, plane, (row, 1), own)
    f.do("ret i32 0")


def _find(f: Function, problem: Pooling, plane: Size, rows: tuple[Size, Size], kept: Ptr) -> None:
    """Write the indices of the winning taps of a plane's windows to `kept`; -1 for none."""
    memory = problem.element.memory
    x = argument(f, 1, memory) + plane * problem.size
    out = argument(f, 2, memory) + plane * problem.out

    def given(_offset: Size, number: Size, _shift: Size, _i: Size, lanes: int) -> str:
        if lanes == 1:
            return f(f"trunc i64 {number} to i32")
        return splat_i32(f, number, lanes)

    def give(value: str, place: Size, lanes: int, mask: str | None) -> None:
        store(f, dtypes.int32, kept + place, value, lanes, mask)

    if problem.along and problem.element.moved > 1:
        _find_along(f, problem, x, out, rows, kept)
        return
    missing = constant("i32", -1, lanes_of(problem))
    find_winners(f, problem, x, out, rows, ("i32", given), give, missing)


def _find_along(
    f: Function, problem: Pooling, x: Ptr, out: Ptr, rows: tuple[Size, Size], kept: Ptr
) -> None:
    """The same, with the elements of one row of a window in lanes."""
    element, last, windows = problem.element, problem.last, problem.windows
    lanes = element.row_lanes(last.taps)
    bits = f"i{lanes}"
    count_zeros = f.module.declare(bits, f"llvm.cttz.{bits}", f"{bits}, i1")
    stops = [rows[1], *(w.out for w in windows[1:-1])][: len(windows) - 1]
    with nest(f, stops) as places:
        flat: Size = 0
        if places:
            places[0] = places[0] + rows[0]
        for place, stride in zip(places, problem.out_strides(), strict=False):
            flat = flat + place * stride
        with f.loop(0, last.out) as o:
            here = flat + o
            one = element.load(f, out + here, 1)
            wanted = Vec(f, element.kind, lanes, element.splat(f, one, lanes))
            winner = f.var("i32", "-1")
            first = o * last.stride - last.low
            begin = maximum(first, 0)
            stop = minimum(first + last.taps, last.size)
            with (
                each_row(f, problem, places) as (offset, number),
                f.loop(begin, stop, lanes) as i,
            ):
                mask = inside(f, 0, stop - i, lanes)
                value = element.load(f, x + (offset + i), lanes, mask)
                found = Vec(f, element.kind, lanes, value)
                hit = found.equals(wanted)
                if element.real:
                    hit = hit | found.is_nan()
                hit = hit & Vec(f, "i1", lanes, mask)
                hits = f(f"bitcast <{lanes} x i1> {hit} to {bits}")
                so_far = winner.load()
                some = f(f"icmp ne {bits} {hits}, 0")
                new = f(f"and i1 {some}, {f(f'icmp eq i32 {so_far}, -1')}")
                lane = f(f"call {bits} @{count_zeros}({bits} {hits}, i1 false)")
                place = number + i + f.index(f(f"zext {bits} {lane} to i64")) - first
                tap = f(f"trunc i64 {place} to i32")
                winner.store(f(f"select i1 {new}, i32 {tap}, i32 {so_far}"))
            (kept + here).store(winner.load())


# --- gathering ------------------------------------------------------------------------------------


class _Backward:
    """Writes the kernel that computes each element's sum."""

    given: Ptr
    kept: Ptr

    def __init__(self, f: Function, problem: Pooling, result: Store, winners: str) -> None:
        self.f = f
        self.problem = problem
        self.element = problem.element
        self.result = result
        self.winners = winners  # where they are: "" (none), "stack" or "scratch"

    def write(self) -> None:
        f, problem, windows = self.f, self.problem, self.problem.windows
        self.result.begin(f)
        g = argument(f, 0, self.element.memory)
        if self.winners == "stack":
            kept = f.var("i32", count=problem.out + 64, align=64)
        elif self.winners == "scratch":
            kept = argument(f, 4, "i32")
        rows = windows[0].size if len(windows) > 1 else 1
        cut = problem.parts(rows)
        with each_item(f) as item:
            n, channel, part = unravel(item, [problem.batch, problem.channels, cut[1]])
            plane = n * problem.channels + channel
            self.given = g + plane * problem.out
            if self.winners == "stack":
                self.kept = kept
                every = windows[0].out if len(windows) > 1 else 1
                _find(f, problem, plane, (0, every), kept)
            elif self.winners:
                self.kept = kept + plane * problem.out
            begin, count = rows_of(part, rows, cut)
            stops = [count, *(w.size for w in windows[1:-1])][: len(windows) - 1]
            with nest(f, stops) as places:
                if places:
                    places[0] = places[0] + begin
                flat: Size = 0
                for place, stride in zip(places, problem.strides(), strict=False):
                    flat = flat + place * stride
                self._row(places, (n, channel, flat))
        f.do("ret i32 0")

    def _row(self, places: list[Size], index: tuple[Size, Size, Size]) -> None:
        last = self.problem.last
        fixed = not has_dims((last.stride, last.taps))
        vectors = self.element.row_lanes(last.size) > 2
        if vectors and self.problem.along:
            self._along(places, index)
        elif vectors and fixed and last.stride <= 2 and last.taps <= WRITTEN:
            classes = backward_axis(last).classes
            self._across(places, index, [list(taps) for taps in classes])
        else:
            self._one_by_one(places, index)

    @contextmanager
    def _windows(self, places: list[Size]) -> Iterator[tuple[Size, Size]]:
        """The rows of windows that contain the elements at leading positions: the offset of each,
        and the index of its first tap."""
        offset: Size = 0
        number: Size = 0
        with ExitStack() as stack:
            for window, place, stride in zip(
                self.problem.windows, places, self.problem.out_strides(), strict=False
            ):
                own, tap = self._window(stack, window, place)
                offset = offset + own * stride
                number = number * window.taps + tap
            yield offset, number * self.problem.last.taps

    def _window(self, stack: ExitStack, window: Window, place: Size) -> tuple[Size, Size]:
        """The windows along an axis that contain an element, and the tap that it is in them."""
        f = self.f
        if window.trivial:
            return place, 0
        if disjoint(window):
            own, tap = divide(place + window.low, window.stride)
            if window.tiling:
                return own, tap
            reached = f(f"icmp ult i64 {tap}, {f.size(window.taps)}")
        else:
            tap = stack.enter_context(f.loop(0, window.taps))
            own, rest = divide(place + window.low - tap * window.dilation, window.stride)
            reached = f(f"icmp eq i64 {rest}, 0")
        # Unsigned: positions before the first window are very large numbers here.
        there = f(f"icmp ult i64 {own}, {f.size(window.out)}")
        stack.enter_context(f.when(f(f"and i1 {reached}, {there}")))
        return own, tap

    def _give(self, total: Ptr, place: Size, numbers: str, mask: str | None, lanes: int) -> None:
        """Add the windows' gradients where the winner is the tap `numbers` (i32, in all lanes)."""
        f, element = self.f, self.element
        value = element.load(f, self.given + place, lanes, mask)
        self._add(total, self._won(value, place, numbers, mask, lanes), lanes)

    def _won(self, value: str, place: Size, numbers: str, mask: str | None, lanes: int) -> str:
        if not self.winners:
            return value
        f = self.f
        winner = load(f, dtypes.int32, self.kept + place, lanes, mask)
        return self._where(value, winner, numbers, lanes)

    def _where(self, value: str, winner: str, numbers: str, lanes: int) -> str:
        f = self.f
        kind, which = vector_type(self.element.kind, lanes), vector_type("i1", lanes)
        hit = f(f"icmp eq {vector_type('i32', lanes)} {winner}, {numbers}")
        none = constant(self.element.kind, 0, lanes)
        return f(f"select {which} {hit}, {kind} {value}, {kind} {none}")

    def _add(self, total: Ptr, value: str, lanes: int) -> None:
        f = self.f
        if not self.problem.disjoint:
            value = self.element.add(f, total.load(), value, lanes)
        total.store(value)

    def _numbers(self, number: Size, lanes: int) -> str:
        if not self.winners:
            return ""
        if lanes == 1:
            return self.f(f"trunc i64 {number} to i32")
        return splat_i32(self.f, number, lanes)

    # --- forms --------------------------------------------------------------------------------

    def _across(
        self,
        places: list[Size],
        index: tuple[Size, Size, Size],
        classes: list[list[tuple[int, int]]],
    ) -> None:
        """Lanes are elements of one class: every element, or every second."""
        f, last = self.f, self.problem.last
        spread = len(classes)
        lanes = self.element.row_lanes(-(-last.size // spread))
        with f.loop(0, -(-last.size // spread), lanes) as m:
            if lanes > 1 and has_dims((last.size, last.out)):
                sure = self._all_exist(m, lanes, classes)
                with f.when(sure):
                    self._vector(m, lanes, places, index, classes, sure=True)
                with f.when(f(f"xor i1 {sure}, true")):
                    self._vector(m, lanes, places, index, classes, sure=False)
            else:
                self._vector(m, lanes, places, index, classes, sure=False)

    def _all_exist(self, m: Size, lanes: int, classes: list[list[tuple[int, int]]]) -> str:
        """Whether all elements of a vector of each class exist, and the windows around them."""
        f, last = self.f, self.problem.last
        reach = [base for taps in classes for _, base in taps] or [0]
        sure = f(f"icmp sle i64 {f.size((m + lanes) * len(classes))}, {f.size(last.size)}")
        there = f(f"icmp sle i64 {f.size(m + (max(reach) + lanes))}, {f.size(last.out)}")
        sure = f(f"and i1 {sure}, {there}")
        if min(reach) < 0:
            sure = f(f"and i1 {sure}, {f(f'icmp sge i64 {f.size(m + min(reach))}, 0')}")
        return sure

    def _vector(
        self,
        m: Size,
        lanes: int,
        places: list[Size],
        index: tuple[Size, Size, Size],
        classes: list[list[tuple[int, int]]],
        *,
        sure: bool,
    ) -> None:
        """Lanes from m on of each class. `sure`: all of them, and of their windows, exist."""
        f, element, last = self.f, self.element, self.problem.last
        spread, kind = len(classes), vector_type(element.kind, lanes)
        totals = [f.var(kind, constant(element.kind, 0, lanes)) for _ in classes]
        with self._windows(places) as (offset, number):
            for total, taps in zip(totals, classes, strict=True):
                for tap, base in taps:
                    first = m + base
                    mask = None if sure else inside(f, first, last.out, lanes)
                    numbers = self._numbers(number + tap, lanes)
                    self._give(total, offset + first, numbers, mask, lanes)
        values = [element.rounded(f, total.load(), lanes) for total in totals]
        if spread == 2:
            values = interleaved(f, element.kind, values, lanes)
        for part, value in enumerate(values):
            here = m * spread + part * lanes
            if sure:
                self.result.put(f, value, lanes, (*index[:2], index[2] + here), None)
            else:
                self._put(value, here, last.size, lanes, index)

    def _put(
        self, value: str, i: Size, stop: Size, lanes: int, index: tuple[Size, Size, Size]
    ) -> None:
        """Write lanes from element i of a row on, up to an end that may be before i."""
        f = self.f
        mask = None
        if lanes > 1:
            mask = inside(f, 0, maximum(stop - i, 0), lanes)
        self.result.put(f, value, lanes, (*index[:2], index[2] + i), mask)

    def _along(self, places: list[Size], index: tuple[Size, Size, Size]) -> None:
        """Lanes are elements of one window, which overlaps no other."""
        f, element, last = self.f, self.element, self.problem.last
        lanes = element.row_lanes(last.stride)
        kind, small = vector_type(element.kind, lanes), vector_type("i32", lanes)
        none = constant(element.kind, 0, lanes)
        covered = last.out * last.stride - last.low  # elements before this belong to a window
        for before, after in ((0, -last.low), (covered, last.size)):
            if has_dims((before, after)) or before < after:
                with f.loop(before, after, lanes) as i:
                    self._put(none, i, after, lanes, index)
        with f.loop(0, last.out) as o:
            first = o * last.stride - last.low
            begin = maximum(first, 0)
            stop = minimum(first + last.stride, last.size)
            with f.loop(begin, stop, lanes) as i:
                total = f.var(kind, none)
                tap = i - first
                with self._windows(places) as (offset, number):
                    place = offset + o
                    one = element.load(f, self.given + place, 1)
                    value = element.splat(f, one, lanes)
                    if self.winners:
                        winner = f(f"sext i32 {(self.kept + place).load(4)} to i64")
                        own = f.index(winner) - number  # the tap along this axis
                        taps = f(
                            f"add {small} {splat_i32(f, tap, lanes)}, {lane_numbers(lanes, 'i32')}"
                        )
                        value = self._where(value, splat_i32(f, own, lanes), taps, lanes)
                    reached = inside(f, tap, last.taps, lanes)
                    which = vector_type("i1", lanes)
                    value = f(f"select {which} {reached}, {kind} {value}, {kind} {none}")
                    self._add(total, value, lanes)
                value = element.rounded(f, total.load(), lanes)
                self._put(value, i, stop, lanes, index)

    def _one_by_one(self, places: list[Size], index: tuple[Size, Size, Size]) -> None:
        f, element, last = self.f, self.element, self.problem.last
        none = constant(element.kind, 0, 1)
        with f.loop(0, last.size) as i:
            total = f.var(element.kind, none)
            with self._windows(places) as (offset, number), ExitStack() as stack:
                own, tap = self._window(stack, last, i)
                numbers = self._numbers(number + tap, 1)
                self._give(total, offset + own, numbers, None, 1)
            value = element.rounded(f, total.load(), 1)
            self._put(value, i, last.size, 1, index)
