"""`Distribution`: what all distributions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from weft.base.errors import RangeError, ShapeError
from weft.base.shapes import Shape, broadcast_shapes, new_shape
from weft.core.grad_mode import no_grad
from weft.core.operands import common
from weft.core.tensor import Tensor
from weft.distributions.constraints import Constraint, check_values
from weft.ops.elementwise import exp, sqrt
from weft.ops.shape import broadcast_to

__all__ = ["Distribution"]

D = TypeVar("D", bound="Distribution")


class Distribution:
    """A distribution of values of `event_shape`, one for each element of `batch_shape`.

    Parameters are numbers or tensors that broadcast. Values outside of their range raise an error
    when the distribution is made, where they are known: not in a graph that is being recorded.

    >>> d = weft.distributions.Normal(0.0, weft.asarray([1.0, 2.0]))
    >>> d.batch_shape, d.event_shape
    ((2,), ())
    >>> d.log_prob(weft.asarray(0.0))
    tensor([-0.9189385, -1.6120857])
    """

    #: The range of each parameter.
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    #: The trailing axes of a parameter that belong to one event.
    event_axes: ClassVar[dict[str, int]] = {}
    has_rsample: ClassVar[bool] = False

    batch_shape: Shape
    event_shape: Shape

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self.batch_shape = tuple(batch_shape)
        self.event_shape = tuple(event_shape)
        self._checks = validate_args is not False
        self._names: tuple[str, ...] = ()

    def _take(self, validate_args: bool | None, **given: Any) -> None:
        """Keep parameters: as tensors of one dtype, broadcast to the shape of the batch."""
        name = type(self).__name__
        tensors = common(tuple(given.values()), name, at_least="float")
        axes = [self.event_axes.get(key, 0) for key in given]
        for key, tensor, count in zip(given, tensors, axes, strict=True):
            if tensor.ndim < count:
                raise ShapeError(f"{key} needs {count} axes, not {tensor.ndim}", op=name)
        try:
            batch = broadcast_shapes(
                *(t.shape[: t.ndim - n] for t, n in zip(tensors, axes, strict=True))
            )
        except ShapeError as error:
            raise error.about(name, [t.type for t in tensors]) from None
        Distribution.__init__(self, batch, validate_args=validate_args)
        self._names = tuple(given)
        for key, tensor, count in zip(given, tensors, axes, strict=True):
            whole = (*batch, *tensor.shape[tensor.ndim - count :])
            if self._checks and key in self.arg_constraints:
                check_values(f"the {key}", tensor, self.arg_constraints[key], name)
            setattr(self, key, tensor if tensor.shape == whole else broadcast_to(tensor, whole))

    # --- what subclasses give -------------------------------------------------------------------

    @property
    def support(self) -> Constraint:
        """The set of possible values."""
        raise self._lacks("support")

    @property
    def mean(self) -> Tensor:
        raise self._lacks("mean")

    @property
    def variance(self) -> Tensor:
        raise self._lacks("variance")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise self._lacks("mode")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise self._lacks("log_prob")

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to this one."""
        raise self._lacks("cdf")

    def icdf(self, value: Any) -> Tensor:
        """The inverse of `cdf`: the quantile of a probability."""
        raise self._lacks("icdf")

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise self._lacks("entropy")

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        """Samples of a shape that ends with batch_shape and event_shape."""
        raise self._lacks("sample")

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {what}")

    # --- what follows ---------------------------------------------------------------------------

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return sqrt(self.variance)

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return exp(self.entropy())

    def sample(self, sample_shape: Any = (), *, generator: Any = None) -> Tensor:
        """Samples of shape sample_shape + batch_shape + event_shape, without gradient."""
        with no_grad():
            return self._draw(self._whole(sample_shape), generator).detach()

    def rsample(self, sample_shape: Any = (), *, generator: Any = None) -> Tensor:
        """The same, differentiable with respect to the parameters."""
        if not self.has_rsample:
            raise NotImplementedError(
                f"samples of {type(self).__name__} have no derivative; use sample() and log_prob()"
            )
        return self._draw(self._whole(sample_shape), generator)

    def _whole(self, sample_shape: Any) -> Shape:
        return (*new_shape(sample_shape, "sample"), *self.batch_shape, *self.event_shape)

    def _value(self, value: Any) -> Tensor:
        """A value in the parameters' dtype, checked against the support."""
        like = getattr(self, self._names[0])
        tensor = common((value, like), type(self).__name__)[0]
        if self._checks and self._known():
            try:
                support = self.support
            except (NotImplementedError, AttributeError):
                return tensor
            check_values("a value", tensor, support, type(self).__name__)
        return tensor

    def _known(self) -> bool:
        """Whether the parameters are numbers, not values of a graph that is being recorded."""
        return all(isinstance(getattr(self, key)._data, np.ndarray) for key in self._names)

    def expand(self: D, batch_shape: Any) -> D:
        """The same distribution for a larger batch, to which batch_shape broadcasts."""
        batch = new_shape(batch_shape, "expand")
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.batch_shape = batch
        for key in self._names:
            tensor = getattr(self, key)
            count = self.event_axes.get(key, 0)
            setattr(new, key, broadcast_to(tensor, (*batch, *tensor.shape[tensor.ndim - count :])))
        return new

    def __repr__(self) -> str:
        parts = []
        for key in self._names:
            tensor = getattr(self, key)
            one = isinstance(tensor._data, np.ndarray) and not tensor.shape
            parts.append(f"{key}: {tensor.item() if one else tensor.type}")
        return f"{type(self).__name__}({', '.join(parts)})"


def one_of(owner: str, **given: Any) -> tuple[str, Any]:
    """Of several ways to give a parameter, the one that was used."""
    used = [(key, value) for key, value in given.items() if value is not None]
    if len(used) != 1:
        names = " or ".join(given)
        raise RangeError(f"give either {names}, and only one of them", op=owner)
    return used[0]
