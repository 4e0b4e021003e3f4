"""Distributions of positive numbers: gamma and its relatives, Weibull, Pareto."""

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
from weft.ops.elementwise import exp, expm1, log, log1p, maximum, square
from weft.ops.select import where
from weft.ops.special_gamma import digamma, lgamma
from weft.ops.special_incomplete import gammainc
from weft.ops.special_logs import xlogy

__all__ = ["Chi2", "Exponential", "Gamma", "Pareto", "Weibull"]

_EULER = 0.5772156649015329


class Gamma(Distribution):
    """The gamma distribution, with a mean of concentration / rate.

    >>> weft.distributions.Gamma(2.0, 4.0).mean
    tensor(0.5)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    has_rsample = True
    concentration: Tensor
    rate: Tensor

    def __init__(
        self, concentration: Operand, rate: Operand, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / square(self.rate)

    @property
    def mode(self) -> Tensor:
        return maximum(self.concentration - 1, 0.0) / self.rate

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return draws.gamma(self.concentration, 1 / self.rate, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x, a = self._value(value), self.concentration
        return xlogy(a, self.rate) + xlogy(a - 1, x) - self.rate * x - lgamma(a)

    def cdf(self, value: Any) -> Tensor:
        return gammainc(self.concentration, self.rate * self._value(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)


class Chi2(Gamma):
    """The sum of `df` squared standard normal numbers."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
    }

    def __init__(self, df: Operand, validate_args: bool | None = None) -> None:
        super().__init__(df * 0.5, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return 2 * self.concentration


class Exponential(Distribution):
    """Waiting times with a mean of 1 / rate."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    has_rsample = True
    rate: Tensor

    def __init__(self, rate: Operand, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / square(self.rate)

    @property
    def mode(self) -> Tensor:
        return 0 * self.rate

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return draws.exponential(self.rate, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        return log(self.rate) - self.rate * self._value(value)

    def cdf(self, value: Any) -> Tensor:
        return -expm1(-self.rate * self._value(value))

    def icdf(self, value: Any) -> Tensor:
        return -log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - log(self.rate)


class Weibull(Distribution):
    """`scale` times an exponential number to the power 1 / concentration."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    has_rsample = True
    scale: Tensor
    concentration: Tensor

    def __init__(
        self, scale: Operand, concentration: Operand, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, scale=scale, concentration=concentration)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        return self.scale * exp(lgamma(1 + 1 / self.concentration))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        inner = where(k > 1, (k - 1) / k, 0.0)
        return self.scale * inner ** (1 / k)

    @property
    def variance(self) -> Tensor:
        first, second = (exp(lgamma(1 + n / self.concentration)) for n in (1, 2))
        return square(self.scale) * (second - square(first))

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        kind = self.scale
        wait = draws.exponential(
            1.0, shape, dtype=kind.dtype, device=kind.device, generator=generator
        )
        return self.scale * wait ** (1 / self.concentration)

    def log_prob(self, value: Any) -> Tensor:
        k, z = self.concentration, self._value(value) / self.scale
        return log(k / self.scale) + xlogy(k - 1, z) - z**k

    def cdf(self, value: Any) -> Tensor:
        return -expm1(-((self._value(value) / self.scale) ** self.concentration))

    def icdf(self, value: Any) -> Tensor:
        return self.scale * (-log1p(-value)) ** (1 / self.concentration)

    def entropy(self) -> Tensor:
        k = self.concentration
        return _EULER * (1 - 1 / k) + log(self.scale / k) + 1


class Pareto(Distribution):
    """Numbers from `scale` up, with a tail of the power -alpha."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "alpha": constraints.positive,
    }
    has_rsample = True
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Operand, alpha: Operand, validate_args: bool | None = None) -> None:
        self._take(validate_args, scale=scale, alpha=alpha)

    @property
    def support(self) -> Constraint:
        return constraints.at_least(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha
        return where(a > 1, a * self.scale / where(a > 1, a - 1, 1.0), math.inf)

    @property
    def variance(self) -> Tensor:
        a = where(self.alpha > 2, self.alpha, 3.0)
        some = square(self.scale) * a / (square(a - 1) * (a - 2))
        return where(self.alpha > 2, some, math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self.scale * exp(draws.exponential(self.alpha, shape, generator=generator))

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        return log(self.alpha) + self.alpha * log(self.scale) - (self.alpha + 1) * log(x)

    def cdf(self, value: Any) -> Tensor:
        return -expm1(self.alpha * log(self.scale / self._value(value)))

    def icdf(self, value: Any) -> Tensor:
        return self.scale * exp(-log1p(-value) / self.alpha)

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + 1 + 1 / self.alpha
