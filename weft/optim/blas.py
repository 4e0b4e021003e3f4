"""y += a * x and y *= a in one pass over memory, by the BLAS library that NumPy brought along.

NumPy itself needs two passes and a temporary array for the first, on one core. Where the library
is not found (another operating system, a NumPy of another make), NumPy does the work all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BYTE = ctypes.c_char * 1
#: Below this size a call through ctypes costs more than the second pass.
SMALLEST = 8192
#: dtype -> (letter of the BLAS routine, type of its scalar)
LETTERS: dict[np.dtype[Any], tuple[str, Any]] = {
    np.dtype(np.float32): ("s", ctypes.c_float),
    np.dtype(np.float64): ("d", ctypes.c_double),
}


def _library() -> Any:
    """NumPy's extension module; symbols are looked up in the libraries it is linked with, too."""
    module = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
    with contextlib.suppress(AttributeError, OSError, TypeError):
        return ctypes.CDLL(getattr(module, "__file__", None) or "")
    return None


def _routines(name: str, arguments: str) -> dict[np.dtype[Any], Any]:
    """A BLAS routine for each dtype. `arguments`: n for a count, a for a scalar, p for an array."""
    found = {}
    library = _library()
    for dtype, (letter, scalar) in LETTERS.items():
        for symbol in (f"scipy_cblas_{letter}{name}64_", f"cblas_{letter}{name}64_"):
            routine = getattr(library, symbol, None)
            if routine is not None:
                kinds = {"n": ctypes.c_int64, "a": scalar, "p": ctypes.c_void_p}
                routine.argtypes = [kinds[argument] for argument in arguments]
                routine.restype = None
                found[dtype] = routine
                break
    return found


_axpy = _routines("axpy", "napnpn")
_scal = _routines("scal", "napn")


def add_scaled(y: Array, x: Array, a: float) -> None:
    """y += a * x, in place."""
    routine = _axpy.get(y.dtype) if _fits(y, a) and x.flags.c_contiguous else None
    if routine is None:
        y += x * a
    else:
        routine(y.size, a, _start(x), 1, _start(y), 1)


def scale(y: Array, a: float) -> None:
    """y *= a, in place."""
    routine = _scal.get(y.dtype) if _fits(y, a) else None
    if routine is None:
        y *= a
    else:
        routine(y.size, a, _start(y), 1)


def _start(array: Array) -> Any:
    """Where an array begins, for C; `array.ctypes` takes four times as long to say."""
    try:
        return _BYTE.from_buffer(array.data)
    except TypeError:  # it is read-only
        return array.ctypes.data


def _fits(y: Array, a: float) -> bool:
    """Whether BLAS takes it. Zero times NaN is NaN, but BLAS does nothing at all where a is 0."""
    return y.size >= SMALLEST and a != 0 and y.flags.c_contiguous
