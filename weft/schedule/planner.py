"""From a graph to the plan of its program: groups, their kernels, places in memory."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, TypeGuard

from weft.base.dim_algebra import Dim
from weft.base.dims import has_dims, is_zero
from weft.base.errors import UnknownSizeError
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.cards import WHILE
from weft.schedule.abreast import waves_of
from weft.schedule.grouping import Grouping
from weft.schedule.groups import Scalar
from weft.schedule.in_place import in_place
from weft.schedule.late import BOX, LateMemory, late_names_of, mentions, placed, pops_boxes, solved
from weft.schedule.memory import ArenaPlan, Buffers, named_places, planned, size_of_type
from weft.schedule.plan import GraphPlan, Kernel, ProgramPlan, Step
from weft.schedule.separate_updates import bytes_in_place, separate_updates
from weft.schedule.target import Emitter

__all__ = ["plan_program"]


def plan_program(graph: Graph, emitter: Emitter) -> ProgramPlan:
    """The plan of a lowered graph, for the target of an emitter."""
    planner = _Planner(emitter)
    results = _late_outputs(graph, emitter.target.late)
    made = ProgramPlan.of(planner.plan(graph, "graph", LateMemory(), results, is_nested=False))
    made.buffers = planner.buffers
    return made


class _Planner:
    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        emitter.inside = []
        self.target = emitter.target
        self._names = 0
        self.buffers: list[Buffers] = []  # of graphs whose sizes each run tells, inner ones first

    def name(self, word: str) -> str:
        self._names += 1
        return f"{word}.{self._names}"

    def plan(
        self, graph: Graph, name: str, late: LateMemory, boxed: Set[int], *, is_nested: bool
    ) -> GraphPlan:
        """How a graph is run. A nested one writes nothing where its inputs lie.

        `late`: has the late names that are known before. `boxed`: the outputs with late sizes,
        which are boxes.
        """
        grouping, steps = self._steps(graph, late)
        pairs: list[tuple[int, int]] = []
        if not is_nested:
            grouping, steps, pairs = self._in_place(graph, late, grouping, steps)
        outputs: dict[Value, int] = {}
        inputs = set(graph.inputs)
        elsewhere = {*inputs, *late.popped, *grouping.constants}
        for number, value in enumerate(grouping.results):
            if value not in elsewhere:
                outputs.setdefault(value, number)
        for value, number in outputs.items():
            if number in boxed:
                late.results[value] = late.after(late_names_of(value.type, self.target.late))
        overwritten = [(grouping.results[i], graph.inputs[j]) for i, j in pairs]
        waves = [] if self.target.late else waves_of(steps, overwritten, self.target)
        memory = self._memory(steps, {*inputs, *outputs, *grouping.constants}, late, waves)
        made = GraphPlan(
            name, graph, steps, grouping.results, outputs, grouping.constants, memory, pairs
        )
        made.late, made.boxed, made.waves = late, frozenset(boxed), waves
        return made

    # --- what runs ------------------------------------------------------------------------------

    def _in_place(
        self, graph: Graph, late: LateMemory, grouping: Grouping, steps: list[Step]
    ) -> tuple[Grouping, list[Step], list[tuple[int, int]]]:
        """Which results are written to inputs. Where large ones are not, as they are computed with
        a product, the graph is grouped again without that."""

        def pairs_of(grouping: Grouping, steps: list[Step]) -> list[tuple[int, int]]:
            times = {step.group: sum(k.nanoseconds for k in step.kernels) for step in steps}
            return in_place(graph, grouping, self.target.may_fail, times)

        pairs = pairs_of(grouping, steps)
        if not self.target.separates or late.told:
            return grouping, steps, pairs
        kept = {grouping.results[output] for output, _ in pairs}
        inputs = set(graph.inputs)
        apart = separate_updates(grouping.groups, grouping.results, inputs, kept)
        if apart:
            again = self._steps(graph, late, apart)
            found = pairs_of(*again)
            if bytes_in_place(graph, found) > bytes_in_place(graph, pairs):
                return *again, found
            grouping, steps = self._steps(graph, late)
        return grouping, steps, pairs

    def _steps(
        self, graph: Graph, late: LateMemory, apart: Set[Node] = frozenset()
    ) -> tuple[Grouping, list[Step]]:
        """The groups of a graph, with their kernels. If a node gets none, it is to be called in
        Python, and the graph is grouped again. `apart`: nodes that join no product."""
        refused: set[Node] = set()
        known = dict(late.told)
        while True:
            grouping = Grouping(graph, self.target, refused, apart)
            before = len(refused)
            late.told, late.popped, late.axes, late.solved = dict(known), [], [], {}
            steps: list[Step] = []
            for group in grouping.groups:
                step = Step(group, grouping.why)
                self._tell(step, len(steps), late)
                self._kernels(step, late, refused)
                steps.append(step)
            if len(refused) == before:
                return grouping, steps

    def _tell(self, step: Step, number: int, late: LateMemory) -> None:
        """Note the late names that a step tells. All that it needs are told by then."""
        names = self.target.late
        if not names:
            return
        node = step.nodes[0]
        values = [value for value in node.outputs if isinstance(value.type, TensorType)]
        if step.kind == "stack" and pops_boxes(node, names):
            self._pop(step, number, values, late)
            return
        if self.target.tells(node):
            here = {name for value in values for name in late_names_of(value.type, names)}
            step.tells = sorted(here - late.told.keys())
            late.told.update(dict.fromkeys(step.tells, number))
        for found in step.group.in_order():
            missing = mentions(found, names) - late.told.keys()
            if missing:
                self.target.refuse(f"{found.op.name} needs the size {min(missing)} too early")
        scalars = [op for ops in step.group.operands.values() for op in ops if _is_size(op)]
        for operand in scalars:
            if self.target.late_in(operand.number) - late.told.keys():
                self.target.refuse(f"{node.op.name} needs {operand.number} too early")

    def _pop(self, step: Step, number: int, values: list[Value], late: LateMemory) -> None:
        """What is popped with late sizes tells them."""
        names = self.target.late
        for value in values:
            if late_names_of(value.type, names):
                late.popped.append(value)
                for axis, size in enumerate(value.tensor_type.shape):
                    if isinstance(size, Dim) and set(size.names) & names:
                        late.axes.append((value, axis, size))
        late.solved[number] = solved(late, names)
        step.tells = [found.name for found in late.solved[number]]
        late.told.update(dict.fromkeys(step.tells, number))

    def _kernels(self, step: Step, late: LateMemory, refused: set[Node]) -> None:
        group, node = step.group, step.nodes[0]
        name = self.name(f"{group.kind}.{node.op.name}")
        if group.kind == "control":
            self._nest(step, late)
        kernels = self._made(step, name)
        if kernels is None and group.kind == "kernel":  # a call reads dense operands, too
            group.kind = "call"
            kernels = self.emitter.kernels(step, name)
        if kernels is None:
            refused.add(node)
        step.kernels = kernels or []

    def _made(self, step: Step, name: str) -> list[Kernel] | None:
        """The kernels of a step; None if there are none."""
        try:
            return self.emitter.kernels(step, name)
        except UnknownSizeError:
            # Other sizes could be made known, each set with a program of its own; not late ones.
            if step.kind != "kernel" or not mentions(step.nodes[0], self.target.late):
                raise
            return None

    def _nest(self, step: Step, late: LateMemory) -> None:
        """Plan the graphs of a control node."""
        node = step.nodes[0]
        rows = None if self._is_late(node) else self.target.rows(node)
        if rows is not None:
            part = self._nested(rows.body, node, late)
            if all(inner.kind != "call" for inner in part.steps):  # only one thread runs Python
                step.rows, step.nested = rows, [part]
                return
        step.nested = [self._nested(inner, node, late) for inner in node.graphs]

    def _is_late(self, node: Node) -> bool:
        """Whether sizes that depend on data occur in a node or the graphs in it."""
        late = self.target.late
        if not late:
            return False
        parts = [part for graph in node.graphs for part in graph.walk()]
        return any(mentions(inner, late) for inner in (node, *(n for g in parts for n in g.nodes)))

    def _nested(self, graph: Graph, node: Node, late: LateMemory) -> GraphPlan:
        known = LateMemory(dict.fromkeys(late.told, -1))
        boxed: Set[int] = frozenset()
        if node.op is WHILE and graph is node.graphs[-1]:
            # After the carries, values that are pushed to stacks.
            carries = len(node.inputs) - node.attrs["consts"]
            boxed = {i for i in _late_outputs(graph, self.target.late) if i >= carries}
        self.emitter.inside.append(node)
        made = self.plan(graph, self.name(graph.name), known, boxed, is_nested=True)
        self.emitter.inside.pop()
        return made

    # --- memory ---------------------------------------------------------------------------------

    def _memory(
        self,
        steps: list[Step],
        elsewhere: set[Value],
        late: LateMemory,
        waves: list[tuple[int, int]],
    ) -> ArenaPlan[Any]:
        """Places in the arena: for values from the step that computes them to the last that reads
        them, and for what a step needs of its own. All of a wave are used at the same time."""
        sizes: dict[Any, int] = {}
        born: dict[Any, int] = {}
        dies: dict[Any, int] = {}
        for number, step in enumerate(steps):
            for value in step.outputs:
                if value not in elsewhere:
                    size = BOX if value in late.popped else size_of_type(value.type)
                    sizes[value] = size + self.target.padding
                    born[value] = dies[value] = number
            for value in step.group.reads():
                if value in born:
                    dies[value] = number
            if not is_zero(step.room):
                sizes[step.group] = step.room + self.target.padding
                born[step.group] = dies[step.group] = number
        for number, found in late.solved.items():  # their boxes tell sizes
            for name in found:
                if name.value in dies:
                    dies[name.value] = max(dies[name.value], number)
        for first, end in waves:
            inside = range(first, end)
            born |= {key: first for key, step in born.items() if step in inside}
            dies |= {key: end - 1 for key, step in dies.items() if step in inside}
        if not has_dims(sizes.values()):
            for key, size in sizes.items():
                dies[key] = min(dies[key] + self.target.lingers(size), len(steps) - 1)
        if self.target.late:
            sizes = self._apart(sizes, born, dies, late)
        if not has_dims(sizes.values()):
            return planned(sizes, born, dies, self.target.alignment)
        made, buffers = named_places(sizes, born, dies, self.target.alignment, len(self.buffers))
        self.buffers.append(buffers)
        return made

    def _apart(
        self,
        sizes: dict[Any, int],
        born: dict[Any, int],
        dies: dict[Any, int],
        late: LateMemory,
    ) -> dict[Any, int]:
        """Put what has late sizes into chunks; returns the other buffers."""
        chunks: dict[int, dict[Any, int]] = {}
        others: dict[Any, int] = {}
        for key, size in sizes.items():
            names = self.target.late_in(size)
            if names:
                chunks.setdefault(late.after(names), {})[key] = size
            else:
                others[key] = size
        alignment, let = self.target.alignment, self.target.let
        late.chunks = [
            placed(step, found, born, dies, alignment, let)
            for step, found in sorted(chunks.items(), key=lambda entry: entry[0])
        ]
        return others


def _late_outputs(graph: Graph, late: Set[str]) -> set[int]:
    """The outputs of a graph that are tensors with late sizes."""
    return {
        i
        for i, value in enumerate(graph.outputs)
        if isinstance(value.type, TensorType) and late_names_of(value.type, late)
    }


def _is_size(operand: Any) -> TypeGuard[Scalar]:
    return isinstance(operand, Scalar) and isinstance(operand.number, Dim)
