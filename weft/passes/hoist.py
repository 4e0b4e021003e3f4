"""Loop-invariant code motion: what is the same in each iteration is computed before the loop."""

from __future__ import annotations

from weft.ir.failing import cannot_fail
from weft.ir.graph import Builder, Graph, Node, Value, extract
from weft.ir.literal import CONSTANT
from weft.ir.sizes import local_sizes, sizes_named
from weft.ops.control import SCAN
from weft.passes.contract import Notes, Pass


class Hoist(Pass):
    """Moves loop-invariant nodes in front of the loop, if they cannot fail."""

    name = "hoist"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        if not any(node.op.loop and _has_work(node) for node in graph.nodes):
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if node.op.loop and _has_work(node):
                _hoist(node, builder, notes)
            else:
                builder.copy(node)
        return builder.finish()


def _invariant(body: Graph, consts: int) -> list[Node]:
    """The nodes of a body that depend on its constants only, in order.

    Nodes with a size that only an iteration knows are left out.
    """
    known: set[Value] = set(body.inputs[:consts])
    hidden = local_sizes(body)
    found = []
    for node in body.nodes:
        same = all(value in known for value in node.inputs) and cannot_fail(node)
        if same and (not hidden or hidden.isdisjoint(sizes_named([node]))):
            known.update(node.outputs)
            found.append(node)
    return found


def _has_work(node: Node) -> bool:
    moved = _invariant(node.graphs[-1], node.attrs["consts"])
    return any(_is_work(inner) for inner in moved)


def _is_work(node: Node) -> bool:
    """Whether moving a node saves work: a constant costs nothing inside the loop."""
    return bool(node.inputs) or (node.op.creation and node.op is not CONSTANT)


def _hoist(node: Node, builder: Builder, notes: Notes) -> None:
    body = node.graphs[-1]
    consts: int = node.attrs["consts"]
    given = builder.inputs_of(node)
    moved = _invariant(body, consts)
    outside: dict[Value, Value] = dict(zip(body.inputs[:consts], given[:consts], strict=True))
    for inner in moved:
        copied = Node(
            inner.op,
            [outside[value] for value in inner.inputs],
            inner.attrs,
            [value.type for value in inner.outputs],
            (),
            inner.location,
        )
        builder.graph.nodes.append(copied)
        outside.update(zip(inner.outputs, copied.outputs, strict=True))
    gone = {inner for inner in moved if _is_work(inner)}
    stays = [inner for inner in body.nodes if inner not in gone]
    made = {value for inner in gone for value in inner.outputs}
    wanted: dict[Value, None] = {}
    for inner in stays:
        wanted.update(dict.fromkeys(value for value in inner.inputs if value in made))
    wanted.update(dict.fromkeys(value for value in body.outputs if value in made))
    new = list(wanted)
    inputs = [*body.inputs[:consts], *new, *body.inputs[consts:]]
    graphs = [extract(body.name, inputs, stays, body.outputs)]
    if node.op is not SCAN:
        condition = node.graphs[0]
        extra = [Value(value.type) for value in new]
        taken = [*condition.inputs[:consts], *extra, *condition.inputs[consts:]]
        graphs.insert(0, extract(condition.name, taken, condition.nodes, condition.outputs))
    operands = [*given[:consts], *[outside[value] for value in new], *given[consts:]]
    loop = Node(
        node.op,
        operands,
        {**node.attrs, "consts": consts + len(new)},
        [value.type for value in node.outputs],
        graphs,
        node.location,
    )
    builder.graph.nodes.append(loop)
    builder.forward(node.outputs, loop.outputs)
    notes.add("× moved before the loop", len(gone))
