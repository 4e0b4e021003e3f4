"""sort and argsort: stable, NaN last.

The values of a row become unsigned integers in the wanted order, each with its position in the low
half: a pair is one integer, no two are equal, and one routine serves all dtypes of a size. Short
rows use insertion sort, long ones a radix sort by bytes, which is stable. Values are then read by
their positions, so that -0.0 and the bits of NaNs are preserved.
"""

from __future__ import annotations

from weft.codegen.cancel import cancellable_loop, pollable_run, return_if_cancelled, takes_long
from weft.codegen.index import Index, Ptr, maximum
from weft.codegen.indexing.access import raw_type
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.sorting.keys import has_keys, load_key
from weft.codegen.sorting.layout import Axis, axis_of
from weft.codegen.text import Module
from weft.ir.graph import Node

__all__ = ["argsort", "sort"]

_SHORT = 48  # maximum length of rows for insertion sort
_GROUPS = 32  # maximum items: each has scratch memory for one row


def sort(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _sorted(module, name, node, positions=False)


def argsort(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _sorted(module, name, node, positions=True)


def _sorted(module: Module, name: str, node: Node, *, positions: bool) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    dtype, size = x.dtype, x.dtype.itemsize
    axis = axis_of(x.shape, node.attrs["axis"]) if x.shape else Axis(1, 1, 1)
    if not has_keys(dtype) or axis.length >= 2**31:
        return None
    rows = axis.outer * axis.inner if axis.length else 0
    pair = "i128" if size == 8 else "i64"
    pair_size = 16 if size == 8 else 8
    items = min(rows, _GROUPS)
    room = -(-axis.length * pair_size // 64) * 64
    f = module.function(name, "i32", PARAMS)
    source, scratch = argument(f, 0, raw_type(size)), argument(f, 2, pair)
    out = argument(f, 1, "i64" if positions else raw_type(size))
    per_element = 6.0 if axis.length <= _SHORT else 3.0 + 2.5 * size
    each = axis.length * per_element
    cost = each * rows / max(items, 1)
    asking = pollable_run(f, 3, cost)
    run = asking if takes_long(each) else None  # if a row takes long, it polls by itself
    between = asking if run is None else None
    with each_item(f) as item:
        pairs = scratch.bytes(item * (2 * room))
        spare = pairs.bytes(room)
        first, last = (i * rows // max(items, 1) for i in (item, item + 1))
        with cancellable_loop(f, between, first, last, each=each) as row:
            start = axis.row_start(row)
            with cancellable_loop(f, run, 0, axis.length) as k:
                place = source + (start + k * axis.inner)
                key = load_key(f, dtype, place, node.attrs["descending"])
                key ^= -(1 << (8 * size - 1))  # unsigned, in the same order
                half = 8 * pair_size // 2
                high = f(f"shl {pair} {key.convert('zext', pair)}, {half}")
                low = k.name if pair == "i64" else f(f"zext i64 {k} to {pair}")
                (pairs + k).store(f(f"or {pair} {high}, {low}"), 8)
            ordered = pairs
            if axis.length <= _SHORT:
                module.once(f"weft.insertion.{pair}", lambda m: _add_insertion(m, pair))
                f.do(f"call void @weft.insertion.{pair}(ptr {pairs}, i64 {axis.length})")
            else:
                radix = f"weft.radix.{pair}{'.long' if run else ''}"
                module.once(radix, lambda m: _add_radix(m, radix, pair))
                given = f"ptr {pairs}, ptr {spare}, i64 {axis.length}, i64 {size}"
                ordered = f.ptr(f(f"call ptr @{radix}({given}, ptr {run or 'null'})"), pair)
                if run is not None:
                    with f.when(f(f"icmp eq ptr {ordered}, null")):
                        return_if_cancelled(f, run)
            with cancellable_loop(f, run, 0, axis.length) as k:
                low = (ordered + k).of(raw_type(pair_size // 2)).load()
                at = f.index(low if pair == "i128" else f(f"zext i32 {low} to i64"))
                to = out + (start + k * axis.inner)
                if positions:
                    to.store(at, 8)
                else:
                    to.store((source + (start + at * axis.inner)).load(size), size)
    f.do("ret i32 0")
    return [Kernel(name, items, cost, items * 2 * room, stops=asking is not None)]


# --- routines over pairs -------------------------------------------------------------------------


def _add_insertion(module: Module, pair: str) -> None:
    params = [("ptr", "pairs"), ("i64", "n")]
    f = module.function(f"weft.insertion.{pair}", "void", params, "nounwind noinline")
    pairs, hole = f.ptr("%pairs", pair), f.var("i64")
    with f.loop(1, f.index("%n")) as i:
        new = (pairs + i).load(8)
        hole.store(i)
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
