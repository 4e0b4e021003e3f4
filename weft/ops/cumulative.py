"""Running maxima and minima with their positions, and running log-sum-exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base import dtypes
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast
from weft.core.public import public
from weft.core.results import ValuesIndices
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.arguments import axis_of
from weft.ops.batching import shifted
from weft.ops.index import take_along
from weft.ops.order_keys import order_keys
from weft.ops.reduce import running_totals
from weft.ops.rules import check_kind
from weft.ops.shape import inverse_order, reshape
from weft.ops.ways import but_axis

__all__ = ["cummax", "cummin", "logcumsumexp"]


# --- maxima and minima -------------------------------------------------------------------------


def _positions_type(x: TensorType, *, axis: int, smallest: bool) -> TensorType:
    check_kind(x, "real")
    return x.like(dtype=dtypes.int64)


def _positions(xp: Any, x: Any, *, axis: int, smallest: bool) -> Any:
    """Of equal elements the last; from the first NaN on, the latest NaN."""
    keys = order_keys(x, descending=smallest)
    shape = [1] * keys.ndim
    shape[axis] = keys.shape[axis]
    numbers = np.arange(keys.shape[axis]).reshape(shape)
    there = np.where(keys == np.maximum.accumulate(keys, axis=axis), numbers, 0)
    return np.maximum.accumulate(there, axis=axis)


_running_positions = Op(
    "running_argmax",
    _positions_type,
    _positions,
    kinds="real",
    batch=shifted("axis"),
    traits=Trait.WIDEN,
    may_fail=False,
    ways=but_axis,
)


def running_positions(x: Tensor, axis: int, smallest: bool = False) -> Tensor:
    """For each element, the position of the largest (or smallest) one up to it."""
    out: Tensor = bind(_running_positions, x, axis=axis, smallest=smallest)
    return out


def _running(x: Any, axis: int, smallest: bool, op: str) -> Any:
    row = as_tensor(x, op)
    shape = row.shape
    if not shape:
        row = reshape(row, (1,))
    at = axis_of(row, axis, op)
    places = running_positions(row, at, smallest)
    values = take_along(row, places, at)
    return ValuesIndices(reshape(values, shape), reshape(places, shape))


@public("cummax")
def cummax(x: Tensor, /, axis: int) -> ValuesIndices:
    """The largest elements so far along an axis, and where they stand; of equal ones the last.

    From the first NaN on, all are NaN.

    >>> weft.cummax(weft.asarray([1, 3, 2, 3]), 0)
    ValuesIndices(values=tensor([1, 3, 3, 3]), indices=tensor([0, 1, 1, 3]))
    """
    out: ValuesIndices = _running(x, axis, False, "cummax")
    return out


@public("cummin")
def cummin(x: Tensor, /, axis: int) -> ValuesIndices:
    """The smallest elements so far along an axis, and where they stand; of equal ones the last."""
    out: ValuesIndices = _running(x, axis, True, "cummin")
    return out


# --- logarithms of sums of powers --------------------------------------------------------------


def _log_sums_type(x: TensorType, *, axis: int) -> TensorType:
    check_kind(x, "real floating")
    return x


def _log_sums_vjp(xp: Any, g: Any, out: Any, x: Any, *, axis: int) -> Any:
    """x[i] is a term of all out[k] with k ≥ i, with the weight exp(x[i] - out[k]).

    Up to out[i], which rises with i, weights are taken step by step: none overflows.
    """
    last = len(x.shape) - 1
    order = (*(i for i in range(last + 1) if i != axis), axis)
    values, sums = xp.permute_dims(x, order), xp.permute_dims(out, order)
    ratios = _weight(xp, sums[..., :-1], sums[..., 1:])
    factors = xp.concat([xp.ones_like(sums[..., :1]), ratios], axis=-1)
    totals = running_totals(xp, xp.permute_dims(g, order), factors)
    return xp.permute_dims(_weight(xp, values, sums) * totals, inverse_order(order))


def _weight(xp: Any, term: Any, total: Any) -> Any:
    """exp(term - total); nothing is a part of exp(-inf) = 0."""
    none = term == -xp.inf
    zero = xp.zeros_like(term)
    power = xp.exp(xp.where(none, zero, term) - xp.where(none, zero, total))
    return xp.where(none, zero, power)


_log_sums = Op(
    "logcumsumexp",
    _log_sums_type,
    lambda xp, x, *, axis: xp.logaddexp.accumulate(x, axis=axis),
    kinds="real floating",
    autocast="float32",
    vjp=(_log_sums_vjp,),
    batch=shifted("axis"),
    traits=Trait.WIDEN,
    may_fail=False,
    ways=but_axis,
)


@public("logcumsumexp")
def logcumsumexp(x: Tensor, /, axis: int) -> Tensor:
    """log(cumulative_sum(exp(x))) along an axis, without overflow.

    >>> weft.logcumsumexp(weft.asarray([1000.0, 1000.0]), 0)
    tensor([1000.    , 1000.6932])
    """
    row = as_tensor(x, "logcumsumexp")
    if row.dtype.kind != "float":
        row = cast(row, dtypes.default_float())
    shape = row.shape
    if not shape:
        row = reshape(row, (1,))
    out: Tensor = bind(_log_sums, row, axis=axis_of(row, axis, "logcumsumexp"))
    return reshape(out, shape)
