"""Distributions of yes or no, of categories, and of counts."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.base.dtypes import default_int
from weft.base.errors import ShapeError
from weft.base.shapes import Shape
from weft.core.operands import Operand, as_tensor, cast
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.constraints import Constraint, check_values
from weft.distributions.distribution import Distribution, one_of
from weft.ops.activations import log_softmax, sigmoid
from weft.ops.creation import arange
from weft.ops.elementwise import exp, floor, log, log1p, maximum, negative, square
from weft.ops.index import take_along_axis
from weft.ops.random import bernoulli
from weft.ops.random_discrete import binomial, categorical, geometric, poisson
from weft.ops.reduce import argmax, sum
from weft.ops.select import clip, where
from weft.ops.shape import broadcast_to, expand_dims
from weft.ops.special_gamma import lgamma
from weft.ops.special_logs import entr, xlog1py, xlogy

__all__ = ["Bernoulli", "Binomial", "Categorical", "Geometric", "OneHotCategorical", "Poisson"]


def _log_sigmoid(x: Tensor) -> Tensor:
    return negative(maximum(negative(x), 0.0)) - log1p(exp(-where(x < 0, -x, x)))


class _Chance(Distribution):
    """With a probability, given itself or as logits; the other one is computed when asked for."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    probs: Tensor
    logits: Tensor

    def __init__(
        self,
        probs: Operand | None = None,
        logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:
        key, value = one_of(type(self).__name__, probs=probs, logits=logits)
        self._take(validate_args, **{key: value})

    def __getattr__(self, name: str) -> Any:
        if name == "probs" and "logits" in self.__dict__:
            return sigmoid(self.logits)
        if name == "logits" and "probs" in self.__dict__:
            eps = {8: 2.0**-52, 4: 2.0**-23}.get(self.probs.dtype.itemsize, 2.0**-8)
            p = clip(self.probs, eps, 1 - eps)
            return log(p) - log1p(-p)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def log_chances(self, yes: Any, no: Any) -> Tensor:
        """yes log(p) + no log(1 - p), where 0 times the logarithm of 0 is 0."""
        if "logits" in self.__dict__:
            out: Tensor = yes * _log_sigmoid(self.logits) + no * _log_sigmoid(-self.logits)
            return out
        return xlogy(yes, self.probs) + xlog1py(no, -self.probs)


class Bernoulli(_Chance):
    """1 with probability `probs`, else 0.

    >>> weft.distributions.Bernoulli(probs=0.25).log_prob(weft.asarray([0.0, 1.0]))
    tensor([-0.2876821, -1.3862944])
    """

    @property
    def support(self) -> Constraint:
        return constraints.boolean

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @property
    def mode(self) -> Tensor:
        p = self.probs
        return where(p == 0.5, math.nan, where(p > 0.5, 1.0, 0.0))

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return bernoulli(self.probs, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        return self.log_chances(x, 1 - x)

    def entropy(self) -> Tensor:
        return entr(self.probs) + entr(1 - self.probs)


class Geometric(_Chance):
    """How many trials fail before one succeeds: 0, 1, 2, …"""

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    @property
    def mode(self) -> Tensor:
        return 0 * self.probs

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return geometric(self.probs, shape, generator=generator) - 1

    def log_prob(self, value: Any) -> Tensor:
        return self.log_chances(1.0, self._value(value))

    def cdf(self, value: Any) -> Tensor:
        return 1 - exp(self.log_chances(0.0, floor(self._value(value)) + 1))

    def entropy(self) -> Tensor:
        p = self.probs
        return (entr(p) + entr(1 - p)) / p


class Binomial(_Chance):
    """How many of `total_count` trials succeed."""

    total_count: Tensor

    def __init__(
        self,
        total_count: Operand = 1,
        probs: Operand | None = None,
        logits: Operand | None = None,
        validate_args: bool | None = None,
    ) -> None:
        key, value = one_of("Binomial", probs=probs, logits=logits)
        self._take(validate_args, **{key: value, "total_count": total_count})
        if self._checks:
            known = constraints.nonnegative_integer
            check_values("the total_count", self.total_count, known, "Binomial")

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @property
    def mode(self) -> Tensor:
        return clip(floor((self.total_count + 1) * self.probs), max=self.total_count)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return binomial(self.total_count, self.probs, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x, n = self._value(value), self.total_count
        ways = lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1)
        return ways + self.log_chances(x, n - x)


class Poisson(Distribution):
    """Counts with a mean of `rate`."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}
    rate: Tensor

    def __init__(self, rate: Operand, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return floor(self.rate)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return poisson(self.rate, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        return xlogy(x, self.rate) - self.rate - lgamma(x + 1)


class Categorical(Distribution):
    """Indices 0 … n - 1 with the probabilities along the last axis of `probs` or `logits`.

    Neither needs to be normalized.

    >>> weft.distributions.Categorical(probs=weft.asarray([1.0, 3.0])).probs
    tensor([0.25, 0.75])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"logits": constraints.real}
    event_axes: ClassVar[dict[str, int]] = {"logits": 1}
    logits: Tensor

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = type(self).__name__
        key, value = one_of(name, probs=probs, logits=logits)
        tensor = as_tensor(value, name)
        if not tensor.ndim or not tensor.shape[-1]:
            raise ShapeError(f"{key} must have an axis of categories", op=name)
        if key == "probs":
            if validate_args is not False:
                check_values("the probs", tensor, constraints.nonnegative, name)
            some = tensor > 0  # elsewhere the gradient is 0, not 0 times infinity
            logs = where(some, log(where(some, tensor, 1.0)), -math.inf)
            tensor = logs - log(sum(tensor, axis=-1, keepdims=True))
        else:
            tensor = log_softmax(tensor, axis=-1)
        self._take(validate_args, logits=tensor)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.logits.shape[-1] - 1)

    @property
    def probs(self) -> Tensor:
        """The probabilities, with a sum of 1."""
        return exp(self.logits)

    @property
    def mean(self) -> Tensor:
        return math.nan * self.logits[..., 0]

    @property
    def variance(self) -> Tensor:
        return math.nan * self.logits[..., 0]

    @property
    def mode(self) -> Tensor:
        return argmax(self.logits, axis=-1)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return categorical(self.logits, shape, generator=generator)

    def log_prob(self, value: Any) -> Tensor:
        index = as_tensor(value, "Categorical")
        if self._checks:
            check_values("a value", index, self.support, "Categorical")
        return self._at(cast(index, default_int()))

    def _at(self, index: Tensor) -> Tensor:
        like = self.logits[..., 0]
        shape = (index + cast(0 * like.detach(), index.dtype)).shape
        wide = broadcast_to(self.logits, (*shape, self.logits.shape[-1]))
        picked = take_along_axis(wide, expand_dims(broadcast_to(index, shape), -1), axis=-1)
        return picked[..., 0]

    def entropy(self) -> Tensor:
        never = self.logits == -math.inf
        logits = where(never, 0.0, self.logits)
        return -sum(where(never, 0.0, exp(logits) * logits), axis=-1)


class OneHotCategorical(Categorical):
    """The same as vectors with one 1 among zeros."""

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(probs, logits, validate_args)
        self.event_shape = self.logits.shape[-1:]

    @property
    def support(self) -> Constraint:
        return constraints.one_hot

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs - square(self.probs)

    @property
    def mode(self) -> Tensor:
        return self._vector(argmax(self.logits, axis=-1))

    def _vector(self, index: Tensor) -> Tensor:
        places = arange(self.logits.shape[-1], device=self.logits.device)
        return cast(expand_dims(index, -1) == places, self.logits.dtype)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self._vector(categorical(self.logits, shape[:-1], generator=generator))

    def log_prob(self, value: Any) -> Tensor:
        return self._at(argmax(self._value(value), axis=-1))
