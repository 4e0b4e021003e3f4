"""Common subexpressions: equal calls on equal inputs are merged."""

from __future__ import annotations

from collections.abc import Hashable

from weft.ir.attributes import attrs_key
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.passes.contract import Notes, Pass
from weft.passes.facts import commutes_exactly, is_bound

_unmergeable: dict[Op, bool] = {}


class CommonSubexpressions(Pass):
    """Merges equal calls, but never random draws, effects or control flow."""

    name = "cse"

    def rewrite(self, graph: Graph, notes: Notes) -> Graph:
        number: dict[Value, Value] = {}  # a value that was seen before -> the first equal one
        first: dict[Hashable, Node] = {}
        same: dict[Node, Node] = {}
        get = number.get
        for node in graph.nodes:
            if _stays(node.op):
                continue
            inputs = tuple([get(value, value) for value in node.inputs])
            key = (node.op, _ordered(node.op, inputs), attrs_key(node.attrs))
            found = first.setdefault(key, node)
            if found is not node:
                same[node] = found
                number.update(zip(node.outputs, found.outputs, strict=True))
        if not same:
            return graph
        count = len(same)
        notes.add("equal calls merged" if count > 1 else "equal call merged", count)
        builder = Builder(graph)
        for node in graph.nodes:
            found = same.get(node, node)
            if found is node:
                builder.copy(node)
            else:
                builder.forward(node.outputs, [builder[value] for value in found.outputs])
        return builder.finish()


def _stays(op: Op) -> bool:
    """Whether a call is never merged: it is random, an effect, control flow, or makes a size."""
    found = _unmergeable.get(op)
    if found is None:
        found = _unmergeable[op] = is_bound(op) or op.data_shape
    return found


def _ordered(op: Op, inputs: tuple[Value, ...]) -> Hashable:
    """The inputs, as a set if their order does not matter."""
    if len(inputs) != 2 or not op.commutative or inputs[0] is inputs[1]:
        return inputs
    type = inputs[0].type
    if isinstance(type, TensorType) and commutes_exactly(op, type.dtype):
        return frozenset(inputs)
    return inputs
