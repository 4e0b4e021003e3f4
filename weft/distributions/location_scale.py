"""Distributions that are a fixed shape, moved by `loc` and stretched by `scale`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.base.shapes import Shape
from weft.core.operands import Operand
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.constraints import Constraint
from weft.distributions.distribution import Distribution
from weft.ops import random_continuous as draws
from weft.ops.creation import full_like
from weft.ops.elementwise import abs, atan, exp, expm1, log, log1p, sign, square, tan
from weft.ops.random import randn
from weft.ops.select import where
from weft.ops.special_gamma import betaln, digamma
from weft.ops.special_normal import ndtr, ndtri

__all__ = ["Cauchy", "Gumbel", "HalfNormal", "Laplace", "Normal", "StudentT"]

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_EULER = 0.5772156649015329


class _LocationScale(Distribution):
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Operand, scale: Operand, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mode(self) -> Tensor:
        return self.loc

    def _standard(self, value: Any) -> Tensor:
        return (self._value(value) - self.loc) / self.scale

    def _more(self, shape: Shape, generator: Any) -> dict[str, Any]:
        return {
            "shape": shape,
            "dtype": self.loc.dtype,
            "device": self.loc.device,
            "generator": generator,
        }


class Normal(_LocationScale):
    """The normal distribution.

    >>> d = weft.distributions.Normal(1.0, 2.0)
    >>> d.cdf(weft.asarray(1.0)), d.entropy()
    (tensor(0.5), tensor(2.1120858))
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return square(self.scale)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        drawn = randn(shape, dtype=self.loc.dtype, device=self.loc.device, generator=generator)
        return self.loc + self.scale * drawn

    def log_prob(self, value: Any) -> Tensor:
        return -0.5 * square(self._standard(value)) - log(self.scale) - _HALF_LOG_TAU

    def cdf(self, value: Any) -> Tensor:
        return ndtr(self._standard(value))

    def icdf(self, value: Any) -> Tensor:
        return self.loc + self.scale * ndtri(value)

    def entropy(self) -> Tensor:
        return log(self.scale) + (0.5 + _HALF_LOG_TAU)


class Laplace(_LocationScale):
    """The Laplace distribution: exponential on both sides of `loc`."""

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * square(self.scale)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self.loc + self.scale * draws.laplace(**self._more(shape, generator))

    def log_prob(self, value: Any) -> Tensor:
        return -abs(self._standard(value)) - log(2 * self.scale)

    def cdf(self, value: Any) -> Tensor:
        z = self._standard(value)
        return 0.5 - 0.5 * sign(z) * expm1(-abs(z))

    def icdf(self, value: Any) -> Tensor:
        q = value - 0.5
        return self.loc - self.scale * sign(q) * log1p(-2 * abs(q))

    def entropy(self) -> Tensor:
        return 1 + log(2 * self.scale)


class Cauchy(_LocationScale):
    """The Cauchy distribution, which has no mean; its variance is infinite."""

    @property
    def mean(self) -> Tensor:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return full_like(self.loc, math.inf)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self.loc + self.scale * draws.cauchy(**self._more(shape, generator))

    def log_prob(self, value: Any) -> Tensor:
        return -math.log(math.pi) - log(self.scale) - log1p(square(self._standard(value)))

    def cdf(self, value: Any) -> Tensor:
        return atan(self._standard(value)) / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        return self.loc + self.scale * tan(math.pi * (value - 0.5))

    def entropy(self) -> Tensor:
        return log(4 * math.pi * self.scale)


class Gumbel(_LocationScale):
    """The Gumbel distribution: largest values of many numbers."""

    @property
    def mean(self) -> Tensor:
        return self.loc + _EULER * self.scale

    @property
    def variance(self) -> Tensor:
        return math.pi**2 / 6 * square(self.scale)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self.loc + self.scale * draws.gumbel(**self._more(shape, generator))

    def log_prob(self, value: Any) -> Tensor:
        z = self._standard(value)
        return -z - exp(-z) - log(self.scale)

    def cdf(self, value: Any) -> Tensor:
        return exp(-exp(-self._standard(value)))

    def icdf(self, value: Any) -> Tensor:
        return self.loc - self.scale * log(-log(value))

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + _EULER)


class StudentT(_LocationScale):
    """Student's t distribution with `df` degrees of freedom."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    df: Tensor

    def __init__(
        self,
        df: Operand,
        loc: Operand = 0.0,
        scale: Operand = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._take(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        some = square(self.scale) * self.df / where(self.df > 2, self.df - 2, 1.0)
        return where(self.df > 2, some, where(self.df > 1, math.inf, math.nan))

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self.loc + self.scale * draws.student_t(self.df, **self._more(shape, generator))

    def _normalizer(self) -> Tensor:
        return 0.5 * log(self.df) + betaln(0.5 * self.df, 0.5) + log(self.scale)

    def log_prob(self, value: Any) -> Tensor:
        z = self._standard(value)
        return -0.5 * (self.df + 1) * log1p(square(z) / self.df) - self._normalizer()

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        return half * (digamma(half) - digamma(0.5 * self.df)) + self._normalizer()


class HalfNormal(Distribution):
    """The absolute value of a normal number with mean 0."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    has_rsample = True
    scale: Tensor

    def __init__(self, scale: Operand, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return square(self.scale) * (1 - 2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return 0 * self.scale

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        kind = self.scale
        drawn = randn(shape, dtype=kind.dtype, device=kind.device, generator=generator)
        return abs(drawn) * self.scale

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        inside = -0.5 * square(x / self.scale) - log(self.scale) + (math.log(2) - _HALF_LOG_TAU)
        return where(x >= 0, inside, -math.inf)

    def cdf(self, value: Any) -> Tensor:
        return 2 * ndtr(self._value(value) / self.scale) - 1

    def icdf(self, value: Any) -> Tensor:
        return self.scale * ndtri(0.5 * (value + 1))

    def entropy(self) -> Tensor:
        return log(self.scale) + (0.5 + _HALF_LOG_TAU - math.log(2))
