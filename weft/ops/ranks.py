"""The largest, the k-th and the most frequent elements along an axis, with their positions.

Equal elements count in the order in which they stand, so positions are the same in every mode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.dims import log2_estimate
from weft.base.errors import RangeError, ShapeError
from weft.core.bind import bind
from weft.core.operands import as_tensor
from weft.core.public import public
from weft.core.results import ValuesIndices
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Cost, Op, Trait
from weft.ir.types import TensorType
from weft.ops.arguments import axis_of, integer
from weft.ops.batching import shifted
from weft.ops.creation import arange
from weft.ops.cumulative import running_positions
from weft.ops.elementwise import not_equal
from weft.ops.index import take_along
from weft.ops.order_keys import order_keys
from weft.ops.reduce import argmax
from weft.ops.rules import check_kind
from weft.ops.select import where
from weft.ops.shape import concat, moveaxis, reshape, squeeze
from weft.ops.sorting import argsort, sort
from weft.ops.ways import but_axis

__all__ = ["kthvalue", "mode", "msort", "topk"]


# --- positions of ranks ------------------------------------------------------------------------


def _ranked_type(x: TensorType, *, axis: int, first: int, count: int, largest: bool) -> TensorType:
    check_kind(x, "real")
    if is_less(x.shape[axis], first + count):
        raise ShapeError(f"there are no {first + count} elements on an axis of {x.shape[axis]}")
    return x.like(dtype=dtypes.int64, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _ranked(xp: Any, x: Any, *, axis: int, first: int, count: int, largest: bool) -> Any:
    rows = xp.moveaxis(x, axis, -1)
    if largest:
        order = (
            rows.shape[-1] - 1 - xp.flip(xp.argsort(xp.flip(rows, axis=-1), stable=True), axis=-1)
        )
    else:
        order = xp.argsort(rows, stable=True)
    return xp.moveaxis(xp.astype(order[..., first : first + count], dtypes.int64.numpy), -1, axis)


#: Rows up to this length are sorted: that takes less time than looking for the elements.
_SHORT = 128


def _ranked_numpy(x: Any, *, axis: int, first: int, count: int, largest: bool) -> Any:
    rows = np.moveaxis(x, axis, -1)
    # Negated by bits, so that of the largest NaN comes first.
    keys = ~order_keys(rows) if largest else order_keys(rows)
    length, end = keys.shape[-1], first + count
    if length <= _SHORT or (count > 2 and end > length // 4):
        found = np.argsort(keys, axis=-1, stable=True)[..., first:end]
    elif count <= 2:
        found = _each_rank(keys, range(first, end))
    else:
        found = _lowest(keys, end)[..., first:]
    return np.ascontiguousarray(np.moveaxis(found, -1, axis), dtype=np.int64)


def _each_rank(keys: Any, ranks: range) -> Any:
    """Positions of elements by rank: the (rank - number of smaller ones)-th of those that tie."""
    parts = np.partition(keys, list(ranks), axis=-1)
    found = []
    for rank in ranks:
        value = parts[..., rank : rank + 1]
        number = rank - np.count_nonzero(keys < value, axis=-1, keepdims=True)
        ties = keys == value
        found.append(np.argmax(ties & (np.cumsum(ties, axis=-1) > number), axis=-1))
    return np.stack(found, axis=-1)


def _lowest(keys: Any, count: int) -> Any:
    """The positions of the `count` lowest keys, in order."""
    limit = np.partition(keys, count - 1, axis=-1)[..., count - 1 : count]
    below, ties = keys < limit, keys == limit
    missing = count - np.count_nonzero(below, axis=-1, keepdims=True)
    chosen = below | (ties & (np.cumsum(ties, axis=-1) <= missing))
    found = np.nonzero(chosen)[-1].reshape(*keys.shape[:-1], count)
    order = np.argsort(np.take_along_axis(keys, found, axis=-1), axis=-1, stable=True)
    return np.take_along_axis(found, order, axis=-1)


def _ranked_cost(inputs: Any, outputs: Any, *, axis: int, count: int, **_attrs: Any) -> Cost:
    return Cost(inputs[0].size * (log2_estimate(count) + 1), inputs[0].nbytes + outputs[0].nbytes)


_ranked_op = Op(
    "ranked",
    _ranked_type,
    _ranked,
    numpy=_ranked_numpy,
    kinds="real",
    batch=shifted("axis"),
    cost=_ranked_cost,
    traits=Trait.WIDEN,
    may_fail=False,
    ways=but_axis,
)


def ranked(x: Tensor, axis: int, first: int, count: int, largest: bool = False) -> Tensor:
    """The positions of the elements with ranks first … first + count - 1 along an axis.

    Ranks count from the smallest up with NaN last, or from the largest down with NaN first.
    """
    out: Tensor = bind(_ranked_op, x, axis=axis, first=first, count=count, largest=largest)
    return out


def as_row(x: Any, op: str) -> tuple[Tensor, bool]:
    """x with at least one axis, and whether it had none."""
    given = as_tensor(x, op)
    return (given, False) if given.ndim else (reshape(given, (1,)), True)


# --- functions ---------------------------------------------------------------------------------


@public("topk")
def topk(
    x: Tensor, /, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The k largest (or smallest) elements along an axis in order, and where they stand.

    NaN counts as larger than all numbers. `sorted=False` asks for no order; it is kept anyway.

    >>> weft.topk(weft.asarray([3.0, 9.0, 4.0]), 2)
    ValuesIndices(values=tensor([9., 4.]), indices=tensor([1, 2]))
    """
    row, was_scalar = as_row(x, "topk")
    at, count = axis_of(row, axis, "topk"), integer(k, "k", "topk", row)
    if count < 0 or is_less(row.shape[at], count):
        raise RangeError(
            f"k is {count}, and the axis has {row.shape[at]} elements",
            op="topk",
            operands=[type_of(row)],
        )
    places = ranked(row, at, 0, count, bool(largest))
    values = take_along(row, places, at)
    if was_scalar and count == 1:
        values, places = reshape(values, ()), reshape(places, ())
    return ValuesIndices(values, places)


