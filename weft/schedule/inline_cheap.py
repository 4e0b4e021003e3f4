"""Cheap nodes that depend on nothing but inputs: computed wherever they are used, again if need be.

Reading their operands costs no more than reading them would. So they begin no group of their own,
which the nodes that use them might not fit into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.cards import MATMUL
from weft.schedule.groups import Leaf, Operand, Scalar

__all__ = ["Floating", "only_packed", "size_of", "uses_of"]

#: How many nodes are computed again at most, to compute one.
MOST = 6


@dataclass(frozen=True, slots=True)
class Floating:
    """A node, and what it computes with: buffers, numbers, and other floating values."""

    node: Node
    operands: tuple[Operand, ...]
    count: int


def uses_of(graph: Graph) -> Counter[Value]:
    """How often each value is read, or given back."""
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses.update(graph.outputs)
    return uses


def only_packed(graph: Graph, uses: Mapping[Value, int]) -> frozenset[Node]:
    """Elementwise nodes that nobody but one operand of one product needs: they are computed where
    it is packed, if that is done once, however dear they are."""
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


def size_of(operands: tuple[Leaf | Scalar | Value, ...], known: dict[Value, Floating]) -> int:
    """How many floating nodes a node would be with its operands."""
    return 1 + sum(known[op].count for op in operands if isinstance(op, Value))
