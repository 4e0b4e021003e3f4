"""What passes ask of ops and values, beyond their types.

"Exact" means: the same bits. So some laws of arithmetic do not hold here. Of 0.0 and -0.0 either
may be the maximum, whichever the kernel meets first; and a product of complex numbers computed with
fused multiply-adds may round differently if its operands are exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dims import has_dims
from weft.base.dtypes import DTYPES, KINDS, DType, int_info
from weft.ir.graph import Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Op
from weft.ir.types import DENSE, TensorType
from weft.ops.cards import FULL

Array = np.ndarray[Any, Any]

#: The dtypes for which the rules are known to hold. A dtype of a user may compute differently.
STANDARD = frozenset(DTYPES.values())


def of_kind(dtype: DType, kinds: str) -> bool:
    """Whether a dtype is a standard one of these kinds ("integral", "real floating"…)."""
    return dtype in STANDARD and dtype.kind in KINDS[kinds]


# --- ops -----------------------------------------------------------------------------------------


def has_effect(node: Node) -> bool:
    """Whether a node, or a node nested in it, has an effect."""
    if node.op.effect:
        return True
    return bool(node.graphs) and any(
        inner.op.effect
        for nested in node.graphs
        for graph in nested.walk()
        for inner in graph.nodes
    )


def commutes_exactly(op: Op, dtype: DType) -> bool:
    """Whether f(x, y) = f(y, x), bit by bit."""
    return op.commutative and not (op.swap_rounds and dtype.kind in KINDS[op.swap_rounds])


def is_bound(op: Op) -> bool:
    """Whether an op is random, collective, has an effect or nested graphs: rules leave it alone."""
    return op.nested or op.effect or op.random or op.collective


# --- values --------------------------------------------------------------------------------------


def dense(node: Node) -> TensorType | None:
    """The type of the only result of a node, if that is a dense tensor; else None."""
    if len(node.outputs) != 1:
        return None
    type = node.outputs[0].type
    return type if isinstance(type, TensorType) and type.layout == DENSE else None


def is_static(type: TensorType) -> bool:
    """Whether all sizes are known."""
    return not has_dims(type.shape)


def made_by(value: Value, op: Op) -> Node | None:
    """The node that made a value, if it is a call of this op."""
    node = value.node
    return node if node is not None and node.op is op else None


def is_constant(value: Value) -> bool:
    """Whether a value is known now: made by `constant` or `full`."""
    return value.node is not None and value.node.op in (CONSTANT, FULL)


def number_of(value: Value) -> Array | None:
    """The number that a constant holds everywhere, as a 0-d array; None if there is none.

    Larger constants are not searched: `canonical` has made `full` of those that hold one number.
    """
    node = value.node
    if node is None:
        return None
    if node.op is CONSTANT:
        array = node.attrs["value"].array
        return array.reshape(()) if array.size == 1 else None
    if node.op is FULL:
        return np.asarray(node.attrs["value"]).astype(node.attrs["dtype"].numpy)
    return None


def one_number(array: Array) -> Array | None:
    """The number that an array holds everywhere, if `full` can express it; else None.

    The last element is compared first: most arrays already differ there.
    """
    if not array.size:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    first = flat[:1].view(np.uint8)
    if flat[-1:].view(np.uint8).tobytes() != first.tobytes():
        return None
    if not (flat.view(np.uint8).reshape(flat.size, -1) == first).all():
        return None
    number = flat[:1].reshape(())
    return number if is_plain(number) else None


def is_plain(number: Array) -> bool:
    """Whether a Python number expresses all bits: it does not keep the payload of a NaN."""
    return bits(np.asarray(number.item()).astype(number.dtype)) == bits(number)


def bits(array: Array) -> bytes:
    """A number as its bytes: 0.0 and -0.0 differ, and so do 1 and True."""
    return array.tobytes()


def limits(dtype: DType) -> tuple[Any, Any] | None:
    """The smallest and the largest value of a real dtype."""
    if dtype.kind == "bool":
        return False, True
    if dtype.kind == "float":
        return -np.inf, np.inf
    if dtype.kind in ("int", "uint"):
        info = int_info(dtype)
        return info.min, info.max
    return None


def spelled(text: str, dtype: DType) -> Array | None:
    """The number that a rule spells, in a dtype: MIN, MAX, ALL (all bits set), or a number."""
    found = limits(dtype)
    if text in ("MIN", "MAX"):
        return None if found is None else np.asarray(found[text == "MAX"]).astype(dtype.numpy)
    if text == "ALL":
        kinds = {"bool": True, "int": -1, "uint": None if found is None else found[1]}
        value = kinds.get(dtype.kind)
        return None if value is None else np.asarray(value).astype(dtype.numpy)
    number = {"True": True, "False": False}.get(text)
    if number is not None:
        return np.asarray(number) if dtype.kind == "bool" else None
    if dtype.kind == "bool":
        return np.asarray(bool(int(text))) if text in ("0", "1") else None
    if dtype.kind in ("int", "uint"):
        whole = int(text) if "." not in text else None
        return np.asarray(whole, dtype.numpy) if whole is not None and _fits(whole, dtype) else None
    part = float(text)
    both = complex(part, part) if part == 0 else complex(part, 0)
    return np.asarray(both if dtype.kind == "complex" else part).astype(dtype.numpy)


def _fits(number: int, dtype: DType) -> bool:
    info = int_info(dtype)
    return info.min <= number <= info.max
