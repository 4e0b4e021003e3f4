"""Kernels of single nodes: parts side by side, the element of each class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.base.dtypes import DType
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.loops import Launch
from weft.codegen.elementwise import emit, literal, load, memory_type, store
from weft.codegen.index import Index
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["NODES", "emit_check"]


def _each(module: Module, name: str, buffers: int, count: int, body: Callable[..., None]) -> Launch:
    """A kernel with a thread for each of `count` elements: body(function, builder, number)."""
    builder = KernelBuilder(module, name, buffers)
    f, threads = builder.f, module.machine.threads
    item = builder.block() * threads + builder.thread()
    with f.when(f(f"icmp ult i64 {item}, {count}")):
        body(f, builder, item)
    builder.end(threads)
    return Launch(name, -(-count // threads), threads)


def concat(module: Module, name: str, node: Node) -> list[Launch]:
    """A kernel for each part, which copies it to its place."""
    shape = node.outputs[0].tensor_type.shape
    axis, dtype = node.attrs["axis"] % len(shape), node.outputs[0].tensor_type.dtype
    inner = math.prod(shape[axis + 1 :])
    kind, out = memory_type(dtype), len(node.inputs)
    launches, before = [], 0
    for number, value in enumerate(node.inputs):
        own = value.tensor_type.shape[axis] * inner
        start = before * inner

        def copy(
            f: Function, builder: KernelBuilder, item: Index, n: int = number, own: int = own,
            start: int = start,
        ) -> None:  # fmt: skip
            one = (builder.buffer(n, kind) + item).load()
            place = item // own * (shape[axis] * inner) + item % own + start
            (builder.buffer(out, kind) + place).store(one)

        count = math.prod(value.tensor_type.shape)
        launches.append(_each(module, f"{name}_{number}", out + 2, count, copy))
        before += value.tensor_type.shape[axis]
    return launches


def nll(module: Module, name: str, node: Node) -> list[Launch]:
    """Minus the element of the target's class; 0 for ignored ones. Targets were checked before."""
    logp, target = (value.tensor_type for value in node.inputs)
    axis = node.attrs["axis"] % len(logp.shape)
    inner, classes = math.prod(logp.shape[axis + 1 :]), logp.shape[axis]

    def pick(f: Function, builder: KernelBuilder, item: Index) -> None:
        number = _class(f, builder, 1, target.dtype, item)
        ignored = f(f"icmp eq i64 {number}, {node.attrs['ignore_index']}")
        at = f.index(f(f"select i1 {ignored}, i64 0, i64 {number}"))
        place = item // inner * (classes * inner) + at * inner + item % inner
        one = load(f, logp.dtype, builder.buffer(0, memory_type(logp.dtype)) + place, 1)
        less = emit(f, "negative", [(logp.dtype, one)], logp.dtype, 1, {})
        zero = literal(logp.dtype, 0.0, 1)
        kind = "double" if logp.dtype.itemsize == 8 else "float"
        found = f(f"select i1 {ignored}, {kind} {zero}, {kind} {less}")
        out = builder.buffer(2, memory_type(logp.dtype)) + item
        store(f, logp.dtype, out, found, 1)

    return [_each(module, name, 4, math.prod(target.shape), pick)]


def emit_check(module: Module, name: str, node: Node) -> Launch:
    """A kernel that sets a flag, its second buffer, if a target is none of the classes."""
    logp, target = (value.tensor_type for value in node.inputs)
    classes = logp.shape[node.attrs["axis"] % len(logp.shape)]

    def check(f: Function, builder: KernelBuilder, item: Index) -> None:
        number = _class(f, builder, 0, target.dtype, item)
        ignored = f(f"icmp eq i64 {number}, {node.attrs['ignore_index']}")
        outside = f(f"icmp uge i64 {number}, {classes}")
        wrong = f(f"select i1 {ignored}, i1 false, i1 {outside}")
        with f.when(wrong):
            builder.buffer(1, "i32").store(1)

    return _each(module, name, 2, math.prod(target.shape), check)


def _class(f: Function, builder: KernelBuilder, place: int, dtype: DType, item: Index) -> str:
    """The class of an item, as an i64."""
    kind = memory_type(dtype)
    one = (builder.buffer(place, kind) + item).load()
    if kind == "i64":
        return one
    return f(f"{'sext' if dtype.kind == 'int' else 'zext'} {kind} {one} to i64")


#: (module, name, node) -> launches; buffers are the operands, the result, and scratch memory.
NODES: dict[str, Any] = {"concat": concat, "nll": nll}
