"""searchsorted: insertion points, by binary search."""

from __future__ import annotations

from weft.base.dim_algebra import dim_max
from weft.base.dims import has_dims, is_zero, typical
from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import compute_kind, load, memory_type, supported
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
        """a < b, with NaN after all numbers."""
        if kind not in FLOATS:
            return a.compare(word, b)
        return a.compare("ult", b) & a.compare("ord", a)

    f = module.function(name, "i32", PARAMS)
    tables, given = (argument(f, i, memory_type(dtype)) for i in range(2))
    out = argument(f, 2, "i64")
    base, left = f.var("i64"), f.var("i64")
    size = ordered.shape[-1]
    steps: int
    if has_dims((size,)):
        steps = module.sizes.let(f"({size} - 1).bit_length()", low=0)
    else:
        steps = max(size - 1, 0).bit_length()
    per_table = values.size if ordered.ndim == 1 else values.shape[-1]

    def before(table: Ptr, place: Size, value: Vec) -> str:
        """Whether the table's number at a position comes before the value's insertion point."""
        there = Vec(f, kind, 1, load(f, dtype, table + place, 1))
        return (less(there, value) if node.attrs["side"] == "left" else ~less(value, there)).name

    with each_item(f) as i:
        value = Vec(f, kind, 1, load(f, dtype, given + i, 1))
        table = tables if ordered.ndim == 1 else tables + i // dim_max(per_table, 1) * size
        base.store(0)
        left.store(size)
        # The number of steps does not depend on the values: there are no unpredictable branches.
        with f.loop(0, steps):
            length, first = left.load_index(), base.load_index()
            half = length // 2
            behind = first + half
            yes = before(table, behind - 1, value)
            base.store(f(f"select i1 {yes}, i64 {behind}, i64 {first}"))
            left.store(length - half)
        found = base.load_index()
        if not is_zero(size):
            found += f.index(f(f"zext i1 {before(table, found, value)} to i64"))
        (out + i).store(found, 8)
    f.do("ret i32 0")
    return [Kernel(name, values.size, 2.0 + 1.5 * typical(size).bit_length())]
