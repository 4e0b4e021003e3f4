"""Windows that fade a signal in and out, for `stft` and filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.dim_algebra import Dim
from weft.base.dtypes import as_dtype
from weft.base.errors import DTypeError, RangeError
from weft.core.operands import cast, constant
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.arguments import integer
from weft.ops.creation import arange, ones
from weft.ops.elementwise import abs, cos, maximum, sqrt, square
from weft.ops.select import where
from weft.ops.special_bessel import i0

__all__ = [
    "bartlett_window",
    "blackman_window",
    "hamming_window",
    "hann_window",
    "kaiser_window",
]


def _window(
    formula: Callable[[Tensor], Tensor],
    length: Any,
    periodic: bool,
    dtype: Any,
    device: Any,
    op: str,
) -> Tensor:
    """A formula of the samples' places from 0 to 1, computed in float64; 1 if there is only one."""
    count = length if isinstance(length, Dim) else integer(length, "window_length", op)
    wanted = dtypes.default_float() if dtype is None else as_dtype(dtype)
    if wanted.kind != "float":
        raise DTypeError(f"dtype must be a real floating one, not {wanted.name}", op=op)
    if is_less(count, 0):
        raise RangeError(f"the length must not be negative: {count}", op=op)
    if is_less(count, 2):
        return ones(count, dtype=wanted, device=device)
    places = cast(arange(count, device=device), dtypes.float64)
    if not isinstance(count, Dim):
        return cast(formula(places / (count if periodic else count - 1)), wanted)
    size = constant(count, dtypes.float64, places.device)
    out = formula(places / maximum(size if periodic else size - 1, 1.0))
    return cast(where(size < 2, 1.0, out), wanted)


def _cosines(*parts: float) -> Callable[[Tensor], Tensor]:
    """parts[0] - parts[1] cos(2πt) + parts[2] cos(4πt) …"""

    def formula(t: Tensor) -> Tensor:
        out = parts[0] - parts[1] * cos(2 * math.pi * t)
        for k, part in enumerate(parts[2:], 2):
            out = out + (-1) ** k * part * cos(2 * math.pi * k * t)
        return out

    return formula


@public()
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Half a cosine's period up and down: ½ - ½ cos(2πt).

    With `periodic`, the window is one period of a longer one, as transforms want it; without, it
    is symmetric.

    >>> weft.hann_window(4)
    tensor([0. , 0.5, 1. , 0.5])
    """
    return _window(_cosines(0.5, 0.5), window_length, periodic, dtype, device, "hann_window")


@public()
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """alpha - beta cos(2πt): like `hann_window`, but it does not go down to 0."""
    return _window(_cosines(alpha, beta), window_length, periodic, dtype, device, "hamming_window")


@public()
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """0.42 - 0.5 cos(2πt) + 0.08 cos(4πt)."""
    formula = _cosines(0.42, 0.5, 0.08)
    return abs(_window(formula, window_length, periodic, dtype, device, "blackman_window"))


@public()
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """A triangle: 1 - |2t - 1|."""

    def formula(t: Tensor) -> Tensor:
        return 1 - abs(2 * t - 1)

    return _window(formula, window_length, periodic, dtype, device, "bartlett_window")


@public()
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """i0(beta √(1 - (2t - 1)²)) / i0(beta): the larger beta, the narrower."""

    def formula(t: Tensor) -> Tensor:
        inner = sqrt(maximum(1 - square(2 * t - 1), 0.0))
        return i0(beta * inner) / i0(0 * t + beta)

    return _window(formula, window_length, periodic, dtype, device, "kaiser_window")
