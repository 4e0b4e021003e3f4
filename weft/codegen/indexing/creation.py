"""Creation of tensors: full, arange, eye."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from weft.base.dims import is_zero, typical
from weft.base.dtypes import DType, float64, int64, uint64
from weft.codegen.cancel import copy_in_parts, pollable_run
from weft.codegen.index import Index, Size, minimum
from weft.codegen.indexing.access import raw_type
from weft.codegen.indexing.blocks import fill_block
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.casts import cast
from weft.codegen.scalar.forms import memory_type, splat, store, supported
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["arange", "eye", "full"]

_PIECE = 4096  # elements of one item


def bits_of(value: Any, dtype: DType) -> int:
    """The bits of a number in a dtype, as an integer."""
    return int.from_bytes(np.full((), value, dtype=dtype.numpy).tobytes(), sys.byteorder)


def _pieces(f: Function, size: int, piece: int) -> tuple[Size, Size]:
    """The range of elements that this call writes."""
    start = f.index("%begin") * piece
    return start, minimum(f.index("%end") * piece, size)


def full(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    size = out.dtype.itemsize
    f = module.function(name, "i32", PARAMS)
    piece = module.machine.piece(_PIECE, size)
    start, stop = _pieces(f, out.size, piece)
    target = argument(f, 0, raw_type(size)) + start
    count = stop - start
    fill_block(f, target, str(bits_of(node.attrs["value"], out.dtype)), count, size)
    f.do("ret i32 0")
    return [Kernel(name, -(-out.size // piece), piece * size / 20)]


def eye(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    size, columns = out.dtype.itemsize, node.attrs["columns"]
    f = module.function(name, "i32", PARAMS)
    target = argument(f, 0, raw_type(size))
    cost = 3 + typical(columns) * size / 20
    run = pollable_run(f, 2, cost)
    with each_item(f) as row:
        start = row * columns
        copy_in_parts(f, run, target + start, None, columns * size)
        column = row + node.attrs["k"]
        with f.when(f(f"icmp ult i64 {column}, {f.size(columns)}")):
            (target + start + column).store(bits_of(1, out.dtype), 1)
    f.do("ret i32 0")
    rows = 0 if is_zero(columns) else node.attrs["rows"]
    return [Kernel(name, rows, cost, stops=run is not None)]


def arange(module: Module, name: str, node: Node) -> list[Kernel] | None:
    out = node.out.tensor_type
    dtype, start, step = out.dtype, node.attrs["start"], node.attrs["step"]
    whole = isinstance(start, int) and isinstance(step, int)
    if not supported(dtype) or (dtype.kind != "float" and not whole):
        return None
    lanes = module.machine.lanes(8)
    f = module.function(name, "i32", PARAMS)
    target = argument(f, 0, memory_type(dtype))

    def write(i: Index, width: int) -> None:
        if width == 1:
            number = Vec(f, "i64", 1, i.name)
        else:
            counted = ", ".join(f"i64 {lane}" for lane in range(width))
            first = splat(f, int64, i.name, width)
            number = Vec(f, "i64", width, f(f"add <{width} x i64> {first}, <{counted}>"))
        if whole:  # wraps around, at any width
            value = number * _signed(step) + _signed(start)
            made = cast(value, uint64 if dtype is uint64 else int64, dtype)
        else:
            value = number.convert("sitofp", "double") * float(step) + float(start)
            made = cast(value, float64, dtype)
        store(f, dtype, target + i, made.name, width)

    piece = module.machine.piece(_PIECE, 8)
    first, last = _pieces(f, out.size, piece)
    even = first + (last - first) // lanes * lanes
    with f.loop(first, even, lanes) as i:
        write(i, lanes)
    with f.loop(even, last) as i:
        write(i, 1)
    f.do("ret i32 0")
    return [Kernel(name, -(-out.size // piece), piece / 4)]


def _signed(value: int) -> int:
    """The i64 with the lowest 64 bits of an integer."""
    return (value + 2**63) % 2**64 - 2**63
