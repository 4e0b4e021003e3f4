"""A lowered graph as flat arrays: what the executor reads at each step.

Nodes are small ints. Each frame has its own entries, one for each input of each of its nodes; an
iteration is a list of values for these entries and a list of how many inputs each node still waits
for. Values are pushed: a node that has run puts its value into the entries of those who read it and
forgets it, so memory is given back when the last reader has run.

Nodes that only pass a live value on are no steps: a value goes past merges and loop conditions to
the entries of those who read the result. Dead values take the merges one by one, as a merge is dead
only if all its inputs are.
"""

from __future__ import annotations

from weft.ir.contexts import FRAME, Contexts
from weft.ir.graph import Graph, Node, Value
from weft.ops.flow import FIXED_ROLES
from weft.runtime.dataflow.tasks import Task, task_of

__all__ = ["OP", "ExecutionPlan"]

#: The kinds of steps.
OP, BRANCH, LOOP_SWITCH, ENTER, ENTER_FIXED, EXIT, NEXT, MERGE, OUTPUTS = range(9)

#: Entries that a value goes to, each with the node that reads it there.
Readers = tuple[tuple[int, int], ...]


class FramePlan:
    """One frame: the graph outside of loops, or the body of a loop.

    blank     an entry for each input of its nodes, without a value
    waits     for each node, how many of its inputs are missing when an iteration begins
    enters    how many values enter it
    exits     the nodes through which values leave it
    """

    __slots__ = ("around", "blank", "enters", "exits", "first", "index", "name", "nodes", "waits")

    def __init__(self, index: int, name: str, around: FramePlan | None, first: int) -> None:
        self.index = index
        self.name = name
        self.around = around
        self.first = first  # the number of its first node: where it stands in the program
        self.blank: list[None] = []
        self.waits: list[int] = []
        self.nodes: list[int] = []
        self.enters = 0
        self.exits: list[int] = []


