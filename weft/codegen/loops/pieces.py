"""Sums computed in pieces, and the second kernel that adds the pieces in order."""

from __future__ import annotations

from weft.base.dims import has_dims, typical
from weft.codegen.cancel import cancellable_loop, pollable_run, takes_long
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Index, Ptr, Size, minimum
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.loops.reduce import Reduction
from weft.codegen.scalar.masks import first_lanes
from weft.codegen.text import Function, Module

__all__ = ["combine_columns", "combine_totals", "fill"]

BLOCK = 1024


def fill(f: Function, reduction: Reduction, place: Ptr, count: int, run: Ptr | None) -> None:
    """Initialize `count` elements of a reduction. Polls the run, if there is one, if that takes
    long."""
    with cancellable_loop(f, run if takes_long(typical(count)) else None, 0, count, each=1.0) as i:
        store(f, reduction.dtype, place + i, reduction.begin(1), 1)


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
    """`out`, `room` and `run` are positions in `%args`; the parts begin at byte `at` of `room`."""
    f = module.function(name, "i32", PARAMS)
    parts = argument(f, room, memory_type(reduction.dtype)).bytes(at)
    total = f.var(reduction.kind(1), reduction.begin(1))
    asking = pollable_run(f, run, typical(count))
    with cancellable_loop(f, asking, 0, count, each=1.0) as i:
        part = load(f, reduction.dtype, parts + i, 1)
        total.store(reduction.joined(f, total.load(), part, 1))
    whole = reduction.finished(f, total.load())
    store(f, reduction.result, argument(f, out), whole, 1)
    f.do("ret i32 0")
    work = 1000 * count if has_dims((count,)) else 0
    return Kernel(name, 1, typical(count) * 1.0, stops=asking is not None, work=work)


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
    parts = argument(f, room, memory_type(reduction.dtype)).bytes(at)
    target = argument(f, out, memory_type(reduction.result))
    lanes = module.machine.lanes(max(2, reduction.dtype.itemsize))
    vectors = -(-size // lanes)

    def work(vector: Index, count: Size) -> None:
        mask = None if count == lanes else first_lanes(f, lanes, count)
        first = vector * lanes
        total = f.var(reduction.kind(lanes), reduction.begin(lanes))
        with f.loop(0, pieces) as piece:
            part = load(f, reduction.dtype, parts + (first + piece * size), lanes, mask)
            total.store(reduction.joined(f, total.load(), part, lanes))
        whole = reduction.finished(f, total.load(), lanes)
        store(f, reduction.result, target + first, whole, lanes, mask)

    left = size % lanes
    with each_item(f) as vector:
        if has_dims((left,)):
            work(vector, minimum(size - vector * lanes, lanes))
        elif not left:
            work(vector, lanes)
        else:
            last = f(f"icmp eq i64 {vector}, {vectors - 1}")
            with f.when(last):
                work(vector, left)
            with f.when(f(f"xor i1 {last}, true")):
                work(vector, lanes)
    f.do("ret i32 0")
    terms = 500 * pieces * vectors
    varies = has_dims((terms,))
    return Kernel(name, vectors, typical(pieces) * 0.5, work=terms if varies else 0)
