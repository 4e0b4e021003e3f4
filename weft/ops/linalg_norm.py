"""Norms of vectors and matrices, and functions of singular values: rank, pseudo-inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from weft.base.dim_algebra import dim_max, known_less
from weft.base.dims import has_dims
from weft.base.dtypes import float_info, real_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import broadcast_shapes, reduced_shape
from weft.core.autocast import autocasts
from weft.core.operands import as_tensor, cast, constant, number_kind
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.arguments import axes_of
from weft.ops.batching import stacked
from weft.ops.creation import full
from weft.ops.elementwise import (
    abs,
    add,
    equal,
    greater,
    imag,
    multiply,
    pow,
    real,
    square,
)
from weft.ops.linalg_factor import FINITE, svdvals
from weft.ops.linalg_rules import (
    bind_with_hint,
    flat_in,
    floating,
    hermitian,
    matrix_cost,
    matrix_sizes,
    widened,
)
from weft.ops.reduce import count_nonzero, max, min, sum
from weft.ops.rules import check_kind, sum_to
from weft.ops.select import root_or_zero, where
from weft.ops.shape import concat, expand_dims, reshape

__all__ = ["matrix_norm", "matrix_rank", "pinv", "vector_norm"]

Axes = tuple[int, ...]

# --- norms -------------------------------------------------------------------------------------


def _largest(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The largest absolute value; 0 if there are none, as for sums."""
    return _extreme(max, 0.0, x, axes, keepdims)


