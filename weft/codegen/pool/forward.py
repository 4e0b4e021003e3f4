"""max_pool and sum_pool: reductions over windows."""

from __future__ import annotations

from dataclasses import dataclass

from weft.base.dims import has_dims, typical
from weft.codegen.conv.element import Element
from weft.codegen.conv.loops import in_lanes, inside, nest
from weft.codegen.index import Ptr, Size, maximum, minimum, unravel
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, Store, argument, each_item
from weft.codegen.pool.problem import Pooling, rows_of
from weft.codegen.pool.taps import Row, each_row, each_tap, each_vector, lanes_of, lies_inside
from weft.codegen.scalar.vec import Vec, constant, vector_type
from weft.codegen.text import Function, Module

__all__ = ["LARGEST", "SUM", "Fold", "emit_fold"]


@dataclass(frozen=True, slots=True)
class Fold:
    """How two values are joined: the larger one, or their sum."""

    largest: bool

    def start(self, problem: Pooling) -> int | float:
        """The neutral element. (0 changes -0, but is the sum of a window of padding.)"""
        element = problem.element
        if not self.largest:
            return -0.0 if element.real and all(map(lies_inside, problem.windows)) else 0
        if element.real:
            return float("-inf")
        return 0 if element.dtype.kind == "uint" else -(1 << (element.dtype.bits - 1))

    def end(self, element: Element, value: Vec) -> Vec:
        """The result of a window: a maximum is 0, never -0, whichever comes first."""
        return value + 0.0 if self.largest and element.real else value

    def join(self, element: Element, one: Vec, other: Vec) -> Vec:
        """The larger one, the first of equals, or NaN if there is one; or the sum."""
        if not self.largest:
            return one + other
        if not element.real:
            word = "ugt" if element.dtype.kind == "uint" else "sgt"
            return other.compare(word, one).pick(other, one)
        larger = (other > one).pick(other, one)  # a NaN in the first operand is kept
        return other.is_nan().pick(other, larger)


LARGEST, SUM = Fold(True), Fold(False)


def emit_fold(
    module: Module, name: str, problem: Pooling, store: Store, *, fold: Fold
) -> list[Kernel]:
    """An item is some rows of windows of a plane. The elements are at position 0."""
    f = module.function(name, "i32", PARAMS)
    element, windows = problem.element, problem.windows
    store.begin(f)
    x = argument(f, 0, element.memory)
    rows = windows[0].out if len(windows) > 1 else 1
    cut = problem.parts(rows)
    parts = cut[1]
    with each_item(f) as item:
        n, channel, part = unravel(item, [problem.batch, problem.channels, parts])
        plane = n * problem.channels + channel
        base = x + plane * problem.size
        begin, count = rows_of(part, rows, cut)
        stops = [count, *(w.out for w in windows[1:-1])][: len(windows) - 1]
        with nest(f, stops) as places:
            if places:
                places[0] = places[0] + begin
            flat: Size = 0
            for place, stride in zip(places, problem.out_strides(), strict=False):
                flat = flat + place * stride
            make = _along if problem.along and element.moved > 1 else _across
            make(f, problem, fold, base, places, (n, channel, flat), store)
    f.do("ret i32 0")
    lanes = element.lanes if problem.along else lanes_of(problem)
    work = item_cost(20, (1 / max(lanes / 2, 1), problem.out * problem.taps // parts))
    return [work.kernel(name, problem.planes * parts)]


def _across(
    f: Function,
    problem: Pooling,
    fold: Fold,
    base: Ptr,
    places: list[Size],
    index: tuple[Size, Size, Size],
    store: Store,
) -> None:
    """Lanes are neighbouring windows."""
    element, last = problem.element, problem.last
    alone = typical(last.out) < 3 or has_dims((last.stride,))
    most = 1 if alone else element.whole_lanes(last.out, last.stride)

    def windows(x: Size, lanes: int, some: str | None, sure: bool = False) -> None:
        start = constant(element.kind, fold.start(problem), lanes)
        kind = vector_type(element.kind, lanes)
        total = f.var(kind, start)
        rows: dict[Size, Row] = {}

        def tap(offset: Size, _number: Size, shift: Size, mask: str | None) -> None:
            if offset not in rows:
                rows[offset] = Row(f, element, base + offset, last, sure)
            value = rows[offset].load(x, shift, lanes)
            if mask is not None and fold.largest:
                which = vector_type("i1", lanes)
                value = f(f"select {which} {mask}, {kind} {value}, {kind} {start}")
            so_far = Vec(f, element.kind, lanes, total.load())
            joined = fold.join(element, so_far, Vec(f, element.kind, lanes, value))
            total.store(joined.name)

        each_tap(f, problem, places, x, lanes, tap, sure=sure)
        found = fold.end(element, Vec(f, element.kind, lanes, total.load()))
        value = element.rounded(f, found.name, lanes)
        store.put(f, value, lanes, (*index[:2], index[2] + x), some)

    if element.moved > 1:
        each_vector(f, problem, most, lambda x, mask, sure: windows(x, most, mask, sure))
    else:
        in_lanes(f, last.out, most, False, windows)


def _along(
    f: Function,
    problem: Pooling,
    fold: Fold,
    base: Ptr,
    places: list[Size],
    index: tuple[Size, Size, Size],
    store: Store,
) -> None:
    """Lanes are elements of one row of a window, reduced at the end."""
    element, last, lanes = problem.element, problem.last, problem.element.moved
    start = constant(element.kind, fold.start(problem), lanes)
    kind, which = vector_type(element.kind, lanes), vector_type("i1", lanes)
    with f.loop(0, last.out) as x:
        total = f.var(kind, start)
        with each_row(f, problem, places) as (offset, _):
            first = x * last.stride - last.low
            begin = maximum(first, 0)
            stop = minimum(first + last.taps, last.size)
            with f.loop(begin, stop, lanes) as i:
                mask = inside(f, 0, stop - i, lanes)
                value = element.load(f, base + (offset + i), lanes, mask)
                value = f(f"select {which} {mask}, {kind} {value}, {kind} {start}")
                so_far = Vec(f, element.kind, lanes, total.load())
                joined = fold.join(element, so_far, Vec(f, element.kind, lanes, value))
                total.store(joined.name)
        value = _folded(f, element, fold, total.load(), lanes)
        value = element.rounded(f, fold.end(element, Vec(f, element.kind, 1, value)).name, 1)
        store.put(f, value, 1, (*index[:2], index[2] + x))


def _folded(f: Function, element: Element, fold: Fold, value: str, lanes: int) -> str:
    """Reduce the lanes of a vector, joining halves."""
    kind = vector_type(element.kind, lanes)
    half = lanes // 2
    while half:
        order = ", ".join(f"i32 {(i + half) % lanes}" for i in range(lanes))
        moved = f(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{order}>")
        one, other = (Vec(f, element.kind, lanes, name) for name in (value, moved))
        value = fold.join(element, one, other).name
        half //= 2
    return f(f"extractelement {kind} {value}, i64 0")
