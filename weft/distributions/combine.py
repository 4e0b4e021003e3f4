"""Distributions made of others: transformed, independent, mixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from weft.base.errors import ShapeError
from weft.base.shapes import Shape, new_shape
from weft.core.operands import Operand
from weft.core.tensor import Tensor
from weft.distributions.constraints import Constraint
from weft.distributions.discrete import Categorical
from weft.distributions.distribution import Distribution
from weft.distributions.location_scale import Normal
from weft.distributions.transforms import ComposeTransform, ExpTransform, Transform
from weft.ops.activations import log_softmax, logsumexp
from weft.ops.elementwise import exp, expm1, square
from weft.ops.index import take_along_axis
from weft.ops.reduce import sum
from weft.ops.shape import broadcast_to, expand_dims, reshape

__all__ = ["Independent", "LogNormal", "MixtureSameFamily", "TransformedDistribution"]

T = TypeVar("T", bound=Distribution)


class TransformedDistribution(Distribution):
    """transform(x), where x has another distribution.

    >>> D = weft.distributions
    >>> d = D.TransformedDistribution(D.Normal(0.0, 1.0), D.transforms.SigmoidTransform())
    >>> d.cdf(weft.asarray(0.5))
    tensor(0.5)
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        base = base_distribution
        super().__init__(base.batch_shape, base.event_shape, validate_args)
        self.base_dist = base
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        self._all = ComposeTransform(self.transforms)
        self.has_rsample = base.has_rsample  # type: ignore[misc]

    @property
    def support(self) -> Constraint:
        return self._all.codomain if self.transforms else self.base_dist.support

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self._all(self.base_dist._draw(shape, generator))

    def log_prob(self, value: Any) -> Tensor:
        x = self._all.inv(value)
        slope = self._all.log_abs_det_jacobian(x, value)
        count = len(self.event_shape)
        if count:
            slope = sum(slope, axis=tuple(range(-count, 0)))
        return self.base_dist.log_prob(x) - slope

    def cdf(self, value: Any) -> Tensor:
        below = self.base_dist.cdf(self._all.inv(value))
        sign = self._all.sign
        out: Tensor = (1 - sign) / 2 + sign * below
        return out

    def icdf(self, value: Any) -> Tensor:
        sign = self._all.sign
        return self._all(self.base_dist.icdf((1 - sign) / 2 + sign * value))

    def expand(self: T, batch_shape: Any) -> T:
        base: Any = self
        return type(self)(base.base_dist.expand(batch_shape), base.transforms)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.transforms})"


class LogNormal(TransformedDistribution):
    """Numbers whose logarithm is normal."""

    def __init__(self, loc: Operand, scale: Operand, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        return self._normal.loc

    @property
    def scale(self) -> Tensor:
        return self._normal.scale

    @property
    def _normal(self) -> Normal:
        assert isinstance(self.base_dist, Normal)
        return self.base_dist

    @property
    def mean(self) -> Tensor:
        return exp(self.loc + 0.5 * square(self.scale))

    @property
    def mode(self) -> Tensor:
        return exp(self.loc - square(self.scale))

    @property
    def variance(self) -> Tensor:
        wide = square(self.scale)
        return expm1(wide) * exp(2 * self.loc + wide)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    def expand(self, batch_shape: Any) -> LogNormal:
        normal = self._normal.expand(batch_shape)
        return LogNormal(normal.loc, normal.scale)


class Independent(Distribution):
    """A distribution whose last axes of the batch count as one event.

    >>> D = weft.distributions
    >>> D.Independent(D.Normal(weft.zeros(3), 1.0), 1).log_prob(weft.zeros(3))
    tensor(-2.7568154)
    """

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        base, count = base_distribution, reinterpreted_batch_ndims
        if not 0 <= count <= len(base.batch_shape):
            raise ShapeError(
                f"{count} axes of a batch of shape {base.batch_shape} cannot be events",
                op="Independent",
            )
        cut = len(base.batch_shape) - count
        super().__init__(
            base.batch_shape[:cut], (*base.batch_shape[cut:], *base.event_shape), validate_args
        )
        self.base_dist = base
        self.reinterpreted_batch_ndims = count
        self.has_rsample = base.has_rsample  # type: ignore[misc]

    def _summed(self, x: Tensor) -> Tensor:
        count = self.reinterpreted_batch_ndims
        return sum(x, axis=tuple(range(-count, 0))) if count else x

    @property
    def support(self) -> Constraint:
        return self.base_dist.support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        return self.base_dist._draw(shape, generator)

    def log_prob(self, value: Any) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    def expand(self, batch_shape: Any) -> Independent:
        batch = new_shape(batch_shape, "expand")
        count = self.reinterpreted_batch_ndims
        base = self.base_dist.expand((*batch, *self.event_shape[:count]))
        return Independent(base, count)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """One of several distributions, chosen by a `Categorical`.

    The components are the last axis of the batch of `component_distribution`.
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        parts = component_distribution
        count = mixture_distribution.logits.shape[-1]
        if parts.batch_shape[-1:] != (count,):
            raise ShapeError(
                f"{count} weights for components of batch shape {parts.batch_shape}",
                op="MixtureSameFamily",
                hint="the last axis of the components' batch has one for each weight",
            )
        super().__init__(parts.batch_shape[:-1], parts.event_shape, validate_args)
        self.mixture_distribution = mixture_distribution.expand(self.batch_shape)
        self.component_distribution = parts

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return reshape(probs, (*probs.shape, *(1 for _ in self.event_shape)))

    @property
    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        return sum(self._weights() * self.component_distribution.mean, axis=self._axis)

    @property
    def variance(self) -> Tensor:
        parts, weights = self.component_distribution, self._weights()
        apart = square(parts.mean - expand_dims(self.mean, self._axis))
        return sum(weights * (parts.variance + apart), axis=self._axis)

    def log_prob(self, value: Any) -> Tensor:
        x = expand_dims(value, self._axis)
        each = self.component_distribution.log_prob(x)
        weights = log_softmax(self.mixture_distribution.logits, axis=-1)
        return logsumexp(each + weights, axis=-1)

    def cdf(self, value: Any) -> Tensor:
        each = self.component_distribution.cdf(expand_dims(value, self._axis))
        return sum(each * self.mixture_distribution.probs, axis=-1)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        count = len(self.event_shape)
        outer = shape[: len(shape) - count]
        chosen = self.mixture_distribution._draw(outer, generator)
        each = self.component_distribution._draw(
            (*outer, self.mixture_distribution.logits.shape[-1], *self.event_shape), generator
        )
        index = reshape(chosen, (*outer, 1, *(1 for _ in self.event_shape)))
        index = broadcast_to(index, (*outer, 1, *self.event_shape))
        picked = take_along_axis(each, index, axis=self._axis)
        return reshape(picked, shape)

    def expand(self, batch_shape: Any) -> MixtureSameFamily:
        batch = new_shape(batch_shape, "expand")
        count = self.mixture_distribution.logits.shape[-1]
        parts = self.component_distribution.expand((*batch, count))
        return MixtureSameFamily(self.mixture_distribution.expand(batch), parts)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution}, {self.component_distribution})"