def _smallest(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The smallest absolute value; inf if there are none."""
    return _extreme(min, math.inf, x, axes, keepdims)


def _extreme(reduce: Any, of_none: float, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    if 0 in (x.shape[axis] for axis in axes):
        shape = reduced_shape(x.shape, axes, keepdims)
        return flat_in(full(shape, of_none, dtype=real_dtype(x.dtype), device=x.device), x)
    values = abs(x)
    for axis in axes:
        if not known_less(0, x.shape[axis]):  # it may be empty: append a neutral value
            shape = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
            none = full(shape, of_none, dtype=values.dtype, device=x.device)
            values = concat([values, none], axis=axis)
    out: Tensor = reduce(values, axis=axes, keepdims=keepdims)
    return out


def _squares(x: Tensor) -> Tensor:
    """|x|²"""
    return add(square(real(x)), square(imag(x))) if x.dtype.kind == "complex" else square(x)


def _power_norm(x: Tensor, axes: Axes, keepdims: bool, ord: float) -> Tensor:
    if ord == math.inf:
        return _largest(x, axes, keepdims)
    if ord == -math.inf:
        return _smallest(x, axes, keepdims)
    if ord == 0:
        count = count_nonzero(x, axis=axes, keepdims=keepdims)
        return flat_in(cast(count, real_dtype(x.dtype)), x)
    if ord == 1:
        return sum(abs(x), axis=axes, keepdims=keepdims)
    if ord == 2:
        return root_or_zero(sum(_squares(x), axis=axes, keepdims=keepdims))
    # Powers of 0 are separate: 0 ** ord has no slope for ord < 1, but the norm should have slope 0.
    none = equal(x, 0)
    powers = where(none, 0 if ord > 0 else math.inf, pow(abs(where(none, 1, x)), float(ord)))
    total = sum(powers, axis=axes, keepdims=keepdims)
    none = equal(total, 0 if ord > 0 else math.inf)
    return where(none, 0, pow(where(none, 1, total), 1 / ord))


@public(namespace="linalg")
@autocasts("float32")
def vector_norm(
    x: Tensor,
    /,
    *,
    ord: float = 2,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The length of vectors that lie along `axis`: sum(|x| ** ord) ** (1 / ord).

    Several axes (all by default) are one vector. inf and -inf mean the largest and the smallest
    absolute value, 0 the number of nonzero elements. Of no elements the norm is 0, and inf for
    negative orders.

    >>> weft.linalg.vector_norm(weft.asarray([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    tensor([ 5., 10.])
    """
    tensor = floating(x, "vector_norm")
    if not isinstance(ord, (int, float)):
        raise DTypeError(
            f"ord must be a number, not {ord!r}",
            op="vector_norm",
            operands=[type_of(tensor)],
            hint="'fro' and 'nuc' are orders of weft.linalg.matrix_norm",
        )
    axes = axes_of(tensor, axis, "vector_norm")
    norm = _power_norm(widened(tensor), axes, bool(keepdims), ord)
    return cast(norm, real_dtype(tensor.dtype))


@public(namespace="linalg")
@autocasts("float32")
def matrix_norm(
    x: Tensor,
    /,
    *,
    ord: float | Literal["fro", "nuc"] | None = "fro",
    keepdims: bool = False,
) -> Tensor:
    """The norm of each matrix in the last two axes.

    "fro" (or None): the root of the sum of squares; "nuc": the sum of the singular values;
    2 and -2: the largest and the smallest singular value; 1 and -1: the largest and the smallest
    sum of absolute values of a column; inf and -inf: of a row. The largest of no values is 0,
    the smallest inf.
    """
    tensor = floating(x, "matrix_norm")
    stack, _, _ = matrix_sizes(type_of(tensor), "matrix_norm")
    wide = widened(tensor)
    if ord is None or ord == "fro":
        norm = _power_norm(wide, (wide.ndim - 2, wide.ndim - 1), False, 2)
    elif ord == "nuc":
        norm = sum(svdvals(wide), axis=-1)
    elif ord in (1, -1, 2, -2, math.inf, -math.inf):
        if ord in (2, -2):
            parts = svdvals(wide)
        else:
            parts = sum(abs(wide), axis=-2 if ord in (1, -1) else -1)
        pick = _largest if float(ord) > 0 else _smallest
        norm = pick(parts, (parts.ndim - 1,), False)
    else:
        raise ShapeError(
            f"there is no matrix norm of order {ord!r}",
            op="matrix_norm",
            operands=[type_of(tensor)],
            hint="use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
        )
    shape = (*stack, 1, 1) if keepdims else stack
    return cast(reshape(norm, shape), real_dtype(tensor.dtype))


# --- small singular values ---------------------------------------------------------------------


def _tolerance(rtol: float | Tensor | None, x: Tensor, wide: Tensor, op: str) -> Tensor:
    """Singular values up to this much of the largest count as zero; in the dtype of `wide`'s."""
    dtype = real_dtype(wide.dtype)
    if rtol is None:
        longer = constant(dim_max(*x.shape[-2:]), dtype, wide.device)
        return multiply(longer, float_info(x.dtype).eps)
    if number_kind(rtol) is not None:
        return constant(rtol, dtype, wide.device)
    return cast(as_tensor(rtol, op), dtype)


@public(namespace="linalg")
@autocasts("float32")
def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """How many singular values are greater than `rtol` times the largest one.

    `rtol` is max(M, N) times the dtype's epsilon by default; a tensor has one for each matrix.

    >>> weft.linalg.matrix_rank(weft.asarray([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    """
    tensor = floating(x, "matrix_rank")
    matrix_sizes(type_of(tensor), "matrix_rank")
    wide = widened(tensor)
    values = svdvals(wide)
    least = expand_dims(_tolerance(rtol, tensor, wide, "matrix_rank"), -1)
    if has_dims(values.shape[-1:]):  # there may be no singular values
        top = _largest(values, (values.ndim - 1,), True)
    else:
        top = values[..., :1]
    return count_nonzero(greater(values, multiply(top, least)), axis=-1)


def _pinv_type(x: TensorType, rtol: TensorType) -> TensorType:
    check_kind(x, "floating")
    stack, rows, columns = matrix_sizes(x)
    return x.like(shape=(*broadcast_shapes(stack, rtol.shape), columns, rows))


def _pinv_values(xp: Any, x: Any, rtol: Any) -> Any:
    u, values, vh = xp.linalg.svd(x, full_matrices=False)
    large = values > rtol[..., None] * values[..., :1]
    inverse = xp.where(large, 1 / xp.where(large, values, 1), 0)
    return xp.matmul(hermitian(xp, vh) * inverse[..., None, :], hermitian(xp, u))


def _pinv_vjp(xp: Any, g: Any, out: Any, x: Any, _rtol: Any) -> Any:
    """For changes of x that keep its rank (Golub and Pereyra), without its singular vectors."""
    turned, up = hermitian(xp, g), hermitian(xp, out)
    inner = xp.matmul(turned, out)
    beside = xp.matmul(inner, up)
    left = beside - xp.matmul(xp.matmul(x, out), beside)
    right = xp.matmul(xp.matmul(up, out), turned - xp.matmul(inner, x))
    return sum_to(xp, left + right - hermitian(xp, xp.matmul(out, inner)), x.shape)


_pinv = Op(
    "pinv",
    _pinv_type,
    _pinv_values,
    kinds="floating",
    autocast="float32",
    vjp=(_pinv_vjp, None),
    batch=stacked(2, 0),
    cost=matrix_cost(18),
)


@public(namespace="linalg")
@autocasts("float32")
def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverse: pinv(x) @ b is the shortest of the best solutions y of x @ y = b.

    Singular values up to `rtol` times the largest one count as zero; `rtol` is max(M, N) times
    the dtype's epsilon by default; a tensor has one for each matrix.
    """
    tensor = floating(x, "pinv")
    matrix_sizes(type_of(tensor), "pinv")
    wide = widened(tensor)
    least = _tolerance(rtol, tensor, wide, "pinv")
    return cast(bind_with_hint(FINITE, _pinv, wide, least), tensor.dtype)
