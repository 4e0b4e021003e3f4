"""Makes the device "cuda" known when it is first asked for, or says what is missing."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from weft.base.errors import DeviceError

__all__ = ["missing", "open_cuda"]

_lock = threading.Lock()
_import = importlib.import_module


class _Found:
    """CuPy, once it is loaded and has a GPU; or why there is none."""

    cupy: Any = None
    driver: Any = None
    reason: tuple[str, str] | None = None  # the message, and how to fix it


def missing() -> tuple[str, str] | None:
    """Why there is no CUDA device here, and what to do; None if there is one."""
    if _Found.cupy is not None:
        return None
    with _lock:
        if _Found.cupy is None and _Found.reason is None:
            _load()
    return _Found.reason


def _load() -> None:
    try:
        cupy = _import("cupy")
        cupyx = _import("cupyx")
        _import("cupyx.scipy.special")
    except ImportError as error:
        _Found.reason = (
            f"the device 'cuda' needs CuPy, which cannot be imported here: {error}",
            "pip install 'weft[cuda]'",
        )
        return
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        why = "the driver finds no GPU"
    except Exception as error:
        count, why = 0, str(error).strip().splitlines()[0]
    if not count:
        _Found.reason = (
            f"CuPy {cupy.__version__} is installed, but there is no usable GPU: {why}",
            "check `nvidia-smi`: a GPU, and a driver for CUDA 12 or newer, are needed",
        )
        return
    importlib.import_module("weft.runtime.cuda.family").register(cupy, cupyx)
    _Found.cupy = cupy


def open_cuda() -> None:
    """Register the device, or say what is missing."""
    found = missing()
    if found is not None:
        raise DeviceError(found[0], hint=found[1])


def driver() -> Any:
    """What programs ask of the GPU (`weft.runtime.cuda.driver`)."""
    loaded = cupy()
    if _Found.driver is None:
        _Found.driver = importlib.import_module("weft.runtime.cuda.driver").CupyDriver(loaded)
    return _Found.driver


def cupy() -> Any:
    """The module CuPy; an error says what is missing."""
    open_cuda()
    return _Found.cupy
