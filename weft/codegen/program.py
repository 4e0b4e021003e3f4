"""A whole graph as one function of one module.

    i32 @graph(ptr %table, ptr %arena, ptr %run)

`table` holds the addresses of the inputs, then of the outputs; `arena` is the memory that values
lie in meanwhile; `run` points to what the process gives: see `RUN`. The function calls kernel after
kernel; what comes back is 0, or what the kernel that failed gave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.base.errors import InternalError
from weft.codegen.attend import emit_attention
from weft.codegen.control.flow import Frame, emit_control, scratch_of
from weft.codegen.control.lists import STACK_OPS
from weft.codegen.control.stacks import size_of_type
from weft.codegen.emitters import emits, special
from weft.codegen.kernel import Kernel
from weft.codegen.loops.emit import emit_loops
from weft.codegen.products import emit_product
from weft.codegen.tables import KERNELS, MAY_FAIL
from weft.codegen.text import Module
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import Literal
from weft.ir.types import StackType
from weft.schedule.grouping import IN_REGISTERS, Grouping
from weft.schedule.groups import Group, Leaf
from weft.schedule.in_place import in_place
from weft.schedule.memory import planned

__all__ = ["RUN", "GraphCode", "Program"]

#: What `%run` points to, pointers all: the function that calls cards in Python, the pool of
#: threads, the function that uses it, the array of constants, the function that polls for signals;
#: and of this run alone: the memory that stacks lie in, see `weft.codegen.control.heap`.
RUN = ("callback", "pool", "parallel", "constants", "poll", "free", "end", "chunk")
#: Constants of at most so many bytes are part of the code; others are given to each run.
SMALL_CONSTANT = 4096
#: Threads are asked where a kernel takes longer than this, for pieces at least so long, in ns.
WORTH_THREADS = 12_000.0
PIECE = 4_000.0
#: What a run gives back where it was interrupted, or a call into Python raised.
RAISED = -7


@dataclass
class GraphCode:
    """The function of a graph."""

    name: str
    arena: int
    results: list[Value]
    lower_bound: int
    kernels: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)  # what runs, in words
    in_place: list[tuple[int, int]] = field(default_factory=list)  # see `weft.schedule.in_place`


class Program:
    """All of a module: the graph, those nested in it, constants, and calls into Python."""

    def __init__(self, module: Module, *, timed: bool = False) -> None:
        self.module = module
        self.timed: list[str] | None = [] if timed else None  # kernels whose cycles are counted
        self.constants: list[Literal] = []
        self._constant_at: dict[str, int] = {}
        self.calls: list[Node] = []
        self._names = 0
        self._shared: dict[str, list[Kernel]] = {}

    def constant(self, literal: Literal) -> int:
        at = self._constant_at.get(literal.digest)
        if at is None:
            at = self._constant_at[literal.digest] = len(self.constants)
            self.constants.append(literal)
        return at

    def name(self, word: str) -> str:
        self._names += 1
        return f"{word}.{self._names}"

    def graph(self, graph: Graph, name: str, linkage: str = "internal") -> GraphCode:
        return _GraphWriter(self, graph, name, linkage).write()


class _GraphWriter:
    def __init__(self, program: Program, graph: Graph, name: str, linkage: str) -> None:
        self.program = program
        self.module = program.module
        self.graph = graph
        self.refused: set[Node] = set()  # nodes whose emitters gave nothing
        params = [("ptr", "table"), ("ptr", "arena"), ("ptr", "run")]
        self.f = self.module.function(name, "i32", params, linkage=linkage)
        self.name = name
        self.inputs = {value: i for i, value in enumerate(graph.inputs)}
        self.work: list[tuple[Group, list[Any], list[Kernel]]] = []
        self.nested: dict[Group, list[GraphCode]] = {}
        self._group()

    def _group(self) -> None:
        self.grouping = Grouping(
            self.graph, emits, lambda node: "" if node in self.refused else special(node)
        )
        self.results: dict[Value, int] = {}
        for place, value in enumerate(self.grouping.results):
            if value not in self.inputs and value not in self.grouping.constants:
                self.results.setdefault(value, place)

    # --- what runs ------------------------------------------------------------------------------

    def write(self) -> GraphCode:
        while not self._all_kernels():
            self._group()
        sizes, born, dies = self._lifetimes()
        memory = planned(sizes, born, dies)
        self.offsets = memory.offsets
        self.read = {
            operand.root
            for group in self.grouping.groups
            for operands in group.operands.values()
            for operand in operands
            if isinstance(operand, Leaf)
        }
        f = self.f
        for group, buffers, kernels in self.work:
            self._run(group, buffers, kernels)
        self._copy_results()
        f.do("ret i32 0")
        return GraphCode(
            self.name,
            memory.peak,
            self.grouping.results,
            memory.lower_bound,
            [kernel.name for _, _, kernels in self.work for kernel in kernels],
            [line for entry in self.work for line in self._described(*entry)],
            in_place(self.graph, self.grouping, _may_fail),
        )

    def _described(self, group: Group, buffers: list[Any], kernels: list[Kernel]) -> list[str]:
        """A group in words: its ops, and where what it makes lies."""
        ops = " ".join(node.op.name for node in group.nodes)
        made = ", ".join(f"{value.type} {self._where(value)}" for value in group.outputs)
        room = max((kernel.scratch for kernel in kernels), default=0)
        more = f", {room} bytes of its own" if room else ""
        lines = [f"{group.kind}: {ops} → {made}{more}"]
        for code in self.nested.get(group, ()):
            lines += [f"  {code.name}", *[f"    {line}" for line in code.steps]]
        return lines

    def _where(self, value: Value) -> str:
        if value in self.results:
            return f"as output {self.results[value]}"
        return f"at {self.offsets[value]}" if value in self.offsets else "nowhere"

    def _all_kernels(self) -> bool:
        """Whether all groups have kernels; where not, their nodes are called in Python instead."""
        before = len(self.refused)
        self.work = [self._kernels(group) for group in self.grouping.groups]
        return len(self.refused) == before

    def _kernels(self, group: Group) -> tuple[Group, list[Any], list[Kernel]]:
        """The kernels of a group, and what stands in their `%args`: values, or None for none."""
        node = group.nodes[0]
        name = self.program.name(f"{group.kind}.{node.op.name}")
        if group.kind == "loop":
            roots: dict[Value, int] = {}
            for member in group.nodes:
                for operand in group.operands[member]:
                    if isinstance(operand, Leaf):
                        roots.setdefault(operand.root, len(roots))
            for value in group.outputs:
                roots.setdefault(value, len(roots))
            kernels = emit_loops(self.module, name, group, roots)
            return group, [*roots, None], kernels
        buffers: list[Any] = [op.root for op in group.operands[node] if isinstance(op, Leaf)]
        buffers += list(node.outputs)
        if group.kind == "kernel":
            found = KERNELS[node.op.name](self.module, name, node)
            if found is not None:
                return group, [*buffers, None], found
            group.kind = "call"
        if group.kind in IN_REGISTERS:
            buffers.append(None)
            places: dict[Value, int] = {}
            for i, value in enumerate(buffers):
                if value is not None:
                    places.setdefault(value, i)
            for member in group.nodes[1:]:
                for operand in group.operands[member]:
                    if isinstance(operand, Leaf) and operand.root not in places:
                        places[operand.root] = len(buffers)
                        buffers.append(operand.root)
            for value in group.outputs:
                if value not in places:
                    places[value] = len(buffers)
                    buffers.append(value)
            emit = emit_product if group.kind == "product" else emit_attention
            made = emit(self.module, name, group, places)
            if made is None:
                self.refused.add(node)
            return group, buffers, made or []
        if group.kind == "control":
            codes = [
                self.program.graph(inner, self.program.name(inner.name)) for inner in node.graphs
            ]
            self.nested[group] = codes
            room = self._inner(group) + scratch_of(node)
            return group, [*buffers, None], [Kernel("", 0, 0.0, room)]
        if node.op.name in STACK_OPS:
            group.kind = "stack"
        elif any(isinstance(v.type, StackType) for v in (*node.inputs, *node.outputs)):
            raise NotNative(f"{node.op.name} works on stacks")
        return group, buffers, []

    def _inner(self, group: Group) -> int:
        return max(code.arena for code in self.nested[group])

    def _lifetimes(self) -> tuple[dict[Any, int], dict[Any, int], dict[Any, int]]:
        sizes: dict[Any, int] = {}
        born: dict[Any, int] = {}
        dies: dict[Any, int] = {}
        for step, (group, buffers, kernels) in enumerate(self.work):
            for value in buffers:
                if value is None or not self._in_arena(value):
                    continue
                if value in group.outputs and value not in born:
                    sizes[value] = size_of_type(value.type)
                    born[value] = step
                if value in born:
                    dies[value] = step
            room = max((kernel.scratch for kernel in kernels), default=0)
            if room:
                sizes[group], born[group], dies[group] = room, step, step
        return sizes, born, dies

    def _in_arena(self, value: Value) -> bool:
        return (
            value not in self.inputs
            and value not in self.results
            and value not in self.grouping.constants
        )

    # --- code -----------------------------------------------------------------------------------

    def _address(self, value: Value) -> str:
        f = self.f
        if value in self.inputs:
            return self._slot("%table", self.inputs[value])
        if value in self.results:
            return self._slot("%table", len(self.inputs) + self.results[value])
        literal = self.grouping.constants.get(value)
        if literal is not None:
            array = literal.array
            if array.nbytes <= SMALL_CONSTANT:
                said = "".join(f"\\{byte:02X}" for byte in array.tobytes())
                return self.module.constant(f"[{array.nbytes} x i8]", f'c"{said}"')
            table = self._slot("%run", RUN.index("constants"))
            return self._slot(table, self.program.constant(literal))
        if value not in self.offsets:
            if value in self.read:
                raise InternalError(f"{value} is read, and lies nowhere")
            return "null"  # a result that nobody asks for
        return f(f"getelementptr i8, ptr %arena, i64 {self.offsets[value]}")

    def _slot(self, table: str, place: int) -> str:
        f = self.f
        return f(f"load ptr, ptr {f(f'getelementptr ptr, ptr {table}, i64 {place}')}")

    def _arguments(self, group: Group, buffers: list[Any]) -> str:
        f = self.f
        args = f.var(f"[{len(buffers)} x ptr]", align=16)
        for place, value in enumerate(buffers):
            if value is None:
                at = self.offsets.get(group)
                if at is None:
                    continue
                found = f(f"getelementptr i8, ptr %arena, i64 {at}")
            else:
                found = self._address(value)
            f.do(f"store ptr {found}, ptr {f(f'getelementptr ptr, ptr {args}, i64 {place}')}")
        return args

    def _run(self, group: Group, buffers: list[Any], kernels: list[Kernel]) -> None:
        f = self.f
        if group.kind in ("control", "stack"):
            self._inline(group)
            return
        args = self._arguments(group, buffers)
        if group.kind == "call":
            number = len(self.program.calls)
            self.program.calls.append(group.nodes[0])
            callback = self._slot("%run", RUN.index("callback"))
            self._check(f(f"call i32 {callback}(i64 {number}, ptr {args})"))
            return
        for kernel in kernels:
            start = self._cycles()
            total = kernel.items * kernel.cost
            if kernel.items < 2 or total < WORTH_THREADS:
                status = f(f"call i32 @{kernel.name}(ptr {args}, i64 0, i64 {kernel.items})")
            else:
                grain = max(1, round(PIECE / max(kernel.cost, 0.01)))
                pool = self._slot("%run", RUN.index("pool"))
                parallel = self._slot("%run", RUN.index("parallel"))
                status = f(
                    f"call i32 {parallel}(ptr {pool}, ptr @{kernel.name}, ptr {args}, "
                    f"i64 {kernel.items}, i64 {grain})"
                )
            self._count(kernel, start)
            self._check(status)

    def _cycles(self) -> str:
        if self.program.timed is None:
            return ""
        name = self.module.declare("i64", "llvm.readcyclecounter", "")
        return self.f(f"call i64 @{name}()")

    def _count(self, kernel: Kernel, start: str) -> None:
        """Add the cycles since `start` to the kernel's counter, a variable of its own."""
        if self.program.timed is None:
            return
        f = self.f
        place = self.module.variable(f"cycles.{len(self.program.timed)}", "i64", "0", "")
        self.program.timed.append(kernel.name)
        before = f(f"load i64, ptr {place}")
        took = f(f"sub i64 {self._cycles()}, {start}")
        f.do(f"store i64 {f(f'add i64 {before}, {took}')}, ptr {place}")

    def _inline(self, group: Group) -> None:
        node = group.nodes[0]
        given = [self._address(op.root) for op in group.operands[node] if isinstance(op, Leaf)]
        out = [self._address(value) for value in node.outputs]
        if group.kind == "stack":
            STACK_OPS[node.op.name](self.f, node, given, out, self._check)
            return
        at = self.offsets.get(group)
        arena = self.f(f"getelementptr i8, ptr %arena, i64 {at or 0}")
        names = [code.name for code in self.nested[group]]
        inner = -(-self._inner(group) // 64) * 64
        emit_control(Frame(self.f, node, given, out, names, arena, inner, self._check, self._poll))

    def _poll(self) -> None:
        """End the run where the user asked to: looked at once in every round of a loop."""
        poll, pool = self._slot("%run", RUN.index("poll")), self._slot("%run", RUN.index("pool"))
        self._check(self.f(f"call i32 {poll}(ptr {pool})"))

    def _check(self, status: str) -> None:
        f = self.f
        with f.when(f(f"icmp ne i32 {status}, 0")):
            f.do(f"ret i32 {status}")
            f.block(f.fresh("never"))

    def _copy_results(self) -> None:
        """Results that lie elsewhere: inputs given back, constants, one value given twice."""
        f = self.f
        for place, value in enumerate(self.grouping.results):
            if self.results.get(value) == place:
                continue
            size = size_of_type(value.type)
            to = self._slot("%table", len(self.inputs) + place)
            name = self.module.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1")
            f.do(f"call void @{name}(ptr {to}, ptr {self._address(value)}, i64 {size}, i1 false)")


def _may_fail(group: Group) -> bool:
    if group.kind == "kernel":
        return group.nodes[0].op.name in MAY_FAIL
    return group.kind not in ("loop", *IN_REGISTERS)


class NotNative(Exception):
    """A graph has something that generated code cannot do yet."""
