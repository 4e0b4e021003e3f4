"""cumulative_sum and cumulative_prod: along rows one after the other, beside rows in lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtypes import NARROW_FLOATS, DType, real_dtype
from weft.codegen.cancel import asks, long_loop
from weft.codegen.indexing.access import element
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.scalar.forms import compute_kind, load, rounded, store, supported
from weft.codegen.scalar.vec import Vec
from weft.codegen.sorting.layout import Axis, axis_of, column_items, columns
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["EMITTERS"]

Rule = Callable[[Vec, Vec], Vec]


def _add(x: Vec, y: Vec) -> Vec:
    return x + y


def _multiply(x: Vec, y: Vec) -> Vec:
    return x * y


def cumulative_sum(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _cumulative(module, name, node, _add)


def cumulative_prod(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _cumulative(module, name, node, _multiply)


def _cumulative(module: Module, name: str, node: Node, rule: Rule) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    dtype = x.dtype
    axis = axis_of(x.shape, node.attrs["axis"])
    if dtype.kind in ("int", "uint") and dtype.bits < 64:
        return None  # NumPy has these in 64 bits, and the card is not called with them
    if dtype.kind == "complex":
        real = real_dtype(dtype)
        if rule is _multiply:
            return [_complex_products(module, name, axis, real)]
        axis, dtype = Axis(axis.outer, axis.length, 2 * axis.inner), real  # parts side by side
    if not supported(dtype):
        return None
    if axis.inner == 1:
        return [_along_rows(module, name, axis, dtype, rule)]
    return [_along_columns(module, name, axis, dtype, rule)]


def _next(f: Function, dtype: DType, rule: Rule, room: str, value: Vec) -> Vec:
    """One more value into the running one; as it is to be stored."""
    total = rule(Vec(f, value.kind, value.lanes, f.get(value.type, room)), value)
    f.set(value.type, room, total.name)
    return rounded(total, dtype) if dtype in NARROW_FLOATS else total


def _along_rows(module: Module, name: str, axis: Axis, dtype: DType, rule: Rule) -> Kernel:
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0), argument(f, 1)
    cost = 2 + axis.length
    run = asks(f, 3, cost)
    kind, size = compute_kind(dtype), dtype.itemsize
    room = f.var(kind)
    if axis.length:
        with f.loop("%begin", "%end") as row:
            start = axis.row_start(f, row)
            first = load(f, dtype, element(f, source, start, size), 1)
            f.set(kind, room, first)
            store(f, dtype, element(f, out, start, size), first, 1)
            with long_loop(f, run, "1", str(axis.length), each=1.0) as i:
                at = f(f"add i64 {start}, {i}")
                value = Vec(f, kind, 1, load(f, dtype, element(f, source, at, size), 1))
                total = _next(f, dtype, rule, room, value)
                store(f, dtype, element(f, out, at, size), total.name, 1)
    f.do("ret i32 0")
    return Kernel(name, axis.outer if axis.length else 0, cost, stops=run is not None)


def _along_columns(module: Module, name: str, axis: Axis, dtype: DType, rule: Rule) -> Kernel:
    kind, size = compute_kind(dtype), dtype.itemsize
    lanes = module.machine.lanes(max(size, 4))
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0), argument(f, 1)
    cost = 2 + 1.5 * axis.length
    run = asks(f, 3, cost)
    room = f.var(f"<{lanes} x {kind}>")
    if axis.length:
        with columns(f, axis, lanes) as c:
            first = load(f, dtype, element(f, source, c.start, size), lanes, c.mask)
            f.set(f"<{lanes} x {kind}>", room, first)
            store(f, dtype, element(f, out, c.start, size), first, lanes, c.mask)
            with long_loop(f, run, "1", str(axis.length), each=1.5) as i:
                at = f(f"add i64 {c.start}, {f(f'mul i64 {i}, {axis.inner}')}")
                given = load(f, dtype, element(f, source, at, size), lanes, c.mask)
                total = _next(f, dtype, rule, room, Vec(f, kind, lanes, given))
                store(f, dtype, element(f, out, at, size), total.name, lanes, c.mask)
    f.do("ret i32 0")
    items = column_items(axis, lanes) if axis.length else 0
    return Kernel(name, items, cost, stops=run is not None)


def _complex_products(module: Module, name: str, axis: Axis, real: DType) -> Kernel:
    f = module.function(name, "i32", PARAMS)
    source, out = argument(f, 0), argument(f, 1)
    cost = 2 + 4 * axis.length
    run = asks(f, 3, cost)
    kind, size = compute_kind(real), real.itemsize
    rooms = [f.var(kind), f.var(kind)]

    def parts(place: str) -> list[Vec]:
        address = element(f, source, place, 2 * size)
        both = (address, element(f, address, "1", size))
        return [Vec(f, kind, 1, load(f, real, part, 1)) for part in both]

    def write(place: str, values: list[Vec]) -> None:
        address = element(f, out, place, 2 * size)
        for i, (value, room) in enumerate(zip(values, rooms, strict=True)):
            f.set(kind, room, value.name)
            store(f, real, element(f, address, str(i), size), value.name, 1)

    if axis.length:
        with f.loop("%begin", "%end") as row:
            start = axis.row_start(f, row)
            write(start, parts(start))
            with long_loop(f, run, "1", str(axis.length), each=4.0) as i:
                at = f(f"add i64 {start}, {f(f'mul i64 {i}, {axis.inner}')}")
                a, b = (Vec(f, kind, 1, f.get(kind, room)) for room in rooms)
                c, d = parts(at)
                write(at, [a * c - b * d, a * d + b * c])
    f.do("ret i32 0")
    items = axis.outer * axis.inner if axis.length else 0
    return Kernel(name, items, cost, stops=run is not None)


#: By the name of the card: (module, name, node) -> kernels, or None where there are none.
EMITTERS: dict[str, Callable[..., Any]] = {
    "cumulative_prod": cumulative_prod,
    "cumulative_sum": cumulative_sum,
}
