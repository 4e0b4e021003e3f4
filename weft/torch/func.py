"""`torch.func`: Weft's transforms, with PyTorch's arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.autodiff.transforms import forward, jacobian, reverse
from weft.autodiff.transforms import vmap as mapping
from weft.torch.tensor import labelled

__all__ = [
    *("functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp"),
    "vmap",
]


def _labelling(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are tensors of this namespace."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return labelled(function(*args, **kwargs))

    return call


def _differentiated(transform: Callable[..., Any]) -> Callable[..., Any]:
    def make(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Any:
        options = {"has_aux": True} if has_aux else {}
        return _labelling(transform(func, argnums=argnums, **options))

    make.__name__ = make.__qualname__ = transform.__name__
    make.__doc__ = transform.__doc__
    return make


grad = _differentiated(reverse.grad)
jacrev = _differentiated(jacobian.jacrev)
jacfwd = _differentiated(jacobian.jacfwd)
hessian = _differentiated(jacobian.hessian)


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Any:
    """A function that gives the gradient and then the value."""
    both = reverse.value_and_grad(func, argnums=argnums, **({"has_aux": True} if has_aux else {}))

    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return labelled((gradient, value))

    return call


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error"
) -> Any:
    """A function that maps over an axis of its arguments."""
    return _labelling(mapping.vmap(func, in_axes=in_dims, out_axes=out_dims))


def vjp(func: Callable[..., Any], *primals: Any) -> Any:
    """The value, and the function that takes its cotangent back."""
    value, back = reverse.vjp(func, *primals)
    return labelled(value), _labelling(back)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The value and its tangent."""
    return labelled(forward.jvp(func, primals, tangents))
