"""Random numbers of continuous distributions. Parameters are numbers or tensors that broadcast.

All are differentiable with respect to their parameters, at fixed random numbers: by their formula,
or, for those made of gamma numbers, by implicit differentiation of the distribution.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtypes import NARROW_FLOATS, DType, float32, float64
from weft.base.errors import DTypeError, ShapeError
from weft.core.operands import Operand, as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops import philox
from weft.ops.activations import sigmoid, softmax
from weft.ops.draws import draw, random_normal, random_uniform
from weft.ops.draws_rejection import random_log_gamma
from weft.ops.elementwise import abs, exp, log, log1p, negative, sign, tan
from weft.ops.random_parameters import Parameters, parameters
from weft.ops.select import clip, where
from weft.ops.special_normal import ndtr, ndtri

__all__ = [
    "beta",
    "cauchy",
    "dirichlet",
    "exponential",
    "gamma",
    "gumbel",
    "laplace",
    "log_normal",
    "student_t",
    "truncated_normal",
]


def _floats(p: Parameters, op: str) -> DType:
    """The dtype to compute in."""
    if p.dtype.kind != "float":
        raise DTypeError(f"dtype must be a real floating one, not {p.dtype.name}", op=op)
    return float32 if p.dtype in NARROW_FLOATS else p.dtype


def open_uniform(p: Parameters, dtype: DType, generator: Any) -> Tensor:
    """Uniform numbers in (0, 1), without its ends."""
    drawn = draw(random_uniform, p.shape, dtype, p.device, generator)
    step = 2.0 ** -philox.UNIFORM_BITS[dtype]
    return drawn * (1 - step) + 0.5 * step


@public(namespace="random")
def exponential(
    rate: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of the exponential distribution: waiting times with a mean of 1 / rate.

    >>> generator = weft.manual_seed(0)
    >>> weft.random.exponential(2.0, (3,))
    tensor([0.2546188, 1.0623038, 0.6653594])
    """
    p = parameters("exponential", (rate,), shape, dtype, device, generator, positive=("rate",))
    work = _floats(p, "exponential")
    drawn = draw(random_uniform, p.shape, work, p.device, generator)
    return cast(negative(log1p(negative(drawn))) / p.tensors[0], p.dtype)


