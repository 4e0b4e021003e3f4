"""A whole graph as one function of one module.

    i32 @graph(ptr %table, ptr %arena, ptr %run)

`table` holds the addresses of the inputs, then of the outputs; `arena` is the memory that values
lie in meanwhile; `run` points to what the process gives: see `RUN`. The function calls kernel after
kernel; what comes back is 0, or what the kernel that failed gave.
"""

from __future__ import annotations

import functools
from typing import Any

from weft.base.errors import InternalError
from weft.codegen.attend import emit_attention, emit_attention_grad
from weft.codegen.cancel import copy_in_parts
from weft.codegen.checks.calls import REDZONE, Buffer, Checking
from weft.codegen.checks.module import CheckedModule
from weft.codegen.contract import RUN, SMALL_CONSTANT, NotNative
from weft.codegen.control.flow import Frame, emit_control, scratch_of
from weft.codegen.control.lists import STACK_OPS
from weft.codegen.control.rows import emit_rows, in_rows
from weft.codegen.control.stacks import size_of_type
from weft.codegen.emitters import emits, layout, may_fail, special
from weft.codegen.kernel import Kernel
from weft.codegen.launch import Launcher, slot
from weft.codegen.loops.emit import emit_loops
from weft.codegen.pooled import pools
from weft.codegen.products import emit_product, packs
from weft.codegen.steps import GraphCode, Step
from weft.codegen.tables import KERNELS
from weft.codegen.text import Module
from weft.codegen.timing import Timing
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import Literal
from weft.ir.types import StackType
from weft.schedule.grouping import Grouping
from weft.schedule.groups import Group, Leaf
from weft.schedule.in_place import in_place
from weft.schedule.memory import planned

__all__ = ["GraphCode", "ProgramCode"]

#: Kinds of groups whose emitters take the group: what follows the first node in registers as well.
_OF_GROUPS = {
    "product": emit_product,
    "attention": emit_attention,
    "attention_grad": emit_attention_grad,
}


class ProgramCode:
    """All of a module: the graph, those nested in it, constants, and calls into Python."""

    def __init__(self, module: Module, *, clock: int | None = None) -> None:
        """`clock`: the one that is read around kernels; None where they are not timed."""
        self.module = module
        self.timing = None if clock is None else Timing(module, clock)
        self.checking = Checking(module) if isinstance(module, CheckedModule) else None
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

    def nested(self, graph: Graph) -> GraphCode:
        """The code of a graph in a node: nothing is written where its inputs lie."""
        return _GraphWriter(self, graph, self.name(graph.name), "internal", nested=True).write()


