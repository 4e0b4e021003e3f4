"""Elementwise evaluation rules where the Array API function alone is not what Weft promises.

Written against the namespace `xp` of the arrays at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def floor_divide(xp: Any, x1: Any, x2: Any) -> Any:
    """floor(x1 / x2): with infinities as the standard has it, not as Python does."""
    out = xp.floor_divide(x1, x2)
    if not xp.isdtype(x1.dtype, "real floating"):
        return out
    return xp.where(xp.isinf(x1) | xp.isinf(x2), xp.floor(x1 / x2), out)


def power(xp: Any, x1: Any, x2: Any) -> Any:
    """x1 ** x2; an integer to a negative power is rounded towards zero instead of an error."""
    if not xp.isdtype(x1.dtype, "signed integer"):
        return xp.pow(x1, x2)
    below = x2 < 0
    one = xp.ones_like(x2)
    powers = xp.pow(x1, xp.where(below, one - one, x2))
    of_minus_one = xp.where(x2 % 2 == 0, one, -one)
    inverse = xp.where(x1 == 1, one, xp.where(x1 == -1, of_minus_one, one - one))
    return xp.where(below, inverse, powers)


def expm1(xp: Any, x: Any) -> Any:
    """exp(x) - 1; for complex infinities and NaNs by way of exp, which knows them all."""
    out = xp.expm1(x)
    if not xp.isdtype(x.dtype, "complex floating"):
        return out
    out = xp.where(xp.isfinite(x), out, xp.exp(x) - 1)
    return xp.where(x == 0, x - xp.real(x), out)  # never -0.0 as the real part of zero


def tanh(xp: Any, x: Any) -> Any:
    """tanh(x); at complex infinities the imaginary zero has the sign of x's imaginary part."""
    out = xp.tanh(x)
    if not xp.isdtype(x.dtype, "complex floating"):
        return out
    far = xp.isinf(xp.real(x)) & xp.isfinite(xp.imag(x))
    one = xp.copysign(xp.ones_like(xp.real(x)), xp.real(x))
    return xp.where(far, xp.where(xp.signbit(xp.imag(x)), xp.conj(one + 0j), one + 0j), out)


def rounding(name: str) -> Callable[[Any, Any], Any]:
    """floor, ceil or trunc, which leave integers as they are."""

    def evaluate(xp: Any, x: Any) -> Any:
        return x if xp.isdtype(x.dtype, "integral") else getattr(xp, name)(x)

    return evaluate


def real(xp: Any, x: Any) -> Any:
    return xp.real(x) if xp.isdtype(x.dtype, "complex floating") else x


def imag(xp: Any, x: Any) -> Any:
    return xp.imag(x) if xp.isdtype(x.dtype, "complex floating") else xp.zeros_like(x)
