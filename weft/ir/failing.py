"""Which nodes never fail: these may run speculatively.

A node that may fail (an index out of range, a singular matrix) must not be moved out of a loop or
branch that may not run at all.
"""

from __future__ import annotations

from weft.base.dim_algebra import Dim
from weft.ir.graph import Node
from weft.ir.op import Trait
from weft.ir.types import TensorType

#: Traits of ops that have effects, or results with a size that depends on values.
DOES_MORE = Trait.RANDOM | Trait.EFFECT | Trait.STACK | Trait.DATA_SHAPE | Trait.COLLECTIVE


def cannot_fail(node: Node) -> bool:
    """Whether a node has a result for all values of its inputs, and no effect."""
    op = node.op
    if op.may_fail or op.nested or op.traits & DOES_MORE:
        return False
    if not all(isinstance(value.type, TensorType) for value in node.inputs):
        return False
    if Trait.NEEDS_ELEMENTS in op.traits:
        sizes = [size for value in node.inputs for size in value.tensor_type.shape]
        return all(not isinstance(size, Dim) and size > 0 for size in sizes)
    return True
