"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from weft.base.errors import ShapeError
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.operands import cast
from weft.core.tensor import Tensor
from weft.ops.shape import concat, reshape

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters one after the other, as one vector; gradients pass through."""
    return concat([reshape(parameter, (-1,)) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give each parameter its part of a vector as its value."""
    targets = list(parameters)
    total = sum(target.size for target in targets)
    if vec.shape != (total,):
        raise ShapeError(
            f"the parameters have {total} elements, the vector has shape {vec.shape}",
            op="vector_to_parameters",
        )
    start = 0
    with no_grad():
        for target in targets:
            part = reshape(vec[start : start + target.size], target.shape)
            rebind(target, cast(part, target.dtype), "vector_to_parameters")
            start += target.size
