"""What `x.to("ort")` asks for in captured code, as the device of each line."""

from __future__ import annotations

from dataclasses import replace

from weft.base.source import SourceLocation
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ops.identity import SENT
from weft.passes.contract import Notes, Pass

__all__ = ["FollowSent"]

_NOWHERE = SourceLocation("<graph>", 0, "")


class FollowSent(Pass):
    """Nodes that compute with what was sent to a device ask for it, as `weft.device` does."""

    name = "follow_sent"
    nested = False

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        if not any(node.op is SENT for part in graph.walk() for node in part.nodes):
            return graph
        return _followed(graph, {}, notes)


def _followed(graph: Graph, given: dict[Value, str], notes: Notes) -> Graph:
    """`given`: the devices that inputs of the graph were sent to."""
    where = dict(given)
    builder = Builder(graph, nested=lambda inner: inner)
    for node in graph.nodes:
        if node.op is SENT:
            builder.forward(node.outputs, builder.inputs_of(node))
            where[node.out] = node.attrs["target"]
            notes.add("sends followed")
            continue
        device = next((where[value] for value in node.inputs if value in where), "")
        at = node.location or _NOWHERE
        asks = device and not at.role and not at.device
        inner = [_followed(g, _entering(node, g, where), notes) for g in node.graphs]
        made = builder.copy(node)
        made.graphs = tuple(inner)
        if asks:
            made.location = replace(at, device=device)
            where.update(dict.fromkeys(node.outputs, device))
    return builder.finish()


def _entering(node: Node, graph: Graph, where: dict[Value, str]) -> dict[Value, str]:
    """The operands of control flow are the last inputs of its graphs."""
    pairs = zip(reversed(graph.inputs), reversed(node.inputs), strict=False)
    return {inside: where[outside] for inside, outside in pairs if outside in where}
