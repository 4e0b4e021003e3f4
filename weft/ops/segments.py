"""Reductions of rows that belong together: `segment_ids[i]` says to which segment row i belongs.

The ids need no order. They are numbers from 0 up; others are an error.
"""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import Dim
from weft.base.errors import IndexError, ShapeError
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import OPS, Op
from weft.ops.arguments import integer
from weft.ops.creation import full, ones
from weft.ops.elementwise import divide, exp, less, maximum, subtract
from weft.ops.index import take
from weft.ops.index_cards import SCATTER_ADD, TENSOR
from weft.ops.reduce import computable, max
from weft.ops.reduce_at import MAXIMUM_AT, MINIMUM_AT, MULTIPLY_AT
from weft.ops.scatter import start_of
from weft.ops.select import where
from weft.ops.shape import reshape

__all__ = [
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_softmax",
    "segment_sum",
]


def _arguments(
    data: Any, segment_ids: Any, num_segments: int | None, op: str
) -> tuple[Tensor, Tensor, int]:
    x = as_tensor(data, op)
    ids = as_tensor(segment_ids, op, like=x)
    operands = [type_of(x), type_of(ids)]
    if ids.dtype.kind not in ("int", "uint"):
        raise IndexError(
            f"segment_ids must be integers, not {ids.dtype.name}",
            op=op,
            operands=operands,
            hint="cast them with astype(weft.int64)",
        )
    if ids.ndim != 1 or not x.ndim or x.shape[0] != ids.shape[0]:
        raise ShapeError(
            f"segment_ids of shape {ids.shape} do not name a segment for each row of {x.shape}",
            op=op,
            operands=operands,
        )
    if num_segments is None:
        count = int(max(ids)) + 1 if ids.size else 0
    elif isinstance(num_segments, Dim):
        count = num_segments
    else:
        count = integer(num_segments, "num_segments", op, x)
    if ids.dtype.kind == "int":  # a negative id lies beyond the first segment: an error
        wide = cast(ids, dtypes.int64)
        ids = where(less(wide, 0), wide - count, wide)
    return x, ids, count


def _summed(x: Tensor, ids: Tensor, count: int) -> Tensor:
    shape = (count, *x.shape[1:])
    out: Tensor = bind(SCATTER_ADD, x, ids, shape=shape, index=(TENSOR,))
    return out


def _combined(card: Op, reduce: str, x: Tensor, ids: Tensor, count: int) -> Tensor:
    shape = (count, *x.shape[1:])
    start = full(shape, start_of(reduce, x.dtype), dtype=x.dtype, device=x.device)
    out: Tensor = bind(card, start, x, ids, index=(TENSOR,))
    return out


@public()
def segment_sum(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """The sum of the rows of each segment; 0 for a segment without rows.

    In compiled code `num_segments` should be given: else it is the largest id plus 1.

    >>> weft.segment_sum(weft.asarray([1.0, 2.0, 3.0]), weft.asarray([0, 2, 0]), 3)
    tensor([4., 0., 2.])
    """
    return _summed(*_arguments(data, segment_ids, num_segments, "segment_sum"))


@public()
def segment_prod(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """The product of the rows of each segment; 1 for a segment without rows."""
    given = _arguments(data, segment_ids, num_segments, "segment_prod")
    return _combined(MULTIPLY_AT, "prod", *given)


@public()
def segment_max(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """The largest value of each segment; -inf, or the lowest integer, for one without rows.

    >>> weft.segment_max(weft.asarray([1.0, 2.0, 3.0]), weft.asarray([0, 1, 0]), 2)
    tensor([3., 2.])
    """
    given = _arguments(data, segment_ids, num_segments, "segment_max")
    return _combined(MAXIMUM_AT, "amax", *given)


@public()
def segment_min(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """The smallest value of each segment; inf, or the largest integer, for one without rows."""
    given = _arguments(data, segment_ids, num_segments, "segment_min")
    return _combined(MINIMUM_AT, "amin", *given)


@public()
def segment_mean(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """The mean of the rows of each segment; 0 for a segment without rows."""
    x, ids, count = _arguments(data, segment_ids, num_segments, "segment_mean")
    wide, dtype = computable(x)
    rows = _summed(ones(ids.shape, dtype=dtypes.int64, device=x.device), ids, count)
    number = reshape(cast(maximum(rows, 1), wide.dtype), (count, *(1,) * (x.ndim - 1)))
    return cast(divide(_summed(wide, ids, count), number), dtype)


@public()
def segment_softmax(data: Tensor, segment_ids: Tensor, num_segments: int | None = None) -> Tensor:
    """exp(x) divided by its sum over the rows of the same segment: as large as data.

    >>> weft.segment_softmax(weft.asarray([0.0, 0.0, 7.0]), weft.asarray([0, 0, 1]), 2)
    tensor([0.5, 0.5, 1. ])
    """
    x, ids, count = _arguments(data, segment_ids, num_segments, "segment_softmax")
    wide, dtype = computable(x)
    largest = bind(OPS["stop_gradient"], _combined(MAXIMUM_AT, "amax", wide, ids, count))
    powers = exp(subtract(wide, take(largest, ids, axis=0)))
    sums = _summed(powers, ids, count)
    return cast(divide(powers, take(sums, ids, axis=0)), dtype)
