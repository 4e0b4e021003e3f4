"""Shared by passes over control flow: inlining nested graphs, and shrinking them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir.graph import Builder, Graph, Node, Value, extract
from weft.passes.contract import Notes
from weft.passes.dead_code import names_in_attributes, needed_nodes, size_makers


def inline(builder: Builder, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
    """Copy the nodes of a nested graph into the graph being built; returns its outputs there.

    Each call makes new nodes and values.
    """
    inner = Builder(graph)
    inner.graph = builder.graph
    inner.map = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        inner.copy(node)
    return [inner.map[value] for value in graph.outputs]


def narrowed(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """A nested graph with only these inputs and outputs, and the nodes that they need."""
    needed = needed_nodes(with_outputs(graph, outputs))
    return extract(graph.name, inputs, [n for n in graph.nodes if n in needed], outputs)


def with_outputs(graph: Graph, outputs: Sequence[Value]) -> Graph:
    """The same nodes (not copies) with other outputs, to find out what these need."""
    other = Graph(graph.name)
    other.inputs, other.nodes, other.outputs = graph.inputs, graph.nodes, tuple(outputs)
    return other


def used_values(graph: Graph) -> set[Value]:
    """The values that a node or the outputs of a graph use."""
    used = set(graph.outputs)
    for node in graph.nodes:
        used.update(node.inputs)
    return used


class Reach:
    """Which inputs of a graph are needed, for a growing set of wanted values.

    Arrays that tell a size which a node refers to are needed, too. Each node is visited once.
    """

    def __init__(self, graph: Graph) -> None:
        self.inputs: set[Value] = set()
        self._seen: set[Node] = set()
        self._sizes = size_makers(graph)
        for node in needed_nodes(with_outputs(graph, ())):  # what effects need
            self._seen.add(node)
            self.inputs.update(value for value in node.inputs if value.node is None)

    def add(self, values: Iterable[Value]) -> set[Value]:
        """Want more values; returns the inputs that are needed for the first time."""
        before = set(self.inputs)
        stack = list(values)
        while stack:
            value = stack.pop()
            if value.node is None:
                self.inputs.add(value)
            elif value.node not in self._seen:
                self._seen.add(value.node)
                stack.extend(value.node.inputs)
                if self._sizes:
                    names = names_in_attributes(value.node)
                    stack.extend([self._sizes[name] for name in names if name in self._sizes])
        return self.inputs - before


def replaced_node(
    builder: Builder,
    node: Node,
    inputs: Sequence[Value],
    graphs: Sequence[Graph],
    kept: Sequence[int],
    **attrs: object,
) -> Node:
    """Replace a control node by a changed one, which has only the results in `kept`."""
    new = Node(
        node.op,
        inputs,
        {**node.attrs, **attrs},
        [node.outputs[i].type for i in kept],
        graphs,
        node.location,
    )
    builder.graph.nodes.append(new)
    builder.forward([node.outputs[i] for i in kept], new.outputs)
    return new


def counted(notes: Notes, what: str, number: int) -> None:
    if number:
        notes.add(what, number)
