"""Kernels whose results have as many elements as data says: nonzero, repeat.

The first kernel counts, and writes the number to its scratch memory: the run then finds memory for
the results. The second one writes them. See `weft.codegen.late_sizes`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from weft.base.dims import is_zero, typical
from weft.base.dtypes import DType
from weft.codegen.index import Index, Ptr, Size, unravel
from weft.codegen.indexing.access import copy_block, fail_if, load_index, raw_type
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.scalar.forms import load, supported
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["nonzero", "repeat"]

_ROOM = 64  # bytes for the count


def nonzero(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    if not (x.dtype.kind == "bool" or (supported(x.dtype) and x.dtype.kind != "complex")):
        return None
    size = math.prod(x.shape)
    f = module.function(f"{name}.count", "i32", PARAMS)
    given = argument(f, 0, _kind(x.dtype))
    count = f.var("i64", 0)
    with f.loop(0, size) as i:
        count.store(count.load_index() + _is_nonzero(f, x.dtype, given + i))
    argument(f, 2, "i64").store(count.load())
    f.do("ret i32 0")
    cost = item_cost(1.0, (0.3, size))
    counted = replace(cost.kernel(f.name, 1, _ROOM), tells=True)

    f = module.function(name, "i32", PARAMS)
    given, out = argument(f, 0, _kind(x.dtype)), argument(f, 1, "i64")
    found = node.out.tensor_type.shape[1]
    at, place = f.var("i64", 0), f.var("i64", 0)
    total = f.size(found)
    # Each element is written where the next nonzero one belongs: it overwrites those that are zero.
    head, body, end = (f.fresh(word) for word in ("head", "body", "end"))
    f.jump(head)
    f.block(head)
    here = place.load_index()
    f.branch(f(f"icmp slt i64 {here}, {total}"), body, end)
    f.block(body)
    now = at.load_index()
    places = unravel(now, x.shape) if len(x.shape) > 1 else [now]
    for axis, index in enumerate(places):
        (out + (found * axis) + here).store(index)
    place.store(here + _is_nonzero(f, x.dtype, given + now))
    at.store(now + 1)
    f.jump(head)
    f.block(end)
    f.do("ret i32 0")
    cost = item_cost(1.0, (1.0 * len(x.shape), size))
    return [counted, cost.kernel(name, 1, _ROOM)]


def _kind(dtype: DType) -> str:
    return raw_type(dtype.itemsize)


def _is_nonzero(f: Function, dtype: DType, pointer: Ptr) -> Index:
    if dtype.kind in ("bool", "int", "uint"):
        kind = _kind(dtype)
        return f.index(f(f"zext i1 {f(f'icmp ne {kind} {pointer.load(1)}, 0')} to i64"))
    number = load(f, dtype, pointer, 1)
    kind = "double" if dtype.bits == 64 else "float"
    return f.index(f(f"zext i1 {f(f'fcmp une {kind} {number}, 0.0')} to i64"))


def repeat(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x, repeats = (value.tensor_type for value in node.inputs)
    axis = node.attrs["axis"]
    length = x.shape[axis]
    if is_zero(math.prod(x.shape)):
        return None
    f = module.function(f"{name}.count", "i32", PARAMS)
    counts = argument(f, 1)
    total = f.var("i64", 0)
    with f.loop(0, length) as i:
        count = load_index(f, repeats.dtype, counts, i)
        fail_if(f, f(f"icmp ugt i64 {count}, {1 << 48}"))  # or negative: the card raises the error
        total.store(total.load_index() + count)
        fail_if(f, f(f"icmp ugt i64 {total.load()}, {1 << 48}"))
    argument(f, 3, "i64").store(total.load())
    f.do("ret i32 0")
    cost = item_cost(1.0, (1.0, length))
    counted = replace(cost.kernel(f.name, 1, _ROOM), tells=True)

    f = module.function(name, "i32", PARAMS)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    block = inner * x.dtype.itemsize
    source, counts, target = argument(f, 0), argument(f, 1), argument(f, 2)
    to = f.var("ptr", target)
    with f.loop(0, outer) as row, f.loop(0, length) as i:
        place: Size = (row * length + i) * block
        count = load_index(f, repeats.dtype, counts, i)
        with f.loop(0, count):
            now = to.load_ptr()
            copy_block(f, now, source.bytes(place), block)
            to.store(now.bytes(block))
    f.do("ret i32 0")
    cost = item_cost(1.0, (2.0 + typical(block) / 16, outer * node.out.tensor_type.shape[axis]))
    return [counted, cost.kernel(name, 1, _ROOM)]