class ExecutionPlan:
    """The arrays, by the number of the node: its place in the lowered graph.

    kind      which step it is
    tasks     for an OP: what runs
    start, stop   its entries; `own` counts nodes within their frame, for `waits`
    readers   for each output: who reads it when it is alive
    heirs     for each output: who is told when it is dead, merges included
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        contexts = Contexts(graph)
        count = len(graph.nodes) + 1
        self.nodes: list[Node] = graph.nodes
        self.kind = [OP] * count
        self.tasks: list[Task | None] = [None] * count
        self.start = [0] * count
        self.stop = [0] * count
        self.own = [0] * count
        self.frame_of = [0] * count
        self.into = [0] * count  # for an enter: the frame that it leads to
        self.sides = [0] * count  # for a branch by number: how many sides; 0: by true or false
        self.readers: list[tuple[Readers, ...]] = [()] * count
        self.heirs: list[tuple[Readers, ...]] = [()] * count
        self.frames = [FramePlan(0, "", None, 0)]
        self._frames: dict[str, FramePlan] = {}
        #: Seconds to the end of the program, for the scheduler that asks for it.
        self.ranks: list[float] | None = None
        self.outputs = count - 1  # the node that takes the outputs
        self._number = {node: i for i, node in enumerate(graph.nodes)}
        self._contexts = contexts
        uses = self._place()
        self._connect(uses)
        self.inputs = [self._readers(value, uses) for value in graph.inputs]
        self.sources = [i for i, node in enumerate(graph.nodes) if not node.inputs]

    # --- making it ----------------------------------------------------------------------------

    def _place(self) -> dict[Value, list[tuple[int, int, int]]]:
        """Give each node its kind, frame and entries; returns the uses of each value: node,
        position, entry."""
        uses: dict[Value, list[tuple[int, int, int]]] = {}
        for i, node in enumerate(self.nodes):
            self.kind[i] = self._kind(node)
            if self.kind[i] == OP and node.op.flow != "condition":
                self.tasks[i] = task_of(node)
            frame = self._frame(node, i)
            inputs = node.inputs[1:] if self.kind[i] == NEXT else node.inputs
            self._entries(i, frame, inputs, uses)
        self.kind[self.outputs] = OUTPUTS
        self._entries(self.outputs, self.frames[0], self.graph.outputs, uses)
        return uses

    def _entries(
        self,
        i: int,
        frame: FramePlan,
        inputs: tuple[Value, ...],
        uses: dict[Value, list[tuple[int, int, int]]],
    ) -> None:
        self.frame_of[i] = frame.index
        self.own[i] = len(frame.nodes)
        frame.nodes.append(i)
        self.start[i] = len(frame.blank)
        for position, value in enumerate(inputs):
            uses.setdefault(value, []).append((i, position, len(frame.blank)))
            frame.blank.append(None)
        self.stop[i] = len(frame.blank)
        frame.waits.append(len(inputs))

    def _kind(self, node: Node) -> int:
        flow = node.op.flow
        if flow == "switch":
            made = self._contexts.constructs[str(node.attrs["of"])]
            if node.inputs[1].tensor_type.dtype.kind != "bool":
                self.sides[self._number[node]] = made.sides
            return LOOP_SWITCH if made.is_loop else BRANCH
        if flow == "enter":
            return ENTER_FIXED if node.attrs["role"] in FIXED_ROLES else ENTER
        return {"exit": EXIT, "next": NEXT, "merge": MERGE}.get(flow, OP)

    def _frame(self, node: Node, i: int) -> FramePlan:
        """The frame in which a node takes its inputs."""
        if not node.inputs:
            return self.frames[0]
        frame = self._frame_at(node.inputs[-1])
        if node.op.flow == "enter":
            name = str(node.attrs["frame"])
            if name not in self._frames:
                made = FramePlan(len(self.frames), name, frame, i)
                self._frames[name] = made
                self.frames.append(made)
            self._frames[name].enters += 1
            self.into[i] = self._frames[name].index
        elif node.op.flow == "exit":
            frame.exits.append(i)
        return frame

    def _frame_at(self, value: Value) -> FramePlan:
        for name, side in reversed(self._contexts.of[value]):
            if side == FRAME:
                return self._frames[name]
        return self.frames[0]

    def _connect(self, uses: dict[Value, list[tuple[int, int, int]]]) -> None:
        for i, node in enumerate(self.nodes):
            kind = self.kind[i]
            if kind == NEXT:
                self.readers[i] = (self._readers(node.inputs[0], uses),)
            elif kind == LOOP_SWITCH:  # what a loop's dead side holds never leaves it
                self.readers[i] = tuple([self._readers(value, uses) for value in node.outputs])
            elif kind != MERGE:
                self.readers[i] = tuple([self._readers(value, uses) for value in node.outputs])
                self.heirs[i] = tuple([self._heirs(value, uses) for value in node.outputs])
            else:
                self.heirs[i] = tuple([self._heirs(value, uses) for value in node.outputs])

    def _readers(self, value: Value, uses: dict[Value, list[tuple[int, int, int]]]) -> Readers:
        """Who reads a live value: past merges and conditions."""
        found: list[tuple[int, int]] = []
        waiting = [value]
        while waiting:
            for node, _position, entry in uses.get(waiting.pop(), ()):
                if self.kind[node] == MERGE or self._is_condition(node):
                    waiting.append(self.nodes[node].outputs[0])
                else:
                    found.append((entry, node))
        return tuple(sorted(found, key=lambda reader: reader[1]))

    def _heirs(self, value: Value, uses: dict[Value, list[tuple[int, int, int]]]) -> Readers:
        return tuple([(entry, node) for node, _position, entry in uses.get(value, ())])

    def _is_condition(self, node: int) -> bool:
        return node < self.outputs and self.nodes[node].op.flow == "condition"
