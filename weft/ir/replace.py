"""Replacing one value by another, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.base.errors import GraphError
from weft.ir.order import topological_order
from weft.ir.text import value_names

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Value


def replace_value(graph: Graph, old: Value, new: Value) -> int:
    """Replace all uses of `old`, outputs included, by `new`; returns the number of uses.

    Nodes are reordered if `new` is made after a use of `old`.
    """
    names = value_names(graph.values())
    for value in (old, new):
        if value not in names:
            raise GraphError(f"{value!r} is not a value of the graph @{graph.name}", op="replace")
    if old.type != new.type:
        raise GraphError(
            f"{names[old]} is {old.type} and {names[new]} is {new.type}: "
            "a value is replaced by one of its own type",
            op="replace",
        )
    if old is new:
        return 0
    users = [node for node in graph.nodes if old in node.inputs]
    before = [node.inputs for node in users]
    for node in users:
        node.inputs = tuple([new if value is old else value for value in node.inputs])
    try:
        graph.nodes = topological_order(graph)
    except GraphError as error:
        for node, inputs in zip(users, before, strict=True):
            node.inputs = inputs
        raise GraphError(
            f"{names[new]} cannot stand for {names[old]}, which it is made of: {error.message}",
            op="replace",
            hint="the graph is unchanged",
        ) from None
    count = sum(inputs.count(old) for inputs in before) + graph.outputs.count(old)
    graph.outputs = tuple([new if value is old else value for value in graph.outputs])
    return count
