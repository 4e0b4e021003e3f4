"""The largest element of each window: the first that equals the result, or is NaN."""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.conv.loops import indices, nest
from weft.codegen.index import Index, Ptr, Size, unravel
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, Store, argument, each_item
from weft.codegen.pool.problem import Pooling, rows_of
from weft.codegen.pool.taps import Row, each_tap, each_vector, lanes_of
from weft.codegen.scalar.vec import Vec, vector_type
from weft.codegen.text import Function, Module

__all__ = ["emit_indices", "emit_pick", "find_winners"]

#: The value of a winner, from the row of its tap (offset, shift) and x.
Given = Callable[[Size, Size, Size, Size, int], str]


def find_winners(
    f: Function,
    problem: Pooling,
    x: Ptr,
    out: Ptr,
    rows: tuple[Size, Size],
    given: tuple[str, Given],
    give: Callable[[str, Size, int, str | None], None],
    missing: str = "zeroinitializer",
) -> None:
    """For each window of a plane (of the rows `rows` along its first axis): a value of its winner.

    `given` is an LLVM type and code for the value of a tap, `missing` the value if no tap wins;
    `give(value, place, lanes, mask)` stores it, at an offset in the plane of windows.
    """
    element, windows, last = problem.element, problem.windows, problem.last
    lanes = lanes_of(problem)
    begin, count = rows
    stops = [count, *(w.out for w in windows[1:-1])][: len(windows) - 1]
    mask_type, kind = vector_type("i1", lanes), vector_type(given[0], lanes)
    with nest(f, stops) as places:
        if places:
            places[0] = places[0] + begin
        flat: Size = 0
        for place, stride in zip(places, problem.out_strides(), strict=False):
            flat = flat + place * stride

        def vector(i: Size, some: str | None, sure: bool) -> None:
            here = flat + i
            wanted = Vec(f, element.kind, lanes, element.load(f, out + here, lanes, some))
            value = f.var(kind, missing if lanes > 1 or missing != "zeroinitializer" else "0")
            free = f.var(mask_type, "true" if lanes == 1 else "splat (i1 true)")
            loads: dict[Size, Row] = {}

            def tap(offset: Size, number: Size, shift: Size, mask: str | None) -> None:
                if offset not in loads:
                    loads[offset] = Row(f, element, x + offset, last, sure)
                found = Vec(f, element.kind, lanes, loads[offset].load(i, shift, lanes))
                hit = found.equals(wanted)
                if element.real:
                    hit = hit | found.is_nan()
                if mask is not None:
                    hit = hit & Vec(f, "i1", lanes, mask)
                now = Vec(f, "i1", lanes, free.load())
                hit = hit & now
                free.store((now ^ hit).name)
                own = given[1](offset, number, shift, i, lanes)
                before = value.load()
                value.store(f(f"select {mask_type} {hit}, {kind} {own}, {kind} {before}"))

            each_tap(f, problem, places, i, lanes, tap, sure=sure)
            give(value.load(), here, lanes, some)

        each_vector(f, problem, lanes, vector)


def _cut(problem: Pooling, item: Index) -> tuple[Size, Size, tuple[Size, Size]]:
    """The plane of an item (batch, channel), and its rows: the first, and how many."""
    rows = _rows(problem)
    cut = problem.parts(rows)
    n, channel, part = unravel(item, [problem.batch, problem.channels, cut[1]])
    return n, channel, rows_of(part, rows, cut)


def _rows(problem: Pooling) -> int:
    """Rows of windows along the first axis."""
    return problem.windows[0].out if len(problem.windows) > 1 else 1


def _kernel(name: str, problem: Pooling) -> Kernel:
    _, parts = problem.parts(_rows(problem))
    each = 1 / max(lanes_of(problem) / 4, 1)
    cost = item_cost(20, (each, problem.out * problem.taps // parts))
    return cost.kernel(name, problem.planes * parts)


def emit_pick(module: Module, name: str, problem: Pooling, store: Store) -> list[Kernel]:
    """max_pool_pick(v, x, out): for each window, the element of v where x is largest."""
    f = module.function(name, "i32", PARAMS)
    element = problem.element
    store.begin(f)
    v, x, out = (argument(f, place, element.memory) for place in range(3))
    with each_item(f) as item:
        n, channel, rows = _cut(problem, item)
        plane = n * problem.channels + channel
        base = v + plane * problem.size
        values: dict[Size, Row] = {}

        def given(offset: Size, _number: Size, shift: Size, i: Size, lanes: int) -> str:
            if offset not in values:
                values[offset] = Row(f, element, base + offset, problem.last)
            return values[offset].load(i, shift, lanes)

        def give(value: str, place: Size, lanes: int, mask: str | None) -> None:
            store.put(f, value, lanes, (n, channel, place), mask)
            values.clear()  # they are those of one vector

        elements = x + plane * problem.size
        results = out + plane * problem.out
        missing = "0.0" if element.real and lanes_of(problem) == 1 else "zeroinitializer"
        find_winners(f, problem, elements, results, rows, (element.kind, given), give, missing)
    f.do("ret i32 0")
    return [_kernel(name, problem)]


def emit_indices(module: Module, name: str, problem: Pooling, store: Store) -> list[Kernel]:
    """max_pool_indices(x, out): the index of the largest element of each window in its plane."""
    f = module.function(name, "i32", PARAMS)
    store.begin(f)
    x, out = (argument(f, place, problem.element.memory) for place in range(2))
    with each_item(f) as item:
        n, channel, rows = _cut(problem, item)
        plane = n * problem.channels + channel

        def given(offset: Size, _number: Size, shift: Size, i: Size, lanes: int) -> str:
            first = offset + i * problem.last.stride + shift
            return str(first) if lanes == 1 else indices(f, first, lanes, problem.last.stride)

        def give(value: str, place: Size, lanes: int, mask: str | None) -> None:
            store.put(f, value, lanes, (n, channel, place), mask)

        elements = x + plane * problem.size
        results = out + plane * problem.out
        find_winners(f, problem, elements, results, rows, ("i64", given), give)
    f.do("ret i32 0")
    return [_kernel(name, problem)]
