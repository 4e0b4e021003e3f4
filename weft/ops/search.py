"""Where values belong in sorted ones."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.base.shapes import size_of
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batch_index import search_rule
from weft.ops.index import take, take_along
from weft.ops.rules import check_kind

__all__ = ["bucketize", "searchsorted"]


def _searchsorted_type(x1: TensorType, x2: TensorType, *, side: str) -> TensorType:
    check_kind(x1, "real")
    if not x1.ndim:
        raise ShapeError("the sorted values must have an axis")
    if x1.ndim > 1 and x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            f"sorted rows of shape {x1.shape} and values of shape {x2.shape} must agree in all "
            "axes but the last"
        )
    return x2.like(dtype=dtypes.int64)


def _found(xp: Any, x1: Any, x2: Any, *, side: str) -> Any:
    if x1.ndim == 1:
        return xp.astype(xp.asarray(xp.searchsorted(x1, x2, side=side)), dtypes.int64.numpy)
    if x1.shape[:-1] != x2.shape[:-1]:
        raise ValueError  # the type rule explains the error
    count = size_of(x1.shape[:-1])
    tables, rows = (x.reshape(count, x.shape[-1]) for x in (x1, x2))
    out = xp.empty(rows.shape, dtype=dtypes.int64.numpy)
    for i in range(len(rows)):
        out[i] = xp.searchsorted(tables[i], rows[i], side=side)
    return out.reshape(x2.shape)


_searchsorted = Op(
    "searchsorted",
    _searchsorted_type,
    _found,
    kinds="real",
    batch=search_rule,
    traits=Trait.WIDEN,
)


@public("searchsorted")
def searchsorted(
    x1: Tensor,
    x2: Tensor,
    /,
    *,
    side: str | None = None,
    right: bool = False,
    out_int32: bool = False,
    sorter: Tensor | None = None,
) -> Tensor:
    """The positions in the sorted x1 at which inserting the values of x2 keeps it sorted.

    Among equal ones it is the first position, or the one behind the last with `side="right"` (or
    `right=True`). If x1 has several axes, its rows are searched for the values in the rows of x2.

    >>> weft.searchsorted(weft.asarray([1.0, 2.0, 2.0]), weft.asarray([2.0, 0.0]))
    tensor([1, 0])
    """
    if side not in (None, "left", "right"):
        raise ShapeError(f"side must be 'left' or 'right', not {side!r}", op="searchsorted")
    if side == "left" and right:
        raise RangeError("side is 'left' and right is True", op="searchsorted")
    ordered = x1
    if sorter is not None:
        ordered = take(x1, sorter) if x1.ndim == 1 else take_along(x1, sorter, x1.ndim - 1)
    values = as_tensor(x2, "searchsorted", like=x1)
    if values.dtype is not ordered.dtype:
        raise DTypeError(
            f"x1 is {ordered.dtype.name} and x2 {values.dtype.name}",
            op="searchsorted",
            hint="cast one of them",
        )
    chosen = side or ("right" if right else "left")
    out: Tensor = bind(_searchsorted, ordered, values, side=chosen)
    return cast(out, dtypes.int32) if out_int32 else out


@public("bucketize")
def bucketize(
    x: Tensor, boundaries: Tensor, /, *, right: bool = False, out_int32: bool = False
) -> Tensor:
    """The number of the interval between sorted boundaries that each element lies in.

    Interval i ends at boundaries[i], which belongs to it; with `right` to the next one.

    >>> weft.bucketize(weft.asarray([1.0, 2.0, 9.0]), weft.asarray([1.0, 3.0]))
    tensor([0, 1, 2])
    """
    given = as_tensor(x, "bucketize")
    edges = as_tensor(boundaries, "bucketize", like=given)
    return searchsorted(edges, given, right=right, out_int32=out_int32)
