"""Attention as cards that only lowering creates, in place of nodes of a graph.

    attention       q, k, v[, mask]                  → result, lse
    attention_grad  q, k, v, result, g, lse[, mask]  → gradients of q, k and v
    attention_grad_joined  the same                  → the gradients in one tensor, without -0.0

q is (…, queries, features), k (…, keys, features), v (…, keys, values); k and v may be shared along
axes before those. lse is, for each query, the logarithm of the sum of exp(score): what the backward
needs to compute the weights again. Narrow operands are computed in float32. lse and the result are
float32 then: the backward subtracts the result from large numbers, where its rounding would show.
Gradients are rounded once. Attributes:

    scale   what scores are multiplied by
    causal  a query looks only at keys no later than itself
    blank   a query that may look nowhere gets 0, and has the lse infinity
    axes    in which order the axes of a result lie: result = permute_dims(natural, axes)
    shape, lies   of a joined result: its shape, and for each gradient an offset and its strides
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import NARROW_FLOATS, DType, float32
from weft.ir.op import Cost, Op
from weft.ir.types import TensorType

__all__ = ["ATTENTION", "ATTENTION_GRAD", "ATTENTION_GRAD_JOINED", "computed_in", "turned_back"]

Axes = tuple[int, ...]


def turned_back(axes: Axes) -> Axes:
    """The inverse of a permutation."""
    return tuple(int(i) for i in np.argsort(axes))


def computed_in(dtype: DType) -> DType:
    return float32 if dtype in NARROW_FLOATS else dtype


def _ordered(kind: TensorType, shape: Any, axes: Axes) -> TensorType:
    return kind.like(shape=tuple(shape[i] for i in axes))


def _type(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    *mask: TensorType,
    scale: float,
    causal: bool,
    blank: bool,
    axes: Axes,
) -> tuple[TensorType, TensorType]:
    rows = q.shape[:-1]
    made = q.like(dtype=computed_in(q.dtype))
    return _ordered(made, (*rows, v.shape[-1]), axes), made.like(shape=rows)


def _grad_type(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    out: TensorType,
    g: TensorType,
    lse: TensorType,
    *mask: TensorType,
    scale: float,
    causal: bool,
    blank: bool,
    axes: tuple[Axes, Axes, Axes],
) -> tuple[TensorType, TensorType, TensorType]:
    batch = q.shape[:-2]
    shapes = (q.shape, (*batch, *k.shape[-2:]), (*batch, *v.shape[-2:]))
    dq, dk, dv = (_ordered(q, shape, order) for shape, order in zip(shapes, axes, strict=True))
    return dq, dk, dv


def _turned(xp: Any, x: Any) -> Any:
    return xp.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _wide(xp: Any, *given: Any) -> list[Any]:
    """Narrow floats as what they are computed in."""
    narrow = [dtype.numpy for dtype in NARROW_FLOATS]
    return [xp.astype(x, xp.float32) if x.dtype in narrow else x for x in given]


def _scores(
    xp: Any, q: Any, k: Any, mask: Sequence[Any], scale: float, causal: bool
) -> tuple[Any, Any]:
    """All scores, and where they count."""
    scores = xp.matmul(q, _turned(xp, k)) * scale
    counts = np.tri(*scores.shape[-2:], dtype=np.bool) if causal else np.ones(1, bool)
    counts = xp.asarray(counts)
    for given in mask:
        if given.dtype == xp.bool:
            counts = counts & given
        else:
            scores = scores + given
    return xp.where(counts, scores, -xp.inf), counts


def _values(
    xp: Any, q: Any, k: Any, v: Any, *mask: Any, scale: float, causal: bool, blank: bool, axes: Axes
) -> Any:
    q, k, v, *masks = _wide(xp, q, k, v, *mask)
    scores, _ = _scores(xp, q, k, masks, scale, causal)
    if not scores.shape[-1]:  # the sum of nothing is 0, and its logarithm -inf
        nothing = xp.sum(scores, axis=-1)
        return xp.permute_dims(xp.matmul(scores, v), axes), nothing - xp.inf
    top = xp.max(scores, axis=-1, keepdims=True)
    nowhere = top == -xp.inf
    top = xp.where(nowhere, 0.0, top) if blank else top
    powers = xp.exp(scores - top)
    total = xp.sum(powers, axis=-1, keepdims=True)
    lse = top + xp.log(total)
    if blank:
        lse, total = xp.where(nowhere, xp.inf, lse), xp.where(nowhere, 1.0, total)
    out = xp.matmul(powers / total, v)
    return xp.permute_dims(out, axes), xp.reshape(lse, lse.shape[:-1])


def _grad_values(
    xp: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    g: Any,
    lse: Any,
    *mask: Any,
    scale: float,
    causal: bool,
    blank: bool,
    axes: tuple[Axes, Axes, Axes],
) -> Any:
    dtype = q.dtype
    q, k, v, g, *masks = _wide(xp, q, k, v, g, *mask)
    scores, counts = _scores(xp, q, k, masks, scale, causal)
    lse = xp.reshape(lse, (*lse.shape, 1))
    weights = xp.exp(scores - lse)
    slopes = xp.matmul(g, _turned(xp, v)) - xp.sum(g * out, axis=-1, keepdims=True)
    if blank:
        counts = counts & (lse != xp.inf)
    slopes = xp.where(counts, weights * slopes * scale, 0.0)
    made = (
        xp.matmul(slopes, k),
        xp.matmul(_turned(xp, slopes), q),
        xp.matmul(_turned(xp, weights), g),
    )
    return tuple(
        xp.astype(xp.permute_dims(x, order), dtype) for x, order in zip(made, axes, strict=True)
    )


def _joined_type(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    out: TensorType,
    g: TensorType,
    lse: TensorType,
    *mask: TensorType,
    scale: float,
    causal: bool,
    blank: bool,
    shape: tuple[int, ...],
    lies: Any,
) -> TensorType:
    return q.like(shape=shape)


def _joined_values(xp: Any, *given: Any, shape: tuple[int, ...], lies: Any, **attrs: Any) -> Any:
    natural = tuple(range(given[0].ndim))
    made = _grad_values(xp, *given, axes=(natural,) * 3, **attrs)
    places = []
    for grad, (offset, strides) in zip(made, lies, strict=True):
        index = np.indices(grad.shape).reshape(len(strides), -1)
        places.append(offset + np.asarray(strides) @ index)
    order = xp.asarray(np.argsort(np.concatenate(places)))
    flat = xp.concat([xp.reshape(grad, (-1,)) for grad in made])
    return xp.reshape(xp.take(flat, order, axis=0), shape) + 0.0


def _pairs(q: TensorType, k: TensorType, causal: bool) -> int:
    """How many scores there are, and of causal ones about how many count."""
    found = q.size // max(q.shape[-1], 1) * k.shape[-2]
    return int(found) // 2 if causal else int(found)


def _cost(inputs: Any, outputs: Any, *, causal: bool, **_: Any) -> Cost:
    """Two products, and about five operations on each score."""
    q, k, v = inputs[:3]
    flops = _pairs(q, k, causal) * (2 * q.shape[-1] + 2 * v.shape[-1] + 5)
    return Cost(flops, sum(kind.nbytes for kind in (*inputs, *outputs)))


def _grad_cost(inputs: Any, outputs: Any, *, causal: bool, **_: Any) -> Cost:
    """Five products, and about ten operations on each score."""
    q, k, v = inputs[:3]
    flops = _pairs(q, k, causal) * (6 * q.shape[-1] + 4 * v.shape[-1] + 10)
    return Cost(flops, sum(kind.nbytes for kind in (*inputs, *outputs)))


_OPTIONS: Any = {"kinds": "real floating", "listed": False}
ATTENTION = Op("attention", _type, _values, outputs=2, cost=_cost, **_OPTIONS)
ATTENTION_GRAD = Op(
    "attention_grad", _grad_type, _grad_values, outputs=3, cost=_grad_cost, **_OPTIONS
)
ATTENTION_GRAD_JOINED = Op(
    "attention_grad_joined", _joined_type, _joined_values, cost=_grad_cost, **_OPTIONS
)
