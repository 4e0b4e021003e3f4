"""`torch.autograd`."""

from __future__ import annotations

from typing import Any

from weft.autodiff import api
from weft.autodiff.api import detect_anomaly as detect_anomaly
from weft.autodiff.function import Function as Function
from weft.core.grad_mode import enable_grad as enable_grad
from weft.core.grad_mode import no_grad as no_grad
from weft.core.grad_mode import set_grad_enabled as set_grad_enabled
from weft.torch.tensor import labelled

__all__ = [
    *("Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "no_grad"),
    *("set_detect_anomaly", "set_grad_enabled"),
]


def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """The gradients of outputs with respect to inputs."""
    found: tuple[Any, ...] = labelled(tuple(api.grad(outputs, inputs, *args, **kwargs)))
    return found


backward = api.backward
set_detect_anomaly = detect_anomaly


def Variable(data: Any, requires_grad: bool = False) -> Any:
    """The tensor itself: PyTorch's old name."""
    return data.requires_grad_() if requires_grad else data
