"""Distributions between bounds: uniform, beta, Dirichlet."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.base.errors import RangeError
from weft.base.shapes import Shape
from weft.core.operands import Operand
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.constraints import Constraint, check_values
from weft.distributions.distribution import Distribution
from weft.ops import random_continuous as draws
from weft.ops.creation import full_like
from weft.ops.elementwise import log, square
from weft.ops.random import rand
from weft.ops.reduce import sum
from weft.ops.select import clip, where
from weft.ops.special_gamma import betaln, digamma, lgamma
from weft.ops.special_logs import xlog1py, xlogy

__all__ = ["Beta", "Dirichlet", "Uniform"]


class Uniform(Distribution):
    """Numbers from `low` up and below `high`, all equally probable."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "low": constraints.real,
        "high": constraints.real,
    }
    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Operand, high: Operand, validate_args: bool | None = None) -> None:
        self._take(validate_args, low=low, high=high)
        if self._checks:
            check_values("high - low", self.high - self.low, constraints.positive, "Uniform")

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return 0.5 * (self.low + self.high)

    @property
    def variance(self) -> Tensor:
        return square(self.high - self.low) / 12

    @property
    def mode(self) -> Tensor:
        return full_like(self.high, math.nan)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        kind = self.low
        drawn = rand(shape, dtype=kind.dtype, device=kind.device, generator=generator)
        return self.low + (self.high - self.low) * drawn

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        inside = (x >= self.low) & (x < self.high)
        return where(inside, 0.0, -math.inf) - log(self.high - self.low)

    def cdf(self, value: Any) -> Tensor:
        return clip((self._value(value) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value: Any) -> Tensor:
        out: Tensor = self.low + (self.high - self.low) * value
        return out

    def entropy(self) -> Tensor:
        return log(self.high - self.low)


class Beta(Distribution):
    """Numbers between 0 and 1, with density x ** (concentration1 - 1) (1 - x) ** (… 0 - 1).

    >>> weft.distributions.Beta(2.0, 3.0).mean
    tensor(0.4)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    has_rsample = True
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Operand, concentration0: Operand, validate_args: bool | None = None
    ) -> None:
        self._take(validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval

    @property
    def _total(self) -> Tensor:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration1 * self.concentration0 / (square(total) * (total + 1))

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inner = (a - 1) / where((a > 1) & (b > 1), a + b - 2, 1.0)
        one_sided = where((a >= 1) & (b < 1), 1.0, where((a < 1) & (b >= 1), 0.0, math.nan))
        return where((a > 1) & (b > 1), inner, where((a == 1) & (b > 1), 0.0, one_sided))

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return draws.beta(self.concentration1, self.concentration0, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x, a, b = self._value(value), self.concentration1, self.concentration0
        return xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b)

    def entropy(self) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self._total
        slopes = (a - 1) * digamma(a) + (b - 1) * digamma(b) - (total - 2) * digamma(total)
        return betaln(a, b) - slopes


class Dirichlet(Distribution):
    """Probabilities with a sum of 1, along the last axis."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    event_axes: ClassVar[dict[str, int]] = {"concentration": 1}
    has_rsample = True
    concentration: Tensor

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration)
        self.event_shape = self.concentration.shape[-1:]
        if self.event_shape[0] == 0:
            raise RangeError("there must be at least one probability", op="Dirichlet")

    @property
    def support(self) -> Constraint:
        return constraints.simplex

    @property
    def _total(self) -> Tensor:
        return sum(self.concentration, axis=-1, keepdims=True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self._total

    @property
    def mode(self) -> Tensor:
        less = clip(self.concentration - 1, 0.0)
        share = less / sum(less, axis=-1, keepdims=True)
        return share

    @property
    def variance(self) -> Tensor:
        mean = self.mean
        return mean * (1 - mean) / (self._total + 1)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return draws.dirichlet(self.concentration, shape[:-1], generator=generator)

    def _normalizer(self) -> Tensor:
        a = self.concentration
        return sum(lgamma(a), axis=-1) - lgamma(sum(a, axis=-1))

    def log_prob(self, value: Any) -> Tensor:
        terms = xlogy(self.concentration - 1, self._value(value))
        return sum(terms, axis=-1) - self._normalizer()

    def entropy(self) -> Tensor:
        a = self.concentration
        total, size = sum(a, axis=-1), a.shape[-1]
        slopes = (total - size) * digamma(total) - sum((a - 1) * digamma(a), axis=-1)
        return self._normalizer() + slopes
