"""`while` and `scan`: removes carries that are unused or never change, and repeated operands."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dataclass import dataclass
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.types import TOKEN
from weft.ops.control import SCAN, WHILE
from weft.passes.contract import Notes, Pass
from weft.passes.nesting import Reach, counted, narrowed, replaced_node, used_values


@dataclass(slots=True)
class Loop:
    """The operands of a loop by their role, as positions in its inputs."""

    node: Node
    consts: list[int]
    carries: list[int]
    xs: list[int]

    @property
    def body(self) -> Graph:
        return self.node.graphs[-1]

    @property
    def condition(self) -> Graph | None:
        return self.node.graphs[0] if self.node.op is WHILE else None

    @property
    def first_y(self) -> int:
        """The position of the first y in the body's outputs."""
        return len(self.carries)

    def y_result(self, number: int) -> int:
        """The position in the node's results of a y."""
        counter = self.node.op is WHILE
        return len(self.carries) + counter + number


def loop_of(node: Node) -> Loop:
    count = len(node.inputs)
    consts = node.attrs["consts"]
    last = consts + node.attrs["carries"] if node.op is SCAN else count
    return Loop(node, list(range(consts)), list(range(consts, last)), list(range(last, count)))


class TrimLoops(Pass):
    """Drops unused carries and results of loops; carries that never change become constants."""

    name = "trim_loops"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        loops = [loop_of(node) for node in graph.nodes if node.op.loop]
        if not loops:
            return graph
        used = used_values(graph)
        todo = {loop.node: plan for loop in loops if (plan := _plan(loop, used)) is not None}
        if not todo:
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            plan = todo.get(node)
            if plan is None:
                builder.copy(node)
            else:
                plan.apply(builder, notes)
        return builder.finish()


@dataclass(slots=True)
class TrimPlan:
    """What a loop keeps: positions in its inputs, and the numbers of its ys."""

    loop: Loop
    consts: list[int]  # constants and carries that never change
    carries: list[int]
    xs: list[int]
    ys: list[int]
    keeps_count: bool
    same: dict[int, int]  # a repeated operand -> the first equal one

    def apply(self, builder: Builder, notes: Notes) -> None:
        loop, node = self.loop, self.loop.node
        given = builder.inputs_of(node)
        order = [*self.consts, *self.carries, *self.xs]
        graphs = []
        for graph in node.graphs:
            is_body = graph is loop.body
            outputs: Sequence[Value] = graph.outputs
            if is_body:
                first = loop.first_y
                outputs = [graph.outputs[loop.carries.index(i)] for i in self.carries]
                outputs = [*outputs, *[graph.outputs[first + y] for y in self.ys]]
            merged = _merged(graph, self.same)
            places = order if is_body or node.op is SCAN else [*self.consts, *self.carries]
            graphs.append(
                narrowed(
                    merged,
                    [merged.inputs[i] for i in places],
                    [_place(graph, merged, value) for value in outputs],
                )
            )
        first_carry = len(loop.consts)
        results = [i - first_carry for i in self.carries]
        attrs: dict[str, object] = {"consts": len(self.consts)}
        if node.op is SCAN:
            attrs["carries"] = len(self.carries)
        else:
            attrs["counted"] = self.keeps_count
            results += [len(loop.carries)] if self.keeps_count else []
        results += [loop.y_result(y) for y in self.ys]
        replaced_node(builder, node, [given[i] for i in order], graphs, results, **attrs)
        fixed = _fixed_carries(loop)  # also those that nobody needs inside
        builder.forward([node.outputs[i - first_carry] for i in fixed], [given[i] for i in fixed])
        counted(notes, "carries that never change", len(fixed))
        dropped = len(loop.carries) - len(self.carries) - len(fixed)
        counted(notes, "carries dropped", dropped)
        counted(notes, "other operands and results dropped", self._others())

    def _others(self) -> int:
        loop = self.loop
        before = len(loop.node.inputs) + len(loop.body.outputs)
        after = len(self.consts) + 2 * len(self.carries) + len(self.xs) + len(self.ys)
        return before - after - 2 * (len(loop.carries) - len(self.carries))


def _fixed_carries(loop: Loop) -> list[int]:
    """Carries that the body returns unchanged."""
    body = loop.body
    return [
        i
        for i in loop.carries
        if body.outputs[i - loop.carries[0]] is body.inputs[i] and body.inputs[i].type is not TOKEN
    ]


def _plan(loop: Loop, used: set[Value]) -> TrimPlan | None:
    """What a loop needs; None if it needs everything."""
    node, body, condition = loop.node, loop.body, loop.condition
    inside = {value: i for i, value in enumerate(body.inputs)}
    fixed = _fixed_carries(loop)
    changing = [i for i in loop.carries if i not in set(fixed)]
    ys = list(range(len(body.outputs) - loop.first_y))
    kept_ys = [y for y in ys if node.outputs[loop.y_result(y)] in used]
    reach = Reach(body)
    needed: set[int] = set()
    stack = [
        i
        for i in changing
        if node.outputs[i - len(loop.consts)] in used or node.inputs[i].type is TOKEN
    ]
    if condition is not None:
        asked = Reach(condition)
        asked.add(condition.outputs)
        places = {value: i for i, value in enumerate(condition.inputs)}
        from_condition = {places[value] for value in asked.inputs}
        stack += [i for i in changing if i in from_condition]
    else:
        from_condition = set()
    pending = [inside[v] for v in reach.inputs]
    pending += [inside[v] for v in reach.add([body.outputs[loop.first_y + y] for y in kept_ys])]
    stack += [i for i in pending if i in set(changing)]
    while stack:
        i = stack.pop()
        if i in needed:
            continue
        needed.add(i)
        new = reach.add([body.outputs[i - loop.carries[0]]])
        stack += [inside[v] for v in new if inside[v] in set(changing)]
    touched = {inside[v] for v in reach.inputs} | from_condition
    # A carry that never changes is also a result: it stays while the body needs it.
    consts = [i for i in [*loop.consts, *fixed] if i in touched]
    same: dict[int, int] = {}
    seen: dict[Value, int] = {}
    for i in consts:
        first = seen.setdefault(node.inputs[i], i)
        if first != i:
            same[i] = first
    consts = [i for i in consts if i not in same]
    keeps_count = node.op is WHILE and bool(
        kept_ys or (node.attrs["counted"] and node.outputs[len(loop.carries)] in used)
    )
    plan = TrimPlan(
        loop,
        consts,
        [i for i in changing if i in needed],
        [i for i in loop.xs if i in touched],
        kept_ys,
        keeps_count,
        same,
    )
    unchanged = (
        plan.consts == loop.consts
        and plan.carries == loop.carries
        and plan.xs == loop.xs
        and plan.ys == ys
        and (node.op is SCAN or plan.keeps_count == node.attrs["counted"])
    )
    return None if unchanged else plan


def _merged(graph: Graph, same: dict[int, int]) -> Graph:
    """A nested graph in which equal inputs are merged into one."""
    if not same:
        return graph
    builder = Builder(graph)
    for twin, first in same.items():
        builder.map[graph.inputs[twin]] = builder.graph.inputs[first]
    for node in graph.nodes:
        builder.copy(node)
    new = builder.finish()
    new.interface = builder.map  # where each old value is now, for `_place`
    return new


def _place(old: Graph, new: Graph, value: Value) -> Value:
    if new is old:
        return value
    place: Value = new.interface[value]
    return place
