"""searchsorted: where values would have to be inserted, by halving."""

from __future__ import annotations

from weft.codegen.indexing.access import element
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.scalar.forms import compute_kind, load, supported
from weft.codegen.scalar.vec import FLOATS, Vec
from weft.codegen.text import Module
from weft.ir.graph import Node

__all__ = ["searchsorted"]


def searchsorted(module: Module, name: str, node: Node) -> list[Kernel] | None:
    ordered, values = (value.tensor_type for value in node.inputs)
    dtype = ordered.dtype
    if not supported(dtype) or values.dtype is not dtype:
        return None
    kind = compute_kind(dtype)
    word = "slt" if dtype.kind == "int" else "ult"

    def less(a: Vec, b: Vec) -> Vec:
        """a < b, with NaN behind all numbers."""
        if kind not in FLOATS:
            return a.compare(word, b)
        return a.compare("ult", b) & a.compare("ord", a)

    f = module.function(name, "i32", PARAMS)
    table, given, out = (argument(f, i) for i in range(3))
    base, left = f.var("i64"), f.var("i64")
    size = ordered.shape[0]

    def before(place: str, value: Vec) -> str:
        """Does the number at a place of the table stand before where the value goes?"""
        there = Vec(f, kind, 1, load(f, dtype, element(f, table, place, dtype.itemsize), 1))
        return (less(there, value) if node.attrs["side"] == "left" else ~less(value, there)).name

    with f.loop("%begin", "%end") as i:
        value = Vec(f, kind, 1, load(f, dtype, element(f, given, i, dtype.itemsize), 1))
        f.set("i64", base, "0")
        f.set("i64", left, str(size))
        # How many are left does not depend on the values: nothing here is a branch to guess.
        with f.loop("0", str(max(size - 1, 0).bit_length())):
            length, first = f.get("i64", left), f.get("i64", base)
            half = f(f"lshr i64 {length}, 1")
            behind = f(f"add i64 {first}, {half}")
            yes = before(f(f"sub i64 {behind}, 1"), value)
            f.set("i64", base, f(f"select i1 {yes}, i64 {behind}, i64 {first}"))
            f.set("i64", left, f(f"sub i64 {length}, {half}"))
        found = f.get("i64", base)
        if size:
            last = f(f"zext i1 {before(found, value)} to i64")
            found = f(f"add i64 {found}, {last}")
        f.do(f"store i64 {found}, ptr {element(f, out, i, 8)}, align 8")
    f.do("ret i32 0")
    return [Kernel(name, values.size, 2.0 + 1.5 * size.bit_length())]
