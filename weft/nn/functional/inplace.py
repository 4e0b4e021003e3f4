"""Activations that give their argument the new value: `relu_(x)` is `relu(x, inplace=True)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.nn.functional import activation

__all__ = [
    "celu_",
    "elu_",
    "hardtanh_",
    "leaky_relu_",
    "relu_",
    "rrelu_",
    "selu_",
    "threshold_",
]


def _inplace(name: str) -> Callable[..., Tensor]:
    plain: Any = getattr(activation, name)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        plain(input, *args, **kwargs, inplace=True)
        return input

    function.__name__ = function.__qualname__ = f"{name}_"
    function.__doc__ = f"`{name}` with `inplace=True`; returns its argument."
    return function


celu_, elu_, hardtanh_, leaky_relu_ = map(_inplace, ("celu", "elu", "hardtanh", "leaky_relu"))
relu_, rrelu_, selu_, threshold_ = map(_inplace, ("relu", "rrelu", "selu", "threshold"))
