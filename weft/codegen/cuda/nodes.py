"""Kernels of single nodes: parts side by side, the element of each class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.base.dtypes import DType, float32
from weft.codegen.contract import Status
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.loops import Launch
from weft.codegen.elementwise import emit, literal, load, memory_type, store
from weft.codegen.index import Index, Ptr
from weft.codegen.indexing.blocks import accumulator
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["FAILING_NODES", "NODES", "emit_check", "rounded"]


def _each(
    module: Module,
    name: str,
    buffers: int,
    count: int,
    body: Callable[..., None],
    *,
    gated: bool = False,
) -> Launch:
    """A kernel with a thread for each of `count` elements: body(function, builder, number).
    `gated`: its last buffer is the program's flag, and it does nothing if that is set."""
    builder = KernelBuilder(module, name, buffers)
    if gated:
        builder.stop_if(builder.buffer(buffers - 1, "i32"))
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


def embedding(module: Module, name: str, node: Node) -> list[Launch]:
    """A thread for each element of the rows that are read."""
    weight, indices = (value.tensor_type for value in node.inputs)
    rows, width = weight.shape
    kind = memory_type(weight.dtype)

    def read(f: Function, builder: KernelBuilder, item: Index) -> None:
        number = _class(f, builder, 1, indices.dtype, item // width)
        with f.when(f(f"icmp uge i64 {number}, {rows}")):
            builder.buffer(4, "i32").store(int(Status.FAILED))
            f.do("ret void")
            f.block(f.fresh("never"))
        one = (builder.buffer(0, kind) + (f.index(number) * width + item % width)).load()
        (builder.buffer(2, kind) + item).store(one)

    return [_each(module, name, 5, math.prod(indices.shape) * width, read, gated=True)]


#: Indices of which each block looks for the first and for its like: all pairs are compared.
MOST_ROWS = 1 << 15
#: Columns that a thread sums at once.
COLUMNS = 4


def row_sums(module: Module, name: str, node: Node) -> list[Launch] | None:
    """A block for each index: the first of its like adds the rows of all of them, in order."""
    g, indices = (value.tensor_type for value in node.inputs)
    rows, padding = node.attrs["rows"], node.attrs["padding_idx"]
    count, width = math.prod(indices.shape), g.shape[-1]
    dtype = node.out.tensor_type.dtype
    if count > MOST_ROWS or dtype.kind != "float" or (padding or 0) < 0:
        return None
    kind, wide = memory_type(dtype), accumulator(dtype)

    def clear(_f: Function, builder: KernelBuilder, item: Index) -> None:
        (builder.buffer(2, f"i{8 * dtype.itemsize}") + item).store(0)

    first = _each(module, f"{name}_clear", 5, rows * width, clear, gated=True)
    builder = KernelBuilder(module, name, 5)
    f, threads, thread = builder.f, module.machine.threads, builder.thread()
    own = builder.block()
    # shared: which indices of a piece are alike, then a number of the last piece that has such.
    alike = builder.shared("i64", threads + 1)
    told = alike + threads
    with f.when(f(f"icmp eq i64 {thread}, 0")):
        failed = f(f"icmp ne i32 {builder.buffer(4, 'i32').load()}, 0")
        told.store(f(f"select i1 {failed}, i64 -2, i64 -1"))
    builder.wait()  # all threads stop, or none: another block may set the flag now
    with f.when(f(f"icmp eq i64 {told.load()}, -2")):
        f.do("ret void")
        f.block(f.fresh("never"))
    builder.wait()
    row = _class(f, builder, 1, indices.dtype, own)
    if padding is not None:
        with f.when(f(f"icmp eq i64 {row}, {padding}")):
            f.do("ret void")
            f.block(f.fresh("never"))
    with f.when(f(f"icmp uge i64 {row}, {rows}")):
        builder.buffer(4, "i32").store(int(Status.FAILED))
        f.do("ret void")
        f.block(f.fresh("never"))
    is_alike: Callable[[Index], str] = lambda j: f(  # noqa: E731
        f"icmp eq i64 {_class(f, builder, 1, indices.dtype, j)}, {row}"
    )
    with f.loop(thread, own, threads) as j, f.when(is_alike(j)):
        told.store(0)
    builder.wait()
    with f.when(f(f"icmp eq i64 {told.load()}, 0")):  # another block does it
        f.do("ret void")
        f.block(f.fresh("never"))
    with f.loop(0, width, threads * COLUMNS) as left:
        columns = [left + (thread + k * threads) for k in range(COLUMNS)]
        zero = literal(wide, 0.0, 1)
        sums = [f.var(memory_type(wide), zero) for _ in columns]
        with f.loop(own, count, threads) as start:
            j = start + thread
            builder.wait()  # for those that read what was alike before
            alike_here = alike + thread
            alike_here.store(0)
            with f.when(f(f"icmp ult i64 {j}, {count}")), f.when(is_alike(j)):
                alike_here.store(1)
                told.store(start + 1)
            builder.wait()
            some = f(f"icmp eq i64 {told.load()}, {start + 1}")
            with f.when(some), f.loop(0, threads) as k, f.when(_is_set(f, alike + k)):
                for column, total in zip(columns, sums, strict=True):
                    with f.when(f(f"icmp ult i64 {column}, {width}")):
                        at = builder.buffer(0, kind) + ((start + k) * width + column)
                        given = [(wide, total.load()), (wide, load(f, dtype, at, 1))]
                        made = emit(f, "add", given, wide, 1, {})
                        assert made is not None
                        total.store(made)
        for column, total in zip(columns, sums, strict=True):
            with f.when(f(f"icmp ult i64 {column}, {width}")):
                place = builder.buffer(2, kind) + (f.index(row) * width + column)
                store(f, dtype, place, rounded(f, total.load(), dtype), 1)
    builder.end(threads)
    return [first, Launch(name, count, threads)]


def _is_set(f: Function, place: Ptr) -> str:
    return f(f"icmp ne i64 {place.load()}, 0")


def rounded(f: Function, value: str, dtype: DType) -> str:
    """A sum in its own dtype: narrow floats are summed in float32."""
    if dtype.itemsize >= 4:
        return value
    made = emit(f, "astype", [(float32, value)], dtype, 1, {"dtype": dtype})
    assert made is not None
    return made


def _class(f: Function, builder: KernelBuilder, place: int, dtype: DType, item: Index) -> str:
    """The class of an item, as an i64."""
    kind = memory_type(dtype)
    one = (builder.buffer(place, kind) + item).load()
    if kind == "i64":
        return one
    return f(f"{'sext' if dtype.kind == 'int' else 'zext'} {kind} {one} to i64")


#: (module, name, node) -> launches; buffers are the operands, the result, and scratch memory.
NODES: dict[str, Any] = {"concat": concat, "nll": nll}
#: Those that may fail: the flag follows. None where another kernel is to be taken.
FAILING_NODES: dict[str, Any] = {"embedding": embedding, "row_sums": row_sums}
