"""LU factors, and solutions by LU and Cholesky factors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.dim_algebra import dim_min
from weft.base.errors import ShapeError
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.operands import cast, common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.batching import leading
from weft.ops.creation import arange, eye, tril, triu
from weft.ops.linalg_rules import (
    adjoint,
    floating,
    hermitian,
    identity_like,
    matrix_cost,
    matrix_sizes,
    square_size,
    widened,
)
from weft.ops.linalg_triangular import solve_triangular
from weft.ops.matmul import matmul
from weft.ops.rules import check_kind
from weft.ops.shape import broadcast_to, matrix_transpose
from weft.ops.ways import but_last

__all__ = [
    "cholesky_inverse",
    "cholesky_solve",
    "lu",
    "lu_factor",
    "lu_solve",
]


class LUFactors(NamedTuple):
    """L below the diagonal and U on and above it, and the order of the rows."""

    LU: Tensor
    pivots: Tensor


class LUResult(NamedTuple):
    """P @ L @ U: a permutation, a lower triangle with ones on its diagonal, an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


def _lu_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_kind(x, "floating")
    stack, rows, _ = matrix_sizes(x)
    return x, x.like(shape=(*stack, rows), dtype=dtypes.int64)


def _lu_values(x: Any) -> tuple[Any, Any]:
    """Elimination with the largest element of each column as its pivot; all matrices at once. It is
    computed in double precision, as NumPy's functions are."""
    *stack, rows, columns = x.shape
    wide = np.result_type(x.dtype, np.float64)
    out = np.array(x, wide).reshape(math.prod(stack), rows, columns)
    each = np.arange(out.shape[0])
    order = np.tile(np.arange(rows), (out.shape[0], 1))
    for k in range(min(rows, columns)):
        best = k + np.argmax(np.abs(out[:, k:, k]), axis=1)
        for values in (out, order):
            row = values[each, k].copy()
            values[each, k] = values[each, best]
            values[each, best] = row
        pivot = out[:, k, k]
        pivot = np.where(pivot == 0, 1, pivot)
        out[:, k + 1 :, k] /= pivot[:, None]
        out[:, k + 1 :, k + 1 :] -= out[:, k + 1 :, k, None] * out[:, k, None, k + 1 :]
    return out.reshape(x.shape).astype(x.dtype), order.reshape((*stack, rows))


def _lu_vjp(xp: Any, g: Any, out: Any, _x: Any) -> Any:
    g_both, (both, order) = g[0], out
    if g_both is None:
        return None
    rows, columns = both.shape[-2:]
    size = min(rows, columns)
    square = both[..., :size, :size]
    lower = xp.tril(square, k=-1) + identity_like(xp, square)
    upper = xp.triu(square)
    g_lower, g_upper = g_both[..., :size, :size], g_both[..., :size, :size]
    parts = []
    if rows > size:  # the rows below are L2 = A2 U⁻¹
        below = both[..., size:, :]
        back = hermitian(xp, xp.linalg.solve(upper, hermitian(xp, g_both[..., size:, :])))
        g_upper = g_upper - xp.matmul(hermitian(xp, below), back)
        parts.append(back)
    if columns > size:  # the columns beside are U2 = L⁻¹ A2
        beside = both[..., size:]
        back = xp.linalg.solve(hermitian(xp, lower), g_both[..., size:])
        g_lower = g_lower - xp.matmul(back, hermitian(xp, beside))
    first = xp.tril(xp.matmul(hermitian(xp, lower), xp.tril(g_lower, k=-1)), k=-1)
    second = xp.triu(xp.matmul(xp.triu(g_upper), hermitian(xp, upper)))
    inner = xp.linalg.solve(hermitian(xp, lower), first + second)
    whole = hermitian(xp, xp.linalg.solve(upper, hermitian(xp, inner)))
    if rows > size:
        whole = xp.concat([whole, *parts], axis=-2)
    if columns > size:
        whole = xp.concat([whole, back], axis=-1)
    moved = order[..., None] == xp.arange(rows, device=order.device)
    return xp.matmul(xp.astype(moved, whole.dtype).mT, whole)


_LU = Op(
    "lu_factor",
    _lu_type,
    lambda xp, x: _lu_values(x),
    kinds="floating",
    autocast="float32",
    vjp=(_lu_vjp,),
    batch=leading,
    outputs=2,
    cost=matrix_cost(2 / 3),
    ways=but_last(2),
)


@public(namespace="linalg")
def lu_factor(x: Tensor, /) -> LUFactors:
    """L and U in one matrix, for `lu_solve`, and the order of the rows.

    With `rows = x[pivots]` (counted from 0), rows = L @ U.
    """
    tensor = floating(x, "lu_factor")
    both, order = bind(_LU, widened(tensor))
    return LUFactors(cast(both, tensor.dtype), order)


@public(namespace="linalg")
def lu(x: Tensor, /) -> LUResult:
    """x = P @ L @ U, with rows exchanged so that elements of L are at most 1.

    >>> weft.linalg.lu(weft.asarray([[1.0, 2.0], [4.0, 4.0]])).U
    tensor([[4., 4.],
            [0., 1.]])
    """
    both, order = lu_factor(x)
    rows, columns = both.shape[-2:]
    size = dim_min(rows, columns)
    one = eye(rows, size, dtype=both.dtype, device=both.device)
    lower = tril(both[..., :, :size], k=-1) + one
    places = cast(order[..., None] == arange(rows, device=both.device), both.dtype)
    return LUResult(matrix_transpose(places), lower, triu(both[..., :size, :]))


@public(namespace="linalg")
@autocasts("float32")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, /) -> Tensor:
    """The solution X of A @ X = B, from lu_factor(A)."""
    both, right = common((LU, B), "lu_solve", at_least="float")
    _, rows = square_size(type_of(both), "lu_solve", "LU")
    places = cast(pivots[..., None] == arange(rows, device=both.device), both.dtype)
    half = solve_triangular(both, matmul(places, right), upper=False, unitriangular=True)
    return solve_triangular(both, half, upper=True)


@public(namespace="linalg")
@autocasts("float32")
def cholesky_solve(B: Tensor, L: Tensor, /, *, upper: bool = False) -> Tensor:
    """The solution X of A @ X = B, from cholesky(A)."""
    right, factor = common((B, L), "cholesky_solve", at_least="float")
    square_size(type_of(factor), "cholesky_solve", "L")
    if right.ndim < 2:
        raise ShapeError(
            "B must be a matrix", op="cholesky_solve", hint="for one vector b write b[:, None]"
        )
    lower = adjoint(triu(factor)) if upper else tril(factor)
    half = solve_triangular(lower, right, upper=False)
    return solve_triangular(adjoint(lower), half, upper=True)


@public(namespace="linalg")
@autocasts("float32")
def cholesky_inverse(L: Tensor, /, *, upper: bool = False) -> Tensor:
    """The inverse of A, from cholesky(A)."""
    factor = floating(L, "cholesky_inverse")
    _, size = square_size(type_of(factor), "cholesky_inverse", "L")
    unit = eye(size, dtype=factor.dtype, device=factor.device)
    return cholesky_solve(broadcast_to(unit, factor.shape), factor, upper=upper)
