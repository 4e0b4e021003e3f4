"""Cheap nodes that depend on nothing but inputs: computed wherever they are used, again if need be.

Reading their operands costs no more than reading them would. So they begin no group of their own,
which the nodes that use them might not fit into.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir.graph import Node, Value
from weft.schedule.groups import Leaf, Operand, Scalar

__all__ = ["CHEAP", "Floating", "size_of"]

CHEAP = frozenset(
    (
        *("add", "subtract", "multiply", "negative", "abs", "square", "relu", "sign", "where"),
        *("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "astype"),
        *("greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "identity"),
    )
)
#: How many nodes are computed again at most, to compute one.
MOST = 6


@dataclass(frozen=True, slots=True)
class Floating:
    """A node, and what it computes with: buffers, numbers, and other floating values."""

    node: Node
    operands: tuple[Operand, ...]
    count: int


def size_of(operands: tuple[Leaf | Scalar | Value, ...], known: dict[Value, Floating]) -> int:
    """How many floating nodes a node would be with its operands."""
    return 1 + sum(known[op].count for op in operands if isinstance(op, Value))
