"""`torch.amp`: mixed precision, by device.

What there is no device for is off, with a warning, as in PyTorch.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.dtypes import DType
from weft.base.source import warn_user
from weft.core import autocast as core
from weft.core.autocast import NARROW, autocasting
from weft.core.grad_mode import mode
from weft.core.operand_dtypes import in_dtype
from weft.optim import grad_scaler
from weft.torch import environment

#: What stands in `torch` itself.
__all__ = [
    *("autocast", "cpu", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype"),
    *("is_autocast_cpu_enabled", "is_autocast_enabled"),
]

_DEFAULTS = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}


def is_autocast_available(device_type: str) -> bool:
    """Whether there is such a device."""
    if device_type == "cpu":
        return True
    module = getattr(environment, device_type, None)
    return isinstance(module, types.ModuleType) and bool(module.is_available())


class autocast(core.autocast):
    """In it, products on a device are computed in `dtype`, bfloat16 by default.

    >>> import weft.torch as torch
    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     print((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
    weft.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise TypeError(f"device_type is a str, not {type(device_type).__name__}: device.type")
        device = device_type.partition(":")[0]
        chosen = _DEFAULTS.get(device, dtypes.bfloat16) if dtype is None else dtype
        if enabled and not is_autocast_available(device):
            warn_user(f"there is no device {device!r} here: autocast for it is off", UserWarning)
            enabled = False
        if enabled and chosen not in NARROW:
            named = getattr(chosen, "name", chosen)
            warn_user(f"autocast takes bfloat16 and float16, not {named}: it is off", UserWarning)
            enabled = False
        super().__init__(chosen if enabled else None, enabled)


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device. As in PyTorch, that is the GPU where none is named."""
    return is_autocast_available(device_type) and core.is_autocast_enabled()


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return core.is_autocast_enabled()


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype of products under autocast for a device."""
    return mode.autocast or _DEFAULTS.get(device_type, dtypes.bfloat16)


def get_autocast_cpu_dtype() -> DType:
    """The dtype of products under autocast for the CPU."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """The dtype of products under autocast for the GPU."""
    return get_autocast_dtype("cuda")


class GradScaler(grad_scaler.GradScaler):
    """`weft.amp.GradScaler` for a device; where there is none it is off, with a warning."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and not is_autocast_available(device):
            warn_user(f"there is no device {device!r} here: its GradScaler is off", UserWarning)
            enabled = False
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


# --- functions with a backward of their own ----------------------------------------------------


def custom_fwd(
    fwd: Any = None, *, device_type: str = "cpu", cast_inputs: Any = None
) -> Callable[..., Any]:
    """For `forward` of a `Function`: with `cast_inputs` its inputs are cast and autocast is off."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        cast = cast_inputs is not None and mode.autocast is not None
        ctx.autocast_dtype = None if cast else mode.autocast
        if not cast:
            return fwd(ctx, *args, **kwargs)
        with autocasting(None):
            return fwd(ctx, *in_dtype(args, cast_inputs), **kwargs)

    return forward


def custom_bwd(bwd: Any = None, *, device_type: str = "cpu") -> Callable[..., Any]:
    """For `backward` of a `Function`: it runs under the autocast of its forward."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocasting(getattr(ctx, "autocast_dtype", None)):
            return bwd(ctx, *args, **kwargs)

    return backward


# --- the namespaces ----------------------------------------------------------------------------


def _of_device(device: str) -> types.ModuleType:
    """`torch.cpu.amp` and its like: PyTorch's older names, without the device."""
    made = types.ModuleType(f"weft.torch.{device}.amp", f"`torch.{device}.amp`.")

    def autocast_(enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> autocast:
        return autocast(device, dtype, enabled)

    def scaler(*args: Any, **kwargs: Any) -> GradScaler:
        return GradScaler(device, *args, **kwargs)

    autocast_.__name__, scaler.__name__ = "autocast", "GradScaler"
    made.__dict__.update(
        autocast=autocast_, GradScaler=scaler, custom_fwd=custom_fwd, custom_bwd=custom_bwd
    )
    return made


cpu = types.ModuleType("weft.torch.cpu", "`torch.cpu`.")
cpu.__dict__.update(is_available=lambda: True, synchronize=lambda *_: None)
for _device, _module in (("cpu", cpu), ("cuda", environment.cuda)):
    _module.__dict__["amp"] = _of_device(_device)
    sys.modules[f"weft.torch.{_device}"] = _module  # from weft.torch.cuda.amp import GradScaler
    sys.modules[f"weft.torch.{_device}.amp"] = _module.__dict__["amp"]
