"""Dead code: removes nodes that no output and no effect depends on."""

from __future__ import annotations

from functools import lru_cache

from weft.base.dims import dims_in
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.types import TensorType, Type
from weft.passes.contract import Notes, Pass
from weft.passes.facts import has_effect


class DeadCode(Pass):
    """Removes nodes whose results nobody uses; effects and inputs stay."""

    name = "dead_code"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        needed = needed_nodes(graph)
        removed = len(graph.nodes) - len(needed)
        if not removed:
            return graph
        notes.add("nodes removed" if removed > 1 else "node removed", removed)
        builder = Builder(graph)
        for node in graph.nodes:
            if node in needed:
                builder.copy(node)
        return builder.finish()


def needed_nodes(graph: Graph) -> set[Node]:
    """The nodes that outputs and effects depend on."""
    sizes = size_makers(graph)
    needed: set[Node] = set()
    stack: list[Node] = [node for node in graph.nodes if has_effect(node)]

    def use(values: tuple[Value, ...]) -> None:
        stack.extend([value.node for value in values if value.node is not None])

    use(graph.outputs)
    while stack:
        node = stack.pop()
        if node in needed:
            continue
        needed.add(node)
        use(node.inputs)
        if sizes:
            use(tuple([sizes[name] for name in names_in_attributes(node) if name in sizes]))
    return needed


def names_in_attributes(node: Node) -> set[str]:
    """The named sizes that the attributes of a node, or of nodes nested in it, refer to."""
    nodes = [node]
    for nested in node.graphs:
        nodes += [inner for graph in nested.walk() for inner in graph.nodes]
    return {name for inner in nodes for dim in dims_in(inner.attrs) for name in dim.names}


def size_makers(graph: Graph) -> dict[str, Value]:
    """For each named size that no input has, the first array that has it. Stacks do not count."""
    makers: dict[str, Value] = {}
    known = {name for value in graph.inputs for name in _names(value.type)}
    for node in graph.nodes:
        for value in node.outputs:
            for name in _names(value.type):
                if name not in known:
                    makers.setdefault(name, value)
    return makers


@lru_cache(maxsize=10_000)
def _names(type: Type) -> tuple[str, ...]:
    """The named sizes of an array type."""
    shape = type.shape if isinstance(type, TensorType) else ()
    return tuple({name for dim in dims_in(shape) for name in dim.names})
