"""Symbolic sizes in a graph: their names, and the values that tell them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dims import dims_in
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Trait
from weft.ir.types import StackType, TensorType


def local_sizes(graph: Graph) -> set[str]:
    """The names of sizes that are not known outside of a graph.

    They depend on values that are computed in it, or on elements of a stack.
    """
    found: set[str] = set()
    for node in graph.nodes:
        found |= sizes_made(node)
    return found


def sizes_made(node: Node) -> set[str]:
    """The names of sizes that a node is the first to know."""
    if not (node.op.data_shape or Trait.STACK in node.op.traits):
        return set()
    given = size_names([value for value in node.inputs if _is_tensor(value)])
    return size_names([value for value in node.outputs if _is_tensor(value)]) - given


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def size_names(values: Sequence[Value]) -> set[str]:
    names: set[str] = set()
    for value in values:
        kind = value.type.innermost if isinstance(value.type, StackType) else value.type
        if isinstance(kind, TensorType):
            for size in dims_in(kind.shape):
                names.update(size.names)
    return names


def bare_names(value: Value) -> set[str]:
    """The names that an array of this type tells: axes whose size is a name alone."""
    kind = value.type
    if not isinstance(kind, TensorType):
        return set()
    return {str(size) for size in dims_in(kind.shape) if len(size.names) == 1} & size_names([value])


def sizes_named(nodes: Sequence[Node]) -> set[str]:
    """The names of sizes in the attributes of nodes, including nested ones."""
    found: set[str] = set()
    for node in nodes:
        for size in dims_in(node.attrs):
            found.update(size.names)
        for graph in node.graphs:
            found |= sizes_named(graph.nodes)
    return found
