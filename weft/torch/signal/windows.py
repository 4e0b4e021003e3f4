"""`torch.signal.windows`: windows of M points, symmetric unless `sym=False`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import weft.ops.creation as creation
from weft.base.dtypes import float64, get_default_dtype
from weft.base.errors import RangeError
from weft.ops.cast import astype
from weft.ops.elementwise import abs, cos, exp, sin, sqrt
from weft.ops.special_bessel import i0
from weft.torch.tensor import as_type, labelled

__all__ = [
    *("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine"),
    *("general_hamming", "hamming", "hann", "kaiser", "nuttall"),
]


def _points(M: int, op: str) -> Any:
    if M < 0:
        raise RangeError(f"a window has no {M} points", op=op)
    return creation.arange(M, dtype=float64)


def _intervals(M: int, sym: bool) -> int:
    """How many steps there are from the first point to where the window has its end."""
    return max(M - 1 if sym else M, 1)


def _made(
    values: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Any:
    """The values in the dtype that is asked for; they were computed in float64."""
    out = labelled(astype(values, get_default_dtype() if dtype is None else as_type(dtype)))
    return out.requires_grad_() if requires_grad else out


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Any:
    """The sum of cosines with these weights and alternating signs."""
    at = _points(M, "general_cosine") * (2 * math.pi / _intervals(M, sym))
    if M == 1:
        return _made(creation.ones(1, dtype=float64), **options)
    terms = [(-1) ** i * weight * cos(at * i) for i, weight in enumerate(a)]
    return _made(sum(terms[1:], terms[0]), **options)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Any:
    """alpha - (1 - alpha) cos(2πn / N)."""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Any:
    """The Hamming window."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Any:
    """The Hann window."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Any:
    """The Blackman window."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Nuttall's window of four cosines."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Any:
    """A triangle that is 0 at its ends."""
    if M == 1:
        return _made(creation.ones(1, dtype=float64), **options)
    return _made(1 - abs(_points(M, "bartlett") * (2 / _intervals(M, sym)) - 1), **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Half a period of the sine."""
    steps = max(M if sym else M + 1, 1)
    return _made(sin((_points(M, "cosine") + 0.5) * (math.pi / steps)), **options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Any:
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise RangeError(f"tau must be positive, not {tau}", op="exponential")
    if sym and center is not None:
        raise RangeError("a symmetric window has its center in the middle", op="exponential")
    middle = (M - 1 if sym or M < 2 else M) / 2 if center is None else center
    return _made(exp(-abs(_points(M, "exponential") - middle) / tau), **options)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Any:
    """exp(-(n / std)² / 2), around the middle."""
    if std <= 0:
        raise RangeError(f"std must be positive, not {std}", op="gaussian")
    middle = (M - 1 if sym or M < 2 else M) / 2
    at = (_points(M, "gaussian") - middle) / std
    return _made(exp(-(at * at) / 2), **options)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Any:
    """The Kaiser window."""
    if beta < 0:
        raise RangeError(f"beta must not be negative, but is {beta}", op="kaiser")
    if M == 1:
        return _made(creation.ones(1, dtype=float64), **options)
    at = _points(M, "kaiser") * (2 / _intervals(M, sym)) - 1
    inside = sqrt(abs(1 - at * at)) * beta
    return _made(i0(inside) / i0(creation.asarray(beta, dtype=float64)), **options)
