"""Totals of a product's result, such as a sum of squares, without reading it again.

The product's kernel is unchanged. A wrapper calls it item by item, with local memory for the totals
of the item's elements (see `Epilogue`), and stores them for each item; another kernel joins these
parts, in order. So the result depends on how work is cut into items, but not on the threads.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.base.dim_algebra import dim_max
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import PARAMS, Kernel, args_table, argument, each_item
from weft.codegen.loops.pieces import combine_totals
from weft.codegen.loops.reduce import Reduction, across
from weft.codegen.text import Function, Module
from weft.ir.graph import Value
from weft.schedule.groups import Group

__all__ = ["add_to_total", "emit_totals"]

#: Totals of an item are vectors of this many lanes: the maximum of a vector of elements.
LANES = 32
#: And this many vectors: neighbouring rows do not depend on each other, and each sum has fewer
#: terms.
WAYS = 4


def add_to_total(
    f: Function,
    reduction: Reduction,
    room: Ptr,
    value: str,
    lanes: int,
    index: Sequence[Size],
    mask: str | None,
) -> None:
    """Join elements at an index to the totals of the current item."""
    assert lanes <= LANES
    if len(index) > 1:
        room = room + index[-2] % WAYS * LANES
    new = reduction.taken(f, value, lanes, mask)
    old = load(f, reduction.dtype, room, lanes)
    store(f, reduction.dtype, room, reduction.joined(f, old, new, lanes), lanes)


def emit_totals(
    module: Module,
    name: str,
    group: Group,
    places: Mapping[Value, int],
    scratch: int,
    kernels: list[Kernel],
    run: int,
) -> list[Kernel]:
    """The kernels of a product with those of the group's totals; `scratch` is the position of
    scratch memory, `run` that of the run, if a kernel polls it."""
    *before, main = kernels
    reductions = {node.outputs[0]: Reduction(node) for node in group.totals}
    at, end = {}, -(-functools.reduce(dim_max, [k.scratch for k in kernels]) // 64) * 64
    for value, reduction in reductions.items():
        at[value] = end
        end += -(-main.items * reduction.dtype.itemsize // 64) * 64
    count = run + 1 if main.stops else max(scratch, *places.values()) + 1
    f = module.function(f"{name}.totals", "i32", PARAMS)
    given = args_table(f, count)
    if module.varies:
        (given + -1).store(f.size_table())
    f.do(f"store [{count} x ptr] {f(f'load [{count} x ptr], ptr %args')}, ptr {given}")
    parts = argument(f, scratch)
    rooms = {}
    for value, reduction in reductions.items():
        rooms[value] = f.var(memory_type(reduction.dtype), count=WAYS * LANES, align=64)
        (given + places[value]).store(rooms[value])
    with each_item(f) as item:
        for value, reduction in reductions.items():
            store(f, reduction.dtype, rooms[value], reduction.begin(WAYS * LANES), WAYS * LANES)
        status = f(f"call i32 @{main.name}(ptr {given}, i64 {item}, i64 {item + 1})")
        if main.stops:
            with f.when(f(f"icmp ne i32 {status}, 0")):
                f.do(f"ret i32 {status}")
                f.block(f.fresh("never"))
        for value, reduction in reductions.items():
            all_ = load(f, reduction.dtype, rooms[value], WAYS * LANES)
            whole = across(f, reduction, all_, WAYS * LANES)
            part = parts.of(memory_type(reduction.dtype)).bytes(at[value]) + item
            store(f, reduction.dtype, part, whole, 1)
    f.do("ret i32 0")
    made = [*before, replace(main, name=f.name, cost=main.cost + 20, scratch=end)]
    for number, (value, reduction) in enumerate(reductions.items()):
        last = f"{name}.total{number}"
        out, parts_at = places[value], at[value]
        made.append(
            combine_totals(module, last, reduction, out, scratch, parts_at, main.items, run)
        )
    return made
