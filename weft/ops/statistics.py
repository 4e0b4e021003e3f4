"""Sums and statistics that are a few reductions put together."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.base.dtypes import real_dtype
from weft.base.errors import ShapeError
from weft.base.shapes import Axis, normalize_axis, size_of
from weft.core.autocast import autocasts
from weft.core.operands import cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.combined import isclose
from weft.ops.creation import ones_like
from weft.ops.elementwise import (
    conj,
    divide,
    greater,
    isnan,
    logical_not,
    maximum,
    multiply,
    real,
    sqrt,
)
from weft.ops.linalg_matrix import diagonal, outer
from weft.ops.linalg_norm import vector_norm
from weft.ops.matmul import matmul
from weft.ops.rearranging import narrow
from weft.ops.reduce import all, cumulative_prod, cumulative_sum, max, mean, min, std, sum, var
from weft.ops.select import where
from weft.ops.shape import broadcast_to, expand_dims, flip, moveaxis, reshape

__all__ = [
    "allclose",
    "aminmax",
    "corrcoef",
    "cov",
    "cumulative_trapezoid",
    "nanmean",
    "nansum",
    "renorm",
    "std_mean",
    "trapezoid",
    "vander",
    "var_mean",
]


class MinMaxResult(NamedTuple):
    min: Tensor
    max: Tensor


@public("aminmax")
def aminmax(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> MinMaxResult:
    """The smallest and the largest value over `axis`.

    >>> weft.asarray([3, 1, 2]).aminmax()
    MinMaxResult(min=tensor(1), max=tensor(3))
    """
    return MinMaxResult(min(x, axis=axis, keepdims=keepdims), max(x, axis=axis, keepdims=keepdims))


@public("nansum")
def nansum(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `axis` of what is not NaN.

    >>> weft.nansum(weft.asarray([1.0, float("nan"), 2.0]))
    tensor(3.)
    """
    return sum(_without_nan(x), axis=axis, keepdims=keepdims, dtype=dtype)


