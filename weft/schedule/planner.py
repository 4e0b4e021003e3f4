"""From a graph to the plan of its program: groups, their kernels, places in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.base.dims import has_dims, is_zero
from weft.ir.graph import Graph, Node, Value
from weft.schedule.grouping import Grouping
from weft.schedule.groups import Group
from weft.schedule.in_place import in_place
from weft.schedule.memory import ArenaPlan, Buffers, named_places, planned, size_of_type
from weft.schedule.plan import GraphPlan, ProgramPlan, Step
from weft.schedule.reasons import Why
from weft.schedule.target import Emitter

__all__ = ["plan_program"]


def plan_program(graph: Graph, emitter: Emitter) -> ProgramPlan:
    """The plan of a lowered graph, for the target of an emitter."""
    planner = _Planner(emitter)
    made = ProgramPlan.of(planner.plan(graph, "graph", is_nested=False))
    made.buffers = planner.buffers
    return made


class _Planner:
    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.target = emitter.target
        self._names = 0
        self.buffers: list[Buffers] = []  # of graphs whose sizes each run tells, inner ones first

    def name(self, word: str) -> str:
        self._names += 1
        return f"{word}.{self._names}"

    def plan(self, graph: Graph, name: str, *, is_nested: bool) -> GraphPlan:
        """How a graph is run. A nested one writes nothing where its inputs lie."""
        grouping, steps = self._steps(graph)
        outputs: dict[Value, int] = {}
        inputs = set(graph.inputs)
        for number, value in enumerate(grouping.results):
            if value not in inputs and value not in grouping.constants:
                outputs.setdefault(value, number)
        memory = self._memory(steps, {*inputs, *outputs, *grouping.constants})
        pairs: list[tuple[int, int]] = []
        if not is_nested:
            times = {step.group: sum(k.nanoseconds for k in step.kernels) for step in steps}
            pairs = in_place(graph, grouping, self.target.may_fail, times)
        return GraphPlan(
            name, graph, steps, grouping.results, outputs, grouping.constants, memory, pairs
        )

    # --- what runs ------------------------------------------------------------------------------

    def _steps(self, graph: Graph) -> tuple[Grouping, list[Step]]:
        """The groups of a graph, with their kernels. If a node gets none, it is to be called in
        Python, and the graph is grouped again."""
        refused: set[Node] = set()
        while True:
            grouping = Grouping(graph, self.target, refused)
            before = len(refused)
            steps = [self._step(group, grouping.why, refused) for group in grouping.groups]
            if len(refused) == before:
                return grouping, steps

    def _step(self, group: Group, why: Mapping[Node, Why], refused: set[Node]) -> Step:
        node = group.nodes[0]
        name = self.name(f"{group.kind}.{node.op.name}")
        step = Step(group, why)
        if group.kind == "control":
            self._nest(step)
        kernels = self.emitter.kernels(step, name)
        if kernels is None and group.kind == "kernel":  # a call reads dense operands, too
            group.kind = "call"
            kernels = self.emitter.kernels(step, name)
        if kernels is None:
            refused.add(node)
        step.kernels = kernels or []
        return step

    def _nest(self, step: Step) -> None:
        """Plan the graphs of a control node."""
        node = step.nodes[0]
        rows = self.target.rows(node)
        if rows is not None:
            part = self._nested(rows.body)
            if all(inner.kind != "call" for inner in part.steps):  # only one thread runs Python
                step.rows, step.nested = rows, [part]
                return
        step.nested = [self._nested(inner) for inner in node.graphs]

    def _nested(self, graph: Graph) -> GraphPlan:
        return self.plan(graph, self.name(graph.name), is_nested=True)

    # --- memory ---------------------------------------------------------------------------------

    def _memory(self, steps: list[Step], elsewhere: set[Value]) -> ArenaPlan[Any]:
        """Places in the arena: for values from the step that computes them to the last that reads
        them, and for what a step needs of its own."""
        sizes: dict[Any, int] = {}
        born: dict[Any, int] = {}
        dies: dict[Any, int] = {}
        for number, step in enumerate(steps):
            for value in step.outputs:
                if value not in elsewhere:
                    sizes[value] = size_of_type(value.type) + self.target.padding
                    born[value] = dies[value] = number
            for value in step.group.reads():
                if value in born:
                    dies[value] = number
            if not is_zero(step.room):
                sizes[step.group] = step.room + self.target.padding
                born[step.group] = dies[step.group] = number
        if not has_dims(sizes.values()):
            return planned(sizes, born, dies, self.target.alignment)
        made, buffers = named_places(sizes, born, dies, self.target.alignment, len(self.buffers))
        self.buffers.append(buffers)
        return made
