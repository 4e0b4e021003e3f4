"""Running sums, products and log-sum-exp: along rows element by element, across rows in lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dims import is_zero
from weft.base.dtypes import NARROW_FLOATS, DType, real_dtype
from weft.codegen.cancel import cancellable_loop
from weft.codegen.index import Ptr, Size
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.floats import FLOATS
from weft.codegen.scalar.forms import compute_kind, load, memory_type, rounded, store, supported
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


def _log_sum(x: Vec, y: Vec) -> Vec:
    return FLOATS["logaddexp"](x, y)


def logcumsumexp(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _cumulative(module, name, node, _log_sum)


def cumulative_prod(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _cumulative(module, name, node, _multiply)


def _cumulative(module: Module, name: str, node: Node, rule: Rule) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    dtype = x.dtype
    axis = axis_of(x.shape, node.attrs["axis"])
    if dtype.kind in ("int", "uint") and dtype.bits < 64:
        return None  # NumPy widens these to 64 bits, so the card never gets them
    if dtype.kind == "complex":
        real = real_dtype(dtype)
        if rule is _multiply:
            return [_complex_products(module, name, axis, real)]
        # real and imaginary parts are neighbours
        axis, dtype = Axis(axis.outer, axis.length, 2 * axis.inner), real
    if not supported(dtype):
        return None
    if axis.inner == 1:
        return [_along_rows(module, name, axis, dtype, rule)]
    return [_along_columns(module, name, axis, dtype, rule)]


def _next(f: Function, dtype: DType, rule: Rule, room: Ptr, value: Vec) -> Vec:
    """Add one more value to the running one; returns it as stored."""
    total = rule(Vec(f, value.kind, value.lanes, room.load()), value)
    room.store(total.name)
    return rounded(total, dtype) if dtype in NARROW_FLOATS else total


def _along_rows(module: Module, name: str, axis: Axis, dtype: DType, rule: Rule) -> Kernel:
    f = module.function(name, "i32", PARAMS)
    source, out = (argument(f, i, memory_type(dtype)) for i in range(2))
    cost = item_cost(2, (1.0, axis.length))
    run = cost.run(f, 3)
    kind = compute_kind(dtype)
    room = f.var(kind)
    if not is_zero(axis.length):
        with each_item(f) as row:
            start = axis.row_start(row)
            first = load(f, dtype, source + start, 1)
            room.store(first)
            store(f, dtype, out + start, first, 1)
            with cancellable_loop(f, run, 1, axis.length, each=1.0) as i:
                at = start + i
                value = Vec(f, kind, 1, load(f, dtype, source + at, 1))
                total = _next(f, dtype, rule, room, value)
                store(f, dtype, out + at, total.name, 1)
    f.do("ret i32 0")
    items = 0 if is_zero(axis.length) else axis.outer
    return cost.kernel(name, items, stops=run is not None)


def _along_columns(module: Module, name: str, axis: Axis, dtype: DType, rule: Rule) -> Kernel:
    kind = compute_kind(dtype)
    lanes = module.machine.lanes(max(dtype.itemsize, 4))
    f = module.function(name, "i32", PARAMS)
    source, out = (argument(f, i, memory_type(dtype)) for i in range(2))
    cost = item_cost(2, (1.5, axis.length))
    run = cost.run(f, 3)
    room = f.var(f"<{lanes} x {kind}>")
    if not is_zero(axis.length):
        with columns(f, axis, lanes) as c:
            first = load(f, dtype, source + c.start, lanes, c.mask)
            room.store(first)
            store(f, dtype, out + c.start, first, lanes, c.mask)
            with cancellable_loop(f, run, 1, axis.length, each=1.5) as i:
                at = c.start + i * axis.inner
                given = load(f, dtype, source + at, lanes, c.mask)
                total = _next(f, dtype, rule, room, Vec(f, kind, lanes, given))
                store(f, dtype, out + at, total.name, lanes, c.mask)
    f.do("ret i32 0")
    items = 0 if is_zero(axis.length) else column_items(axis, lanes)
    return cost.kernel(name, items, stops=run is not None)


def _complex_products(module: Module, name: str, axis: Axis, real: DType) -> Kernel:
    f = module.function(name, "i32", PARAMS)
    source, out = (argument(f, i, memory_type(real)) for i in range(2))
    cost = item_cost(2, (4, axis.length))
    run = cost.run(f, 3)
    kind = compute_kind(real)
    rooms = [f.var(kind), f.var(kind)]

    def parts(place: Size) -> list[Vec]:
        address = source + place * 2
        both = (address, address + 1)
        return [Vec(f, kind, 1, load(f, real, part, 1)) for part in both]

    def write(place: Size, values: list[Vec]) -> None:
        address = out + place * 2
        for i, (value, room) in enumerate(zip(values, rooms, strict=True)):
            room.store(value.name)
            store(f, real, address + i, value.name, 1)

    if not is_zero(axis.length):
        with each_item(f) as row:
            start = axis.row_start(row)
            write(start, parts(start))
            with cancellable_loop(f, run, 1, axis.length, each=4.0) as i:
                at = start + i * axis.inner
                a, b = (Vec(f, kind, 1, room.load()) for room in rooms)
                c, d = parts(at)
                write(at, [a * c - b * d, a * d + b * c])
    f.do("ret i32 0")
    items = 0 if is_zero(axis.length) else axis.outer * axis.inner
    return cost.kernel(name, items, stops=run is not None)


#: By the name of the card: (module, name, node) -> kernels, or None where there are none.
EMITTERS: dict[str, Callable[..., Any]] = {
    "cumulative_prod": cumulative_prod,
    "cumulative_sum": cumulative_sum,
    "logcumsumexp": logcumsumexp,
}
