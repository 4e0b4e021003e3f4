"""Elementwise exponentials, logarithms and trigonometry: one card after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ir.op import Trait
from weft.ops import xp_math
from weft.ops.define import binary, unary
from weft.ops.rules import conj_of

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "hypot",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "sin",
    "sinh",
    "tan",
    "tanh",
]

# --- exponentials and logarithms --------------------------------------------------------------

exp = unary(
    "exp",
    "e to the power of x.",
    "exp",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, out, _x: g * conj_of(xp, out),
    cycles=16.0,
)
expm1 = unary(
    "expm1",
    "exp(x) - 1, exact also for small x.",
    "expm1",
    kinds="floating",
    autocast="float32",
    evaluate={"complex": xp_math.complex_expm1, "": "expm1"},
    vjp=lambda xp, g, out, _x: g * conj_of(xp, out + 1),
    cycles=16.0,
)
log = unary(
    "log",
    "The natural logarithm; -inf at 0, NaN below.",
    "log",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, x),
    cycles=16.0,
)
log1p = unary(
    "log1p",
    "log(1 + x), exact also for small x.",
    "log1p",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, 1 + x),
    cycles=16.0,
)
log2 = unary(
    "log2",
    "The logarithm to base 2.",
    "log2",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, math.log(2) * x),
    cycles=30.0,
)
log10 = unary(
    "log10",
    "The logarithm to base 10.",
    "log10",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, math.log(10) * x),
    cycles=30.0,
)


def _share(xp: Any, g: Any, x1: Any, x2: Any) -> Any:
    """g times exp(x1) / (exp(x1) + exp(x2)), exact and finite in every order of derivative."""
    both = (x1 == x2) & xp.isinf(x1)  # equal infinities share evenly
    lead = xp.where(both, 0, x1) - xp.where(both, 0, x2)
    ratio = xp.exp(xp.where(lead >= 0, -lead, lead))
    return g * (xp.where(lead >= 0, 1, ratio) / (1 + ratio))


logaddexp = binary(
    "logaddexp",
    "log(exp(x1) + exp(x2)) without overflow.",
    "logaddexp",
    kinds="real floating",
    autocast="float32",
    vjp=(
        lambda xp, g, _out, x1, x2: _share(xp, g, x1, x2),
        lambda xp, g, _out, x1, x2: _share(xp, g, x2, x1),
    ),
    traits=Trait.COMMUTATIVE,
    cycles=40.0,
    swap_rounds="real floating",  # in the C library
)

# --- trigonometry -----------------------------------------------------------------------------

sin = unary(
    "sin",
    "The sine.",
    "sin",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, xp.cos(x)),
    cycles=40.0,
)
cos = unary(
    "cos",
    "The cosine.",
    "cos",
    kinds="floating",
    vjp=lambda xp, g, _out, x: -g * conj_of(xp, xp.sin(x)),
    cycles=40.0,
)
tan = unary(
    "tan",
    "The tangent.",
    "tan",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, out, _x: g * conj_of(xp, 1 + out * out),
    cycles=40.0,
)
asin = unary(
    "asin",
    "The arc sine.",
    "asin",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, xp.sqrt(1 - x * x)),
    cycles=30.0,
)
acos = unary(
    "acos",
    "The arc cosine.",
    "acos",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: -g / conj_of(xp, xp.sqrt(1 - x * x)),
    cycles=30.0,
)
atan = unary(
    "atan",
    "The arc tangent.",
    "atan",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, 1 + x * x),
    cycles=30.0,
)


def _over(xp: Any, x: Any, length: Any) -> Any:
    """x / length, and 0 where the length is 0."""
    return xp.where(length == 0, 0, x) / xp.where(length == 0, 1, length)


def _turn(xp: Any, g: Any, across: Any, other: Any) -> Any:
    """g times across / (across² + other²) without overflow; 0 at the origin."""
    length = xp.hypot(across, other)
    return _over(xp, g * _over(xp, across, length), length)


atan2 = binary(
    "atan2",
    "The angle of the point (x2, x1), in (-pi, pi].",
    "atan2",
    kinds="real floating",
    vjp=(
        lambda xp, g, _out, x1, x2: _turn(xp, g, x2, x1),
        lambda xp, g, _out, x1, x2: _turn(xp, -g, x1, x2),
    ),
    cycles=40.0,
)
sinh = unary(
    "sinh",
    "The hyperbolic sine.",
    "sinh",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, xp.cosh(x)),
    cycles=30.0,
)
cosh = unary(
    "cosh",
    "The hyperbolic cosine.",
    "cosh",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, xp.sinh(x)),
    cycles=30.0,
)


def _tanh_slope(xp: Any, g: Any, out: Any, _x: Any) -> Any:
    if xp is np and out.shape and out.dtype.kind == "f":  # in one buffer; and 1 as an array,
        slope = out * out  # because a Python number takes NumPy as long as two products
        np.subtract(_ONE[out.dtype], slope, out=slope)
        slope *= g
        return slope
    return g * conj_of(xp, 1 - out * out)


_ONE = {np.dtype(kind): np.ones((), kind) for kind in (np.float32, np.float64)}

tanh = unary(
    "tanh",
    "The hyperbolic tangent.",
    "tanh",
    kinds="floating",
    evaluate={"complex": xp_math.complex_tanh, "": "tanh"},
    vjp=_tanh_slope,
    cycles=16.0,
)
asinh = unary(
    "asinh",
    "The inverse hyperbolic sine.",
    "asinh",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, xp.sqrt(x * x + 1)),
    cycles=40.0,
)
acosh = unary(
    "acosh",
    "The inverse hyperbolic cosine.",
    "acosh",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, xp.sqrt(x - 1) * xp.sqrt(x + 1)),
    cycles=40.0,
)
atanh = unary(
    "atanh",
    "The inverse hyperbolic tangent.",
    "atanh",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, 1 - x * x),
    cycles=40.0,
)
hypot = binary(
    "hypot",
    "sqrt(x1**2 + x2**2) without overflow.",
    "hypot",
    kinds="real floating",
    vjp=(
        lambda xp, g, out, x1, _x2: g * _over(xp, x1, out),
        lambda xp, g, out, _x1, x2: g * _over(xp, x2, out),
    ),
    traits=Trait.COMMUTATIVE,
    cycles=40.0,
    swap_rounds="real floating",  # in the C library
)
