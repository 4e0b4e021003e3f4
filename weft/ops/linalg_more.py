"""Functions of matrices built from others: norms of any kind, least squares, chains of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from weft.base.dim_algebra import Dim
from weft.base.errors import ShapeError
from weft.base.shapes import normalize_axis, size_of
from weft.core.autocast import autocasts
from weft.core.operands import cast, common
from weft.core.public import public
from weft.core.tensor import Tensor, labelled, type_of
from weft.ops.creation import arange, eye
from weft.ops.elementwise import abs, conj, log, square
from weft.ops.linalg_factor import svdvals
from weft.ops.linalg_norm import matrix_norm, matrix_rank, pinv, vector_norm
from weft.ops.linalg_rules import floating, matrix_sizes, square_size, widened
from weft.ops.linalg_solve import inv, slogdet, solve
from weft.ops.matmul import matmul
from weft.ops.reduce import sum
from weft.ops.select import where
from weft.ops.shape import moveaxis, reshape

__all__ = [
    "cond",
    "householder_product",
    "logdet",
    "lstsq",
    "multi_dot",
    "norm",
    "tensorinv",
    "tensorsolve",
]

Order = float | Literal["fro", "nuc"] | None


@public(namespace="linalg")
@autocasts("float32")
def norm(
    x: Tensor,
    /,
    ord: Order = None,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """The norm of vectors along one axis, or of matrices along two.

    Without an axis and an order, of all elements as one vector; with an order, of a vector or a
    matrix. The orders are those of `vector_norm` and `matrix_norm`.

    >>> x = weft.asarray([[3.0, 4.0], [6.0, 8.0]])
    >>> weft.linalg.norm(x[0]), weft.linalg.norm(x, 1), weft.linalg.norm(x, axis=1)
    (tensor(5.), tensor(12.), tensor([ 5., 10.]))
    """
    tensor = floating(x, "norm")
    if axis is None:
        if ord is None:
            return vector_norm(tensor, keepdims=keepdims)
        axes: tuple[int, ...] = tuple(range(tensor.ndim))
    else:
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        axes = tuple(normalize_axis(a, tensor.ndim, "norm") for a in given)
    if len(axes) == 1 and not isinstance(ord, str):
        return vector_norm(tensor, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(
            f"there is no norm of order {ord!r} over {len(axes)} axes",
            op="norm",
            operands=[type_of(tensor)],
            hint="name one axis (vectors) or two (matrices): axis=...",
        )
    last = moveaxis(tensor, axes, (-2, -1))
    out = matrix_norm(last, ord="fro" if ord is None else ord)
    if not keepdims:
        return out
    return reshape(out, tuple(1 if i in axes else n for i, n in enumerate(tensor.shape)))


@public(namespace="linalg")
@autocasts("float32")
def cond(x: Tensor, /, p: Order = None) -> Tensor:
    """The condition number: the norm of a matrix times that of its inverse (2-norm by default).

    >>> weft.linalg.cond(weft.asarray([[4.0, 0.0], [0.0, 2.0]]))
    tensor(2.)
    """
    tensor = floating(x, "cond")
    matrix_sizes(type_of(tensor), "cond")
    if p in (None, 2, -2):
        values = svdvals(tensor)
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    square_size(type_of(tensor), "cond")
    return matrix_norm(tensor, ord=p) * matrix_norm(inv(tensor), ord=p)


@public("logdet")
def logdet(x: Tensor, /) -> Tensor:
    """The logarithm of the determinant; NaN where that is negative, -inf where it is 0."""
    sign, logarithm = slogdet(x)
    if sign.dtype.kind == "complex":
        return log(sign) + logarithm
    return where(sign < 0, math.nan, logarithm)


class LstsqResult(NamedTuple):
    """The solution, its sums of squared errors, the rank and the singular values of A."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@public(namespace="linalg")
@autocasts("float32")
def lstsq(A: Tensor, B: Tensor, /, *, rcond: float | None = None) -> LstsqResult:
    """The X for which A @ X is closest to B; the shortest, if there are several.

    B is a vector or a matrix, with one right-hand side in each column. Singular values up to
    `rcond` times the largest count as 0 (max(M, N) times the dtype's epsilon by default). Residuals
    are given if A has more rows than columns and full rank, else none.

    >>> a = weft.asarray([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    >>> weft.linalg.lstsq(a, weft.asarray([2.0, 8.0, 5.0])).solution
    tensor([1., 2.])
    """
    matrix, right = common((A, B), "lstsq", at_least="float")
    stack, rows, columns = matrix_sizes(type_of(matrix), "lstsq", "A")
    is_vector = right.ndim == 1 or (right.shape == (*stack, rows) and right.ndim < matrix.ndim)
    wide, columns_of = widened(matrix), widened(right[..., None] if is_vector else right)
    if columns_of.shape[-2] != rows:
        raise ShapeError(
            f"A has {rows} rows and B has {columns_of.shape[-2]}",
            op="lstsq",
            operands=[type_of(matrix), type_of(right)],
        )
    inverse = pinv(wide, rtol=rcond)
    solution = matmul(inverse, columns_of)
    solution = solution + matmul(inverse, columns_of - matmul(wide, solution))  # more digits
    rank = matrix_rank(wide, rtol=rcond)
    errors = sum(square(abs(matmul(wide, solution) - columns_of)), axis=-2)
    if rows <= columns:
        errors = errors[..., :0]
    out = solution[..., 0] if is_vector else solution
    real = svdvals(wide)
    return LstsqResult(cast(out, matrix.dtype), errors, rank, real)


