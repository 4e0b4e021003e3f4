"""Which nodes give a result whatever their inputs hold: those may run where they were not asked to.

What may fail (an index out of range, a matrix that is singular) must not be moved out of a loop or
branch that may not be run at all.
"""

from __future__ import annotations

from weft.base.dim_algebra import Dim
from weft.ir.graph import Node, Value
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType

#: Ops of two or more inputs that cannot fail, whatever their values are.
SAFE = frozenset(
    {"matmul", "linear", "astype", "concat", "where", "stop_gradient", "with_gradient_of"}
)
#: Reductions that fail where there is nothing to reduce.
NEED_ELEMENTS = frozenset({"max", "min", "argmax", "argmin"})
#: Elementwise ops that may fail for integers.
MAY_FAIL = frozenset({"pow", "floor_divide", "remainder", "divmod"})
#: Traits of ops that do more than compute, or give a size that depends on values.
DOES_MORE = Trait.RANDOM | Trait.EFFECT | Trait.STACK | Trait.DATA_SHAPE


def cannot_fail(node: Node) -> bool:
    """Whether a node gives a result for all values of its inputs, and does nothing else."""
    op = node.op
    if op.nested or op.traits & DOES_MORE:
        return False
    types = [value.type for value in node.inputs]
    if not all(isinstance(kind, TensorType) for kind in types):
        return False
    if op.name in NEED_ELEMENTS:
        sizes = [size for value in node.inputs for size in _shape(value)]
        return all(not isinstance(size, Dim) and size > 0 for size in sizes)
    if op.name in MAY_FAIL:
        return all(value.tensor_type.dtype.kind == "float" for value in node.inputs)
    return _is_harmless(op)


def _shape(value: Value) -> tuple[int, ...]:
    return value.tensor_type.shape


def _is_harmless(op: Op) -> bool:
    if op.name in SAFE or Trait.CREATION in op.traits:
        return True
    wanted = Trait.ELEMENTWISE | Trait.REDUCTION | Trait.VIEW
    return bool(op.traits & wanted) and op.name != "assume_shape"
