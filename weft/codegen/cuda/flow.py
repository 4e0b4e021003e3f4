"""Control flow around kernels of the whole GPU: loops too large for one block.

The kernels of its graphs are launched as those of any other graph, by conditional nodes of the CUDA
graph (`weft.runtime.cuda.flow`). Here is which nodes that is for, the memory that they need, and
the small kernels that push a value on a stack and count iterations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from weft.base.device import CPU
from weft.base.dims import has_dims
from weft.codegen.contract import ELEMENT, PAYLOAD, NotNative, Status
from weft.codegen.control.heap import ALIGN
from weft.codegen.cuda.builder import MOST_BUFFERS, KernelBuilder
from weft.codegen.cuda.loops import Launch
from weft.codegen.index import Ptr
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.ir.types import StackType, TensorType
from weft.ops.cards import IF, SCAN, WHILE
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Step

__all__ = ["Room", "check_flow", "emit_counter", "emit_move", "emit_push", "emit_reset"]
__all__ += ["emit_top"]

#: Nodes times iterations of a scan: each iteration is launched by itself.
MOST = 1 << 13


def check_flow(node: Node) -> None:
    """Raise if a node of control flow has no code for the whole GPU."""
    if node.op not in (IF, WHILE, SCAN):
        raise NotNative(f"this {node.op.name} has no code for GPUs yet")
    if 2 * (len(node.inputs) + len(node.outputs)) > MOST_BUFFERS:
        raise NotNative(f"this {node.op.name} has no code for GPUs yet: it takes too many values")
    if node.op is SCAN:
        count = len(node.graphs[0].nodes) * int(node.attrs["length"])
        first = node.attrs["consts"] + node.attrs["carries"]
        rows = [*node.inputs[first:], *node.outputs[node.attrs["carries"] :]]
        if count > MOST:
            raise NotNative("this scan has no code for GPUs yet: it is too long")
        if any(isinstance(value.type, StackType) for value in rows):
            raise NotNative("this scan has no code for GPUs yet: its rows are stacks")
    for graph in node.graphs:
        for value in [*graph.inputs, *(v for inner in graph.nodes for v in inner.outputs)]:
            kind = value.type.innermost if isinstance(value.type, StackType) else value.type
            known = isinstance(kind, TensorType) and kind.device != CPU
            if not known or has_dims(kind.shape):  # type: ignore[union-attr]
                raise NotNative(f"this {node.op.name} has no code for GPUs yet")


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a step of control flow: first that of its graphs, then a place for each value
    in `kinds`."""

    inner: int
    places: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, step: Step) -> Room:
        node = step.nodes[0]
        inner = _lines(functools.reduce(max, [nested.arena for nested in step.nested], 0))
        kinds: list[Value] = []
        if node.op is WHILE:  # the next carries, and what is pushed
            kinds = list(step.nested[1].graph.outputs)
        elif node.op is SCAN:
            kinds = list(step.nested[0].graph.outputs[: node.attrs["carries"]])
        at, places = inner + ALIGN, []  # a line for the predicate
        for value in kinds:
            places.append(at)
            at += max(256, _lines(size_of_type(value.type)))
        # The verifier counts a line for each operand and result besides.
        slots = 64 * (len(node.inputs) + len(node.outputs) + 2)
        return cls(inner, tuple(places), at + slots)


def _piece(size: int) -> int:
    """How many bytes a thread copies at once. Values lie at multiples of 64 bytes, or are rows one
    behind another: at multiples of their size."""
    return next(one for one in (16, 8, 4, 2, 1) if size % one == 0)


