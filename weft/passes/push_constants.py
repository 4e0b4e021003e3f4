"""Constants that are operands of a branch or loop are moved into it."""

from __future__ import annotations

from weft.ir.graph import Builder, Graph, Node
from weft.ir.literal import CONSTANT
from weft.passes.contract import Notes, Pass
from weft.passes.nesting import replaced_node, used_values

#: Larger constants stay outside, so that several graphs share one.
MOST_ELEMENTS = 16


class PushConstants(Pass):
    """Moves small constants into the branches and loops that use them."""

    name = "push_constants"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        todo = {node: places for node in graph.nodes if (places := _constants(node))}
        if not todo:
            return graph
        builder = Builder(graph)
        for node in graph.nodes:
            if node not in todo:
                builder.copy(node)
                continue
            places = todo[node]
            first = node.op.branch  # the predicate is not an input of the branches
            graphs = [
                _with_constants(inner, {i - first: node.inputs[i].node for i in places})
                for inner in node.graphs
            ]
            everything = range(len(node.outputs))
            replaced_node(builder, node, builder.inputs_of(node), graphs, everything)
            notes.add("× constant written down inside", len(places))
        return builder.finish()


def _constants(node: Node) -> list[int]:
    """The positions of operands that are small constants and are used by a nested graph."""
    if node.op.branch:
        places = range(1, len(node.inputs))
    elif node.op.loop:
        places = range(node.attrs["consts"])
    else:
        return []
    shift = node.op.branch
    used = [used_values(graph) for graph in node.graphs]
    found = []
    for i in places:
        made = node.inputs[i].node
        if made is None or made.op is not CONSTANT:
            continue
        if made.attrs["value"].array.size > MOST_ELEMENTS:
            continue
        pairs = zip(node.graphs, used, strict=True)
        if any(graph.inputs[i - shift] in use for graph, use in pairs):
            found.append(i)
    return found


def _with_constants(graph: Graph, constants: dict[int, Node | None]) -> Graph:
    """A nested graph that no longer reads some of its inputs, but still has them."""
    builder = Builder(graph)
    for place, made in constants.items():
        assert made is not None
        new = Node(made.op, (), made.attrs, [made.out.type], (), made.location)
        builder.graph.nodes.append(new)
        builder.map[graph.inputs[place]] = new.out
    for node in graph.nodes:
        builder.copy(node)
    return builder.finish()
