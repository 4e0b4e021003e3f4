"""Norms of vectors and matrices, and what small singular values decide: rank, pseudo-inverse."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, Literal

from weft.base.dtypes import float_info, real_dtype
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import reduced_shape
from weft.core.operands import as_tensor, cast, number_kind
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ops.arguments import axes_of
from weft.ops.creation import full
from weft.ops.elementwise import (
    abs,
    add,
    greater,
    imag,
    multiply,
    pow,
    real,
    reciprocal,
    sqrt,
    square,
)
from weft.ops.linalg_factor import svd, svdvals
from weft.ops.linalg_rules import adjoint, floating, matrix_sizes, widened
from weft.ops.matmul import matmul
from weft.ops.reduce import count_nonzero, max, min, sum
from weft.ops.select import where
from weft.ops.shape import expand_dims, reshape

__all__ = ["matrix_norm", "matrix_rank", "pinv", "vector_norm"]

Axes = tuple[int, ...]

# --- norms -------------------------------------------------------------------------------------


def _largest(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The largest absolute value; 0 of no values, as sums have it."""
    return _extreme(max, 0.0, x, axes, keepdims)


def _smallest(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The smallest absolute value; inf of no values."""
    return _extreme(min, math.inf, x, axes, keepdims)


def _extreme(reduce: Any, of_none: float, x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    if 0 in (x.shape[axis] for axis in axes):
        shape = reduced_shape(x.shape, axes, keepdims)
        return full(shape, of_none, dtype=real_dtype(x.dtype), device=x.device)
    out: Tensor = reduce(abs(x), axis=axes, keepdims=keepdims)
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
        return cast(count_nonzero(x, axis=axes, keepdims=keepdims), real_dtype(x.dtype))
    if ord == 1:
        return sum(abs(x), axis=axes, keepdims=keepdims)
    if ord == 2:
        return sqrt(sum(_squares(x), axis=axes, keepdims=keepdims))
    total = sum(pow(abs(x), float(ord)), axis=axes, keepdims=keepdims)
    return pow(total, 1 / ord)


@public(namespace="linalg")
def vector_norm(
    x: Tensor,
    /,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float = 2,
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
def matrix_norm(
    x: Tensor,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "nuc"] | None = "fro",
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


def _cutoff(values: Tensor, rtol: float | Tensor | None, x: Tensor, op: str) -> Tensor:
    """Singular values up to here count as zero: `rtol` times the largest, which comes first."""
    if rtol is None:
        rtol = builtins.max(x.shape[-2:]) * float_info(x.dtype).eps
    elif number_kind(rtol) is None:
        rtol = expand_dims(as_tensor(rtol, op), -1)
    return multiply(values[..., :1], rtol)


@public(namespace="linalg")
def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """How many singular values are greater than `rtol` times the largest one.

    `rtol` is max(M, N) times the dtype's epsilon by default; a tensor has one for each matrix.

    >>> weft.linalg.matrix_rank(weft.asarray([[1.0, 2.0], [2.0, 4.0]]))
    tensor(1)
    """
    tensor = floating(x, "matrix_rank")
    matrix_sizes(type_of(tensor), "matrix_rank")
    values = svdvals(widened(tensor))
    return count_nonzero(greater(values, _cutoff(values, rtol, tensor, "matrix_rank")), axis=-1)


@public(namespace="linalg")
def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverse: pinv(x) @ b is the shortest of the best solutions y of x @ y = b.

    Singular values up to `rtol` times the largest one count as zero; `rtol` is max(M, N) times
    the dtype's epsilon by default; a tensor has one for each matrix.
    """
    tensor = floating(x, "pinv")
    matrix_sizes(type_of(tensor), "pinv")
    u, values, vh = svd(widened(tensor), full_matrices=False)
    large = greater(values, _cutoff(values, rtol, tensor, "pinv"))
    inverse = where(large, reciprocal(where(large, values, 1.0)), 0.0)
    scaled = multiply(adjoint(vh), expand_dims(inverse, -2))
    return cast(matmul(scaled, adjoint(u)), tensor.dtype)
