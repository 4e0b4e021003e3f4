"""CuPy's arrays as a family: how they come from and go to NumPy, and which kernel runs on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.base.device import Device
from weft.base.dtypes import NARROW_FLOATS
from weft.base.errors import DeviceError
from weft.ir.dispatch import Family, Kernel, register_device, register_kernel, widened
from weft.ir.op import OPS, SCHEDULED, Trait
from weft.runtime.cuda.host_ops import HOST, on_host
from weft.runtime.cuda.kernels import bound
from weft.runtime.cuda.namespace import Namespace
from weft.runtime.cuda.nccl import nccl_group

__all__ = ["register"]

_FIRST = Device("cuda")


def register(cupy: Any, cupyx: Any) -> Family:
    """Make the arrays of CuPy, or of what stands in for it, known as the device "cuda"."""
    namespace = Namespace(cupy, cupyx)
    several = cupy.cuda.runtime.getDeviceCount() > 1
    family = register_device(
        "cuda",
        cupy.ndarray,
        namespace=namespace,
        from_numpy=partial(_upload, cupy),
        to_numpy=_download,
        device_of=_device_of if several else _only_device,
        adapted=partial(_on_its_device, cupy) if several else None,
        group=nccl_group,
    )
    for name, kernel in bound(namespace).items():
        register_kernel(name, device="cuda")(kernel)
        if Trait.WIDEN in OPS[name].traits:
            for dtype in NARROW_FLOATS:
                register_kernel(name, device="cuda", dtype=dtype)(widened(kernel, dtype.numpy))
    for name in HOST:
        register_kernel(name, device="cuda")(on_host(OPS[name], family))
    return family


def _upload(cupy: Any, array: np.ndarray[Any, Any], device: Device) -> Any:
    count = cupy.cuda.runtime.getDeviceCount()
    if device.index >= count:
        raise DeviceError(
            f"there is no device {str(device)!r}: this machine has {count} GPU(s)",
            hint="weft.cuda.device_count() says how many; they are counted from 0",
        )
    with cupy.cuda.Device(device.index):
        return cupy.asarray(array)


def _download(array: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = array.get()
    return found


def _only_device(_array: Any) -> Device:
    return _FIRST


def _device_of(array: Any) -> Device:
    return Device("cuda", array.device.id)


def _on_its_device(cupy: Any, op: str, kernel: Kernel) -> Kernel:
    """`kernel` with the GPU of its operands as CuPy's current one, where there are several."""
    if op == "to_device":
        return kernel
    if Trait.CREATION in (OPS.get(op) or SCHEDULED[op]).traits:

        def create(**attrs: Any) -> Any:
            with cupy.cuda.Device(attrs["device"].index):
                return kernel(**attrs)

        return create

    def run(*arrays: Any, **attrs: Any) -> Any:
        with cupy.cuda.Device(arrays[0].device.id):
            return kernel(*arrays, **attrs)

    return run
