"""Facts about single nodes and values: views, known numbers; and the order of nodes."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.types import TensorType
from weft.ops.cards import DIM_SIZE, FULL, GETITEM
from weft.schedule.groups import is_small
from weft.schedule.late import mentions

__all__ = ["early_first", "is_view", "literal_of", "tensor_type"]


def tensor_type(value: Value) -> TensorType:
    kind = value.type
    assert isinstance(kind, TensorType)
    return kind


def is_view(node: Node) -> bool:
    """Whether a node is a view of its operand, which strides may express."""
    if not (node.op.view or node.op.alias):
        return False
    if node.op is GETITEM:
        return _plain_index(node.attrs["index"])
    return isinstance(node.outputs[0].type, TensorType)


def _plain_index(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (hasattr(part, "__index__") and not isinstance(part, (bool, np.bool_)))
        for part in parts
    )


def literal_of(value: Value) -> Any:
    """The number that all elements of a value equal, as a NumPy scalar, or a Dim if it is a size of
    the run; None if it is not known."""
    node = value.node
    if node is None or not isinstance(value.type, TensorType):
        return None
    dtype: DType = value.type.dtype
    if node.op is DIM_SIZE and isinstance(node.attrs["size"], Dim) and dtype.kind != "complex":
        return node.attrs["size"]
    if node.op is FULL:
        if isinstance(node.attrs["value"], Dim):
            return node.attrs["value"]
        return np.asarray(node.attrs["value"]).astype(dtype.numpy)[()]
    if node.op is CONSTANT and size_of(value.type.shape) == 1:
        return node.attrs["value"].array.reshape(())[()]
    return None


def early_first(graph: Graph, late: Set[str] = frozenset()) -> list[Node]:
    """The nodes, with small ones that depend only on inputs first: rates, counts, masks. Those
    with `late` sizes wait for the nodes that tell them."""
    early: set[Value] = set(graph.inputs)
    first: list[Node] = []
    rest: list[Node] = []
    for node in graph.nodes:
        simple = node.op.elementwise or is_view(node) or node.op.creation
        small = all(isinstance(v.type, TensorType) and is_small(v) for v in node.outputs)
        waits = late and mentions(node, late)
        if simple and small and not waits and all(value in early for value in node.inputs):
            early.update(node.outputs)
            first.append(node)
        else:
            rest.append(node)
    return first + rest