def _lines(size: int) -> int:
    return -(-size // 256) * 256


# --- kernels --------------------------------------------------------------------------------------


def emit_reset(module: Module, name: str) -> Launch:
    """Nothing is on stacks: its buffer is the bounds of their memory."""
    builder = KernelBuilder(module, name, 1)
    bounds = builder.buffer(0, "ptr")
    bounds.store((bounds + 1).load())
    builder.end(1)
    return Launch(name, 1, 1)


def emit_counter(module: Module, name: str) -> Launch:
    """One more: its buffer is an i64."""
    builder = KernelBuilder(module, name, 1)
    count = builder.buffer(0, "i64")
    count.store(count.load_index() + 1)
    builder.end(1)
    return Launch(name, 1, 1)


def emit_move(module: Module, name: str, values: Sequence[Value]) -> Launch:
    """One kernel that copies all values of an iteration to where the next one reads them. Buffers:
    for each value where it goes, then where it is."""
    builder = KernelBuilder(module, name, 2 * len(values))
    f, threads = builder.f, module.machine.threads
    item = builder.block() * threads + builder.thread()
    most = 1
    for place, value in enumerate(values):
        size = size_of_type(value.type)
        piece = _piece(size)
        kind, count = f"i{8 * piece}", size // piece
        most = max(most, count)
        with f.when(f(f"icmp ult i64 {item}, {count}")):
            one = (builder.buffer(2 * place + 1, kind) + item).load()
            (builder.buffer(2 * place, kind) + item).store(one)
    builder.end(threads)
    return Launch(name, -(-most // threads), threads)


def emit_push(module: Module, name: str, value: Value) -> list[Launch]:
    """Two kernels that push a value: the first copies it to free memory, the second takes that.
    Buffers: the stack, the value, the stack with it, the bounds of the memory of stacks, the
    flag."""
    size = size_of_type(value.type)
    taken = -(-(PAYLOAD + size) // ALIGN) * ALIGN
    builder = KernelBuilder(module, f"{name}_copy", 5)
    f = builder.f
    flag, bounds = builder.buffer(4, "i32"), builder.buffer(3, "ptr")
    builder.stop_if(flag)
    free = bounds.load_ptr()
    with f.when(f(f"icmp ugt ptr {free.bytes(taken)}, {(bounds + 2).load()}")):
        flag.store(int(Status.OUT_OF_MEMORY))
        f.do("ret void")
        f.block(f.fresh("never"))
    copy = _copied(builder, free.bytes(PAYLOAD), builder.buffer(1, "i8"), size)
    builder = KernelBuilder(module, f"{name}_link", 5)
    builder.stop_if(builder.buffer(4, "i32"))
    bounds = builder.buffer(3, "ptr")
    cell = bounds.load_ptr()
    cell.of("i64").store(ELEMENT)
    cell.bytes(8).of("ptr").store(builder.buffer(0, "ptr").load())
    cell.bytes(16).of("ptr").store("null")
    builder.buffer(2, "ptr").store(cell)
    bounds.store(cell.bytes(taken))
    builder.end(1)
    return [copy, Launch(builder.name, 1, 1)]


def emit_top(module: Module, name: str, value: Value) -> Launch:
    """A kernel that copies the top of a stack, if that is an element. Buffers: the stack, the stack
    below, which it does not write, the top; three more, the last of them the flag."""
    builder = KernelBuilder(module, name, 6)
    f = builder.f
    builder.stop_if(builder.buffer(5, "i32"))
    cell = builder.buffer(0, "ptr").load_ptr()
    with f.when(f(f"icmp eq ptr {cell}, null")):
        f.do("ret void")
        f.block(f.fresh("never"))
    with f.when(f(f"icmp ne i64 {cell.of('i64').load()}, {ELEMENT}")):
        f.do("ret void")
        f.block(f.fresh("never"))
    return _copied(builder, builder.buffer(2, "i8"), cell.bytes(PAYLOAD), size_of_type(value.type))


def _copied(builder: KernelBuilder, to: Ptr, source: Ptr, size: int) -> Launch:
    """The end of a kernel whose threads copy memory."""
    f, threads = builder.f, builder.machine.threads
    piece = _piece(size)
    kind = f"i{8 * piece}"
    item = builder.block() * threads + builder.thread()
    with f.when(f(f"icmp ult i64 {item}, {size // piece}")):
        (to.of(kind) + item).store((source.of(kind) + item).load())
    builder.end(threads)
    return Launch(builder.name, -(-(size // piece) // threads), threads)
