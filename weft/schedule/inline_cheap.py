"""Cheap nodes that depend only on inputs are computed in each group that uses them.

To read their operands costs no more than to read their results. They begin no group of their own,
as the nodes that use them might not fit into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.cards import MATMUL
from weft.schedule.groups import Leaf, Operand, Scalar

__all__ = ["Recipe", "count_of", "only_packed", "uses_of"]

#: The most nodes that are inlined to compute one.
MOST = 6


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a value is computed in a group that uses it: a node and its operands, some of which may
    be inlined, too. `count`: how many nodes that takes."""

    node: Node
    operands: tuple[Operand, ...]
    count: int


def uses_of(graph: Graph) -> Counter[Value]:
    """How often each value is used by nodes, or as an output."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses.update(graph.outputs)
    return uses


def only_packed(graph: Graph, uses: Mapping[Value, int]) -> frozenset[Node]:
    """Elementwise nodes that only one operand of one product depends on. They are computed where it
    is packed, however expensive they are, if it is packed once."""
    asked: set[Value] = set()
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op is MATMUL:
            asked.update(node.inputs)
        elif node.op.elementwise and node.outputs[0] in asked and uses[node.outputs[0]] == 1:
            found.add(node)
            asked.update(x for x in node.inputs if _shape(x) == _shape(node.outputs[0]))
    return frozenset(found)


def _shape(value: Value) -> object:
    return value.type.shape if isinstance(value.type, TensorType) else None


def count_of(operands: tuple[Leaf | Scalar | Value, ...], known: dict[Value, Recipe]) -> int:
    """How many nodes it takes to compute a node with its inlined operands."""
    return 1 + sum(known[op].count for op in operands if isinstance(op, Value))
