"""`if`, `switch`, `while` and `scan` as branches and loops in the function of their graph.

Nested graphs are functions of their own, called with a table of addresses. Loop carries are
double-buffered: the body reads one buffer and writes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.dim_algebra import dim_max
from weft.base.dims import is_zero
from weft.codegen.contract import ELEMENT, PAYLOAD, NotNative
from weft.codegen.control.heap import heap
from weft.codegen.control.stacks import (
    copy,
    element_bytes,
    is_boxed,
    new_cell,
    pop,
    push,
    size_of_type,
)
from weft.codegen.index import Ptr, Size
from weft.codegen.text import Function
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Op
from weft.ir.types import StackType, TensorType
from weft.ops.cards import IF, SCAN, SWITCH, WHILE

__all__ = ["Frame", "emit_control", "scratch_of"]


@dataclass
class Frame:
    """
    inputs, outputs   addresses of the node's operands and results
    graphs            the functions of its nested graphs
    arena             memory for them, `inner` bytes, then the node's own: see `scratch_of`
    check             end the run if a status is not 0
    poll              end the run if it is cancelled
    body              for a loop over some of the rows: the graph of that part
    """

    f: Function
    node: Node
    inputs: Sequence[Ptr]
    outputs: Sequence[Ptr]
    graphs: Sequence[str]
    arena: Ptr
    inner: int
    check: Callable[[str], None]
    poll: Callable[[], None]
    body: Graph | None = None

    def table(self, size: int) -> Ptr:
        return self.f.var("ptr", count=max(1, size), align=16)

    def put(self, table: Ptr, place: int, address: Ptr) -> None:
        (table + place).store(address)

    def call(self, graph: str, table: Ptr) -> None:
        f = self.f
        self.check(f(f"call i32 @{graph}(ptr {table}, ptr {self.arena}, ptr %run)"))

    def own(self, offset: int) -> Ptr:
        return self.arena.bytes(self.inner + offset)


def _room(kind: Any) -> int:
    size = -(-size_of_type(kind) // 64) * 64
    return 64 if is_zero(size) else size


def _carried(node: Node, body: Graph | None) -> list[Value]:
    """The loop carries, as inputs of the body."""
    consts = node.attrs["consts"]
    inputs = (body or node.graphs[-1]).inputs
    if node.op is WHILE:
        return list(inputs[consts:])
    return list(inputs[consts : consts + node.attrs["carries"]])


def scratch_of(node: Node, body: Graph | None = None) -> int:
    """Bytes that a control node needs besides those of its nested graphs."""
    if not node.op.loop:
        return 0
    # The second buffer of each carry, the predicate, and slots for stacks.
    slots = 64 * (len(node.inputs) + len(node.outputs) + 2)
    return sum(_room(value.type) for value in _carried(node, body)) + slots


def emit_control(frame: Frame) -> None:
    _EMIT[frame.node.op](frame)


# --- branches -----------------------------------------------------------------------------------


def _branches(frame: Frame) -> Ptr:
    table = frame.table(len(frame.inputs) - 1 + len(frame.outputs))
    for place, address in enumerate((*frame.inputs[1:], *frame.outputs)):
        frame.put(table, place, address)
    return table


def _if(frame: Frame) -> None:
    f = frame.f
    table = _branches(frame)
    holds = f(f"icmp ne i8 {frame.inputs[0].load()}, 0")
    yes, no, end = (f.fresh(word) for word in ("yes", "no", "end"))
    f.branch(holds, yes, no)
    for label, graph in ((yes, frame.graphs[0]), (no, frame.graphs[1])):
        f.block(label)
        frame.call(graph, table)
        f.jump(end)
    f.block(end)


def _switch(frame: Frame) -> None:
    f = frame.f
    table = _branches(frame)
    kind = frame.node.inputs[0].type
    assert isinstance(kind, TensorType)
    bits = f"i{kind.dtype.bits}"
    index = frame.inputs[0].of(bits).load()
    last = len(frame.graphs) - 1
    if kind.dtype.kind == "int":
        wide = f(f"sext {bits} {index} to i65")
    else:
        wide = f(f"zext {bits} {index} to i65")
    low = f(f"select i1 {f(f'icmp slt i65 {wide}, 0')}, i65 0, i65 {wide}")
    number = f(f"select i1 {f(f'icmp sgt i65 {low}, {last}')}, i65 {last}, i65 {low}")
    number = f(f"trunc i65 {number} to i64")
    labels = [f.fresh("case") for _ in frame.graphs]
    end = f.fresh("end")
    cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels))
    f.do(f"switch i64 {number}, label %{labels[-1]} [ {cases} ]")
    for label, graph in zip(labels, frame.graphs, strict=True):
        f.block(label)
        frame.call(graph, table)
        f.jump(end)
    f.block(end)


# --- loops --------------------------------------------------------------------------------------


class _Carries:
    """The carries of a loop: read from one buffer, written to the other."""

    def __init__(self, frame: Frame, first: int, results: Sequence[Ptr]) -> None:
        self.frame = frame
        self.values = _carried(frame.node, frame.body)
        self.results = list(results)
        f = frame.f
        given = frame.inputs[first : first + len(self.values)]
        self.now = [f.var("ptr", address) for address in given]
        self.flip = f.var("i1", "false")
        offset = 0
        self.others: list[Ptr] = []
        for value in self.values:
            self.others.append(frame.own(offset))
            offset += _room(value.type)
        self.end = offset

    def read(self, table: Ptr, place: int) -> None:
        for i, var in enumerate(self.now):
            self.frame.put(table, place + i, var.load_ptr())

    def write(self, table: Ptr, place: int) -> list[Ptr]:
        """Put the buffers that this iteration writes into a table."""
        f = self.frame.f
        flip = self.flip.load()
        targets = [
            f.ptr(f(f"select i1 {flip}, ptr {other}, ptr {result}"))
            for other, result in zip(self.others, self.results, strict=True)
        ]
        for i, target in enumerate(targets):
            self.frame.put(table, place + i, target)
        return targets

    def step(self, targets: Sequence[Ptr]) -> None:
        f = self.frame.f
        for var, target in zip(self.now, targets, strict=True):
            var.store(target)
        self.flip.store(f(f"xor i1 {self.flip.load()}, true"))

    def finish(self) -> None:
        """Copy the last values to the results' buffers."""
        f = self.frame.f
        for value, var, result in zip(self.values, self.now, self.results, strict=True):
            last = var.load_ptr()
            with f.when(f(f"icmp ne ptr {last}, {result}")):
                copy(f, result, last, size_of_type(value.type))


