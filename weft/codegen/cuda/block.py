"""Control flow as one kernel of one block: loops, branches and stacks without leaving the GPU.

A nested graph is a function that all threads of the block call:

    i32 @graph(ptr %table, ptr %arena, ptr %run)

as in a CPU's program (`weft.codegen.program`), and the code of loops and branches is that of the
CPU (`weft.codegen.control`); see `weft.codegen.cuda.team` for how threads share it. Its steps are
the kernels that a larger graph would launch, called block by block; behind each, threads wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from weft.base.device import CPU
from weft.codegen.arguments import arguments, places
from weft.codegen.contract import ELEMENT, NotNative
from weft.codegen.control.flow import Frame, emit_control, scratch_of
from weft.codegen.control.heap import END, FREE
from weft.codegen.control.lists import STACK_OPS
from weft.codegen.control.stacks import copy
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.items import SLOWER
from weft.codegen.cuda.loops import Launch, emit_group
from weft.codegen.cuda.products import emit_product
from weft.codegen.cuda.team import Team
from weft.codegen.index import Ptr
from weft.codegen.kernel import args_table
from weft.codegen.launch import slot
from weft.codegen.tables import KERNELS
from weft.codegen.text import Function, Module
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.ops.cards import MATMUL
from weft.schedule.groups import Leaf
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Arena, Constant, GraphPlan, Input, Kernel, Output, Step

__all__ = ["BlockCode", "room_of"]


#: A node that takes longer, in ns, is not for a kernel of a whole program.
LONGEST = 20_000.0


@dataclass(frozen=True, slots=True)
class Part:
    """A function that a step calls.

    items     how often, if each item is a call of one thread; else it is called by all threads
    blocks    how often by all threads
    may_fail  whether it gives a status
    """

    name: str
    blocks: int = 1
    items: int = 0
    may_fail: bool = False


class BlockCode:
    """The code of all graphs of a program that one block runs."""

    def __init__(self, module: Module, threads: int, *, stacks: bool, whole: bool) -> None:
        self.module = module
        self.machine = replace(module.machine, threads=threads, row=threads, blocks=1)
        self.team = module.team = Team(module, self.machine)
        self.parts: dict[Step, list[Part]] = {}
        #: Whether kernels have memory for stacks; whether the whole program is one kernel.
        self.stacks, self.whole = stacks, whole

    # --- steps ----------------------------------------------------------------------------------

    def _nanoseconds(self, kernel: Kernel) -> float:
        return float(kernel.cost * SLOWER * -(-kernel.items // self.machine.threads))

    def kernels(self, step: Step, name: str, *, checked: bool = False) -> list[Kernel] | None:
        """Write what a step of a nested graph calls; None if there is none. `checked`: it cannot
        fail, as its operands were checked before."""
        group, node = step.group, step.nodes[0]
        name = name.replace(".", "_")
        if group.kind == "control":
            return [Kernel("", 0, 0.0, room_of(step))]
        if group.kind == "stack":
            return []
        if group.kind == "loop":
            launches, scratch = emit_group(
                self.module, name, group, places(group)[0], machine=self.machine
            )
            self.parts[step] = [Part(one.name, one.blocks) for one in launches]
            return [Kernel(one.name, 1, 1000.0, scratch) for one in launches]
        if group.kind != "kernel":
            return []
        if node.op is MATMUL:
            views = [op.view for op in group.operands[node] if isinstance(op, Leaf)]
            if len(views) != 2:
                return None
            emit_product(self.module, name, node, views, self.machine)
            self.parts[step] = [Part(name)]
            return [Kernel(name, 1, 1000.0)]
        made = KERNELS[node.op.name](self.module, name, node)
        if made is None or any(kernel.stops or kernel.varies for kernel in made):
            return None
        kept = [kernel for kernel in made if kernel.items]
        if self.whole and sum(map(self._nanoseconds, kept)) > LONGEST:
            return None
        fails = bool(node.op.may_fail) and not checked
        self.parts[step] = [Part(one.name, items=one.items, may_fail=fails) for one in kept]
        return kept

    # --- graphs ---------------------------------------------------------------------------------

    def graph(self, plan: GraphPlan, others: Sequence[Value] | None = None) -> None:
        """Write the functions of a graph, and of those inside of it. `others`, of a whole program:
        values that follow the results in its table; what is called runs before the kernel."""
        for step in plan.steps:
            for nested in step.nested:
                self.graph(nested)
        params = [("ptr", "table"), ("ptr", "arena"), ("ptr", "run")]
        f = self.module.function(plan.name, "i32", params, "nounwind convergent")
        writer = _Writer(self, plan, f, others or ())
        for step in plan.steps:
            if others is None or step.kind != "call":
                writer.step(step)
        writer.copy_results()
        f.do("ret i32 0")

    def step_kernel(self, step: Step, name: str, *, top_is_copied: bool = False) -> Launch:
        """The kernel of one step, of control flow or on stacks. Its buffers are those of the step
        (the last one of control flow is its memory), and those of `_kernel`. `top_is_copied`: of an
        element that is popped, another kernel copies the value."""
        for nested in step.nested:
            self.graph(nested)
        node, count = step.nodes[0], len(arguments(step.group, step.kernels))
        f, at = self._run(f"{name}_run", count)
        given = at[: len(node.inputs)]
        out = at[len(node.inputs) : len(node.inputs) + len(node.outputs)]
        if top_is_copied:
            _pop_below(f, given[0], out[0])
        if step.kind == "stack":
            STACK_OPS[node.op.name](f, node, given, out, _check(f))
        else:
            emit_control(self.frame(f, step, given, out, at[-1]))
        f.do("ret i32 0")
        return self._kernel(name, f.name, count)

    def whole_kernel(self, plan: GraphPlan, name: str, others: Sequence[Value]) -> Launch:
        """One kernel for a whole graph. Its buffers: inputs, outputs, `others` (what steps read
        that is made elsewhere), the memory of the plan, and those of `_kernel`."""
        self.graph(plan, others)
        count = len(plan.graph.inputs) + len(plan.results) + len(others) + 1
        f, at = self._run(f"{name}_run", count)
        status = f(f"call i32 @{plan.name}(ptr %table, ptr {at[-1]}, ptr %run)")
        f.do(f"ret i32 {status}")
        return self._kernel(name, f.name, count)

    def _run(self, name: str, count: int) -> tuple[Function, list[Ptr]]:
        """A function of a table of buffers, `i32 name(ptr table, ptr run)`; and the buffers."""
        params = [("ptr", "table"), ("ptr", "run")]
        f = self.module.function(name, "i32", params, "nounwind convergent")
        return f, [slot(f, "%table", place) for place in range(count)]

    def _kernel(self, name: str, run: str, count: int) -> Launch:
        """The kernel that calls a function of a table. Three more buffers follow: where the end of
        the used memory of stacks is found, the bounds of that memory, and the flag."""
        builder = KernelBuilder(self.module, name, count + 3)
        f = builder.f
        flag = builder.buffer(count + 2, "i32")
        failed = flag.load()
        words = self.team.begin(f)
        builder.wait()  # for those that have not read the flag
        with f.when(f(f"icmp ne i32 {failed}, 0")):
            f.do("ret void")
            f.block(f.fresh("never"))
        first, bounds = builder.buffer(count, "ptr"), builder.buffer(count + 1, "ptr")
        if self.stacks:
            (words + FREE).store(first.load())
            (words + END).store((bounds + 2).load())
            builder.wait()  # for those that have not read the bounds
        table = f.var("ptr", count=max(1, count), align=16)
        for place in range(count):
            (table + place).store(f"%a{place}")
        status = f(f"call i32 @{run}(ptr {table}, ptr {words})")
        builder.wait()
        with f.when(f(f"icmp eq i64 {builder.thread()}, 0")):
            if self.stacks:
                bounds.store((words + FREE).load())
            with f.when(f(f"icmp ne i32 {status}, 0")):
                flag.store(status)
        builder.end(self.machine.threads)
        return Launch(name, 1, self.machine.threads)

    def frame(
        self, f: Function, step: Step, given: Sequence[Ptr], out: Sequence[Ptr], arena: Ptr
    ) -> Frame:
        names = [nested.name for nested in step.nested]
        # A thread may still read what the last iteration left, such as its condition.
        return Frame(
            *(f, step.nodes[0], given, out, names, arena),
            *(_inner(step), _check(f), lambda: self.team.wait(f)),
        )


class _Writer:
    """Writes the steps of one nested graph."""

    def __init__(
        self, code: BlockCode, plan: GraphPlan, f: Function, others: Sequence[Value]
    ) -> None:
        self.code = code
        self.team = code.team
        self.plan = plan
        self.f = f
        first = len(plan.graph.inputs) + len(plan.results)
        self.others = {value: first + number for number, value in enumerate(others)}

    def _address(self, value: Value) -> Ptr:
        f = self.f
        if value in self.others:
            return slot(f, "%table", self.others[value])
        match self.plan.place(value):
            case Input(number):
                return slot(f, "%table", number)
            case Output(number):
                return slot(f, "%table", len(self.plan.graph.inputs) + number)
            case Constant(literal):
                said = "".join(f"\\{byte:02X}" for byte in literal.array.tobytes())
                kind = f"[{literal.array.nbytes} x i8]"
                return f.ptr(self.code.module.constant(kind, f'c"{said}"'))
            case Arena(offset):
                return f.ptr("%arena").bytes(offset)
        return f.ptr("null")  # an unused result

    def _room(self, step: Step) -> Ptr:
        f, place = self.f, self.plan.room(step.group)
        return f.ptr("%arena").bytes(place.offset) if isinstance(place, Arena) else f.ptr("null")

    def step(self, step: Step) -> None:
        f, team, node = self.f, self.team, step.nodes[0]
        if step.kind in ("control", "stack"):
            operands = step.group.operands[node]
            given = [self._address(op.root) for op in operands if isinstance(op, Leaf)]
            out = [self._address(value) for value in node.outputs]
            if step.kind == "stack":
                STACK_OPS[node.op.name](f, node, given, out, _check(f))
            else:
                emit_control(self.code.frame(f, step, given, out, self._room(step)))
            team.wait(f)
            return
        parts = self.code.parts.get(step)
        if parts is None:
            raise NotNative(f"{node.op.name} has no code for one block of a GPU")
        addresses = [
            self._room(step) if value is None else self._address(value)
            for value in arguments(step.group, step.kernels)
        ]
        for part in parts:
            if part.items:
                self._items(part, addresses)
                continue
            if part.blocks == 1:
                team.call(f, part.name, addresses, 0)
            else:
                with f.loop(0, part.blocks) as block:
                    team.call(f, part.name, addresses, block)
            team.wait(f)

    def _items(self, part: Part, addresses: Sequence[Ptr]) -> None:
        """Each item by one thread."""
        f, team = self.f, self.team
        table = args_table(f, len(addresses))
        for place, address in enumerate(addresses):
            (table + place).store(address)
        failed = f.var("i32", 0)
        with team.each(f, part.items) as item:
            status = f(f"call i32 @{part.name}(ptr {table}, i64 {item}, i64 {item + 1})")
            if part.may_fail:
                with f.when(f(f"icmp ne i32 {status}, 0")):
                    failed.store(status)
        team.wait(f)
        if part.may_fail:
            _check(f)(team.any(f, failed.load()))

    def copy_results(self) -> None:
        """Copy results that are elsewhere: inputs, constants, a value given twice."""
        plan, f = self.plan, self.f
        for number, value in enumerate(plan.results):
            if plan.outputs.get(value) != number and not _is_host(value):
                to = slot(f, "%table", len(plan.graph.inputs) + number)
                copy(f, to, self._address(value), size_of_type(value.type))


def _pop_below(f: Function, stack: Ptr, below: Ptr) -> None:
    """Return from a pop of an element with the stack below it; go on with all other pops."""
    cell = stack.of("ptr").load_ptr("ptr")
    some = f(f"icmp ne ptr {cell}, null")
    with f.when(some), f.when(f(f"icmp eq i64 {cell.of('i64').load()}, {ELEMENT}")):
        below.of("ptr").store(cell.bytes(8).of("ptr").load())
        f.do("ret i32 0")
        f.block(f.fresh("never"))


def room_of(step: Step) -> int:
    """Bytes of memory that a step of control flow needs of its own."""
    return _inner(step) + scratch_of(step.nodes[0]) if step.nested else 0


def _inner(step: Step) -> int:
    return -(-functools.reduce(max, [nested.arena for nested in step.nested], 0) // 64) * 64


def _is_host(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.device == CPU


def _check(f: Function) -> Callable[[str], None]:
    def check(status: str) -> None:
        with f.when(f(f"icmp ne i32 {status}, 0")):
            f.do(f"ret i32 {status}")
            f.block(f.fresh("never"))

    return check
