"""ranked: the positions of a few elements of each row, by rank.

The lowest elements seen so far are kept in order; most elements are compared with the last of them
only. For many ranks the rows are sorted.
"""

from __future__ import annotations

from weft.base.dims import has_dims
from weft.base.dtypes import DType
from weft.codegen.cancel import cancellable_loop
from weft.codegen.indexing.access import raw_type
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.sorting.keys import has_keys
from weft.codegen.sorting.layout import Axis, axis_of, counts_in_32_bits
from weft.codegen.sorting.sort import Order, insert_pair, make_pair, ordered, pair_of, position_of
from weft.codegen.text import Module
from weft.ir.graph import Node

__all__ = ["ranked"]

_FEW = 64  # maximum number of elements that are kept in order


def ranked(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x, attrs = node.inputs[0].tensor_type, node.attrs
    axis = axis_of(x.shape, attrs["axis"])
    order = Order(False, attrs["largest"], True, attrs["first"], attrs["count"])
    kept = order.first + order.count
    if has_dims((kept, axis.length)):
        module.sizes.need(axis.length - kept + 1)
        few = not has_dims((kept,)) and kept <= _FEW
    else:
        few = kept <= min(_FEW, axis.length // 2)
    if not has_keys(x.dtype) or not few or not counts_in_32_bits(module, axis.length):
        return ordered(module, name, x.dtype, axis, order)
    return [_selected(module, name, x.dtype, axis, order)]


def _selected(module: Module, name: str, dtype: DType, axis: Axis, order: Order) -> Kernel:
    pair, _ = pair_of(dtype)
    kept = order.first + order.count
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0, raw_type(dtype.itemsize)), argument(f, 1, "i64")
    each = item_cost(kept * 20.0, (1.5, axis.length))
    run = each.run(f, 3)
    pairs = f.var(pair, count=max(kept, 1), align=64)
    written = Axis(axis.outer, order.count, axis.inner)
    if kept:
        keep = f"weft.keep.{pair}"
        module.once(keep, lambda m: _add_keep(m, keep, pair))
    with each_item(f) as row:
        start = axis.row_start(row)
        if kept:
            with f.loop(0, kept) as k:
                (pairs + k).store(-1, 8)  # higher than every pair
            with cancellable_loop(f, run, 0, axis.length, each=1.5) as k:
                key = order.key(f, dtype, source + (start + k * axis.inner))
                new = make_pair(f, dtype, key, k)
                highest = (pairs + (kept - 1)).load(8)
                with f.when(f(f"icmp ult {pair} {new}, {highest}")):
                    f.do(f"call void @{keep}(ptr {pairs}, i64 {kept}, {pair} {new})")
        target = written.row_start(row)
        with f.loop(0, order.count) as k:
            at = position_of(f, dtype, pairs + (k + order.first))
            (out + (target + k * axis.inner)).store(at, 8)
    f.do("ret i32 0")
    rows = axis.outer * axis.inner
    return each.kernel(name, rows, stops=run is not None)


def _add_keep(module: Module, name: str, pair: str) -> None:
    """Insert a pair into pairs in order; the last one is dropped."""
    params = [("ptr", "pairs"), ("i64", "n"), (pair, "new")]
    f = module.function(name, "void", params, "nounwind noinline")
    pairs, hole = f.ptr("%pairs", pair), f.var("i64")
    hole.store(f.index("%n") - 1)
    insert_pair(f, pair, pairs, hole, "%new")
    f.do("ret void")
