"""`torch.func`: Weft's transforms, with PyTorch's arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.transforms import forward, jacobian, reverse
from weft.autodiff.transforms import vmap as mapping
from weft.nn import stateless
from weft.nn.module import Module
from weft.ops.shape import stack
from weft.torch.tensor import labelled

__all__ = [
    *("functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp"),
    *("linearize", "stack_module_state", "vmap"),
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
        return transform(func, argnums=argnums, **options)

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
        return gradient, value

    return call


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error"
) -> Any:
    """A function that maps over an axis of its arguments."""
    return mapping.vmap(func, in_axes=in_dims, out_axes=out_dims)


def vjp(func: Callable[..., Any], *primals: Any) -> Any:
    """The value, and the function that takes its cotangent back."""
    value, back = reverse.vjp(func, *primals)
    return labelled(value), _labelling(back)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any) -> Any:
    """The value and its tangent."""
    return labelled(forward.jvp(func, primals, tangents))


linearize = forward.linearize


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args)` with these tensors in the place of its parameters and buffers."""
    several = isinstance(parameter_and_buffer_dicts, (tuple, list))
    dicts = parameter_and_buffer_dicts if several else (parameter_and_buffer_dicts,)
    given = {name: x for part in dicts for name, x in part.items()}
    placed = args if isinstance(args, tuple) else (args,)
    return labelled(stateless.functional_call(module, given, *placed, **(kwargs or {})))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of several modules of one form, stacked: for `vmap`."""
    if not models:
        raise RuntimeError("stack_module_state: there are no models")
    stacked = []
    for named in ("named_parameters", "named_buffers"):
        parts = [dict(getattr(model, named)()) for model in models]
        stacked.append({name: stack([part[name].detach() for part in parts]) for name in parts[0]})
    for name, x in models[0].named_parameters():
        stacked[0][name].requires_grad_(x.requires_grad)
    return labelled(stacked[0]), labelled(stacked[1])
