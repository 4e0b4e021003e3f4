"""Medians and quantiles. NaN makes the result NaN; nanmedian and nanquantile leave NaN out."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import Dim
from weft.base.errors import RangeError
from weft.base.shapes import Axis
from weft.core.autocast import autocasts
from weft.core.operands import as_tensor, cast, constant, number_kind
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ops.arguments import axes_of
from weft.ops.creation import asarray, full
from weft.ops.elementwise import (
    add,
    ceil,
    equal,
    floor,
    greater_equal,
    isinf,
    isnan,
    logical_and,
    logical_not,
    maximum,
    multiply,
    round,
    subtract,
)
from weft.ops.index import take, take_along
from weft.ops.ranks import ranked
from weft.ops.reduce import any, computable, sum
from weft.ops.select import where
from weft.ops.shape import moveaxis, reshape
from weft.ops.sorting import sort

__all__ = ["median", "nanmedian", "nanquantile", "quantile"]

_ROUNDING: dict[str, Callable[[float], int]] = {
    "lower": math.floor,
    "higher": math.ceil,
    "nearest": builtins.round,
}
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


class _Rows:
    """x with the axes to reduce merged into a last one, in the dtype to compute in."""

    def __init__(self, x: Any, axis: Axis, keepdims: bool, op: str) -> None:
        given = as_tensor(x, op)
        if not given.ndim and axis is not None:  # one number counts as a vector of one
            given, keepdims = reshape(given, (1,)), False
        wide, self.dtype = computable(given)
        axes = axes_of(given, axis, op)
        kept = [i for i in range(given.ndim) if i not in axes]
        last = moveaxis(wide, axes, tuple(range(len(kept), given.ndim)))
        shape = tuple(given.shape[i] for i in kept)
        self.size: Any = math.prod([given.shape[i] for i in axes])
        self.x = reshape(last, (*shape, self.size))
        self.shape = (
            tuple(1 if i in axes else n for i, n in enumerate(given.shape)) if keepdims else shape
        )

    def result(self, out: Tensor, front: tuple[Any, ...] = ()) -> Tensor:
        return cast(reshape(out, (*front, *self.shape)), self.dtype)

    def none(self, front: tuple[Any, ...] = ()) -> Tensor:
        """The result for no elements."""
        return full((*front, *self.shape), float("nan"), dtype=self.dtype, device=self.x.device)


def _between(low: Tensor, high: Tensor, weight: Tensor) -> Tensor:
    """low + (high - low) * weight; of equal infinities that infinity."""
    same = logical_and(isinf(low), equal(low, high))
    apart = where(same, 0, subtract(high, low))
    upper = greater_equal(weight, 0.5)  # from the nearer end, so that weight 1 gives `high`
    rising = add(low, multiply(apart, weight))
    falling = subtract(high, multiply(apart, subtract(1, weight)))
    return where(upper, falling, rising)


def _or_nan(x: Tensor, out: Tensor) -> Tensor:
    """NaN where a row of x holds one."""
    if x.dtype.kind == "complex":
        return out
    return where(any(isnan(x), axis=-1), float("nan"), out)


def _method(method: str, interpolation: str | None, op: str) -> str:
    chosen = method if interpolation is None else interpolation
    if chosen not in METHODS:
        raise RangeError(f"method must be one of {', '.join(METHODS)}, not {chosen!r}", op=op)
    return chosen


def _fractions(q: Any, x: Tensor, op: str) -> Tensor:
    """q as a float64 tensor. Numbers are checked now, tensors when they are used as positions."""
    for number in _numbers(q):
        if not 0 <= number <= 1:
            raise RangeError(
                f"q is {number}: a quantile is a number from 0 to 1", op=op, operands=[type_of(x)]
            )
    if not isinstance(q, Tensor):
        return asarray(q, dtype=dtypes.float64, device=x.device)
    at = cast(q, dtypes.float64)
    return where(greater_equal(at, 0), at, 2.0)  # no rank may count from the end: an error


def _numbers(q: Any) -> list[Any]:
    """The Python numbers in nested sequences."""
    if isinstance(q, (list, tuple)):
        return [number for part in q for number in _numbers(part)]
    return [q] if isinstance(q, (int, float)) else []


def _ends(place: Tensor, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """The ranks below and above a position between ranks, and the weight of the second."""
    if method == "lower":
        place = floor(place)
    elif method == "higher":
        place = ceil(place)
    elif method == "nearest":
        place = round(place)
    low, high = floor(place), ceil(place)
    weight = subtract(place, low)
    if method == "midpoint":
        weight = multiply(0.5, subtract(high, low))
    return cast(low, dtypes.int64), cast(high, dtypes.int64), weight


@public("median")
def median(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The middle element over `axis`, or the mean of the two in the middle; NaN for no elements.

    `weft.kthvalue` gives one element and its position.

    >>> weft.median(weft.asarray([[3.0, 1.0, 2.0], [4.0, 9.0, 7.0]]), axis=1)
    tensor([2., 7.])
    """
    return _at(_Rows(x, axis, keepdims, "median"), 0.5, "midpoint")


