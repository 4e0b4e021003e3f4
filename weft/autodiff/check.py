"""`check_grads`: are the derivatives of a function right?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.autodiff.api import grad
from weft.base.errors import GradientError
from weft.core.grad_mode import no_grad
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor
from weft.ops.creation import asarray, tensor, zeros_like
from weft.ops.elementwise import conj, real
from weft.ops.reduce import sum

__all__ = ["check_grads"]

Function = Callable[..., Any]


def check_grads(
    f: Function,
    args: Sequence[Any] | Tensor,
    order: int = 2,
    eps: float = 1e-6,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Raise unless the gradients of `f` at `args` agree with finite differences, up to `order`.

    Only floating arguments are differentiated; give float64 ones. For each order the derivative in
    a random direction is compared three ways: by central differences of f, by the reverse pass,
    and forward over reverse (the derivative of the reverse pass in the direction of its own
    cotangent, which for a right derivative is the same number).

    >>> weft.check_grads(lambda x: weft.sin(x) * x, [weft.tensor([1.0, 2.0], dtype=weft.float64)])
    """
    several = [args] if isinstance(args, Tensor) else args
    given = [as_tensor(arg, "check_grads") for arg in several]
    rng = np.random.default_rng(seed)
    _check(f, given, order, eps, rtol, atol, rng, "")


def _check(
    f: Function,
    args: list[Tensor],
    order: int,
    eps: float,
    rtol: float,
    atol: float,
    rng: np.random.Generator,
    path: str,
) -> None:
    smooth = [i for i, arg in enumerate(args) if arg.dtype.kind in ("float", "complex")]
    points = [tensor(arg, requires_grad=i in smooth) for i, arg in enumerate(args)]
    outputs = _floating(f(*points))
    weights = [_random(out, rng) for out in outputs]
    directions = [_random(args[i], rng) for i in smooth]

    def reverse(*at: Tensor) -> list[Tensor]:
        """The gradient of <weights, f> with respect to the smooth arguments, as a function."""
        moved = _floating(f(*at))
        return _gradients(_weighted(moved, weights), [at[i] for i in smooth])

    grads = reverse(*points)
    by_reverse = _dot(grads, directions)
    by_difference = _difference(f, args, smooth, directions, weights, eps)
    _compare(by_reverse, by_difference, rtol, atol, f"{path}reverse", "finite differences")
    cotangents = [tensor(w, requires_grad=True) for w in weights]
    by_forward = _forward(f, points, smooth, directions, cotangents, weights)
    if by_forward is not None:
        what = f"{path}forward over reverse"
        _compare(by_forward, by_difference, rtol, atol, what, "finite differences")
    if order > 1:
        _check(
            lambda *at: reverse(*at), args, order - 1, eps, rtol, atol, rng, f"{path}gradient's "
        )


def _forward(
    f: Function,
    points: list[Tensor],
    smooth: list[int],
    directions: list[Tensor],
    cotangents: list[Tensor],
    weights: list[Tensor],
) -> float | None:
    """<weights, J·directions>, with J·v as the derivative of Jᵀ·u in u: forward over reverse."""
    total = _weighted(_floating(f(*points)), cotangents)
    found = _gradients(total, [points[i] for i in smooth])
    inner = _weighted(found, directions)
    if not inner.requires_grad:
        return None
    return _dot(_gradients(inner, cotangents), weights)


def _gradients(total: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    if not total.requires_grad:  # constant in all of them
        return [zeros_like(tensor) for tensor in wanted]
    return list(grad(total, wanted, create_graph=True, materialize_grads=True))


def _floating(result: Any) -> list[Tensor]:
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    kept = [part for part in parts if part.dtype.kind in ("float", "complex")]
    if not kept:
        raise GradientError("the function returns nothing that has a derivative", op="check_grads")
    return kept


def _random(like: Tensor, rng: np.random.Generator) -> Tensor:
    values = rng.standard_normal(like.shape)
    if like.dtype.kind == "complex":
        values = values + 1j * rng.standard_normal(like.shape)
    return asarray(values, dtype=like.dtype, device=like.device)


def _weighted(outputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    """The real inner product of two lists of tensors."""
    parts = [
        sum(real(conj(w) * out) if out.dtype.kind == "complex" else w * out)
        for w, out in zip(weights, outputs, strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    with no_grad():
        return float(_weighted(a, b))


def _difference(
    f: Function,
    args: list[Tensor],
    smooth: list[int],
    directions: list[Tensor],
    weights: list[Tensor],
    eps: float,
) -> float:
    def at(step: float) -> float:
        moved = [arg.detach() for arg in args]
        for i, direction in zip(smooth, directions, strict=True):
            moved[i] = tensor(moved[i] + direction * step, requires_grad=True)
        return _dot(_floating(f(*moved)), weights)

    return (at(eps) - at(-eps)) / (2 * eps)


def _compare(got: float, want: float, rtol: float, atol: float, what: str, other: str) -> None:
    if not abs(got - want) <= atol + rtol * max(abs(want), 1.0):
        raise GradientError(
            f"the derivative by {what} is {got!r}, by {other} {want!r}",
            op="check_grads",
            hint="look at the derivative rule; near a kink or with float32 no eps will do",
        )
