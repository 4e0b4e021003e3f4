"""The CPU's emitter: a whole plan as functions of one module.

    i32 @graph(ptr %table, ptr %arena, ptr %run)

`table` holds the addresses of the inputs, then of the outputs; `arena` is the memory of
intermediate values; `run` points to what the process provides: see `RUN`. The function calls kernel
after kernel; it returns 0, or the status of the kernel that failed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft.base.dim_algebra import dim_max
from weft.base.errors import InternalError
from weft.codegen.arguments import OF_GROUPS, arguments, places
from weft.codegen.attention_nodes import emit_attention, emit_attention_grad
from weft.codegen.cancel import copy_in_parts
from weft.codegen.checks.calls import REDZONE, Buffer, Checking
from weft.codegen.checks.module import CheckedModule
from weft.codegen.contract import EMPTY, RUN, SECOND, SMALL_CONSTANT, UNDONE, NotNative
from weft.codegen.control.flow import Frame, emit_control, scratch_of
from weft.codegen.control.lists import STACK_OPS, list_length
from weft.codegen.control.rows import emit_rows
from weft.codegen.cpu import CpuTarget
from weft.codegen.index import Index, Ptr, Size
from weft.codegen.indexing.access import clear_bytes
from weft.codegen.kernel import args_table
from weft.codegen.late_sizes import Tellers
from weft.codegen.late_steps import LateWriter
from weft.codegen.launch import Launcher, slot
from weft.codegen.launch_table import Launches, batches
from weft.codegen.loops.emit import emit_loops
from weft.codegen.products import emit_product
from weft.codegen.shared_kernels import SharedKernels
from weft.codegen.tables import KERNELS
from weft.codegen.text import Module
from weft.codegen.timing import Timing
from weft.ir.graph import Node, Value
from weft.ir.literal import Literal
from weft.ir.types import StackType
from weft.ops.cards import MATMUL
from weft.ops.lists import LIST_ALL
from weft.schedule.groups import Group, Leaf
from weft.schedule.memory import size_of_type
from weft.schedule.plan import (
    Arena,
    Constant,
    GraphPlan,
    Input,
    Kernel,
    Late,
    Output,
    ProgramPlan,
    Step,
)
from weft.schedule.target import Emitter

__all__ = ["CpuEmitter"]

_EMIT = dict(zip(OF_GROUPS, (emit_product, emit_attention, emit_attention_grad), strict=True))


class CpuEmitter(Emitter):
    """
    module      everything that is written
    timing      records when kernels run, if a clock is given
    checking    for a `CheckedModule`: checks the kernels' accesses
    constants   those that are passed to each run, as they are too large to be part of the code
    calls       the nodes whose cards are called in Python, by the number of the call
    """

    def __init__(self, module: Module, *, clock: int | None = None) -> None:
        self.module = module
        self.timing = None if clock is None else Timing(module, clock)
        self.checking = Checking(module) if isinstance(module, CheckedModule) else None
        self.target = CpuTarget(module.machine, 0 if self.checking is None else REDZONE)
        self.target.sizes = module.sizes
        self.constants: list[Literal] = []
        self.number_of: dict[str, int] = {}  # of a constant among them, by its digest
        self.calls: list[Node] = []
        self.tellers = Tellers(module)
        self.empty: list[tuple[Step, list[Any]]] = []  # steps that cards run on empty tensors
        self._shared = SharedKernels(module, self._write)

    def kernels(self, step: Step, name: str) -> list[Kernel] | None:
        share = self.target.costs.share
        found = self._written(step, name)
        return found and [
            replace(
                kernel,
                shared=kernel.varies or (kernel.items > 1 and kernel.nanoseconds >= share),
            )
            for kernel in found
        ]

    def _written(self, step: Step, name: str) -> list[Kernel] | None:
        """The kernels of a step, which equal steps share."""
        if self.module.shares and not self.module.varies and step.kind in ("loop", *OF_GROUPS):
            return self._shared.of(step, name)
        return self._write(step, name)

    def _write(self, step: Step, name: str) -> list[Kernel] | None:
        """Write the kernels of a step to the module."""
        group, node = step.group, step.nodes[0]
        self.module.at(node.location)
        if group.kind == "loop":
            return emit_loops(self.module, name, group, places(group)[0])
        if group.kind == "kernel":
            found: list[Kernel] | None = KERNELS[node.op.name](self.module, name, node)
            return found
        if group.kind in OF_GROUPS:
            return _EMIT[group.kind](self.module, name, group, *places(group))
        if group.kind == "control":
            inner = functools.reduce(dim_max, [plan.arena for plan in step.nested])
            if step.rows is None:
                return [Kernel("", 0, 0.0, inner + scratch_of(node))]
            return [emit_rows(self.module, name, node, step.rows, step.nested[0].name, inner)]
        stacks = any(isinstance(v.type, StackType) for v in (*node.inputs, *node.outputs))
        if group.kind == "call" and stacks:
            raise NotNative(f"{node.op.name} works on stacks")
        return []

    def emit(self, plan: ProgramPlan) -> None:
        """Write the functions of all graphs."""
        self.constants = [x for x in plan.constants if x.array.nbytes > SMALL_CONSTANT]
        self.number_of = {constant.digest: i for i, constant in enumerate(self.constants)}
        self.calls = plan.calls
        for graph in plan.root.inner_first():
            _GraphWriter(self, graph).write()
        self.tellers.finish()


class _GraphWriter:
    """Writes the function of one graph."""

    def __init__(self, program: CpuEmitter, plan: GraphPlan) -> None:
        self.program = program
        self.module = program.module
        self.plan = plan
        self.module.at(None)
        self.late = LateWriter(program, plan)
        self.f = self.late.function()
        self.launcher = Launcher(self.f, program.target.costs, program.timing, program.checking)
        self.arguments = {step: arguments(step.group, step.kernels) for step in plan.steps}
        self.read = {value for step in plan.steps for value in step.group.reads()}
        self.args: Ptr | None = None

    def write(self) -> None:
        writes_from = self.plan.writes_from
        self.late.allocate(-1)
        if self.program.target.late and any(self.arguments.values()):
            self._arguments([])  # at the start: some steps run under a condition
        timed = self.program.timing is not None or self.program.checking is not None
        # Clocks and checks go step by step; tables of arguments that name sizes are not made twice.
        straight = timed or self.module.varies
        ends = {} if straight else dict(self.plan.waves)
        tables = {} if straight else dict(batches(self.plan.steps, self.plan.waves))
        number = 0
        while number < len(self.plan.steps):
            end = tables.get(number) or ends.get(number, number + 1)
            # A run cannot be cancelled once it has begun to overwrite inputs.
            may_end = end <= writes_from
            if number in tables:
                self._launch_all(range(number, end), writes_from)
            elif number in ends:
                self._run_together(self.plan.steps[number:end], may_end)
            else:
                self._run(self.plan.steps[number], may_end=may_end)
            if self.program.checking is not None:
                self._poison_dead(self.program.checking, number)
            number = end
        self._copy_results()
        self.f.do("ret i32 0")
        self.late.finish()

    def _launch_all(self, numbers: range, writes_from: int) -> None:
        """Launch the kernels of many steps."""
        made = Launches(self.launcher, self.plan, self._constant, self.program.number_of, self.read)
        for number in numbers:
            step = self.plan.steps[number]
            made.add(step, self.arguments[step], may_end=number < writes_from)
        made.write(self._arguments([]))

    # --- where things lie -----------------------------------------------------------------------

    def _address(self, value: Value) -> Ptr:
        f = self.f
        match self.plan.place(value):
            case Input(number):
                return slot(f, "%table", number)
            case Output(number):
                return slot(f, "%table", len(self.plan.graph.inputs) + number)
            case Constant(literal):
                return self._constant(literal)
            case Arena() | Late() as place:
                return self.late.room(place)
        if value in self.read:
            raise InternalError(f"{value} is read, and lies nowhere")
        return f.ptr("null")  # an unused result

    def _constant(self, literal: Literal) -> Ptr:
        array = literal.array
        if array.nbytes <= SMALL_CONSTANT:
            said = "".join(f"\\{byte:02X}" for byte in array.tobytes())
            name = self.module.constant(f"[{array.nbytes} x i8]", f'c"{said}"')
            return self.f.ptr(name)
        table = self.launcher.of_run("constants")
        return slot(self.f, table, self.program.number_of[literal.digest])

    def _buffers(self, step: Step, may_end: bool) -> list[Buffer]:
        """The buffers of a step."""
        f, group = self.f, step.group
        found: list[Buffer] = []
        for value in self.arguments[step]:
            if value is None:
                found_at = self.plan.room(group)
                address = f.ptr("null") if found_at is None else self.late.room(found_at)
                found.append(Buffer(value, address, self._checked(step.room), writable=True))
            elif value is RUN:
                address = f.ptr("%run" if may_end else "null")
                found.append(Buffer(value, address, 8 * len(RUN), writable=True))
            else:
                made = value in group.outputs or value in group.written
                size = self._checked(size_of_type(value.type))
                found.append(Buffer(value, self._address(value), size, made, self._inputs(value)))
        return found

    def _checked(self, size: int) -> Size:
        """The size of a buffer, which only code in check mode uses."""
        return size if self.program.checking is None else self.f.size(size)

    def _inputs(self, value: Value) -> list[Ptr]:
        """The addresses of the inputs that a result may be written in place of, in check mode."""
        if self.program.checking is None:
            return []
        place = self.plan.outputs.get(value)
        pairs = self.plan.in_place
        return [slot(self.f, "%table", taken) for result, taken in pairs if result == place]

    # --- what runs ------------------------------------------------------------------------------

    def _arguments(self, buffers: Sequence[Buffer]) -> Ptr:
        f = self.f
        if self.args is None:  # one table for all kernels, as they run one after another
            most = max(len(found) for found in self.arguments.values())
            self.args = args_table(f, most)
            if self.module.varies:
                (self.args + -1).store(f.size_table())
        for place, buffer in enumerate(buffers):
            (self.args + place).store(buffer.address)
        return self.args

    def _poison_dead(self, checking: Checking, number: int) -> None:
        """Poison the values that are not read after a step."""
        for value, last in self.plan.memory.dies.items():
            if last == number and isinstance(value, Value) and value not in self.plan.late.popped:
                size = self.f.size(size_of_type(value.type))
                checking.poison(self.f, self._address(value), size)

    def _run(self, step: Step, *, may_end: bool) -> None:
        f = self.f
        kernels = step.kernels
        if step.tells and step.kind in ("kernel", "call"):
            kernels = self._tell(step, may_end)
        empty = self.late.empty(step)
        if empty is None:
            self._run_step(step, kernels, may_end)
            return
        full, none, end = (f.fresh(word) for word in ("full", "none", "end"))
        f.branch(empty, none, full)
        f.block(full)
        self._run_step(step, kernels, may_end)
        f.jump(end)
        f.block(none)
        all_empty = self.late.all_empty(step)
        if all_empty is not None:  # kernels rely on sizes of at least 1
            some = f.fresh("some")
            f.branch(all_empty, end, some)
            f.block(some)
            self._run_empty(step, may_end)
        f.jump(end)
        f.block(end)

    def _run_empty(self, step: Step, may_end: bool) -> None:
        """What a step does where an operand is empty, and a result is not."""
        node = step.nodes[0]
        if step.kind == "product" and node.op is MATMUL and step.group.in_order() == [node]:
            clear_bytes(self.f, self._address(node.out), size_of_type(node.out.type))
            return
        number = EMPTY + len(self.program.empty)
        self.program.empty.append((step, self.arguments[step]))
        self._call(step, number, self._buffers(step, may_end))

    def _tell(self, step: Step, may_end: bool) -> list[Kernel]:
        """Compute the sizes that a step tells, and allocate memory of these sizes. Returns the
        kernels that are left."""
        f, group = self.f, step.group
        given = [
            Buffer(buffer.value, f.ptr("null"), 0, writable=False)
            if buffer.value in step.nodes[0].outputs
            else buffer
            for buffer in self._buffers(step, may_end)
        ]
        numbers: dict[str, Index] = {}
        if step.kind == "call":
            self._call(step, self.program.calls.index(group.nodes[0]), given)
        else:
            if len(step.tells) != 1:
                raise NotNative(f"{step.nodes[0].op.name} tells several sizes")
            self._launch(group, [k for k in step.kernels if k.tells], given, may_end)
            room = self.plan.room(group)
            assert room is not None
            numbers[step.tells[0]] = self.late.room(room).of("i64").load_index()
        self.late.tell(step, numbers, self.launcher.check)
        return [kernel for kernel in step.kernels if not kernel.tells]

    def _run_step(self, step: Step, kernels: list[Kernel], may_end: bool) -> None:
        f, group = self.f, step.group
        timing, checking = self.program.timing, self.program.checking
        is_inline = step.kind in ("control", "stack") and not any(k.name for k in kernels)
        given = self._buffers(step, may_end) if checking or not is_inline else []
        if not is_inline and step.kind != "call":
            self._launch(group, kernels, given, may_end)
            return
        start = timing.begin(f) if timing is not None else ""
        call = checking.begin(f, group, kernels, given) if checking is not None else None
        if is_inline:
            self._inline(step)
            if timing is not None and step.kind == "control":
                timing.end(f, start, group, inner=True)
        else:
            number = self.program.calls.index(group.nodes[0])
            self._call(step, number + (SECOND if step.tells else 0), given)
        if call is not None:
            call.end(f)

    def _call(self, step: Step, number: int, given: Sequence[Buffer]) -> None:
        """Call Python."""
        f, timing = self.f, self.program.timing
        start = timing.begin(f) if timing is not None else ""
        args = self._arguments(given)
        if number < len(self.program.calls) and step.nodes[0].op.collective:
            status = self._call_directly(number, args)
        else:
            status = self._call_python(number, args)
        if timing is not None:
            timing.end(f, start, step.group)
        self.launcher.check(status)

    def _call_python(self, number: int, args: Ptr) -> str:
        callback = self.launcher.of_run("callback")
        return self.f(f"call i32 {callback}(i64 {number}, ptr {args})")

    def _call_directly(self, number: int, args: Ptr) -> str:
        """Call what the run has in place of a card; Python where there is nothing, or it fails."""
        f = self.f
        given = slot(f, self.launcher.of_run("direct"), number)
        status = f.var("i32")
        python, direct, end = (f.fresh(word) for word in ("python", "direct", "end"))
        f.branch(f(f"icmp eq ptr {given}, null"), python, direct)
        f.block(python)
        status.store(self._call_python(number, args))
        f.jump(end)
        f.block(direct)
        function = given.of("ptr").load_ptr()
        found = f(f"call i32 {function}(ptr {given}, ptr {args})")
        status.store(found)
        with f.when(f(f"icmp ne i32 {found}, 0")):
            status.store(self._call_python(UNDONE + number, args))
        f.jump(end)
        f.block(end)
        return status.load()

    def _launch(
        self, group: Group, kernels: Sequence[Kernel], given: Sequence[Buffer], may_end: bool
    ) -> None:
        f, timing, checking = self.f, self.program.timing, self.program.checking
        start = timing.begin(f) if timing is not None else ""
        call = checking.begin(f, group, kernels, given) if checking is not None else None
        args = self._arguments(given)
        if call is not None:
            args = call.arguments(f, args)
        for kernel in kernels:
            status = self.launcher.start(group, kernel, args, may_end=may_end)
            if timing is not None:
                timing.end(f, start, group, kernel.name)
                start = timing.begin(f)
            if call is not None:
                call.look(f)
            self.launcher.check(status)
        if call is not None:
            call.end(f)

    def _run_together(self, steps: Sequence[Step], may_end: bool) -> None:
        """Run the steps of a wave: the first kernels of all, then the second ones, and so on."""
        tables = []
        for step in steps:
            buffers = self._buffers(step, may_end)
            table = args_table(self.f, len(buffers))
            for place, buffer in enumerate(buffers):
                (table + place).store(buffer.address)
            tables.append(table)
        for number in range(max(len(step.kernels) for step in steps)):
            kernels = [
                (step.group, step.kernels[number], table)
                for step, table in zip(steps, tables, strict=True)
                if number < len(step.kernels)
            ]
            if len(kernels) == 1:
                status = self.launcher.start(*kernels[0], may_end=may_end)
            else:
                name = f"{self.plan.name}.{steps[0].kernels[0].name}.wave{number}"
                pairs = [(kernel, table) for _, kernel, table in kernels]
                status = self.launcher.start_together(name, pairs, may_end=may_end)
            self.launcher.check(status)

    def _inline(self, step: Step) -> None:
        node, check = step.nodes[0], self.launcher.check
        given = [self._address(op.root) for op in step.group.operands[node] if isinstance(op, Leaf)]
        if step.kind == "stack":
            if node.op is LIST_ALL:
                self.late.tell(step, {step.tells[0]: list_length(self.f, node, given)}, check)
            out = [self._stack_result(value) for value in node.outputs]
            STACK_OPS[node.op.name](self.f, node, given, out, check)
            if node.op is not LIST_ALL and (step.tells or self.plan.late.popped):
                self.late.unpack(step, check)
            return
        out = [self._address(value) for value in node.outputs]
        at = self.plan.room(step.group)
        arena = self.f.ptr("%arena") if at is None else self.late.room(at)
        names = [nested.name for nested in step.nested]
        inner = -(-functools.reduce(dim_max, [nested.arena for nested in step.nested]) // 64) * 64
        emit_control(
            Frame(self.f, node, given, out, names, arena, inner, check, self.launcher.poll)
        )

    def _stack_result(self, value: Value) -> Ptr:
        """Where an op on stacks writes a result; a value of a late size is popped as a box."""
        if value in self.plan.late.popped:
            room = self.plan.room(value)
            return self.f.ptr("null") if room is None else self.late.room(room)
        return self._address(value)

    def _copy_results(self) -> None:
        """Copy results that are elsewhere: returned inputs, constants, a value returned twice."""
        plan = self.plan
        run = None if plan.in_place else self.f.ptr("%run")
        for number, value in enumerate(plan.results):
            if plan.outputs.get(value) != number and number in plan.boxed:
                self.late.copy_to_box(number, value, self._address(value))
            elif plan.outputs.get(value) != number:
                to = slot(self.f, "%table", len(plan.graph.inputs) + number)
                copy_in_parts(self.f, run, to, self._address(value), size_of_type(value.type))
