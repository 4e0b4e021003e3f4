"""Gradients that are too long, made shorter."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.base.errors import GradientError
from weft.core.grad_mode import no_grad
from weft.core.operands import cast
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.elementwise import minimum
from weft.ops.linalg_norm import vector_norm
from weft.ops.select import clip
from weft.ops.shape import stack


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in given if p.grad is not None]


def _gradient(p: Tensor) -> Tensor:
    assert p.grad is not None
    return p.grad


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients together so that their norm is at most `max_norm`.

    The norm is that of all gradients as one vector; `norm_type` may be any number, or inf. Returns
    the norm before.

    >>> x = weft.tensor([3.0, 4.0], requires_grad=True)
    >>> (x**2).sum().backward()
    >>> weft.optim.clip_grad_norm_([x], max_norm=1.0)
    tensor(10.)
    >>> x.grad
    tensor([0.59999996, 0.79999995])
    """
    clipped = _with_gradients(parameters)
    total = get_total_norm([_gradient(p) for p in clipped], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(clipped, max_norm, total)
    return total


def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm of all tensors as one vector."""
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not given:
        return asarray(0.0)
    with no_grad():
        norms = [vector_norm(tensor, ord=norm_type) for tensor in given]
        first = norms[0]
        together = stack([cast(norm, first.dtype).to_device(first.device) for norm in norms])
        total = vector_norm(together, ord=norm_type)
        if error_if_nonfinite and not math.isfinite(float(total)):
            raise GradientError(
                f"the norm of the gradients is {float(total)}: they cannot be clipped",
                op="clip_grad_norm_",
                hint="find where it comes from with weft.autograd.detect_anomaly()",
            )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor
) -> None:
    """Scale all gradients by max_norm / total_norm, where that is below 1."""
    with no_grad():
        factor = minimum(float(max_norm) / (total_norm + 1e-6), 1.0)
        for p in _with_gradients(parameters):
            grad = _gradient(p)
            p.grad = grad * cast(factor, grad.dtype).to_device(grad.device)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Bring each number of all gradients into -clip_value … clip_value.

    >>> x = weft.tensor([3.0, 0.25], requires_grad=True)
    >>> (x**2).sum().backward()
    >>> weft.optim.clip_grad_value_([x], 1.0)
    >>> x.grad
    tensor([1. , 0.5])
    """
    bound = float(clip_value)
    with no_grad():
        for p in _with_gradients(parameters):
            p.grad = clip(_gradient(p), -bound, bound)
