"""sort and argsort: stable, NaN last.

The values of a row become unsigned integers in the wanted order, each with its position in the low
half: a pair is one integer, no two are equal, and one routine serves all dtypes of a size. Short
rows use insertion sort, long ones a radix sort by bytes, which is stable. Values are then read by
their positions, so that -0.0 and the bits of NaNs are preserved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dims import has_dims, is_zero, typical
from weft.base.dtypes import DType
from weft.codegen.cancel import cancellable_loop, pollable_run, return_if_cancelled, takes_long
from weft.codegen.index import Index, Ptr, maximum
from weft.codegen.indexing.access import raw_type
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.vec import Vec
from weft.codegen.sorting.keys import has_keys, load_key
from weft.codegen.sorting.layout import Axis, axis_of, counts_in_32_bits
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["Order", "argsort", "make_pair", "ordered", "pair_of", "position_of", "sort"]

_SHORT = 48  # maximum length of rows for insertion sort
_GROUPS = 32  # maximum items: each has scratch memory for one row


@dataclass(frozen=True, slots=True)
class Order:
    """Which order, and which part of it is written.

    descending  from the largest down; NaN stays last
    nan_first   reverses the ascending order with its NaNs
    positions   whether positions are written instead of values
    first       the first rank that is written
    count       how many are
    """

    descending: bool
    nan_first: bool
    positions: bool
    first: int
    count: int

    def key(self, f: Function, dtype: DType, place: Ptr) -> Vec:
        """The key of a value, as an unsigned integer in this order."""
        key = load_key(f, dtype, place, self.descending)
        if self.nan_first:
            key = ~key
        return key ^ -(1 << (8 * dtype.itemsize - 1))


def sort(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _whole(module, name, node, positions=False)


def argsort(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _whole(module, name, node, positions=True)


def _whole(module: Module, name: str, node: Node, *, positions: bool) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    axis = axis_of(x.shape, node.attrs["axis"]) if x.shape else Axis(1, 1, 1)
    order = Order(node.attrs["descending"], False, positions, 0, axis.length)
    return ordered(module, name, x.dtype, axis, order)


def pair_of(dtype: DType) -> tuple[str, int]:
    """The integer that holds a key and a position, and its bytes."""
    return ("i128", 16) if dtype.itemsize == 8 else ("i64", 8)


def make_pair(f: Function, dtype: DType, key: Vec, position: Index) -> str:
    pair, size = pair_of(dtype)
    high = f(f"shl {pair} {key.convert('zext', pair)}, {8 * size // 2}")
    low = position.name if pair == "i64" else f(f"zext i64 {position} to {pair}")
    return f(f"or {pair} {high}, {low}")


def position_of(f: Function, dtype: DType, place: Ptr) -> Index:
    """The position in a pair."""
    pair, size = pair_of(dtype)
    low = place.of(raw_type(size // 2)).load()
    return f.index(low if pair == "i128" else f(f"zext i32 {low} to i64"))


def ordered(
    module: Module, name: str, dtype: DType, axis: Axis, order: Order
) -> list[Kernel] | None:
    """The kernel that sorts rows and writes a part of the result."""
    size = dtype.itemsize
    if not has_keys(dtype) or not counts_in_32_bits(module, axis.length):
        return None
    rows = 0 if is_zero(axis.length) else axis.outer * axis.inner
    varies = has_dims((axis.length,))
    pair, pair_size = pair_of(dtype)
    groups = module.machine.parts(_GROUPS)
    items = module.sizes.let(f"min({rows}, {groups})") if has_dims((rows,)) else min(rows, groups)
    room = -(-axis.length * pair_size // 64) * 64
    f = module.function(name, "i32", PARAMS)
    source, scratch = argument(f, 0, raw_type(size)), argument(f, 2, pair)
    out = argument(f, 1, "i64" if order.positions else raw_type(size))
    per_element = 6.0 if not varies and axis.length <= _SHORT else 3.0 + 2.5 * size
    each = typical(axis.length) * per_element
    cost, work = each * typical(rows) / max(typical(items), 1), 0
    if has_dims((axis.length, rows)):
        work = rows * axis.length * round(1000 * per_element)
    asking = pollable_run(f, 3, math.inf if has_dims((work,)) else cost)
    # if a row takes long, it polls by itself
    run = asking if varies or takes_long(each) else None
    between = asking if run is None else None
    written = Axis(axis.outer, order.count, axis.inner)
    many = items if has_dims((items,)) else max(items, 1)
    with each_item(f) as item:
        pairs = scratch.bytes(item * (2 * room))
        spare = pairs.bytes(room)
        first, last = (i * rows // many for i in (item, item + 1))
        with cancellable_loop(f, between, first, last, each=each) as row:
            start = axis.row_start(row)
            with cancellable_loop(f, run, 0, axis.length) as k:
                key = order.key(f, dtype, source + (start + k * axis.inner))
                (pairs + k).store(make_pair(f, dtype, key, k), 8)
            if varies:
                found = f.var("ptr", pairs)
                short = f(f"icmp sle i64 {f.size(axis.length)}, {_SHORT}")
                with f.when(short):
                    _insertion(f, pairs, axis.length)
                with f.when(f(f"xor i1 {short}, true")):
                    found.store(_radix(f, pairs, spare, axis.length, size, run))
                in_order = found.load_ptr(pair)
            elif axis.length <= _SHORT:
                _insertion(f, pairs, axis.length)
                in_order = pairs
            else:
                in_order = _radix(f, pairs, spare, axis.length, size, run)
            target = written.row_start(row)
            with cancellable_loop(f, run, 0, order.count) as k:
                at = position_of(f, dtype, in_order + (k + order.first))
                to = out + (target + k * axis.inner)
                if order.positions:
                    to.store(at, 8)
                else:
                    to.store((source + (start + at * axis.inner)).load(size), size)
    f.do("ret i32 0")
    room *= 2
    return [Kernel(name, items, cost, items * room, stops=asking is not None, work=work)]


def _insertion(f: Function, pairs: Ptr, length: int) -> None:
    """Sort a short row."""
    pair = pairs.kind
    f.module.once(f"weft.insertion.{pair}", lambda m: _add_insertion(m, pair))
    f.do(f"call void @weft.insertion.{pair}(ptr {pairs}, i64 {f.size(length)})")


def _radix(f: Function, pairs: Ptr, spare: Ptr, length: int, size: int, run: Ptr | None) -> Ptr:
    """Sort a row; returns where it then lies."""
    pair = pairs.kind
    radix = f"weft.radix.{pair}{'.long' if run else ''}"
    f.module.once(radix, lambda m: _add_radix(m, radix, pair))
    given = f"ptr {pairs}, ptr {spare}, i64 {f.size(length)}, i64 {size}"
    in_order = f.ptr(f(f"call ptr @{radix}({given}, ptr {run or 'null'})"), pair)
    if run is not None:
        with f.when(f(f"icmp eq ptr {in_order}, null")):
            return_if_cancelled(f, run)
    return in_order


# --- routines over pairs -------------------------------------------------------------------------


def insert_pair(f: Function, pair: str, pairs: Ptr, hole: Ptr, new: str) -> None:
    """Insert a pair into the pairs in order before the `hole`, which moves down to its place."""
    head, look, move, end = (f.fresh(word) for word in ("head", "look", "move", "end"))
    f.jump(head)
    f.block(head)
    at = hole.load_index()
    f.branch(f(f"icmp sgt i64 {at}, 0"), look, end)
    f.block(look)
    before = at - 1
    old = (pairs + before).load(8)
    f.branch(f(f"icmp ult {pair} {new}, {old}"), move, end)
    f.block(move)
    (pairs + at).store(old, 8)
    hole.store(before)
    f.jump(head)
    f.block(end)
    (pairs + hole.load_index()).store(new, 8)


def _add_insertion(module: Module, pair: str) -> None:
    params = [("ptr", "pairs"), ("i64", "n")]
    f = module.function(f"weft.insertion.{pair}", "void", params, "nounwind noinline")
    pairs, hole = f.ptr("%pairs", pair), f.var("i64")
    with f.loop(1, f.index("%n")) as i:
        new = (pairs + i).load(8)
        hole.store(i)
        insert_pair(f, pair, pairs, hole, new)
    f.do("ret void")


def _add_radix(module: Module, name: str, pair: str) -> None:
    """Sort by the upper halves of pairs, from the lowest byte up; returns the address of the
    result, or null if the run is cancelled."""
    params = [("ptr", "pairs"), ("ptr", "spare"), ("i64", "n"), ("i64", "bytes"), ("ptr", "run")]
    f = module.function(name, "ptr", params, "nounwind noinline")
    run = f.ptr("%run") if name.endswith(".long") else None
    size = 16 if pair == "i128" else 8
    counts = f.var("i64", count=256, align=64)
    source, target = f.var("ptr", "%pairs"), f.var("ptr", "%spare")
    most, total = f.var("i64"), f.var("i64")

    def count_of(given: Ptr, byte: Index, i: Index) -> Ptr:
        """The counter of the pairs that have the same byte as pair `i`."""
        digit = (given + i).of("i8").bytes(byte + size // 2).load()
        return counts + f.index(f(f"zext i8 {digit} to i64"))

    with f.loop(0, f.index("%bytes")) as byte:
        given, to = source.load_ptr(pair), target.load_ptr(pair)
        with f.loop(0, 256) as i:
            (counts + i).store(0)
        with cancellable_loop(f, run, 0, f.index("%n"), result="ptr null") as i:
            place = count_of(given, byte, i)
            place.store(place.load_index() + 1)
        most.store(0)
        total.store(0)
        with f.loop(0, 256) as i:
            here = (counts + i).load_index()
            so_far = total.load_index()
            (counts + i).store(so_far)
            total.store(so_far + here)
            old = most.load_index()
            most.store(maximum(here, old))
        # If all have the same byte, nothing moves.
        with f.when(f(f"icmp ult i64 {most.load_index()}, %n")):
            with cancellable_loop(f, run, 0, f.index("%n"), result="ptr null") as i:
                value = (given + i).load(8)
                place = count_of(given, byte, i)
                at = place.load_index()
                (to + at).store(value, 8)
                place.store(at + 1)
            source.store(to)
            target.store(given)
    f.do(f"ret ptr {source.load_ptr()}")
