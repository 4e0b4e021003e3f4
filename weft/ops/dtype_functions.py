"""Functions about dtypes, and differences along an axis."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import (
    DTYPES,
    KINDS,
    DType,
    FloatInfo,
    IntInfo,
    as_dtype,
    float_info,
    int_info,
)
from weft.base.errors import DTypeError, ShapeError
from weft.base.promotion import can_cast as _can_cast
from weft.base.promotion import result_dtype
from weft.base.shapes import normalize_axis
from weft.core.operands import number_kind
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.elementwise import not_equal, subtract
from weft.ops.shape import concat

__all__ = ["can_cast", "diff", "finfo", "iinfo", "isdtype", "result_type"]


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else as_dtype(value)


@public()
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether values of one dtype (or of a tensor) promote to another."""
    return _can_cast(_dtype_of(from_), as_dtype(to))


@public()
def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating dtype: bits, eps, max, min, smallest_normal."""
    return float_info(_dtype_of(type))


@public()
def iinfo(type: Any, /) -> IntInfo:
    """The limits of an integer dtype: bits, max, min."""
    return int_info(_dtype_of(type))


@public()
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name like "real floating", a dtype, or a tuple of them."""
    given = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(given, one) for one in kind)
    if (isinstance(kind, str) and kind not in DTYPES) or kind == "bool":
        if kind not in KINDS:
            raise DTypeError(
                f"{kind!r} is not a kind of dtype", op="isdtype", hint=f"use one of {list(KINDS)}"
            )
        return given.kind in KINDS[kind]
    return given is as_dtype(kind)


@public()
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that tensors, dtypes and Python numbers compute in together.

    >>> weft.result_type(weft.float32, weft.int64, 2.5)
    weft.float32
    """
    strong, weak = [], []
    for value in arrays_and_dtypes:
        kind = None if isinstance(value, (Tensor, DType)) else number_kind(value)
        if kind is None:
            strong.append(_dtype_of(value))
        else:
            weak.append(kind)
    return result_dtype(strong, weak)


@public("diff")
def diff(
    x: Tensor,
    /,
    *,
    n: int = 1,
    axis: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along an axis, taken n times; of bools, where they change."""
    at = normalize_axis(axis, x.ndim, "diff")
    if n < 0:
        raise ShapeError(f"n must not be negative: {n}", op="diff")
    if n == 0:
        return x.clone()
    parts = [part for part in (prepend, x, append) if part is not None]
    result = concat(parts, axis=at) if len(parts) > 1 else x
    for _ in range(n):
        before: list[Any] = [slice(None)] * x.ndim
        after = list(before)
        before[at], after[at] = slice(None, -1), slice(1, None)
        minus = not_equal if result.dtype.kind == "bool" else subtract
        result = minus(result[tuple(after)], result[tuple(before)])
    return result
