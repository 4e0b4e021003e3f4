"""`torch.autograd.functional` and `gradcheck`: Weft's transforms, with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.check import check_grads
from weft.autodiff.transforms import forward, reverse
from weft.autodiff.transforms import jacobian as jacobians
from weft.base.errors import GradientError
from weft.ops.creation import ones_like

__all__ = ["gradcheck", "gradgradcheck", "hessian", "hvp", "jacobian", "jvp", "vjp"]


def _several(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _like(inputs: Any, found: Sequence[Any]) -> Any:
    return tuple(found) if isinstance(inputs, (tuple, list)) else found[0]


def jacobian(func: Callable[..., Any], inputs: Any, *_args: Any, **_options: Any) -> Any:
    """The derivatives of all results by all inputs."""
    given = _several(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    return jacobians.jacrev(func, argnums=numbers)(*given)


def hessian(func: Callable[..., Any], inputs: Any, *_args: Any, **_options: Any) -> Any:
    """The second derivatives of a result of one number."""
    given = _several(inputs)
    numbers = tuple(range(len(given))) if isinstance(inputs, (tuple, list)) else 0
    return jacobians.hessian(func, argnums=numbers)(*given)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, *_args: Any, **_options: Any) -> Any:
    """The result, and the gradients of `v` times it."""
    value, pull = reverse.vjp(func, *_several(inputs))
    return value, _like(inputs, pull(ones_like(value) if v is None else v))


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, *_args: Any, **_options: Any) -> Any:
    """The result, and its derivative in the direction `v`."""
    given = _several(inputs)
    directions = [ones_like(x) for x in given] if v is None else _several(v)
    return forward.jvp(func, given, tuple(directions))


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, *_args: Any, **_options: Any) -> Any:
    """The result, and its second derivatives times `v`."""
    given = _several(inputs)
    directions = tuple(ones_like(x) for x in given) if v is None else _several(v)
    gradient = reverse.grad(func, argnums=tuple(range(len(given))))
    _, found = forward.jvp(gradient, given, directions)
    return func(*given), _like(inputs, found)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **_options: Any,
) -> bool:
    """Whether gradients agree with finite differences."""
    return _checked(func, inputs, 1, eps, atol, rtol, raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **_options: Any,
) -> bool:
    """The same of second derivatives."""
    return _checked(func, inputs, 2, eps, atol, rtol, raise_exception)


def _checked(
    func: Callable[..., Any],
    inputs: Any,
    order: int,
    eps: float,
    atol: float,
    rtol: float,
    raise_exception: bool,
) -> bool:
    try:
        check_grads(func, list(_several(inputs)), order=order, eps=eps, atol=atol, rtol=rtol)
    except GradientError:
        if raise_exception:
            raise
        return False
    return True
