"""Sums that were made in pieces, and the second kernel that adds the pieces up, in order."""

from __future__ import annotations

from weft.codegen.cancel import asks, long_loop, takes_long
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.loops.point import mask_literal
from weft.codegen.loops.reduce import Reduction
from weft.codegen.text import Function, Module

__all__ = ["combine_columns", "combine_totals", "fill"]

BLOCK = 1024


def fill(f: Function, reduction: Reduction, place: str, count: int, run: str | None) -> None:
    """Give `count` elements what a reduction starts with; where there is a run, and it takes long,
    it asks."""
    kind = memory_type(reduction.dtype)
    with long_loop(f, run if takes_long(count) else None, "0", str(count), each=1.0) as i:
        at = f(f"getelementptr {kind}, ptr {place}, i64 {i}")
        store(f, reduction.dtype, at, reduction.begin(1), 1)


def combine_totals(
    module: Module,
    name: str,
    reduction: Reduction,
    out: int,
    room: int,
    at: int,
    count: int,
    run: int,
) -> Kernel:
    """`out`, `room` and `run` are places in `%args`; from `at` on the room has `count` parts."""
    f = module.function(name, "i32", PARAMS)
    parts = f(f"getelementptr i8, ptr {argument(f, room)}, i64 {at}")
    kind = memory_type(reduction.dtype)
    total = f.var(reduction.kind(1), reduction.begin(1))
    asking = asks(f, run, count)
    with long_loop(f, asking, "0", str(count), each=1.0) as i:
        part = load(f, reduction.dtype, f(f"getelementptr {kind}, ptr {parts}, i64 {i}"), 1)
        one = reduction.kind(1)
        f.set(one, total, reduction.joined(f, f.get(one, total), part, 1))
    whole = reduction.finished(f, f.get(reduction.kind(1), total))
    store(f, reduction.result, argument(f, out), whole, 1)
    f.do("ret i32 0")
    return Kernel(name, 1, count * 1.0, stops=asking is not None)


def combine_columns(
    module: Module,
    name: str,
    reduction: Reduction,
    out: int,
    room: int,
    at: int,
    pieces: int,
    size: int,
) -> Kernel:
    f = module.function(name, "i32", PARAMS)
    parts = f(f"getelementptr i8, ptr {argument(f, room)}, i64 {at}")
    target = argument(f, out)
    kind = memory_type(reduction.dtype)
    result = memory_type(reduction.result)
    lanes = module.machine.lanes(max(2, reduction.dtype.itemsize))
    vectors = -(-size // lanes)

    def work(vector: str, count: int) -> None:
        mask = None if count == lanes else mask_literal(lanes, count)
        first = f(f"mul i64 {vector}, {lanes}")
        total = f.var(reduction.kind(lanes), reduction.begin(lanes))
        with f.loop("0", str(pieces)) as piece:
            skip = f(f"add i64 {first}, {f(f'mul i64 {piece}, {size}')}")
            place = f(f"getelementptr {kind}, ptr {parts}, i64 {skip}")
            part = load(f, reduction.dtype, place, lanes, mask)
            many = reduction.kind(lanes)
            f.set(many, total, reduction.joined(f, f.get(many, total), part, lanes))
        whole = reduction.finished(f, f.get(reduction.kind(lanes), total), lanes)
        place = f(f"getelementptr {result}, ptr {target}, i64 {first}")
        store(f, reduction.result, place, whole, lanes, mask)

    left = size % lanes
    with f.loop("%begin", "%end") as vector:
        if not left:
            work(vector, lanes)
        else:
            last = f(f"icmp eq i64 {vector}, {vectors - 1}")
            with f.when(last):
                work(vector, left)
            with f.when(f(f"xor i1 {last}, true")):
                work(vector, lanes)
    f.do("ret i32 0")
    return Kernel(name, vectors, pieces * 0.5)
