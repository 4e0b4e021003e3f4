"""The first position of the largest or smallest value along an axis; of the first NaN if there is
one.

It compares keys (see `weft.codegen.sorting.keys`), in which the wanted value is the largest.
"""

from __future__ import annotations

from weft.base.dims import has_dims
from weft.base.dtypes import DType, int32, int64
from weft.codegen.cancel import cancellable_loop
from weft.codegen.index import Ptr, minimum
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import memory_type, splat, store
from weft.codegen.scalar.masks import first_lanes
from weft.codegen.scalar.vec import Vec
from weft.codegen.sorting.keys import has_keys, load_key
from weft.codegen.sorting.layout import Axis, axis_of, column_items, columns, counts_in_32_bits
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["argmax", "argmin"]


def argmax(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _position(module, name, node, smallest=False)


def argmin(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _position(module, name, node, smallest=True)


def _position(module: Module, name: str, node: Node, *, smallest: bool) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    axis = axis_of(x.shape, node.attrs["axis"])
    if not has_keys(x.dtype) or not counts_in_32_bits(module, axis.length):
        return None
    values = _Values(x.dtype, smallest)
    emit = _along_rows if axis.inner == 1 else _along_columns
    if axis.inner == 1 and has_dims((axis.length,)):
        emit = _along_any_rows
    return [emit(module, name, axis, values)]


class _Values:
    """The keys of a dtype's values, in 32 or 64 bits, as wide as the counters beside them."""

    def __init__(self, dtype: DType, smallest: bool) -> None:
        self.dtype = dtype
        self.smallest = smallest
        self.kind = "i64" if dtype.itemsize == 8 else "i32"

    def load(self, f: Function, source: Ptr, lanes: int, mask: str | None = None) -> Vec:
        key = load_key(f, self.dtype, source, self.smallest, lanes, mask)
        return key.convert("sext", self.kind)


class _Lanes:
    """In each lane the largest value so far, and the iteration that saw it first."""

    def __init__(self, f: Function, kind: str, lanes: int) -> None:
        self.f, self.kind, self.lanes = f, kind, lanes
        self.type = f"<{lanes} x {kind}>"
        self.best, self.when, self.now = (f.var(self.type) for _ in range(3))

    def get(self, room: Ptr) -> Vec:
        return Vec(self.f, self.kind, self.lanes, room.load())

    def begin(self, key: Vec) -> None:
        self.best.store(key.name)
        self.when.store("zeroinitializer")
        self.now.store("zeroinitializer")

    def see(self, key: Vec) -> None:
        best, now = self.get(self.best), self.get(self.now) + 1
        better = key > best
        self.now.store(now.name)
        self.best.store(better.pick(key, best).name)
        self.when.store(better.pick(now, self.get(self.when)).name)


def _along_rows(module: Module, name: str, axis: Axis, values: _Values) -> Kernel:
    kind = values.kind
    lanes = module.machine.lanes(8 if kind == "i64" else 4)
    whole = axis.length // lanes * lanes
    by_lanes = whole > lanes
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0, memory_type(values.dtype)), argument(f, 1, "i64")
    per_element = 3.0 / lanes if by_lanes else 1.5
    cost = item_cost(5, (per_element, axis.length))
    run = cost.run(f, 3)
    best_room, at_room = f.var(kind), f.var("i64")
    with each_item(f) as row:
        start = axis.row_start(row)
        if by_lanes:
            side = _Lanes(f, kind, lanes)
            side.begin(values.load(f, source + start, lanes))
            with cancellable_loop(f, run, lanes, whole, lanes, each=3.0) as i:
                side.see(values.load(f, source + start + i, lanes))
            best, at = _first_of(f, side)
        else:
            best, at = values.load(f, source + start, 1), "0"
        best_room.store(best.name)
        at_room.store(at)
        with f.loop(whole if by_lanes else 1, axis.length) as i:
            key = values.load(f, source + start + i, 1)
            old = Vec(f, kind, 1, best_room.load())
            better = key > old
            best_room.store(better.pick(key, old).name)
            at = f(f"select i1 {better}, i64 {i}, i64 {at_room.load_index()}")
            at_room.store(at)
        f.do(f"store i64 {at_room.load_index()}, ptr {out + row}, align 8")
    f.do("ret i32 0")
    return cost.kernel(name, axis.outer, stops=run is not None)


def _along_any_rows(module: Module, name: str, axis: Axis, values: _Values) -> Kernel:
    """Rows whose length only the run knows: whole vectors, and one of what is left."""
    kind = values.kind
    lanes = module.machine.lanes(8 if kind == "i64" else 4)
    length = axis.length
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0, memory_type(values.dtype)), argument(f, 1, "i64")
    cost = item_cost(5, (3.0 / lanes, length))
    run = cost.run(f, 3)
    whole, count = f.size(length // lanes * lanes), f.size(length)
    first = first_lanes(f, lanes, minimum(count, lanes))
    rest = first_lanes(f, lanes, count - whole)
    more = f(f"icmp slt i64 {whole}, {count}")
    more = f(f"and i1 {more}, {f(f'icmp ne i64 {whole}, 0')}")
    lowest = Vec(f, kind, lanes, f"splat ({kind} {-(1 << (8 * (8 if kind == 'i64' else 4) - 1))})")
    side = _Lanes(f, kind, lanes)

    def some(at: Ptr, mask: str) -> Vec:
        """Keys, the lowest of all in lanes beyond the end: these are never the first of equals."""
        return Vec(f, "i1", lanes, mask).pick(values.load(f, at, lanes, mask), lowest)

    with each_item(f) as row:
        start = source + axis.row_start(row)
        side.begin(some(start, first))
        with cancellable_loop(f, run, lanes, length // lanes * lanes, lanes, each=3.0) as i:
            side.see(values.load(f, start + i, lanes))
        with f.when(more):
            side.see(some(start + whole, rest))
        _, at = _first_of(f, side)
        f.do(f"store i64 {at}, ptr {out + row}, align 8")
    f.do("ret i32 0")
    return cost.kernel(name, axis.outer, stops=run is not None)


def _first_of(f: Function, side: _Lanes) -> tuple[Vec, str]:
    """The largest key of all lanes, and the first position that has it."""
    best = side.get(side.best)
    largest = _reduced(best, "smax")
    most = Vec(f, side.kind, side.lanes, f"splat ({side.kind} {2 ** (best.bits - 1) - 1})")
    dtype = int64 if side.kind == "i64" else int32
    top = Vec(f, side.kind, side.lanes, splat(f, dtype, largest.name, side.lanes))
    numbers = ", ".join(f"{side.kind} {lane}" for lane in range(side.lanes))
    places = Vec(f, side.kind, side.lanes, f"<{numbers}>") + side.get(side.when) * side.lanes
    first = _reduced(best.equals(top).pick(places, most), "smin")
    return largest, first.convert("sext", "i64").name


def _reduced(value: Vec, word: str) -> Vec:
    name = f"llvm.vector.reduce.{word}.{value.suffix}"
    value.f.module.declare(value.kind, name, value.type)
    return Vec(value.f, value.kind, 1, value.f(f"call {value.kind} @{name}({value.type} {value})"))


def _along_columns(module: Module, name: str, axis: Axis, values: _Values) -> Kernel:
    lanes = module.machine.lanes(8 if values.kind == "i64" else 4)
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0, memory_type(values.dtype)), argument(f, 1, "i64")
    cost = item_cost(3, (2.5, axis.length))
    run = cost.run(f, 3)
    side = _Lanes(f, values.kind, lanes)
    with columns(f, axis, lanes) as c:
        side.begin(values.load(f, source + c.start, lanes, c.mask))
        with cancellable_loop(f, run, 1, axis.length, each=2.5) as i:
            place = source + (c.start + i * axis.inner)
            side.see(values.load(f, place, lanes, c.mask))
        found = side.get(side.when).convert("zext", "i64")
        to = c.outer * axis.inner + c.first
        store(f, int64, out + to, found.name, lanes, c.mask)
    f.do("ret i32 0")
    return cost.kernel(name, column_items(axis, lanes), stops=run is not None)
