"""What passes over control flow share: putting nested graphs in place, and making smaller ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir.graph import Builder, Graph, Node, Value, extract
from weft.passes.contract import Notes
from weft.passes.dead_code import names_in_attributes, needed_nodes, size_makers


def inline(builder: Builder, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
    """Copy the nodes of a nested graph into the graph being built; gives what its outputs are.

    The copies are nodes and values of their own, however often a graph is put in place.
    """
    inner = Builder(graph)
    inner.graph = builder.graph
    inner.map = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        inner.copy(node)
    return [inner.map[value] for value in graph.outputs]


def narrowed(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """A nested graph with these of its inputs and outputs, and only the nodes they need."""
    needed = needed_nodes(with_outputs(graph, outputs))
    return extract(graph.name, inputs, [n for n in graph.nodes if n in needed], outputs)


def with_outputs(graph: Graph, outputs: Sequence[Value]) -> Graph:
    """The same nodes, not copied, with other outputs: to ask what these need."""
    other = Graph(graph.name)
    other.inputs, other.nodes, other.outputs = graph.inputs, graph.nodes, tuple(outputs)
    return other


def used_values(graph: Graph) -> set[Value]:
    """The values that some node or the result of a graph uses."""
    used = set(graph.outputs)
    for node in graph.nodes:
        used.update(node.inputs)
    return used


class Reach:
    """Which inputs of a graph are needed, as more and more of its values are asked for.

    What tells a size that a node asks for is needed, too. Each node is looked at once, however
    often something is added.
    """

    def __init__(self, graph: Graph) -> None:
        self.inputs: set[Value] = set()
        self._seen: set[Node] = set()
        self._sizes = size_makers(graph)
        for node in needed_nodes(with_outputs(graph, ())):  # what effects need
            self._seen.add(node)
            self.inputs.update(value for value in node.inputs if value.node is None)

    def add(self, values: Iterable[Value]) -> set[Value]:
        """Ask for more values; gives the inputs that are newly needed."""
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
    """Put a changed control node in the place of an old one; `kept` are the results it has."""
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
