"""Which element of each window is the largest: the first that equals the result, or is NaN."""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.conv.loops import add, at, indices, inside, least, mul, nest, split_index
from weft.codegen.kernel import PARAMS, Kernel, Store, argument
from weft.codegen.pool.problem import Pooling
from weft.codegen.pool.taps import Row, each_tap, lanes_of
from weft.codegen.scalar.forms import memory_type
from weft.codegen.scalar.vec import Vec, vector_type
from weft.codegen.text import Function, Module

__all__ = ["emit_indices", "emit_pick", "find_winners"]

#: What a winner gives: from the row of its tap (offset, shift) and x, a value of a type.
Given = Callable[[str, str, int | str, str, int], str]


def find_winners(
    f: Function,
    problem: Pooling,
    x: str,
    out: str,
    rows: tuple[str, str],
    given: tuple[str, Given],
    give: Callable[[str, str, int, str | None], None],
    missing: str = "zeroinitializer",
) -> None:
    """For each window of a plane (of the rows `rows` along its first axis): what its winner gives.

    `given` is an LLVM type and code for the value of a tap, `missing` the value where no tap wins;
    `give(value, place, lanes, mask)` writes it, from a place in the plane of windows on.
    """
    element, windows, last = problem.element, problem.windows, problem.last
    memory = memory_type(element.dtype)
    lanes = lanes_of(problem)
    begin, count = rows
    stops = [count, *(str(w.out) for w in windows[1:-1])][: len(windows) - 1]
    mask_type, kind = vector_type("i1", lanes), vector_type(given[0], lanes)
    with nest(f, stops) as places:
        if places:
            places[0] = add(f, places[0], begin)
        flat = "0"
        for place, stride in zip(places, problem.out_strides(), strict=False):
            flat = add(f, flat, mul(f, place, stride))
        with f.loop("0", str(last.out), str(lanes)) as i:
            left = f(f"sub i64 {last.out}, {i}")
            some = inside(f, "0", left, lanes) if lanes > 1 else None
            here = add(f, flat, i)
            wanted = Vec(
                f, element.kind, lanes, element.load(f, at(f, memory, out, here), lanes, some)
            )
            value = f.var(kind, missing if lanes > 1 or missing != "zeroinitializer" else "0")
            free = f.var(mask_type, "true" if lanes == 1 else "splat (i1 true)")
            loads: dict[str, Row] = {}

            def tap(offset: str, number: str, shift: int | str, mask: str | None) -> None:
                if offset not in loads:
                    loads[offset] = Row(f, element, at(f, memory, x, offset), last)
                found = Vec(f, element.kind, lanes, loads[offset].load(i, shift, lanes))
                hit = found.equals(wanted)
                if element.real:
                    hit = hit | found.is_nan()
                if mask is not None:
                    hit = hit & Vec(f, "i1", lanes, mask)
                now = Vec(f, "i1", lanes, f.get(mask_type, free))
                hit = hit & now
                f.set(mask_type, free, (now ^ hit).name)
                own = given[1](offset, number, shift, i, lanes)
                before = f.get(kind, value)
                f.set(kind, value, f(f"select {mask_type} {hit}, {kind} {own}, {kind} {before}"))

            each_tap(f, problem, places, i, lanes, tap)
            give(f.get(kind, value), here, lanes, some)


def _cut(f: Function, problem: Pooling, item: str) -> tuple[str, str, tuple[str, str]]:
    """The plane of an item (batch, channel), and its rows: the first, and how many."""
    rows, each, parts = _rows(problem)
    n, channel, part = split_index(f, item, [problem.batch, problem.channels, parts])
    begin = mul(f, part, each)
    count = least(f, f(f"sub i64 {rows}, {begin}"), str(each)) if parts > 1 else str(rows)
    return n, channel, (begin, count)


def _rows(problem: Pooling) -> tuple[int, int, int]:
    """Rows of windows along the first axis, rows of an item, items of a plane."""
    rows = problem.windows[0].out if len(problem.windows) > 1 else 1
    each = -(-rows // problem.parts(rows))
    return rows, each, -(-rows // each)


def _cost(problem: Pooling, parts: int) -> float:
    return problem.out * problem.taps / parts / max(lanes_of(problem) / 4, 1) + 20


def emit_pick(module: Module, name: str, problem: Pooling, store: Store) -> list[Kernel]:
    """max_pool_pick(v, x, out): of each window the element of v where x is the largest."""
    f = module.function(name, "i32", PARAMS)
    element = problem.element
    memory = memory_type(element.dtype)
    store.begin(f)
    v, x, out = (argument(f, place) for place in range(3))
    _, _, parts = _rows(problem)
    with f.loop("%begin", "%end") as item:
        n, channel, rows = _cut(f, problem, item)
        plane = add(f, mul(f, n, problem.channels), channel)
        base = at(f, memory, v, mul(f, plane, problem.size))
        values: dict[str, Row] = {}

        def given(offset: str, _number: str, shift: int | str, i: str, lanes: int) -> str:
            if offset not in values:
                values[offset] = Row(f, element, at(f, memory, base, offset), problem.last)
            return values[offset].load(i, shift, lanes)

        def give(value: str, place: str, lanes: int, mask: str | None) -> None:
            store.put(f, value, lanes, (n, channel, place), mask)

        elements = at(f, memory, x, mul(f, plane, problem.size))
        results = at(f, memory, out, mul(f, plane, problem.out))
        missing = "0.0" if element.real and lanes_of(problem) == 1 else "zeroinitializer"
        find_winners(f, problem, elements, results, rows, (element.kind, given), give, missing)
    f.do("ret i32 0")
    return [Kernel(name, problem.planes * parts, _cost(problem, parts))]


def emit_indices(module: Module, name: str, problem: Pooling, store: Store) -> list[Kernel]:
    """max_pool_indices(x, out): where the largest element of each window lies in its plane."""
    f = module.function(name, "i32", PARAMS)
    memory = memory_type(problem.element.dtype)
    store.begin(f)
    x, out = (argument(f, place) for place in range(2))
    _, _, parts = _rows(problem)
    with f.loop("%begin", "%end") as item:
        n, channel, rows = _cut(f, problem, item)
        plane = add(f, mul(f, n, problem.channels), channel)

        def given(offset: str, _number: str, shift: int | str, i: str, lanes: int) -> str:
            first = add(f, offset, mul(f, i, problem.last.stride), shift)
            return first if lanes == 1 else indices(f, first, lanes, problem.last.stride)

        def give(value: str, place: str, lanes: int, mask: str | None) -> None:
            store.put(f, value, lanes, (n, channel, place), mask)

        elements = at(f, memory, x, mul(f, plane, problem.size))
        results = at(f, memory, out, mul(f, plane, problem.out))
        find_winners(f, problem, elements, results, rows, ("i64", given), give)
    f.do("ret i32 0")
    return [Kernel(name, problem.planes * parts, _cost(problem, parts))]
