"""The normal distribution of vectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.base.shapes import Shape, broadcast_shapes
from weft.core.operands import as_tensor, common
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.constraints import Constraint, check_values
from weft.distributions.distribution import Distribution, one_of
from weft.ops.elementwise import log, square
from weft.ops.linalg_factor import cholesky
from weft.ops.linalg_matrix import diagonal
from weft.ops.linalg_solve import inv, solve
from weft.ops.matmul import matmul
from weft.ops.random import randn
from weft.ops.reduce import sum
from weft.ops.shape import broadcast_to, expand_dims, matrix_transpose

__all__ = ["MultivariateNormal"]

_LOG_TAU = math.log(2 * math.pi)


class MultivariateNormal(Distribution):
    """Normal vectors with a covariance matrix, its inverse, or its Cholesky factor.

    >>> d = weft.distributions.MultivariateNormal(weft.zeros(2), scale_tril=weft.eye(2))
    >>> d.log_prob(weft.zeros(2))
    tensor(-1.837877)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "scale_tril": constraints.lower_cholesky,
    }
    event_axes: ClassVar[dict[str, int]] = {"loc": 1, "scale_tril": 2}
    has_rsample = True
    loc: Tensor
    scale_tril: Tensor

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = "MultivariateNormal"
        key, matrix = one_of(
            name,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        mean, factor = common((loc, as_tensor(matrix, name)), name, at_least="float")
        if key != "scale_tril":
            if validate_args is not False:
                check_values(f"the {key}", factor, constraints.positive_definite, name)
            factor = cholesky(factor if key == "covariance_matrix" else inv(factor))
        size = broadcast_shapes(mean.shape[-1:], factor.shape[-1:])
        mean = broadcast_to(mean, (*mean.shape[:-1], *size))
        self._take(validate_args, loc=mean, scale_tril=factor)
        self.event_shape = size

    @property
    def support(self) -> Constraint:
        return constraints.real_vector

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def covariance_matrix(self) -> Tensor:
        return matmul(self.scale_tril, matrix_transpose(self.scale_tril))

    @property
    def precision_matrix(self) -> Tensor:
        return inv(self.covariance_matrix)

    @property
    def variance(self) -> Tensor:
        return sum(square(self.scale_tril), axis=-1)

    def _draw(self, shape: Shape, generator: Any) -> Tensor:
        kind = self.loc
        drawn = randn(shape, dtype=kind.dtype, device=kind.device, generator=generator)
        return self.loc + matmul(self.scale_tril, expand_dims(drawn, -1))[..., 0]

    def half_log_det(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        return sum(log(diagonal(self.scale_tril)), axis=-1)

    def log_prob(self, value: Any) -> Tensor:
        apart = self._value(value) - self.loc
        z = solve(self.scale_tril, expand_dims(apart, -1))[..., 0]
        size = self.event_shape[0]
        return -0.5 * (size * _LOG_TAU + sum(square(z), axis=-1)) - self.half_log_det()

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1 + _LOG_TAU) + self.half_log_det()
