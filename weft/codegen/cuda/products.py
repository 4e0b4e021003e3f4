"""Matrix products by the threads of one block: small ones, inside of a larger kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import matrices
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Index, Size, unravel
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.schedule.views import View

__all__ = ["emit_product"]


def emit_product(
    module: Module, name: str, node: Node, views: list[View], machine: GpuMachine
) -> None:
    """A part of a kernel: each thread computes elements of the result, in order of terms. Narrow
    floats are summed in float32. Buffers: the operands, the result, scratch memory."""
    builder = KernelBuilder(module, name, 4, machine)
    f = builder.f
    dtype = node.out.tensor_type.dtype
    left_view, right_view, shape = matrices(views, node.out.tensor_type.shape)
    wide = "double" if dtype.itemsize == 8 else "float"
    name = f"llvm.fma.f{64 if wide == 'double' else 32}"
    fused = module.declare(wide, name, ", ".join([wide] * 3))
    terms = left_view.shape[-1]
    left = builder.buffer(0, memory_type(dtype)) + left_view.offset
    right = builder.buffer(1, memory_type(dtype)) + right_view.offset
    with f.loop(builder.thread(), math.prod(shape), machine.threads) as item:
        index = unravel(item, shape)
        row = left + _offset(left_view, [*index[:-1], 0])
        column = right + _offset(right_view, [*index[:-2], 0, index[-1]])
        sum_ = f.var(wide, "0.0")
        with f.loop(0, terms) as term:
            a = load(f, dtype, row + term * left_view.strides[-1], 1)
            b = load(f, dtype, column + term * right_view.strides[-2], 1)
            sum_.store(f(f"call {wide} @{fused}({wide} {a}, {wide} {b}, {wide} {sum_.load()})"))
        store(f, dtype, builder.buffer(2, memory_type(dtype)) + item, sum_.load(), 1)
    f.do("ret void")


def _offset(view: View, index: Sequence[Size]) -> Size:
    """Where an element lies, from its index in the result, which has at least as many axes."""
    found: Size | Index = 0
    own = index[len(index) - len(view.shape) :]
    for i, size, stride in zip(own, view.shape, view.strides, strict=True):
        if size != 1:
            found = found + i * stride
    return found
