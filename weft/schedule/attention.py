"""Attention found in a graph: softmax(q kᵀ + mask) v, of which nobody looks at the weights.

It becomes one kernel that never writes the scores. Where a backward uses the weights, they are
computed as the graph says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from weft.base import dtypes
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType

__all__ = ["Pattern", "attentions"]


@dataclass(frozen=True)
class Pattern:
    """
    q, k_turned, v   of shapes (…, queries, features), (…, features, keys), (…, keys, values)
    mask             True where a query may look, or numbers to add; or None
    blank            whether a query that may look nowhere gets 0
    inner            the nodes that are done by the kernel, beside the last product
    """

    q: Value
    k_turned: Value
    v: Value
    mask: Value | None
    blank: bool
    inner: frozenset[Node]


def attentions(graph: Graph) -> dict[Node, Pattern]:
    """For each product that ends an attention, what it is made of."""
    ends = [node for node in graph.nodes if node.op.name == "matmul"]
    if not any(node.op.name == "softmax" for node in graph.nodes):
        return {}
    uses: Counter[Value] = Counter(graph.outputs)
    for node in graph.nodes:
        uses.update(node.inputs)
    found: dict[Node, Pattern] = {}
    for node in ends:
        pattern = _matched(node, uses)
        if pattern is not None:
            found[node] = pattern
    return found


def _matched(end: Node, uses: Counter[Value]) -> Pattern | None:
    weights, v = end.inputs
    inner: list[Node] = []
    blank = False
    looked = _made_by(weights, "where", 1, uses)
    hidden: Value | None = None
    if looked is not None:  # where(nowhere, 0, softmax(where(nowhere, 0, scores)))
        hidden, zero, weights = looked.inputs
        if not _is_number(zero, 0.0):
            return None
        inner.append(looked)
        blank = True
    softmax = _made_by(weights, "softmax", 1, uses)
    if softmax is None or softmax.attrs["axis"] != _type(weights).ndim - 1:
        return None
    inner.append(softmax)
    scores = softmax.inputs[0]
    if hidden is not None:
        found = _hidden(scores, hidden, uses)
        if found is None:
            return None
        scores, more = found
        inner += more
    mask, product, more = _masked(scores, 2 if blank else 1, uses)
    if product is None:
        return None
    q, k_turned = product.inputs
    if not _fits(q, k_turned, v, mask, end):
        return None
    return Pattern(q, k_turned, v, mask, blank, frozenset([*inner, *more, product]))


def _hidden(chosen: Value, hidden: Value, uses: Counter[Value]) -> tuple[Value, list[Node]] | None:
    """The scores in where(all(scores == -inf), 0, scores), and the nodes around them."""
    choice = _made_by(chosen, "where", 1, uses)
    every = _made_by(hidden, "all", 2, uses)
    if choice is None or every is None or choice.inputs[0] is not hidden:
        return None
    scores = choice.inputs[2]
    equal = _made_by(every.inputs[0], "equal", 1, uses)
    last = (_type(scores).ndim - 1,)
    if equal is None or not every.attrs["keepdims"] or tuple(every.attrs["axis"]) != last:
        return None
    if not _is_number(choice.inputs[1], 0.0):
        return None
    if equal.inputs[0] is not scores or not _is_number(equal.inputs[1], -np.inf):
        return None
    return scores, [choice, every, equal]


def _masked(
    scores: Value, count: int, uses: Counter[Value]
) -> tuple[Value | None, Node | None, list[Node]]:
    """The mask on scores, the product they come from, and the nodes between."""
    product = _made_by(scores, "matmul", count, uses)
    if product is not None:
        return None, product, []
    choice = _made_by(scores, "where", count, uses)
    if choice is not None and _is_number(choice.inputs[2], -np.inf):
        return choice.inputs[0], _made_by(choice.inputs[1], "matmul", 1, uses), [choice]
    added = _made_by(scores, "add", count, uses)
    if added is not None:
        for mask, other in (added.inputs, reversed(added.inputs)):
            product = _made_by(other, "matmul", 1, uses)
            if product is not None and uses[other] == 1:
                return mask, product, [added]
    return None, None, []


def _made_by(value: Value, op: str, count: int, uses: Counter[Value]) -> Node | None:
    node = value.node
    return node if node is not None and node.op.name == op and uses[value] == count else None


def _is_number(value: Value, number: float) -> bool:
    node = value.node
    if node is None or _type(value).size != 1:
        return False
    if node.op.name == "full":
        return bool(node.attrs["value"] == number)
    return node.op.name == "constant" and bool((node.attrs["value"].array == number).all())


def _fits(q: Value, k_turned: Value, v: Value, mask: Value | None, end: Node) -> bool:
    kinds = [_type(value) for value in (q, k_turned, v)]
    out = _type(end.outputs[0])
    if kinds[0].dtype not in (dtypes.float32, dtypes.float64) or kinds[0].ndim < 2:
        return False
    if any(kind.ndim != out.ndim or kind.dtype is not out.dtype for kind in kinds):
        return False
    if any(kind.size == 0 for kind in kinds) or kinds[0].shape[:-2] != out.shape[:-2]:
        return False
    return mask is None or _type(mask).dtype in (dtypes.bool, out.dtype)


def _type(value: Value) -> TensorType:
    return value.tensor_type
