"""`torch.autograd`."""

from __future__ import annotations

from typing import Any

from weft.autodiff import api
from weft.autodiff.api import detect_anomaly as detect_anomaly
from weft.autodiff.function import Function as Function
from weft.core.grad_mode import enable_grad as enable_grad
from weft.core.grad_mode import no_grad as no_grad
from weft.core.grad_mode import set_grad_enabled as set_grad_enabled
from weft.torch import functional as functional
from weft.torch.functional import gradcheck as gradcheck
from weft.torch.functional import gradgradcheck as gradgradcheck
from weft.torch.tensor import labelled

__all__ = [
    *("Function", "Variable", "backward", "detect_anomaly", "enable_grad", "grad", "no_grad"),
    *("functional", "gradcheck", "gradgradcheck", "set_detect_anomaly", "set_grad_enabled"),
]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of outputs with respect to inputs."""
    if not only_inputs:
        raise ValueError("only_inputs=False is not supported: call backward() instead")
    if is_grads_batched:
        raise ValueError("is_grads_batched is not supported: use torch.vmap around autograd.grad")
    found: tuple[Any, ...] = labelled(
        api.grad(
            outputs,
            inputs,
            grad_outputs,
            retain_graph,
            create_graph,
            materialize_grads if allow_unused is None else allow_unused,
            materialize_grads,
        )
    )
    return found


backward = api.backward
set_detect_anomaly = detect_anomaly


def Variable(data: Any, requires_grad: bool = False) -> Any:
    """The tensor itself: PyTorch's old name."""
    return data.requires_grad_() if requires_grad else data