def _at(rows: _Rows, q: float, method: str) -> Tensor:
    """The quantile at one number: by rank, without sorting."""
    if rows.size == 0:
        return rows.none()
    if isinstance(rows.size, Dim):
        place = multiply(constant(rows.size - 1, dtypes.float64, rows.x.device), q)
        return _sorted_at(rows, place, method)
    between = q * (rows.size - 1)
    if method in _ROUNDING:
        between = _ROUNDING[method](between)
    low, high = math.floor(between), math.ceil(between)
    last = rows.x.ndim - 1
    found = take_along(rows.x, ranked(rows.x, last, low, high - low + 1), last)
    out = found[..., 0]
    if high > low:
        weight = 0.5 if method == "midpoint" else between - low
        out = _between(out, found[..., 1], constant(weight, out.dtype, out.device))
    return rows.result(_or_nan(rows.x, out))


def _sorted_at(rows: _Rows, place: Tensor, method: str) -> Tensor:
    """Quantiles at positions between ranks, which are tensors: from sorted rows."""
    low, high, weight = _ends(place, method)
    ordered = moveaxis(sort(rows.x, axis=-1), -1, 0)
    share = reshape(cast(weight, rows.x.dtype), (*place.shape, *(1,) * (rows.x.ndim - 1)))
    out = _between(take(ordered, low, axis=0), take(ordered, high, axis=0), share)
    return rows.result(_or_nan(rows.x, out), place.shape)


@public("quantile")
@autocasts("float32")
def quantile(
    x: Tensor,
    q: Any,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    method: str = "linear",
    interpolation: str | None = None,
) -> Tensor:
    """The value below which a fraction q of the elements over `axis` lie; NaN for no elements.

    q is a number, or a tensor or list of numbers: then its axes come first in the result. Between
    two elements, `method` (or `interpolation`) says what is taken: "linear", "lower", "higher",
    "midpoint" or "nearest".

    >>> weft.quantile(weft.asarray([1.0, 2.0, 3.0, 4.0]), [0.25, 0.5])
    tensor([1.75, 2.5 ])
    """
    chosen = _method(method, interpolation, "quantile")
    rows = _Rows(x, axis, keepdims, "quantile")
    at = _fractions(q, rows.x, "quantile")
    if number_kind(q) is not None:
        return _at(rows, float(q), chosen)
    if rows.size == 0:
        return rows.none(at.shape)
    size = constant(rows.size - 1, dtypes.float64, rows.x.device)
    return _sorted_at(rows, multiply(at, size), chosen)


@public("nanquantile")
@autocasts("float32")
def nanquantile(
    x: Tensor,
    q: Any,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    method: str = "linear",
    interpolation: str | None = None,
) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN where there are none.

    >>> weft.nanquantile(weft.asarray([1.0, float("nan"), 3.0]), 0.5)
    tensor(2.)
    """
    chosen = _method(method, interpolation, "nanquantile")
    rows = _Rows(x, axis, keepdims, "nanquantile")
    at = _fractions(q, rows.x, "nanquantile")
    if rows.size == 0:
        return rows.none(at.shape)
    ordered = sort(rows.x, axis=-1)
    numbers = sum(logical_not(isnan(ordered)), axis=-1)
    most = cast(maximum(subtract(numbers, 1), 0), dtypes.float64)
    places = multiply(reshape(at, (*at.shape, *(1,) * most.ndim)), most)
    low, high, weight = _ends(places, chosen)
    count = reshape(places, (math.prod(at.shape), *most.shape))
    along = moveaxis(reshape(low, count.shape), 0, -1), moveaxis(reshape(high, count.shape), 0, -1)
    share = moveaxis(reshape(cast(weight, ordered.dtype), count.shape), 0, -1)
    last = ordered.ndim - 1
    out = _between(take_along(ordered, along[0], last), take_along(ordered, along[1], last), share)
    return rows.result(moveaxis(out, -1, 0), at.shape)


@public("nanmedian")
def nanmedian(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """`median` of the elements that are not NaN; NaN where there are none."""
    return nanquantile(x, 0.5, axis=axis, keepdims=keepdims, method="midpoint")