@public("nanmean")
@autocasts("")
def nanmean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis` of what is not NaN; NaN where there is nothing else.

    >>> weft.nanmean(weft.asarray([1.0, float("nan"), 2.0]))
    tensor(1.5)
    """
    if x.dtype.kind not in ("float", "complex"):
        return mean(x, axis=axis, keepdims=keepdims)
    number = sum(cast(logical_not(isnan(x)), x.dtype), axis=axis, keepdims=keepdims)
    return divide(sum(_without_nan(x), axis=axis, keepdims=keepdims), number)


def _without_nan(x: Tensor) -> Tensor:
    return where(isnan(x), 0, x) if x.dtype.kind in ("float", "complex") else x


@public("var_mean")
def var_mean(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """`var` and `mean` over `axis`.

    >>> weft.var_mean(weft.asarray([1.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    spread = var(x, axis=axis, correction=correction, keepdims=keepdims)
    return spread, mean(x, axis=axis, keepdims=keepdims)


@public("std_mean")
def std_mean(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """`std` and `mean` over `axis`.

    >>> weft.std_mean(weft.asarray([1.0, 3.0]))
    (tensor(1.), tensor(2.))
    """
    spread = std(x, axis=axis, correction=correction, keepdims=keepdims)
    return spread, mean(x, axis=axis, keepdims=keepdims)


@public("allclose")
def allclose(
    x1: Tensor, x2: Tensor, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether all elements are close, by the rule of `isclose`; a bool tensor, for use in `if`.

    >>> weft.allclose(weft.asarray([1.0]), weft.asarray([1.0 + 1e-9]))
    tensor(True)
    """
    return all(isclose(x1, x2, rtol, atol, equal_nan))


@public("cov")
@autocasts("float32")
def cov(
    x: Tensor,
    /,
    *,
    correction: float = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariance matrix of variables in rows, whose columns are observations.

    `fweights` says how often each observation was made, `aweights` how much each one counts.

    >>> weft.cov(weft.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if x.ndim > 2:
        raise ShapeError("variables lie in the rows of a matrix", op="cov", operands=[x.type])
    rows = reshape(x, (1, size_of(x.shape))) if x.ndim < 2 else x
    if rows.dtype.kind not in ("float", "complex"):
        rows = divide(rows, 1)
    weights = ones_like(rows[0], dtype=real_dtype(rows.dtype))
    if fweights is not None:
        weights = multiply(weights, cast(fweights, weights.dtype))
    degrees: Tensor
    if aweights is None:
        total = sum(weights)
        degrees = total - correction
    else:
        weighted = multiply(weights, cast(aweights, weights.dtype))
        total = sum(weighted)
        square = sum(multiply(weighted, cast(aweights, weights.dtype)))
        degrees = total - divide(multiply(square, correction), total)
        weights = weighted
    scale = cast(weights, rows.dtype)
    centre = divide(sum(multiply(rows, scale), axis=1, keepdims=True), cast(total, rows.dtype))
    distance = rows - centre
    products = matmul(multiply(distance, scale), conj(distance).mT)
    found = divide(products, cast(maximum(degrees, 0), products.dtype))
    return found if x.ndim == 2 else reshape(found, ())


@public("corrcoef")
@autocasts("float32")
def corrcoef(x: Tensor, /) -> Tensor:
    """The matrix of correlation coefficients of variables in rows.

    >>> weft.corrcoef(weft.asarray([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    products = cov(x)
    if not products.ndim:
        return divide(products, products)
    spread = sqrt(
        real(diagonal(products)) if products.dtype.kind == "complex" else diagonal(products)
    )
    return divide(products, cast(outer(spread, spread), products.dtype))


@public("renorm")
@autocasts("float32")
def renorm(x: Tensor, /, p: float, axis: int, maxnorm: float) -> Tensor:
    """x with each part along `axis` scaled down to a p-norm of at most `maxnorm`.

    >>> weft.renorm(weft.asarray([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6, 0.8],
            [0.3, 0.4]])
    """
    at = normalize_axis(axis, x.ndim, "renorm")
    others = tuple(i for i in range(x.ndim) if i != at)
    norms = vector_norm(x, ord=p, axis=others, keepdims=True)
    large = greater(norms, maxnorm)
    return multiply(x, where(large, divide(maxnorm, where(large, norms, 1)), 1))


def _twice_the_areas(y: Tensor, x: Tensor | None, dx: Any, axis: int) -> Tensor:
    """Twice the area under each step of the trapezoidal rule, along the last axis."""
    values, steps = moveaxis(y, axis, -1), dx
    if x is not None:
        points = moveaxis(x, axis, -1) if x.ndim == y.ndim else x
        steps = points[..., 1:] - points[..., :-1]
    return multiply(values[..., 1:] + values[..., :-1], steps)


@public()
def trapezoid(y: Tensor, x: Tensor | None = None, /, *, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral of y along `axis` by the trapezoidal rule, at the points x or at steps of dx.

    >>> weft.trapezoid(weft.asarray([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    at = normalize_axis(axis, y.ndim, "trapezoid")
    return divide(sum(_twice_the_areas(y, x, dx, at), axis=-1), 2)


@public()
def vander(x: Tensor, /, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns: x ** (N - 1) to x ** 0, or the other way round.

    >>> weft.vander(weft.asarray([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    if x.ndim != 1:
        raise ShapeError("the powers of a vector are taken", op="vander", operands=[x.type])
    number = x.shape[0] if N is None else N
    factors = broadcast_to(expand_dims(x, 1), (x.shape[0], number))
    powers = cumulative_prod(factors, axis=1, include_initial=True, dtype=x.dtype)
    powers = narrow(powers, 1, 0, number)
    return powers if increasing else flip(powers, axis=1)


@public()
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, /, *, dx: float = 1.0, axis: int = -1
) -> Tensor:
    """The integrals of y from the first point to each of the others: see `trapezoid`.

    >>> weft.cumulative_trapezoid(weft.asarray([1.0, 2.0, 3.0]))
    tensor([1.5, 4. ])
    """
    at = normalize_axis(axis, y.ndim, "cumulative_trapezoid")
    sums = cumulative_sum(_twice_the_areas(y, x, dx, at), axis=-1)
    return moveaxis(divide(sums, 2), -1, at)