def _while(frame: Frame) -> None:
    f, node = frame.f, frame.node
    consts = node.attrs["consts"]
    inputs = len(frame.inputs)
    carries = _Carries(frame, consts, frame.outputs[: inputs - consts])
    pushed = [value.type.element for value in node.outputs[inputs - consts + 1 :]]  # type: ignore[union-attr]
    predicate = frame.own(carries.end)
    ask, body = frame.table(inputs + 1), frame.table(2 * inputs + len(pushed))
    for table in (ask, body):
        for place in range(consts):
            frame.put(table, place, frame.inputs[place])
    frame.put(ask, inputs, predicate)
    stacks = [f.var("ptr", "null") for _ in pushed]
    count = f.var("i64", 0)
    head, work, end = (f.fresh(word) for word in ("head", "work", "end"))
    f.jump(head)
    f.block(head)
    frame.poll()
    carries.read(ask, consts)
    frame.call(frame.graphs[0], ask)
    f.branch(f(f"icmp ne i8 {predicate.load()}, 0"), work, end)
    f.block(work)
    carries.read(body, consts)
    targets = carries.write(body, inputs)
    for i, (stack, kind) in enumerate(zip(stacks, pushed, strict=True)):
        cell = new_cell(f, ELEMENT, stack.load(), "null", element_bytes(f.module, kind))
        stack.store(cell)
        frame.put(body, inputs + len(targets) + i, cell.bytes(PAYLOAD))
    frame.call(frame.graphs[1], body)
    carries.step(targets)
    count.store(count.load_index() + 1)
    f.jump(head)
    f.block(end)
    carries.finish()
    if node.attrs["counted"]:
        rest = frame.outputs[inputs - consts :]
        rest[0].of("i64").store(count.load())
        for stack, slot in zip(stacks, rest[1:], strict=True):
            slot.of("ptr").store(stack.load())


def _scan(frame: Frame) -> None:
    f, node = frame.f, frame.node
    consts, count, length = node.attrs["consts"], node.attrs["carries"], node.attrs["length"]
    carries = _Carries(frame, consts, frame.outputs[:count])
    xs = list(zip(node.inputs[consts + count :], frame.inputs[consts + count :], strict=True))
    ys = list(zip(node.outputs[count:], frame.outputs[count:], strict=True))
    inputs = consts + count + len(xs)
    table = frame.table(inputs + count + len(ys))
    for place in range(consts):
        frame.put(table, place, frame.inputs[place])
    slots = carries.end + 64
    popped: dict[int, tuple[Ptr, Ptr]] = {}
    for i, (value, address) in enumerate(xs):
        if isinstance(value.type, StackType):
            size = size_of_type(value.type.element)
            if is_boxed(f.module, value.type.element):
                raise NotNative("a scan pops values whose sizes depend on data")
            top = f.ptr(f(f"call ptr @{heap(f.module)}(ptr %run, i64 {f.size(size)})"))
            popped[i] = (f.var("ptr", address.of("ptr").load()), top)
    made = {
        i: (f.var("ptr", "null"), frame.own(slots + 64 * i))
        for i, (value, _) in enumerate(ys)
        if isinstance(value.type, StackType)
    }
    with f.loop(0, length) as step:
        frame.poll()
        at: Size = length - 1 - step if node.attrs["reverse"] else step
        carries.read(table, consts)
        for i, (value, address) in enumerate(xs):
            if i in popped:
                stack, top = popped[i]
                assert isinstance(value.type, StackType)
                name = pop(f.module, value.type.element)
                now = stack.load()
                frame.check(f(f"call i32 @{name}(ptr %run, ptr {now}, ptr {stack}, ptr {top})"))
                frame.put(table, consts + count + i, top)
            else:
                frame.put(table, consts + count + i, _slice(value, address, at, length))
        targets = carries.write(table, inputs)
        for i, (value, address) in enumerate(ys):
            to = made[i][1] if i in made else _slice(value, address, at, length)
            frame.put(table, inputs + count + i, to)
        frame.call(frame.graphs[0], table)
        for stack, slot in made.values():
            stack.store(push(f, stack.load(), slot, 8))
        carries.step(targets)
    carries.finish()
    for i, (stack, _) in made.items():
        ys[i][1].of("ptr").store(stack.load())


def _slice(value: Value, address: Ptr, at: Size, length: int) -> Ptr:
    size = size_of_type(value.type) // dim_max(length, 1)
    return address.bytes(at * size)


_EMIT: dict[Op, Callable[[Frame], None]] = {
    IF: _if,
    SWITCH: _switch,
    WHILE: _while,
    SCAN: _scan,
}
