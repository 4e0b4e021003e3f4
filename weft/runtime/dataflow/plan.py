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

from typing import Any

from weft.base.device import CPU
from weft.ir.contexts import FRAME, Contexts
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ops.flow import FIXED_ROLES, FLOW_SIGNAL, called
from weft.runtime.dataflow.arrays import asarray
from weft.runtime.dataflow.tasks import Task, task_of

__all__ = ["OP", "ExecutionPlan"]

#: The kinds of steps.
OP, BRANCH, LOOP_SWITCH, ENTER, ENTER_FIXED, EXIT, NEXT, MERGE, OUTPUTS = range(9)

#: Entries that a value goes to, each with the node that reads it there.
Readers = tuple[tuple[int, int], ...]
Uses = dict[Value, list[tuple[int, int]]]
#: Steps that only pass values on; besides merges of branches.
_PASSIVE = (BRANCH, LOOP_SWITCH, ENTER_FIXED, EXIT)


class FramePlan:
    """One frame: the graph outside of loops, or the body of a loop.

    blank     an entry for each input of its nodes: a constant, or no value yet
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
        self.blank: list[Any] = []
        self.waits: list[int] = []
        self.nodes: list[int] = []
        self.enters = 0
        self.exits: list[int] = []


class ExecutionPlan:
    """The arrays, by the number of the node: its place in the lowered graph.

    kind      which step it is
    tasks     for an OP: what runs
    start, stop   its entries
    own       its number among the nodes of its frame
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
        self._constants = _constants(graph)
        unread = self._unread()
        uses = self._place(unread)
        self._connect(uses)
        self.inputs = [self._readers(value, uses) for value in graph.inputs]
        self.sources = [
            i for i, node in enumerate(graph.nodes) if not node.inputs and node not in unread
        ]

    # --- making it ----------------------------------------------------------------------------

    def _unread(self) -> set[Node]:
        """Nodes that compute nothing and that nobody reads, as their values are known already or
        not used: they do not run."""
        unread: set[Node] = set()
        read = set(self.graph.outputs)
        for node in reversed(self.nodes):
            kind = self._kind(node)
            passive = kind in _PASSIVE or node.op is FLOW_SIGNAL or self._is_constant(node)
            if kind == MERGE:
                passive = not self._contexts.constructs[str(node.attrs["of"])].is_loop
            if passive and not any(value in read for value in node.outputs):
                unread.add(node)
            else:
                inputs = node.inputs[1:] if kind == NEXT else node.inputs
                read.update(v for v in inputs if not self._is_filled(node, v))
        return unread

    def _is_constant(self, node: Node) -> bool:
        return bool(node.outputs) and node.outputs[0] in self._constants

    def _is_filled(self, node: Node, value: Value) -> bool:
        """Whether an input is there from the beginning: a constant, beside an input that is not."""
        return (
            value in self._constants
            and not node.op.flow
            and any(other not in self._constants for other in node.inputs)
        )

    def _place(self, unread: set[Node]) -> Uses:
        """Give each node its kind, frame and entries; returns the uses of each value."""
        uses: Uses = {}
        for i, node in enumerate(self.nodes):
            self.kind[i] = self._kind(node)
            if node in unread:
                continue
            if self.kind[i] == OP and node.op.flow != "condition":
                self.tasks[i] = task_of(node)
            frame = self._frame(node, i)
            inputs = node.inputs[1:] if self.kind[i] == NEXT else node.inputs
            self._entries(i, frame, inputs, uses)
        self.kind[self.outputs] = OUTPUTS
        self._entries(self.outputs, self.frames[0], self.graph.outputs, uses)
        return uses

    def _entries(self, i: int, frame: FramePlan, inputs: tuple[Value, ...], uses: Uses) -> None:
        node = self.nodes[i] if i < self.outputs else None
        self.own[i] = len(frame.nodes)
        frame.nodes.append(i)
        self.start[i] = len(frame.blank)
        waits = 0
        for value in inputs:
            if node is not None and self._is_filled(node, value):
                frame.blank.append(self._constants[value])
                continue
            uses.setdefault(value, []).append((len(frame.blank), i))
            frame.blank.append(None)
            waits += 1
        self.stop[i] = len(frame.blank)
        frame.waits.append(waits)

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

    def _connect(self, uses: Uses) -> None:
        for i, node in enumerate(self.nodes):
            values = node.inputs[:1] if self.kind[i] == NEXT else node.outputs
            self.readers[i] = tuple([self._readers(value, uses) for value in values])
            # Dead values do not go around a loop, and what its dead side holds never leaves it.
            if self.kind[i] not in (NEXT, LOOP_SWITCH):
                self.heirs[i] = tuple([tuple(uses.get(value, ())) for value in values])

    def _readers(self, value: Value, uses: Uses) -> Readers:
        """Who reads a live value: past merges and conditions."""
        found: list[tuple[int, int]] = []
        waiting = [value]
        while waiting:
            for entry, node in uses.get(waiting.pop(), ()):
                if self.kind[node] == MERGE or self._is_condition(node):
                    waiting.append(self.nodes[node].outputs[0])
                else:
                    found.append((entry, node))
        return tuple(sorted(found, key=lambda reader: reader[1]))

    def _is_condition(self, node: int) -> bool:
        return node < self.outputs and self.nodes[node].op.flow == "condition"


def _constants(graph: Graph) -> dict[Value, Any]:
    """The arrays of constants on the CPU, which need not be made in each iteration."""
    found: dict[Value, Any] = {}
    for node in graph.nodes:
        made = called(node)
        if made.op is CONSTANT and made.attrs["device"] == CPU:
            found[node.outputs[0]] = asarray(made.attrs["value"].array)
    return found