@public(namespace="linalg")
def multi_dot(arrays: Sequence[Tensor], /) -> Tensor:
    """The product of several matrices, in the order that takes the fewest operations.

    The first and the last may be vectors.
    """
    if len(arrays) < 2:
        raise ShapeError(f"at least two matrices are needed, not {len(arrays)}", op="multi_dot")
    parts = list(common(tuple(arrays), "multi_dot"))
    for number, part in enumerate(parts):
        if part.ndim != 2 and not (part.ndim == 1 and number in (0, len(parts) - 1)):
            raise ShapeError(
                f"operand {number} has {part.ndim} axes, not 2",
                op="multi_dot",
                operands=[type_of(p) for p in parts],
                hint="only the first and the last may be vectors",
            )
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    if first:
        parts[0] = parts[0][None, :]
    if last:
        parts[-1] = parts[-1][:, None]
    sizes = [part.shape[0] for part in parts] + [parts[-1].shape[1]]
    out = _product(parts, _best(sizes), 0, len(parts) - 1)
    if first:
        out = out[0]
    return out[..., 0] if last else out


def _best(sizes: list[Any]) -> dict[tuple[int, int], int]:
    """For each run of matrices, after which one to cut it."""
    count = len(sizes) - 1
    if any(isinstance(size, Dim) for size in sizes):  # not known yet: from left to right
        return {(0, j): j - 1 for j in range(1, count)}
    cost: dict[tuple[int, int], Any] = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = [
                cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            ]
            cost[i, j] = min(costs)
            cut[i, j] = i + costs.index(cost[i, j])
    return cut


def _product(parts: list[Tensor], cut: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return parts[i]
    k = cut[i, j]
    return matmul(_product(parts, cut, i, k), _product(parts, cut, k + 1, j))


@public(namespace="linalg")
def tensorinv(x: Tensor, /, ind: int = 2) -> Tensor:
    """The inverse of `tensordot(x, ·, axes=ind)`: the first `ind` axes are the rows of a matrix."""
    tensor = floating(x, "tensorinv")
    if not 0 < ind <= tensor.ndim:
        raise ShapeError(f"ind must be from 1 to {tensor.ndim}, not {ind}", op="tensorinv")
    rows, columns = tensor.shape[:ind], tensor.shape[ind:]
    if size_of(rows) != size_of(columns):
        raise ShapeError(
            f"{rows} and {columns} have different numbers of elements",
            op="tensorinv",
            operands=[type_of(tensor)],
        )
    flat = reshape(tensor, (size_of(rows), size_of(columns)))
    return reshape(inv(flat), (*columns, *rows))


@public(namespace="linalg")
@autocasts("float32")
def tensorsolve(a: Tensor, b: Tensor, /, axes: Sequence[int] | None = None) -> Tensor:
    """The X with tensordot(a, X, axes=X.ndim) = b; `axes` are moved to the end of a first."""
    left, right = common((a, b), "tensorsolve", at_least="float")
    if axes is not None:
        moved = tuple(normalize_axis(axis, left.ndim, "tensorsolve") for axis in axes)
        left = moveaxis(left, moved, tuple(range(left.ndim - len(moved), left.ndim)))
    columns = left.shape[right.ndim :]
    if size_of(columns) != size_of(right.shape):
        raise ShapeError(
            f"the {size_of(right.shape)} equations have {size_of(columns)} unknowns",
            op="tensorsolve",
            operands=[type_of(left), type_of(right)],
        )
    flat = reshape(left, (size_of(right.shape), size_of(columns)))
    return reshape(solve(flat, reshape(right, (size_of(right.shape),))), columns)


@public(namespace="linalg")
@autocasts("float32")
def householder_product(x: Tensor, tau: Tensor, /) -> Tensor:
    """The first columns of H1 @ H2 @ …, with Hi = 1 - tau[i] v vᴴ and v below the diagonal of x."""
    vectors, scales = common((x, tau), "householder_product", at_least="float")
    _, rows, columns = matrix_sizes(type_of(vectors), "householder_product")
    dtype, vectors, scales = vectors.dtype, widened(vectors), widened(scales)
    places = arange(rows, device=vectors.device)
    out = eye(rows, columns, dtype=vectors.dtype, device=vectors.device)
    labelled(out, vectors._result_class)
    unit = eye(rows, columns, dtype=vectors.dtype, device=vectors.device)
    for i in reversed(range(scales.shape[-1])):
        below = where(places > i, vectors[..., i], 0) + unit[:, i]
        turned = matmul(conj(below)[..., None, :], out)
        out = out - scales[..., i, None, None] * matmul(below[..., None], turned)
    return cast(out, dtype)