@public(namespace="random")
def laplace(
    loc: Operand = 0.0,
    scale: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of the Laplace distribution: exponential on both sides of `loc`."""
    p = parameters("laplace", (loc, scale), shape, dtype, device, generator, positive=("", "scale"))
    u = open_uniform(p, _floats(p, "laplace"), generator) - 0.5
    return cast(p.tensors[0] - p.tensors[1] * (sign(u) * log1p(-2 * abs(u))), p.dtype)


@public(namespace="random")
def gumbel(
    loc: Operand = 0.0,
    scale: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of the Gumbel distribution: largest values of many numbers."""
    p = parameters("gumbel", (loc, scale), shape, dtype, device, generator, positive=("", "scale"))
    u = open_uniform(p, _floats(p, "gumbel"), generator)
    return cast(p.tensors[0] - p.tensors[1] * log(negative(log(u))), p.dtype)


@public(namespace="random")
def cauchy(
    loc: Operand = 0.0,
    scale: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of the Cauchy distribution, whose tails are so heavy that it has no mean."""
    p = parameters("cauchy", (loc, scale), shape, dtype, device, generator, positive=("", "scale"))
    u = open_uniform(p, _floats(p, "cauchy"), generator)
    return cast(p.tensors[0] + p.tensors[1] * tan(math.pi * (u - 0.5)), p.dtype)


@public(namespace="random")
def log_normal(
    mean: Operand = 0.0,
    std: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers whose logarithm is normal, with this mean and standard deviation."""
    p = parameters("log_normal", (mean, std), shape, dtype, device, generator)
    drawn = draw(random_normal, p.shape, _floats(p, "log_normal"), p.device, generator)
    return cast(exp(drawn * p.tensors[1] + p.tensors[0]), p.dtype)


@public(namespace="random")
def truncated_normal(
    mean: Operand = 0.0,
    std: Operand = 1.0,
    low: Operand = -2.0,
    high: Operand = 2.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Normal numbers between `low` and `high`, which are values (not multiples of std).

    >>> generator = weft.manual_seed(0)
    >>> weft.random.truncated_normal(low=1.0, high=2.0, shape=(3,))
    tensor([1.7625519, 1.4299396, 1.2294838])
    """
    given = (mean, std, low, high)
    p = parameters("truncated_normal", given, shape, dtype, device, generator, positive=("", "std"))
    _floats(p, "truncated_normal")
    u = draw(random_uniform, p.shape, float64, p.device, generator)
    middle, spread, least, most = (cast(t, float64) for t in p.tensors)
    first, last = (least - middle) / spread, (most - middle) / spread
    upper = first > 0  # of an upper tail, the mirror image has more digits
    start = ndtr(where(upper, -last, first))
    stop = ndtr(where(upper, -first, last))
    found = ndtri(start + (stop - start) * where(upper, 1 - u, u))
    out = middle + spread * where(upper, -found, found)
    return cast(clip(out, least, most), p.dtype)


# --- made of gamma numbers ---------------------------------------------------------------------


def log_gamma(alpha: Tensor, shape: Any, generator: Any) -> Tensor:
    """Logarithms of gamma numbers: these do not underflow where alpha is small."""
    return draw(random_log_gamma, shape, alpha.dtype, alpha.device, generator, alpha, per_block=1)


@public(namespace="random")
def gamma(
    alpha: Operand,
    scale: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of the gamma distribution, with a mean of alpha * scale.

    The gradient with respect to alpha is that of the distribution (implicit differentiation).

    >>> generator = weft.manual_seed(0)
    >>> weft.random.gamma(weft.asarray([0.5, 2.0, 100.0]))
    tensor([1.6566277e-02, 3.7752726e+00, 9.0828926e+01])
    """
    given = (alpha, scale)
    p = parameters("gamma", given, shape, dtype, device, generator, positive=("alpha", "scale"))
    _floats(p, "gamma")
    return cast(exp(log_gamma(p.tensors[0], p.shape, generator)) * p.tensors[1], p.dtype)


@public(namespace="random")
def beta(
    a: Operand,
    b: Operand,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of the beta distribution, between 0 and 1, with a mean of a / (a + b)."""
    p = parameters("beta", (a, b), shape, dtype, device, generator, positive=("a", "b"))
    _floats(p, "beta")
    first, second = (log_gamma(t, p.shape, generator) for t in p.tensors)
    return cast(sigmoid(first - second), p.dtype)


@public(namespace="random")
def dirichlet(
    alpha: Tensor,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Vectors of positive numbers with a sum of 1, along the last axis.

    The last axis of alpha has the weights; `shape` is that of the vectors, without this axis.
    """
    weights = as_tensor(alpha, "dirichlet")
    if not weights.ndim:
        raise ShapeError("alpha must have an axis of weights", op="dirichlet")
    whole = None if shape is None else (*_as_sizes(shape), weights.shape[-1])
    p = parameters("dirichlet", (weights,), whole, dtype, device, generator)
    _floats(p, "dirichlet")
    return cast(softmax(log_gamma(p.tensors[0], p.shape, generator), axis=-1), p.dtype)


def _as_sizes(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


@public(namespace="random")
def student_t(
    df: Operand,
    loc: Operand = 0.0,
    scale: Operand = 1.0,
    shape: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> Tensor:
    """Numbers of Student's t distribution with `df` degrees of freedom."""
    given = (df, loc, scale)
    p = parameters(
        "student_t", given, shape, dtype, device, generator, positive=("df", "", "scale")
    )
    freedom, middle, spread = p.tensors
    drawn = draw(random_normal, p.shape, _floats(p, "student_t"), p.device, generator)
    half = 0.5 * freedom
    widths = exp(0.5 * (log(half) - log_gamma(half, p.shape, generator)))
    return cast(middle + spread * drawn * widths, p.dtype)
