"""The gradients of an attention, found in a graph that computes them.

With P the weights of the softmax, G the gradient of the result and N "may look nowhere":

    dP = where(N, 0, G vᵀ)      dS = P * (dP - sum(P * dP))      dv = weightsᵀ G
    then where(N, 0, dS), where(mask, dS, 0), dS * scale     dq = dS k      dkᵀ = qᵀ dS

which is what the derivative rules of the cards give after all passes. N, the mask and the scale
appear only if the forward has them; one or two of dq, dk and dv may be missing. With narrow floats
dP may be cast to float32, and dS back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.base import dtypes
from weft.ir.graph import Node, Value
from weft.ir.op import Op
from weft.ops.cards import ASTYPE, MATMUL, MULTIPLY, PERMUTE_DIMS, SUBTRACT, SUM, WHERE
from weft.passes.facts import made_by
from weft.passes.lowering.attention.cards import Axes
from weft.passes.lowering.attention.parts import (
    Forward,
    Uses,
    is_number,
    is_turned,
    number_of,
    uncast,
)

__all__ = ["Backward", "End", "gradients"]


@dataclass(frozen=True)
class End:
    """One of the gradients: the product that gives it (turned, perhaps), and the order of axes
    in which it is best written."""

    node: Node | None
    turned: bool
    axes: Axes


@dataclass(frozen=True)
class Backward:
    """The gradient of the result, dq, dk and dv, and the nodes between."""

    grad: Value
    ends: tuple[End, End, End]
    inner: tuple[Node, ...]

    @property
    def nodes(self) -> list[Node]:
        return [end.node for end in self.ends if end.node is not None]


def gradients(forward: Forward, uses: Uses) -> Backward | None:
    """The backward of an attention; None if the graph has none."""
    values = _values_end(forward, uses)
    slopes = next(_slopes(forward, uses), None)
    if slopes is None:
        return None
    grad, scores, inner = slopes
    dv, turned = (None, None) if values is None else values
    if dv is not None and turned is not None:
        if dv.inputs[1] is not grad:
            return None
        inner.append(turned)
    dq = uses.find(
        scores,
        MATMUL,
        lambda node: node.inputs[0] is scores and is_turned(node.inputs[1], forward.k_turned),
    )
    ends = (
        _end(dq, uses, forward),
        _keys_end(forward, scores, uses, inner),
        _end(dv, uses, forward),
    )
    found = Backward(grad, ends, tuple(inner))
    return found if dq is not None or ends[1].node is not None else None


def _end(node: Node | None, uses: Uses, forward: Forward, *, turned: bool = False) -> End:
    if node is None:
        return End(None, False, tuple(range(forward.q.tensor_type.ndim)))
    return End(node, turned, uses.order(node.outputs[0], turned))


def _values_end(forward: Forward, uses: Uses) -> tuple[Node, Node] | None:
    """weightsᵀ G, and the node that transposes the weights."""
    weights = forward.weights
    turned = uses.find(weights, PERMUTE_DIMS, lambda node: is_turned(node.outputs[0], weights))
    if turned is None:
        return None
    product = uses.find(turned.outputs[0], MATMUL)
    if product is None or product.inputs[0] is not turned.outputs[0]:
        return None
    return product, turned


def _keys_end(forward: Forward, scores: Value, uses: Uses, inner: list[Node]) -> End:
    """qᵀ dS or dSᵀ q; a transpose that nothing else uses goes to `inner`."""
    product = uses.find(
        scores,
        MATMUL,
        lambda node: node.inputs[1] is scores and is_turned(node.inputs[0], forward.q),
    )
    if product is not None:
        return _end(product, uses, forward, turned=True)
    turned = uses.find(scores, PERMUTE_DIMS, lambda node: is_turned(node.outputs[0], scores))
    if turned is None:
        return _end(None, uses, forward)
    product = uses.find(
        turned.outputs[0],
        MATMUL,
        lambda node: node.inputs[0] is turned.outputs[0] and node.inputs[1] is forward.q,
    )
    if product is not None:
        inner.append(turned)
    return _end(product, uses, forward)


def _slopes(forward: Forward, uses: Uses) -> Iterator[tuple[Value, Value, list[Node]]]:
    """The gradient of the result, that of the scores, and the nodes between them."""
    weights = forward.softmax.outputs[0]
    last = (weights.tensor_type.ndim - 1,)
    for outer in uses.of(weights):
        less = _other(outer, MULTIPLY, weights)
        difference = None if less is None else made_by(less, SUBTRACT)
        total = None if difference is None else made_by(difference.inputs[1], SUM)
        if difference is None or total is None:
            continue
        if not total.attrs["keepdims"] or tuple(total.attrs["axis"]) != last:
            continue
        slope = difference.inputs[0]
        times = made_by(total.inputs[0], MULTIPLY)
        if times is None or _other(times, MULTIPLY, weights) is not slope:
            continue
        inner = [outer, difference, total, times]
        slope = uncast(slope, inner)
        if forward.nowhere is not None:
            choice = made_by(slope, WHERE)
            if choice is None or not _hides(choice, forward.nowhere):
                continue
            inner.append(choice)
            slope = uncast(choice.inputs[2], inner)
        product = made_by(slope, MATMUL)
        if product is None or not is_turned(product.inputs[1], forward.v):
            continue
        inner.append(product)
        scores = _after(outer.outputs[0], forward, uses, inner)
        if scores is not None:
            yield product.inputs[0], scores, inner


def _after(value: Value, forward: Forward, uses: Uses, inner: list[Node]) -> Value | None:
    """What is left of the gradient of the scores after masks and scale."""
    nowhere, mask = forward.nowhere, forward.masked_by
    if nowhere is not None:
        hidden = uses.reach(
            value,
            WHERE,
            inner,
            lambda node, value: _hides(node, nowhere) and node.inputs[2] is value,
        )
        if hidden is None:
            return None
        inner.append(hidden)
        value = hidden.outputs[0]
    if mask is not None and mask.tensor_type.dtype is dtypes.bool:
        masked = uses.reach(
            value,
            WHERE,
            inner,
            lambda node, value: node.inputs[0] is mask and node.inputs[1] is value,
        )
        if masked is None:
            return None
        if not is_number(masked.inputs[2], 0.0):
            return None
        inner.append(masked)
        value = masked.outputs[0]
    if forward.scaling is not None:
        scaled = uses.reach(
            value, forward.scaling.op, inner, lambda node, value: node.inputs[0] is value
        )
        if scaled is None:
            return None
        if number_of(scaled) != number_of(forward.scaling):
            return None
        inner.append(scaled)
        value = scaled.outputs[0]
    return _as_operand(value, forward, uses, inner)


def _as_operand(value: Value, forward: Forward, uses: Uses, inner: list[Node]) -> Value | None:
    """The value, or what it is cast to, that has the dtype of what it is multiplied by."""
    dtype = forward.q.tensor_type.dtype
    if value.tensor_type.dtype is dtype:
        return value
    cast = uses.find(value, ASTYPE, lambda node: node.outputs[0].tensor_type.dtype is dtype)
    if cast is None:
        return None
    inner.append(cast)
    return cast.outputs[0]


def _hides(node: Node, nowhere: Value) -> bool:
    """where(nowhere, 0, …)"""
    return node.inputs[0] is nowhere and is_number(node.inputs[1], 0.0)


def _other(node: Node, op: Op, value: Value) -> Value | None:
    """The other operand of a call of two."""
    if node.op is not op or value not in node.inputs:
        return None
    one, two = node.inputs
    return two if one is value else one