class _GraphWriter:
    def __init__(
        self, program: ProgramCode, graph: Graph, name: str, linkage: str, *, nested: bool = False
    ) -> None:
        self.program = program
        self.module = program.module
        self.graph = graph
        self.refused: set[Node] = set()  # nodes whose emitters gave nothing
        params = [("ptr", "table"), ("ptr", "arena"), ("ptr", "run")]
        self.module.at(None)
        self.f = self.module.function(name, "i32", params, linkage=linkage)
        self.launcher = Launcher(self.f, program.timing, program.checking)
        self.name = name
        self.inputs = {value: i for i, value in enumerate(graph.inputs)}
        self.work: list[tuple[Group, list[Any], list[Kernel]]] = []
        self.nested: dict[Group, list[GraphCode]] = {}
        self.args = ""
        self._is_nested = nested
        self._writes_from = len(graph.nodes) + 1  # the group from which on inputs are written over
        self._group()

    def _group(self) -> None:
        self.grouping = Grouping(
            self.graph,
            emits,
            lambda node: "" if node in self.refused else special(node),
            layout,
            functools.partial(packs, self.module.machine),
            functools.partial(pools, self.module.machine),
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
        times = {
            group: sum(kernel.items * kernel.cost for kernel in kernels)
            for group, _, kernels in self.work
        }
        self.dies = dies
        self.pairs: list[tuple[int, int]] = []
        if not self._is_nested:
            self.pairs = in_place(self.graph, self.grouping, may_fail, times)
        pairs = self.pairs
        if pairs:
            homes = {value: group for group in times for value in group.outputs}
            firsts = [homes[self.grouping.results[i]].position for i, _ in pairs]
            self._writes_from = min(firsts)
        for step, (group, buffers, kernels) in enumerate(self.work):
            self._run(group, buffers, kernels)
            if self.program.checking is not None:
                self._bury(self.program.checking, step)
        self._copy_results()
        f.do("ret i32 0")
        steps = [
            Step(group, kernels, self.nested.get(group, []), self.grouping.why, buffers)
            for group, buffers, kernels in self.work
        ]
        results = self.grouping.results
        return GraphCode(self.name, self.graph, results, memory, self.results, steps, pairs)

    def _all_kernels(self) -> bool:
        """Whether all groups have kernels; where not, their nodes are called in Python instead."""
        before = len(self.refused)
        self.work = [self._kernels(group) for group in self.grouping.groups]
        return len(self.refused) == before

    def _kernels(self, group: Group) -> tuple[Group, list[Any], list[Kernel]]:
        """The kernels of a group, and what stands in their `%args`: values, None for memory of its
        own, `RUN` for the run."""
        node = group.nodes[0]
        name = self.program.name(f"{group.kind}.{node.op.name}")
        self.module.at(node.location)
        if group.kind == "loop":
            roots: dict[Value, int] = {}
            for member in group.nodes:
                for operand in group.operands[member]:
                    if isinstance(operand, Leaf):
                        roots.setdefault(operand.root, len(roots))
            for value in group.outputs:
                roots.setdefault(value, len(roots))
            kernels = emit_loops(self.module, name, group, roots)
            return group, _with_run([*roots, None], kernels), kernels
        buffers: list[Any] = [op.root for op in group.operands[node] if isinstance(op, Leaf)]
        buffers += list(node.outputs)
        if group.kind == "kernel":
            found = KERNELS[node.op.name](self.module, name, node)
            if found is not None:
                return group, _with_run([*buffers, None], found), found
            group.kind = "call"
        if group.kind in _OF_GROUPS:
            buffers.append(None)
            places: dict[Value, int] = {}
            for i, value in enumerate(buffers):
                if value is not None:
                    places.setdefault(value, i)
            for number, prologue in group.prologues.items():
                buffers[number] = None  # computed where it is packed
                places.pop(prologue.outputs[0])
            for member, operands in group.operands.items():
                for operand in operands if member is not node else ():
                    if isinstance(operand, Leaf) and operand.root not in places:
                        places[operand.root] = len(buffers)
                        buffers.append(operand.root)
            for value in (*group.outputs, *group.written):
                if value not in places:
                    places[value] = len(buffers)
                    buffers.append(value)
            made = _OF_GROUPS[group.kind](self.module, name, group, places, len(buffers))
            if made is None:
                self.refused.add(node)
            return group, _with_run(buffers, made or []), made or []
        if group.kind == "control":
            kernel = self._in_rows(group, name)
            if kernel is not None:
                return group, _with_run([*buffers, None], [kernel]), [kernel]
            self.nested[group] = [self.program.nested(inner) for inner in node.graphs]
            room = self._inner(group) + scratch_of(node)
            return group, [*buffers, None], [Kernel("", 0, 0.0, room)]
        if node.op.name in STACK_OPS:
            group.kind = "stack"
        elif any(isinstance(v.type, StackType) for v in (*node.inputs, *node.outputs)):
            raise NotNative(f"{node.op.name} works on stacks")
        return group, buffers, []

    def _in_rows(self, group: Group, name: str) -> Kernel | None:
        """The kernel of a loop that threads go through with some rows each."""
        node = group.nodes[0]
        cut = in_rows(node, self.module.machine)
        if cut is None:
            return None
        calls = len(self.program.calls)
        code = self.program.nested(cut.body)
        if len(self.program.calls) > calls:  # there was no kernel after all: Python is for one
            del self.program.calls[calls:]
            return None
        self.nested[group] = [code]
        return emit_rows(self.module, name, node, cut, code.name, code.arena)

    def _inner(self, group: Group) -> int:
        return max(code.arena for code in self.nested[group])

    def _lifetimes(self) -> tuple[dict[Any, int], dict[Any, int], dict[Any, int]]:
        sizes: dict[Any, int] = {}
        born: dict[Any, int] = {}
        dies: dict[Any, int] = {}
        for step, (group, buffers, kernels) in enumerate(self.work):
            for value in buffers:
                if not isinstance(value, Value) or not self._in_arena(value):
                    continue
                if value in group.outputs and value not in born:
                    sizes[value] = size_of_type(value.type)
                    born[value] = step
                if value in born:
                    dies[value] = step
            room = max((kernel.scratch for kernel in kernels), default=0)
            if room:
                sizes[group], born[group], dies[group] = room, step, step
        if self.program.checking is not None:
            sizes = {key: size + REDZONE for key, size in sizes.items()}
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
            return slot(self.f, "%table", self.inputs[value])
        if value in self.results:
            return slot(self.f, "%table", len(self.inputs) + self.results[value])
        literal = self.grouping.constants.get(value)
        if literal is not None:
            array = literal.array
            if array.nbytes <= SMALL_CONSTANT:
                said = "".join(f"\\{byte:02X}" for byte in array.tobytes())
                return self.module.constant(f"[{array.nbytes} x i8]", f'c"{said}"')
            table = self.launcher.of_run("constants")
            return slot(self.f, table, self.program.constant(literal))
        if value not in self.offsets:
            if value in self.read:
                raise InternalError(f"{value} is read, and lies nowhere")
            return "null"  # a result that nobody asks for
        return f(f"getelementptr i8, ptr %arena, i64 {self.offsets[value]}")

    def _buffers(self, group: Group, buffers: list[Any], kernels: list[Kernel]) -> list[Buffer]:
        """Where the buffers of a group lie."""
        f = self.f
        found: list[Buffer] = []
        for value in buffers:
            if value is None:
                at = self.offsets.get(group)
                room = max((kernel.scratch for kernel in kernels), default=0)
                address = "null" if at is None else f(f"getelementptr i8, ptr %arena, i64 {at}")
                found.append(Buffer(value, address, room, writable=True))
            elif value is RUN:
                address = "%run" if self._may_end(group) else "null"
                found.append(Buffer(value, address, 8 * len(RUN), writable=True))
            else:
                made = value in group.outputs or value in group.written
                size = size_of_type(value.type)
                found.append(Buffer(value, self._address(value), size, made, self._inputs(value)))
        return found

    def _inputs(self, value: Value) -> list[str]:
        """The addresses of the inputs whose place a result may take, in check mode."""
        if self.program.checking is None:
            return []
        place = self.results.get(value)
        return [slot(self.f, "%table", taken) for result, taken in self.pairs if result == place]

    def _arguments(self, buffers: list[Buffer]) -> str:
        f = self.f
        if not self.args:  # one table for all kernels, as they run one after the other
            most = max(len(buffers) for _, buffers, _ in self.work)
            self.args = f.var(f"[{most} x ptr]", align=16)
        args = self.args
        for place, buffer in enumerate(buffers):
            slot = f(f"getelementptr ptr, ptr {args}, i64 {place}")
            f.do(f"store ptr {buffer.address}, ptr {slot}")
        return args

    def _bury(self, checking: Checking, step: int) -> None:
        """Poison the values that nobody reads after a step."""
        for value, last in self.dies.items():
            if last == step and isinstance(value, Value):
                checking.bury(self.f, self._address(value), size_of_type(value.type))

    def _run(self, group: Group, buffers: list[Any], kernels: list[Kernel]) -> None:
        f = self.f
        timing, checking = self.program.timing, self.program.checking
        start = timing.begin(f) if timing is not None else ""
        is_inline = group.kind in ("control", "stack") and not any(k.name for k in kernels)
        given = self._buffers(group, buffers, kernels) if checking or not is_inline else []
        call = checking.begin(f, group, kernels, given) if checking is not None else None
        if is_inline:
            self._inline(group)
            if timing is not None and group.kind == "control":
                timing.end(f, start, group, inner=True)
        elif group.kind == "call":
            number = len(self.program.calls)
            self.program.calls.append(group.nodes[0])
            callback = self.launcher.of_run("callback")
            status = f(f"call i32 {callback}(i64 {number}, ptr {self._arguments(given)})")
            if timing is not None:
                timing.end(f, start, group)
            self.launcher.check(status)
        else:
            args = self._arguments(given)
            if call is not None:
                args = call.arguments(f, args)
            for kernel in kernels:
                status = self.launcher.start(group, kernel, args, may_end=self._may_end(group))
                if timing is not None:
                    timing.end(f, start, group, kernel.name)
                    start = timing.begin(f)
                if call is not None:
                    call.look(f)
                self.launcher.check(status)
        if call is not None:
            call.end(f)

    def _inline(self, group: Group) -> None:
        node, check = group.nodes[0], self.launcher.check
        given = [self._address(op.root) for op in group.operands[node] if isinstance(op, Leaf)]
        out = [self._address(value) for value in node.outputs]
        if group.kind == "stack":
            STACK_OPS[node.op.name](self.f, node, given, out, check)
            return
        at = self.offsets.get(group)
        arena = self.f(f"getelementptr i8, ptr %arena, i64 {at or 0}")
        names = [code.name for code in self.nested[group]]
        inner = -(-self._inner(group) // 64) * 64
        emit_control(
            Frame(self.f, node, given, out, names, arena, inner, check, self.launcher.poll)
        )

    def _may_end(self, group: Group) -> bool:
        """Whether a group may end the run: not after the first that writes where inputs lie."""
        return group.position < self._writes_from

    def _copy_results(self) -> None:
        """Results that lie elsewhere: inputs given back, constants, one value given twice."""
        f = self.f
        for place, value in enumerate(self.grouping.results):
            if self.results.get(value) == place:
                continue
            to = slot(self.f, "%table", len(self.inputs) + place)
            run = "%run" if self._writes_from > len(self.graph.nodes) else None
            copy_in_parts(f, run, to, self._address(value), size_of_type(value.type))


def _with_run(buffers: list[Any], kernels: list[Kernel]) -> list[Any]:
    return [*buffers, RUN] if any(kernel.stops for kernel in kernels) else buffers
