"""Layouts through branches and loops: what is carried has one layout in all iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.ir.graph import Graph, Node
from weft.ir.types import TensorType
from weft.ir.ways import SUM, State
from weft.ops.control import IF, SCAN, SWITCH, WHILE
from weft.passes.layouts.states import Choice, States, moved, whole

if TYPE_CHECKING:
    from weft.passes.layouts.propagate import Propagation

__all__ = ["Loops"]

#: How often the layout of what is carried may change, before it is whole.
TRIES = 4


class Loops:
    """The layouts of calls with nested graphs."""

    def __init__(self, around: Propagation) -> None:
        self.around = around

    def choose(self, node: Node) -> Choice:
        if node.op in (IF, SWITCH):
            return self._branches(node)
        if node.op is SCAN:
            return self._loop(node, node.attrs["consts"], node.attrs["carries"])
        if node.op is WHILE:
            return self._loop(node, node.attrs["consts"], len(node.inputs) - node.attrs["consts"])
        return self._whole(node)

    def graphs(self, node: Node, choice: Choice) -> list[Graph]:
        """The nested graphs with their layouts."""
        if not choice.inner:
            return [graph.clone() for graph in node.graphs]
        found = []
        for graph, inner in zip(node.graphs, choice.inner, strict=True):
            if node.op in (IF, SWITCH):
                wanted = dict(enumerate(choice.outputs))
            elif node.op is WHILE and graph is node.graphs[0]:
                wanted = {0: whole(self.around.mesh)}
            else:
                wanted = self._results(node, choice)
            found.append(inner.graph_with_layouts(wanted))
        return found

    def _results(self, node: Node, choice: Choice) -> dict[int, States]:
        """The layouts of what a body gives."""
        carries = self._carries(node)
        mesh = self.around.mesh
        found = dict(enumerate(choice.outputs[:carries]))
        for i in range(carries, len(node.graphs[-1].outputs)):
            if node.op is SCAN and isinstance(node.outputs[i].type, TensorType):
                found[i] = tuple(_inside(state) for state in choice.outputs[i])
            else:
                found[i] = whole(mesh)
        return found

    @staticmethod
    def _carries(node: Node) -> int:
        if node.op is SCAN:
            return int(node.attrs["carries"])
        return len(node.inputs) - int(node.attrs["consts"])

    def _whole(self, node: Node) -> Choice:
        mesh = self.around.mesh
        inputs, outputs = [whole(mesh)] * len(node.inputs), [whole(mesh)] * len(node.outputs)
        return _choice(self.around, inputs, outputs, ())

    # --- branches -------------------------------------------------------------------------------

    def _branches(self, node: Node) -> Choice:
        p = self.around
        inputs = [p.states[value] for value in node.inputs]
        inputs[0] = whole(p.mesh)
        inner = [
            _nested(p, graph, inputs[1:], [p.wants.get(value) for value in node.outputs])
            for graph in node.graphs
        ]
        columns = zip(*[each.outputs for each in inner], strict=True)
        outputs = [
            tuple(_joined(states) for states in zip(*column, strict=True)) for column in columns
        ]
        return _choice(p, inputs, outputs, inner)

    # --- loops ----------------------------------------------------------------------------------

    def _loop(self, node: Node, consts: int, carries: int) -> Choice:
        p = self.around
        body = node.graphs[-1]
        given = [p.states[value] for value in node.inputs]
        fixed = [tuple(_part(state) for state in states) for states in given[:consts]]
        carried = [tuple(_part(state) for state in states) for states in given[consts:][:carries]]
        rows = [tuple(_row(state) for state in states) for states in given[consts + carries :]]
        slices = [tuple(_inside(state) for state in states) for states in rows]
        locked: set[tuple[int, int]] = set()
        wants = [p.wants.get(value) for value in node.outputs[:carries]]
        wants += [_want_inside(p.wants.get(value)) for value in node.outputs[carries:]]
        wants = wants[: len(body.outputs)] + [None] * (len(body.outputs) - len(wants))
        for step in range(TRIES + 1):
            inner = _nested(p, body, [*fixed, *carried, *slices], wants)
            after = inner.outputs[:carries]
            changed = False
            for i in range(carries):
                new = list(carried[i])
                for k, (before, now) in enumerate(zip(carried[i], after[i], strict=True)):
                    if before == now or (i, k) in locked:
                        continue
                    changed = True
                    last = step >= TRIES - 1
                    sums = now == SUM and (node.op is WHILE or not _adds(body, consts + i))
                    if before is None and not last and not sums:
                        new[k] = now
                    else:
                        new[k] = None
                        locked.add((i, k))
                carried[i] = tuple(new)
            if not changed:
                break
        stacked: list[States] = []
        for number, states in enumerate(inner.outputs[carries:], carries):
            is_tensor = node.op is SCAN and isinstance(node.outputs[number].type, TensorType)
            stacked.append(tuple(_outside(s) for s in states) if is_tensor else whole(p.mesh))
        inputs = [*fixed, *carried, *rows]
        outputs = [*carried, *stacked]
        if node.op is WHILE:
            condition = _nested(p, node.graphs[0], inputs, [None])
            outputs = [*carried, *[whole(p.mesh)] * (len(node.outputs) - carries)]
            return _choice(p, inputs, outputs, (condition, inner))
        return _choice(p, inputs, outputs, (inner,))


def _nested(
    p: Propagation, graph: Graph, inputs: Sequence[States], wants: Sequence[list[State] | None]
) -> Propagation:
    made = type(p)(graph, p.mesh, p.costs, inputs, hints=p.hints)
    for value, want in zip(graph.outputs, wants, strict=False):
        if want is not None:
            made.want(value, tuple(want))
    return made.run()


def _choice(
    p: Propagation,
    inputs: Sequence[States],
    outputs: Sequence[States],
    inner: Sequence[Propagation],
) -> Choice:
    return Choice([None] * len(p.mesh), inputs, outputs, inner)


def _adds(body: Graph, number: int) -> bool:
    """Whether a body only adds to what it carries there."""
    users = [node for node in body.nodes if body.inputs[number] in node.inputs]
    return all(node.op.terms == ((0, 1),) for node in users)


def _joined(states: Sequence[State]) -> State:
    """Of the results of branches: whole ones may become parts, which costs nothing."""
    found = {state for state in states if state is not None}
    if len(found) != 1:
        return None
    (state,) = found
    return state if isinstance(state, int) or all(s == SUM for s in states) else None


def _part(state: State) -> State:
    return state if isinstance(state, int) else None


def _row(state: State) -> State:
    """Of what a scan goes over: the first axis is whole."""
    return state if isinstance(state, int) and state > 0 else None


def _inside(state: State) -> State:
    return moved(state, -1)


def _outside(state: State) -> State:
    return moved(state, 1)


def _want_inside(want: list[State] | None) -> list[State] | None:
    if want is None:
        return None
    return [moved(s, -1) if isinstance(s, int) and s > 0 else None for s in want]
