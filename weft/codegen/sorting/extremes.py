"""Where the first largest or smallest value along an axis is; the first NaN where there is one."""

from __future__ import annotations

from weft.base.dtypes import DType
from weft.codegen.indexing.access import element
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.scalar.forms import compute_kind, load, supported
from weft.codegen.scalar.vec import FLOATS, Vec
from weft.codegen.sorting.layout import Axis, axis_of, column_items, columns, widened
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["argmax", "argmin"]


def argmax(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _position(module, name, node, "gt")


def argmin(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _position(module, name, node, "lt")


def _position(module: Module, name: str, node: Node, word: str) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    axis = axis_of(x.shape, node.attrs["axis"])
    if not supported(x.dtype) or axis.length >= 2**31:
        return None
    search = _Search(x.dtype, word)
    if axis.inner == 1:
        return [_along_rows(module, name, axis, search)]
    return [_along_columns(module, name, axis, search)]


class _Search:
    """Values of a dtype, and which of two comes out."""

    def __init__(self, dtype: DType, word: str) -> None:
        self.dtype = dtype
        self.signed = dtype.kind == "int"
        self.word = ("s" if self.signed else "u") + word  # of floats: greater, or one is NaN
        kind = compute_kind(dtype)
        self.kind = "i32" if kind in ("i1", "i8", "i16") else kind
        #: the type of counts that stand beside the values, as wide as they are
        self.count = FLOATS[self.kind][1] if self.kind in FLOATS else self.kind

    def load(
        self, f: Function, pointer: str, place: str, lanes: int, mask: str | None = None
    ) -> Vec:
        address = element(f, pointer, place, self.dtype.itemsize)
        raw = load(f, self.dtype, address, lanes, mask)
        return widened(f, Vec(f, compute_kind(self.dtype), lanes, raw), self.signed)

    def better(self, value: Vec, best: Vec) -> Vec:
        found = value.compare(self.word, best)
        return found & best.compare("ord", best) if self.kind in FLOATS else found

    def same(self, value: Vec, best: Vec) -> Vec:
        if self.kind in FLOATS:
            return value.equals(best) | (value.is_nan() & best.is_nan())
        return value.equals(best)


def _along_rows(module: Module, name: str, axis: Axis, search: _Search) -> Kernel:
    lanes = module.target.lanes(8 if search.count == "i64" else 4)
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0), argument(f, 1)
    best_room, at_room = f.var(search.kind), f.var("i64")
    whole, counts = f"<{lanes} x {search.kind}>", f"<{lanes} x {search.count}>"
    even = axis.length - axis.length % lanes

    def offer(value: Vec, at: str) -> None:
        """Take a value where it is better, or as good and further in front."""
        best = Vec(f, search.kind, 1, f.get(search.kind, best_room))
        old = f.get("i64", at_room)
        earlier = Vec(f, "i1", 1, f(f"icmp slt i64 {at}, {old}"))
        takes = search.better(value, best) | (search.same(value, best) & earlier)
        f.set(search.kind, best_room, takes.pick(value, best).name)
        f.set("i64", at_room, f(f"select i1 {takes}, i64 {at}, i64 {old}"))

    with f.loop("%begin", "%end") as row:
        start = axis.row_start(f, row)
        f.set(search.kind, best_room, search.load(f, source, start, 1).name)
        f.set("i64", at_room, "0")
        if even > lanes:
            bests = f.var(whole, search.load(f, source, start, lanes).name)
            rounds = f.var(counts, "zeroinitializer")
            now = f.var(counts, "zeroinitializer")
            with f.loop(str(lanes), str(even), str(lanes)) as i:
                value = search.load(f, source, f(f"add i64 {start}, {i}"), lanes)
                best = Vec(f, search.kind, lanes, f.get(whole, bests))
                count = Vec(f, search.count, lanes, f.get(counts, now)) + 1
                f.set(counts, now, count.name)
                takes = search.better(value, best)
                f.set(whole, bests, takes.pick(value, best).name)
                old = Vec(f, search.count, lanes, f.get(counts, rounds))
                f.set(counts, rounds, takes.pick(count, old).name)
            values, numbers = f.var(whole), f.var(counts)
            f.set(whole, values, f.get(whole, bests))
            f.set(counts, numbers, f.get(counts, rounds))
            with f.loop("0", str(lanes)) as lane:
                place = f(f"getelementptr {search.kind}, ptr {values}, i64 {lane}")
                value = Vec(f, search.kind, 1, f(f"load {search.kind}, ptr {place}"))
                place = f(f"getelementptr {search.count}, ptr {numbers}, i64 {lane}")
                turn = Vec(f, search.count, 1, f(f"load {search.count}, ptr {place}"))
                turn = turn.convert("zext", "i64") * lanes
                offer(value, f(f"add i64 {turn}, {lane}"))
        with f.loop(str(even if even > lanes else 1), str(axis.length)) as i:
            offer(search.load(f, source, f(f"add i64 {start}, {i}"), 1), i)
        f.do(f"store i64 {f.get('i64', at_room)}, ptr {element(f, out, row, 8)}, align 8")
    f.do("ret i32 0")
    return Kernel(name, axis.outer, 10 + axis.length * 1.5 / lanes)


def _along_columns(module: Module, name: str, axis: Axis, search: _Search) -> Kernel:
    lanes = module.target.lanes(8 if search.count == "i64" else 4)
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0), argument(f, 1)
    whole, counts = f"<{lanes} x {search.kind}>", f"<{lanes} x {search.count}>"
    bests, rounds, now = f.var(whole), f.var(counts), f.var(counts)
    with columns(f, axis, lanes) as c:
        f.set(whole, bests, search.load(f, source, c.start, lanes, c.mask).name)
        f.set(counts, rounds, "zeroinitializer")
        f.set(counts, now, "zeroinitializer")
        with f.loop("1", str(axis.length)) as i:
            place = f(f"add i64 {c.start}, {f(f'mul i64 {i}, {axis.inner}')}")
            value = search.load(f, source, place, lanes, c.mask)
            best = Vec(f, search.kind, lanes, f.get(whole, bests))
            count = Vec(f, search.count, lanes, f.get(counts, now)) + 1
            f.set(counts, now, count.name)
            takes = search.better(value, best)
            f.set(whole, bests, takes.pick(value, best).name)
            old = Vec(f, search.count, lanes, f.get(counts, rounds))
            f.set(counts, rounds, takes.pick(count, old).name)
        found = Vec(f, search.count, lanes, f.get(counts, rounds)).convert("zext", "i64")
        to = f(f"add i64 {f(f'mul i64 {c.outer}, {axis.inner}')}, {c.first}")
        _store_positions(f, element(f, out, to, 8), found, c.mask)
    f.do("ret i32 0")
    return Kernel(name, column_items(axis, lanes), 3 + axis.length * 1.5)


def _store_positions(f: Function, pointer: str, found: Vec, mask: str | None) -> None:
    if mask is None:
        f.do(f"store {found.type} {found}, ptr {pointer}, align 8")
        return
    kind = f"<{found.lanes} x i1>"
    name = f.module.declare(
        "void", f"llvm.masked.store.v{found.lanes}i64.p0", f"{found.type}, ptr, {kind}"
    )
    f.do(f"call void @{name}({found.type} {found}, ptr align 8 {pointer}, {kind} {mask})")