@public("kthvalue")
def kthvalue(x: Tensor, /, k: int, axis: int = -1, keepdims: bool = False) -> ValuesIndices:
    """The k-th smallest element along an axis, counted from 1, and where it stands; NaN is last.

    >>> weft.kthvalue(weft.asarray([3.0, 9.0, 4.0]), 2)
    ValuesIndices(values=tensor(4.), indices=tensor(2))
    """
    row, was_scalar = as_row(x, "kthvalue")
    at, rank = axis_of(row, axis, "kthvalue"), integer(k, "k", "kthvalue", row)
    if rank < 1 or is_less(row.shape[at], rank):
        raise RangeError(
            f"k is {rank}, and the axis has {row.shape[at]} elements",
            op="kthvalue",
            operands=[type_of(row)],
            hint="the smallest element has k=1",
        )
    return _reduced(row, ranked(row, at, rank - 1, 1), at, keepdims and not was_scalar)


def _reduced(x: Tensor, places: Tensor, axis: int, keepdims: bool) -> ValuesIndices:
    """The elements of x at one position along an axis."""
    values = take_along(x, places, axis)
    if keepdims:
        return ValuesIndices(values, places)
    return ValuesIndices(squeeze(values, axis), squeeze(places, axis))


@public("mode")
def mode(x: Tensor, /, axis: int = -1, keepdims: bool = False) -> ValuesIndices:
    """The most frequent element along an axis (of several, the smallest), and its last position.

    >>> weft.mode(weft.asarray([2, 1, 2, 1, 3]))
    ValuesIndices(values=tensor(1), indices=tensor(3))
    """
    row, was_scalar = as_row(x, "mode")
    at = axis_of(row, axis, "mode")
    size = row.shape[at]
    if is_less(size, 1):
        raise ShapeError("no element of an empty axis is frequent", op="mode", operands=[x.type])
    last = moveaxis(row, at, -1)
    order = argsort(last, axis=-1)
    ordered = take_along(last, order, last.ndim - 1)
    number = arange(size, device=x.device)
    new = not_equal(ordered[..., 1:], ordered[..., :-1])
    starts = concat([number[:1] + 0 * order[..., :1], where(new, number[1:], 0)], axis=-1)
    begun = take_along(starts, running_positions(starts, last.ndim - 1), last.ndim - 1)
    best = argmax(number - begun, axis=-1, keepdims=True)
    places = moveaxis(take_along(order, best, last.ndim - 1), -1, at)
    return _reduced(row, places, at, keepdims and not was_scalar)


@public("msort")
def msort(x: Tensor, /) -> Tensor:
    """x sorted along its first axis: sort(x, axis=0)."""
    return sort(x, axis=0)
