"""Attention over a sequence that many ranks share: keys and values go round in a ring.

`ring_attention` is softmax(q @ k.mT · scale) @ v. Cut along the sequence, each rank has its part of
queries, keys and values. It sees one block of keys and values after the other, with a running
maximum and sum of the softmax (`_ring`); a block travels on while the next one is used. So no rank
has all keys, nor more scores than those of one block. The backward goes round once more and
computes the scores again from the logarithms of the sums, which the forward has kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.base.errors import ShapeError
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ir.ways import Span, Way
from weft.ops.collective import SEND
from weft.ops.rules import apply, check_kind

__all__: list[str] = []


def _scores(xp: Any, q: Any, k: Any, rows: Any, columns: Any, causal: bool, scale: float) -> Any:
    """Of queries with the numbers `rows` for keys with the numbers `columns`."""
    found = (q @ xp.matrix_transpose(k)) * scale
    if not causal:
        return found
    sees = xp.expand_dims(rows, axis=1) >= xp.expand_dims(columns, axis=0)
    return xp.where(sees, found, -float("inf"))


def _type(
    q: TensorType, k: TensorType, v: TensorType, *, causal: bool, scale: float
) -> tuple[TensorType, TensorType]:
    check_kind(q, "real floating")
    if q.ndim < 2 or not q.shape == k.shape == v.shape:
        raise ShapeError(
            f"queries, keys and values of shapes {q.shape}, {k.shape}, {v.shape}",
            hint="each has (..., length, features), with the same sizes",
        )
    return q, q.like(shape=q.shape[:-1])


def _values(xp: Any, q: Any, k: Any, v: Any, *, causal: bool, scale: float) -> Any:
    places = xp.arange(q.shape[-2])
    scores = _scores(xp, q, k, places, places, causal, scale)
    largest = xp.max(scores, axis=-1, keepdims=True)
    weights = xp.exp(scores - largest)
    total = xp.sum(weights, axis=-1, keepdims=True)
    return (weights @ v) / total, xp.squeeze(largest + xp.log(total), axis=-1)


def _blocks(xp: Any, span: Span) -> Iterator[Any]:
    """The numbers of the keys that a rank has in each round: its own, then those of ranks before
    it."""
    for step in range(span.whole // span.size):
        first = (span.first - step * span.size) % span.whole
        yield xp.arange(span.size) + first


def _sent(span: Span, *values: Any) -> tuple[Any, ...]:
    """What the rank before this one has."""
    n = span.whole // span.size
    pairs = tuple((rank, (rank + 1) % n) for rank in range(n))
    return tuple(apply(SEND, x, mesh=span.mesh, over=span.over, pairs=pairs) for x in values)


def _ring(
    xp: Any, span: Span, q: Any, k: Any, v: Any, *, causal: bool, scale: float
) -> tuple[Any, Any]:
    rows = xp.arange(span.size) + span.first
    result: Any = None
    total: Any = None
    largest: Any = None
    for step, columns in enumerate(_blocks(xp, span)):
        if step:
            k, v = _sent(span, k, v)
        scores = _scores(xp, q, k, rows, columns, causal, scale)
        most = xp.max(scores, axis=-1, keepdims=True)
        if result is None:  # each query sees itself: from here on there is a finite maximum
            weights = xp.exp(scores - most)
            result, total = weights @ v, xp.sum(weights, axis=-1, keepdims=True)
        else:
            most = xp.maximum(largest, most)
            weights, before = xp.exp(scores - most), xp.exp(largest - most)
            result = result * before + weights @ v
            total = total * before + xp.sum(weights, axis=-1, keepdims=True)
        largest = most
    return result / total, xp.squeeze(largest + xp.log(total), axis=-1)


def _grad_type(
    g: TensorType,
    q: TensorType,
    k: TensorType,
    v: TensorType,
    out: TensorType,
    sums: TensorType,
    *,
    causal: bool,
    scale: float,
) -> tuple[TensorType, TensorType, TensorType]:
    return q, k, v


def _block_grads(xp: Any, g: Any, q: Any, k: Any, v: Any, rest: Any, scale: float) -> Any:
    """The gradients of queries, keys and values by one block; `rest`: the scores, the logarithms of
    the sums of the softmax, and what each query's gradients add up to."""
    scores, sums, inner = rest
    weights = xp.exp(scores - sums)
    back = weights * (g @ xp.matrix_transpose(v) - inner) * scale
    return back @ k, xp.matrix_transpose(back) @ q, xp.matrix_transpose(weights) @ g


def _grad_values(
    xp: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    sums: Any,
    *,
    causal: bool,
    scale: float,
) -> Any:
    places = xp.arange(q.shape[-2])
    scores = _scores(xp, q, k, places, places, causal, scale)
    inner = xp.sum(g * out, axis=-1, keepdims=True)
    rest = scores, xp.expand_dims(sums, axis=-1), inner
    return _block_grads(xp, g, q, k, v, rest, scale)


def _grad_ring(
    xp: Any,
    span: Span,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    sums: Any,
    *,
    causal: bool,
    scale: float,
) -> tuple[Any, Any, Any]:
    rows = xp.arange(span.size) + span.first
    inner = xp.sum(g * out, axis=-1, keepdims=True)
    sums = xp.expand_dims(sums, axis=-1)
    of_q: Any = None
    of_k: Any = None
    of_v: Any = None
    for step, columns in enumerate(_blocks(xp, span)):
        if step:
            k, v = _sent(span, k, v)
        scores = _scores(xp, q, k, rows, columns, causal, scale)
        more_q, more_k, more_v = _block_grads(xp, g, q, k, v, (scores, sums, inner), scale)
        if of_q is None:
            of_q, of_k, of_v = more_q, more_k, more_v
        else:  # those of keys and values travel with them
            of_k, of_v = _sent(span, of_k, of_v)
            of_q, of_k, of_v = of_q + more_q, of_k + more_k, of_v + more_v
    of_k, of_v = _sent(span, of_k, of_v)  # home
    return of_q, of_k, of_v


def _ways(inputs: Any, outputs: Any, rule: Any) -> Iterator[Way]:
    q = outputs[0]
    for axis, size in enumerate(q.shape[:-1]):
        if size.__class__ is int and size > 1:
            states = (axis,) * len(inputs), (axis,) * len(outputs)
            if axis < q.ndim - 2:
                yield Way(*states, size)
            else:
                yield Way(*states, size, even=False, rule=rule)


def _vjp(which: int) -> Any:
    def rule(xp: Any, g: Any, out: Any, q: Any, k: Any, v: Any, **attrs: Any) -> Any:
        if g[0] is None:
            return None
        return apply(RING_ATTENTION_GRAD, g[0], q, k, v, *out, **attrs)[which]

    return rule


_TRAITS = Trait.COMPOSITE | Trait.WIDEN
RING_ATTENTION_GRAD = Op(
    "ring_attention_grad",
    _grad_type,
    _grad_values,
    kinds="real floating",
    traits=_TRAITS,
    outputs=3,
    ways=lambda inputs, outputs, **_: _ways(inputs, outputs, _grad_ring),
    listed=False,
)
RING_ATTENTION = Op(
    "ring_attention",
    _type,
    _values,
    kinds="real floating",
    traits=_TRAITS,
    outputs=2,
    vjp=(_vjp(0), _vjp(1), _vjp(2)),
    ways=lambda inputs, outputs, **_: _ways(inputs, outputs, _ring),
    listed=False,
)
