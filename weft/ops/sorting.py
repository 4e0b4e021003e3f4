"""Sorting and sets. NaN sorts last, in ascending and in descending order; sorts are stable."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.base import dtypes
from weft.base.dims import dim, log2_estimate
from weft.base.shapes import normalize_axis, size_of
from weft.core.bind import bind
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Cost, Op, Trait
from weft.ir.types import TensorType
from weft.ops.batching import shifted
from weft.ops.index_cards import SCATTER_ADD
from weft.ops.index_shape import TENSOR
from weft.ops.rules import apply, check_kind
from weft.ops.ways import but_axis

__all__ = ["argsort", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values"]


def _sort_type(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    check_kind(x, "real")
    return x


def _argsort_type(x: TensorType, *, axis: int, descending: bool) -> TensorType:
    check_kind(x, "real")
    return x.like(dtype=dtypes.int64)


def _sort_cost(inputs: Any, outputs: Any, *, axis: int, descending: bool) -> Cost:
    length = inputs[0].shape[axis] if inputs[0].ndim else 1
    return Cost(inputs[0].size * (log2_estimate(length) + 1), 2 * inputs[0].nbytes)


def _key(xp: Any, x: Any, descending: bool) -> Any:
    """Keys whose ascending order is the requested order of x; NaN stays NaN, and so last."""
    if not descending:
        return x
    return -x if xp.isdtype(x.dtype, "real floating") else ~x


def _sorted(xp: Any, x: Any, *, axis: int, descending: bool) -> Any:
    return _key(xp, xp.sort(_key(xp, x, descending), axis=axis, stable=True), descending)


def _argsorted(xp: Any, x: Any, *, axis: int, descending: bool) -> Any:
    order = xp.argsort(_key(xp, x, descending), axis=axis, stable=True)
    return xp.astype(order, dtypes.int64.numpy, copy=False)


def _sort_vjp(xp: Any, g: Any, _out: Any, x: Any, *, axis: int, descending: bool) -> Any:
    """The gradient of each element is at the position that it was sorted to."""
    order = apply(ARGSORT, x, axis=axis, descending=descending)
    places = apply(ARGSORT, order, axis=axis, descending=False)
    return xp.take_along_axis(g, places, axis=axis)


_sort = Op(
    "sort",
    _sort_type,
    _sorted,
    kinds="real",
    vjp=(_sort_vjp,),
    batch=shifted("axis"),
    cost=_sort_cost,
    traits=Trait.WIDEN,
    may_fail=False,
    ways=but_axis,
)
ARGSORT = Op(
    "argsort",
    _argsort_type,
    _argsorted,
    kinds="real",
    batch=shifted("axis"),
    cost=_sort_cost,
    traits=Trait.WIDEN,
    may_fail=False,
    ways=but_axis,
)


@public("sort")
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The values along `axis` in order; NaN last.

    >>> weft.sort(weft.asarray([2.0, float("nan"), 1.0]), descending=True)
    tensor([ 2.,  1., nan])
    """
    at = normalize_axis(axis, x.ndim, "sort")
    out: Tensor = bind(_sort, x, axis=at, descending=bool(descending))
    return out


@public("argsort")
def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort the values along `axis`; equal values keep their order."""
    at = normalize_axis(axis, x.ndim, "argsort")
    out: Tensor = bind(ARGSORT, x, axis=at, descending=bool(descending))
    return out


# --- sets --------------------------------------------------------------------------------------


def _unique_type(x: TensorType) -> tuple[TensorType, ...]:
    found = x.like(shape=(dim("_n"),))
    count = found.like(dtype=dtypes.int64)
    return found, count, count.like(shape=x.shape), count


def _unique(xp: Any, x: Any) -> tuple[Any, ...]:
    found = xp.unique_all(x)
    positions = (xp.astype(part, dtypes.int64.numpy, copy=False) for part in found[1:])
    return (found[0], *positions)


def _unique_vjp(xp: Any, g: Any, out: Any, x_type: Any) -> Any:
    """Each distinct value is that of one element: the first of those that are equal."""
    if g[0] is None:
        return None
    shape = x_type.shape
    flat = apply(SCATTER_ADD, g[0], out[1], shape=(size_of(shape),), index=(TENSOR,))
    return xp.reshape(flat, shape)


_unique_op = Op(
    "unique_all",
    _unique_type,
    _unique,
    outputs=4,
    vjp=(_unique_vjp,),
    traits=Trait.DATA_SHAPE | Trait.WIDEN,
)


class UniqueAll(NamedTuple):
    """Distinct values, where each is first, which one each element is, how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values, and for each element which one it is."""

    values: Tensor
    inverse_indices: Tensor


@public()
def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct values in ascending order, with their positions and counts.

    Each NaN counts as a separate value.
    """
    return UniqueAll(*bind(_unique_op, x))


@public()
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct values in ascending order and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@public()
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct values in ascending order, and for each element of x which one it is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@public()
def unique_values(x: Tensor, /) -> Tensor:
    """The distinct values in ascending order."""
    return unique_all(x).values
