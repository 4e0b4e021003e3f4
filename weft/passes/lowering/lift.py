"""Primitives of control flow to structured nodes: the inverse of `weft.passes.lowering.frames`.

The contexts of a lowered graph are its branches and loop bodies. Each becomes a nested graph again;
what only lowered graphs need (counters, rows, signals) goes, and says by where it stands whether a
loop was a `while` or a `scan`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from weft.base.dataclass import dataclass
from weft.base.errors import GraphError
from weft.ir.contexts import BODY, EXIT, FRAME, Construct, Context, Contexts, is_lowered
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import StackType, Type
from weft.ops.control import IF, SCAN, SWITCH, WHILE
from weft.ops.flow import (
    FLOW_BEFORE,
    FLOW_GATHER,
    FLOW_NUMBER,
    FLOW_ROW,
    FLOW_SIGNAL,
    FLOW_START,
    FLOW_STEP,
    FLOW_ZERO,
    called,
)
from weft.passes.contract import Notes, Pass

__all__ = ["LiftControlFlow"]

#: Nodes that have no place in a structured graph.
_HELPERS = (FLOW_SIGNAL, FLOW_ZERO, FLOW_STEP, FLOW_BEFORE, FLOW_ROW, FLOW_NUMBER, FLOW_GATHER)
#: Roles of what is an operand of a loop, in the order of its operands.
_FIXED, _CARRIED, _ROWS = ("const",), ("carry",), ("row", "pop")


class LiftControlFlow(Pass):
    """Switch, merge and frames become branches and loops again."""

    name = "lift_control_flow"
    nested = False

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        lowered = is_lowered(graph) or any(node.op is FLOW_START for node in graph.nodes)
        return _Lifting(graph, notes).run() if lowered else graph


@dataclass(eq=False, slots=True)
class _Item:
    """A node of a structured graph to be: what it reads and makes, as values of the lowered one."""

    place: int
    what: Node | Construct
    reads: list[Value]
    makes: list[Value]


class _Lifting:
    def __init__(self, graph: Graph, notes: Notes) -> None:
        self.old = graph
        self.notes = notes
        self.contexts = Contexts(graph)
        self.users = graph.users()
        self.items: dict[Context, list[_Item]] = {}
        self._collect()

    def run(self) -> Graph:
        old = self.old
        new = Graph(old.name)
        new.history, new.interface = old.history, old.interface
        new.set_inputs([v.type for v in old.inputs], [v.name for v in old.inputs])
        known = dict(zip(old.inputs, new.inputs, strict=True))
        self.region((), new, known, "")
        new.outputs = tuple(known[value] for value in old.outputs)
        return new

    # --- what stands where --------------------------------------------------------------------

    def _collect(self) -> None:
        place = {node: i for i, node in enumerate(self.old.nodes)}
        parts = self._parts_of_loops()
        for node in self.old.nodes:
            if node.op.flow or called(node).op in _HELPERS or node in parts:
                continue
            context = self.contexts.of[node.outputs[0]]
            reads = list(node.inputs[: len(called(node).inputs)])
            self._add(context, _Item(place[node], node, reads, list(node.outputs)))
        for made in self.contexts.constructs.values():
            first = (made.enters or made.switches)[0]
            reads, makes = self._border(made)
            self._add(made.outside, _Item(place[first], made, reads, makes))

    def _add(self, context: Context, item: _Item) -> None:
        self.items.setdefault(context, []).append(item)

    def _border(self, made: Construct) -> tuple[list[Value], list[Value]]:
        """What a branch or loop reads and makes."""
        if made.is_loop:
            return self.operands(made), [value for value in self.results(made) if value]
        predicate = made.predicate
        assert predicate is not None
        switched = [node.inputs[0] for node in made.switches if not node.attrs.get("control")]
        return [predicate, *switched], [node.outputs[0] for node in made.merges]

    def _parts_of_loops(self) -> set[Node]:
        """Nodes that push, pop and make the stacks of loops."""
        found: set[Node] = set()
        for made in self.contexts.constructs.values():
            for enter in made.enters:
                role = enter.attrs["role"]
                if role == "push":
                    found.add(self._node(enter.inputs[0]))
                    found.add(self._node(made.sent[self.merge(enter)].inputs[1]))
                elif role == "pop":
                    found.add(self._node(made.sent[self.merge(enter)].inputs[1]))
        return found

    # --- graphs -------------------------------------------------------------------------------

    def region(self, context: Context, graph: Graph, known: dict[Value, Value], names: str) -> None:
        """All nodes of a context into a graph, in their order as far as they depend on others."""
        items = sorted(self.items.get(context, ()), key=lambda item: item.place)
        makers = {value: i for i, item in enumerate(items) for value in item.makes}
        missing = [len({makers[v] for v in item.reads if v in makers}) for item in items]
        readers: list[set[int]] = [set() for _ in items]
        for i, item in enumerate(items):
            for value in item.reads:
                if value in makers:
                    readers[makers[value]].add(i)
        ready = [i for i, count in enumerate(missing) if not count]
        while ready:
            i = heapq.heappop(ready)
            self._emit(items[i], graph, known, names)
            for reader in readers[i]:
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(ready, reader)

    def _emit(self, item: _Item, graph: Graph, known: dict[Value, Value], names: str) -> None:
        inputs = [known[value] for value in item.reads]
        if isinstance(item.what, Node):
            node = called(item.what)
            graphs: Sequence[Graph] = [nested.clone() for nested in node.graphs]
            op, attrs, location = node.op, node.attrs, item.what.location
            types: list[Type] = [value.type for value in node.outputs]
        elif item.what.is_loop:
            op, attrs, graphs, types = self.loop(item.what)
            location = item.what.enters[0].location
        else:
            op, attrs, graphs, types = self.branch(item.what)
            location = item.what.switches[0].location
        new = Node(op, inputs, attrs, types, graphs, location)
        graph.nodes.append(new)
        made = item.makes if isinstance(item.what, Node) else self._made(item.what)
        for old, value in zip(made, new.outputs, strict=True):
            if old is not None:
                value.name = old.name.removeprefix(names) if old.name else ""
                known[old] = value

    def _made(self, made: Construct) -> Sequence[Value | None]:
        return self.results(made) if made.is_loop else [node.outputs[0] for node in made.merges]

    def nested(
        self, name: str, context: Context, inputs: Sequence[Value], outputs: Iterable[Value],
        names: str,
    ) -> Graph:  # fmt: skip
        graph = Graph(name)
        graph.set_inputs(
            [value.type for value in inputs], [v.name.removeprefix(names) for v in inputs]
        )
        known = dict(zip(inputs, graph.inputs, strict=True))
        self.region(context, graph, known, names)
        graph.outputs = tuple(known[value] for value in outputs)
        return graph

    # --- branches -----------------------------------------------------------------------------

    def branch(self, made: Construct) -> tuple[Any, dict[str, Any], list[Graph], list[Type]]:
        assert made.predicate is not None
        chosen = made.predicate.tensor_type.dtype.kind == "bool"
        if chosen and made.sides != 2:
            self.fail(f"{made.name} has {made.sides} sides, chosen by a bool")
        op = IF if chosen else SWITCH
        self.notes.add(f"{op.name} lifted")
        switches = [node for node in made.switches if not node.attrs.get("control")]
        graphs = []
        for side in range(made.sides):
            said = op.graph_names[side] if op.graph_names else str(side)
            graphs.append(
                self.nested(
                    said if op.graph_names else f"case_{said}",
                    (*made.outside, (made.name, side)),
                    [node.outputs[side] for node in switches],
                    [node.inputs[side] for node in made.merges],
                    f"{made.name}.{said}.",
                )
            )
        return op, {}, graphs, [node.outputs[0].type for node in made.merges]

    # --- loops --------------------------------------------------------------------------------

    def entered(self, made: Construct, roles: Sequence[str]) -> list[Node]:
        return [node for node in made.enters if node.attrs["role"] in roles]

    def operands(self, made: Construct) -> list[Value]:
        order = (_FIXED, _CARRIED, _ROWS)
        return [node.inputs[0] for roles in order for node in self.entered(made, roles)]

    def merge(self, enter: Node) -> Value:
        for user in self.users[enter.outputs[0]]:
            if user.op.flow == "merge":
                return user.outputs[0]
        self.fail(f"the value of {enter.attrs['frame']} with role {enter.attrs['role']} is not "
                  "carried")  # fmt: skip

    def inside(self, made: Construct, value: Value) -> Value:
        """A value of the frame, in the body; one of its own if the body does not use it."""
        switch = self._switch(made, value)
        return Value(value.type) if switch is None else switch.outputs[BODY]

    def _switch(self, made: Construct, value: Value) -> Node | None:
        return next((node for node in made.switches if node.inputs[0] is value), None)

    def after(self, made: Construct, merge: Value) -> Value | None:
        """A carried value after the loop, if it leaves it."""
        switch = self._switch(made, merge)
        exits = () if switch is None else self.users[switch.outputs[EXIT]]
        return next((node.outputs[0] for node in exits if node.op.flow == "exit"), None)

    def results(self, made: Construct) -> list[Value | None]:
        """The results of a loop in order, as values of the lowered graph; None for unused ones."""
        found = [self.after(made, self.merge(node)) for node in self.entered(made, _CARRIED)]
        scan = self.is_scan(made)
        if not scan:
            counts = [self.after(made, self.merge(n)) for n in self.entered(made, ("count",))]
            found += [self._turned(value, FLOW_NUMBER) for value in counts]
        for node in self.entered(made, ("push",)):
            stack = self.after(made, self.merge(node))
            pushed = self.pushed(made, node)
            of_rows = scan and not isinstance(pushed.type, StackType)
            found.append(self._turned(stack, FLOW_GATHER) if of_rows else stack)
        return found

    def _turned(self, value: Value | None, op: Any) -> Value | None:
        """What a helper makes of a value after the loop."""
        users = [] if value is None else self.users[value]
        return next((user.outputs[0] for user in users if called(user).op is op), None)

    def pushed(self, made: Construct, enter: Node) -> Value:
        """What each iteration pushes on a stack."""
        return self._node(made.sent[self.merge(enter)].inputs[1]).inputs[1]

    def is_scan(self, made: Construct) -> bool:
        return self._before(made) is not None

    def _before(self, made: Construct) -> Node | None:
        assert made.condition is not None
        node = made.condition.inputs[0].node
        return node if node is not None and called(node).op is FLOW_BEFORE else None

    def loop(self, made: Construct) -> tuple[Any, dict[str, Any], list[Graph], list[Type]]:
        fixed = [node.outputs[0] for node in self.entered(made, _FIXED)]
        carried = [self.merge(node) for node in self.entered(made, _CARRIED)]
        pushes = self.entered(made, ("push",))
        inputs = [self.inside(made, value) for value in (*fixed, *carried)]
        outputs = [made.sent[merge].inputs[1] for merge in carried]
        outputs += [self.pushed(made, node) for node in pushes]
        frame = (*made.outside, (made.name, FRAME))
        body = (*frame, (made.name, BODY))
        names = f"{made.name}.body."
        types: list[Type] = []
        for merge, result in zip(carried, self.results(made), strict=False):
            types.append(merge.type if result is None else result.type)
        before = self._before(made)
        if before is not None:
            self.notes.add("scan lifted")
            xs = [self.row(made, node) for node in self.entered(made, _ROWS)]
            graph = self.nested("body", body, [*inputs, *xs], outputs, names)
            attrs = called(before).attrs
            for value in self.results(made)[len(carried) :]:
                if value is None:
                    self.fail(f"nothing reads what {made.name} gathers")
                types.append(value.type)
            said = {"consts": len(fixed), "carries": len(carried), "length": attrs["length"]}
            return SCAN, {**said, "reverse": attrs["reverse"]}, [graph], types
        self.notes.add("while lifted")
        assert made.condition is not None
        condition = self.nested(
            "condition", frame, [*fixed, *carried], made.condition.inputs, f"{made.name}."
        )
        graph = self.nested("body", body, inputs, outputs, names)
        counts = self.entered(made, ("count",))
        for value in self.results(made)[len(carried) :]:
            if value is None:
                self.fail(f"nothing reads what {made.name} counts or pushes")
            types.append(value.type)
        return WHILE, {"consts": len(fixed), "counted": bool(counts)}, [condition, graph], types

    def row(self, made: Construct, enter: Node) -> Value:
        """What an iteration takes of an operand that a scan goes over."""
        if enter.attrs["role"] == "pop":
            return self._node(made.sent[self.merge(enter)].inputs[1]).outputs[1]
        inside = self.inside(made, enter.outputs[0])
        for user in self.users.get(inside, ()):
            if user.op is FLOW_ROW:
                return user.outputs[0]
        self.fail(f"{made.name} takes no row of an operand")

    def _node(self, value: Value) -> Node:
        if value.node is None:
            self.fail("an input of the graph stands where a loop needs a node")
        return value.node

    def fail(self, message: str) -> NoReturn:
        raise GraphError(
            f"graph @{self.old.name} cannot be made structured: {message}", op="lift_control_flow"
        )
