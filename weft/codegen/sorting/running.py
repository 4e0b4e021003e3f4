"""running_argmax: for each element, the position of the largest (or smallest) one up to it."""

from __future__ import annotations

from weft.base.dims import is_zero
from weft.codegen.cancel import cancellable_loop
from weft.codegen.indexing.access import raw_type
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.vec import Vec
from weft.codegen.sorting.keys import has_keys, load_key
from weft.codegen.sorting.layout import axis_of
from weft.codegen.text import Module
from weft.ir.graph import Node

__all__ = ["running_argmax"]


def running_argmax(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    axis = axis_of(x.shape, node.attrs["axis"])
    if not has_keys(x.dtype):
        return None
    kind = raw_type(x.dtype.itemsize)
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0, kind), argument(f, 1, "i64")
    cost = item_cost(2, (1.5, axis.length))
    run = cost.run(f, 3)
    best, place = f.var(kind), f.var("i64")
    if not is_zero(axis.length):
        with each_item(f) as row:
            start = axis.row_start(row)
            best.store(-(1 << (8 * x.dtype.itemsize - 1)))
            place.store(0)
            with cancellable_loop(f, run, 0, axis.length, each=1.5) as i:
                at = start + i * axis.inner
                key = load_key(f, x.dtype, source + at, node.attrs["smallest"])
                old = Vec(f, kind, 1, best.load())
                better = key >= old  # of equal ones the last
                best.store(better.pick(key, old).name)
                now = f(f"select i1 {better}, i64 {i}, i64 {place.load_index()}")
                place.store(now)
                (out + at).store(now, 8)
    f.do("ret i32 0")
    rows = 0 if is_zero(axis.length) else axis.outer * axis.inner
    return [cost.kernel(name, rows, stops=run is not None)]
