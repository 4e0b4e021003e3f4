"""Elementwise arithmetic, rounding, and the parts of numbers: one card after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.op import Trait
from weft.ops import xp_math
from weft.ops.define import binary, unary
from weft.ops.rules import cast_to, conj_of, no_slope

__all__ = [
    "abs",
    "add",
    "ceil",
    "conj",
    "copysign",
    "divide",
    "floor",
    "floor_divide",
    "imag",
    "multiply",
    "negative",
    "nextafter",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "rsqrt",
    "sign",
    "signbit",
    "sqrt",
    "square",
    "subtract",
    "trunc",
]

# --- arithmetic -------------------------------------------------------------------------------

add = binary(
    "add",
    "x1 + x2, element by element.",
    "add",
    kinds="numeric",
    operator="add",
    vjp=(lambda xp, g, _out, _x1, _x2: g, lambda xp, g, _out, _x1, _x2: g),
    traits=Trait.COMMUTATIVE | Trait.LINEAR | Trait.COUNTS,
    terms=((0, 1),),
)
subtract = binary(
    "subtract",
    "x1 - x2, element by element.",
    "subtract",
    "sub",
    kinds="numeric",
    operator="sub",
    vjp=(lambda xp, g, _out, _x1, _x2: g, lambda xp, g, _out, _x1, _x2: -g),
    traits=Trait.LINEAR | Trait.COUNTS,
    terms=((0, 1),),
    short="Sub",
)
multiply = binary(
    "multiply",
    "x1 * x2, element by element.",
    "multiply",
    "mul",
    kinds="numeric",
    operator="mul",
    vjp=(
        lambda xp, g, _out, _x1, x2: g * (x2 if x2.dtype.kind == "f" else conj_of(xp, x2)),
        lambda xp, g, _out, x1, _x2: g * (x1 if x1.dtype.kind == "f" else conj_of(xp, x1)),
    ),
    traits=Trait.COMMUTATIVE | Trait.LINEAR,
    short="Mul",
    swap_rounds="complex floating",  # with fused multiply-adds
)
divide = binary(
    "divide",
    "x1 / x2; integers are divided as floats.",
    "divide",
    "div",
    kinds="floating",
    operator="truediv",
    vjp=(
        lambda xp, g, _out, _x1, x2: g / conj_of(xp, x2),
        lambda xp, g, out, _x1, x2: -g * conj_of(xp, out / x2),
    ),
    cycles=8.0,
    short="Div",
    terms=((0,),),
)
floor_divide = binary(
    "floor_divide",
    "x1 / x2 rounded down; 0 where an integer is divided by 0.",
    "floor_divide",
    kinds="real numeric",
    operator="floordiv",
    evaluate={"float": xp_math.floor_divide, "": "floor_divide"},
    vjp=(no_slope, no_slope),
    cycles=8.0,
)
remainder = binary(
    "remainder",
    "x1 - floor(x1 / x2) * x2, with the sign of x2; 0 for an integer % 0.",
    "remainder",
    kinds="real numeric",
    operator="mod",
    vjp=(
        lambda xp, g, _out, _x1, _x2: g,
        lambda xp, g, _out, x1, x2: -g * xp.floor_divide(x1, x2),
    ),
    cycles=8.0,
)


rsqrt = unary(
    "rsqrt",
    "1 / sqrt(x).",
    "rsqrt",
    kinds="real floating",
    autocast="float32",
    evaluate=lambda xp, x: 1 / xp.sqrt(x),
    vjp=lambda xp, g, out, _x: -0.5 * g * out * out * out,
    cycles=16.0,
)


def _pow_base(xp: Any, g: Any, _out: Any, x1: Any, x2: Any) -> Any:
    if (
        xp is np and not x2.shape
    ):  # one power for all elements, as in x ** 3: NumPy is fast for common ones
        power = x2.item()
        return g * conj_of(xp, power * x1 ** (power - 1)) if power else xp.zeros_like(g)
    # 0 ** 0 has slope 0 in its base. The formula is changed only there: elsewhere it must hold for
    # x2 = 0 too, because its own derivative in x2 is not 0.
    flat = (x2 == 0) & ~(xp.abs(x1) > 1 / xp.finfo(x1.dtype).max)
    return g * conj_of(xp, x2 * xp.where(flat, 1, x1) ** (x2 - 1))


def _pow_exponent(xp: Any, g: Any, out: Any, x1: Any, x2: Any) -> Any:
    flat = (x1 == 0) & (xp.real(x2) >= 0)  # 0 ** x is 0 for all x > 0
    return g * conj_of(xp, out * xp.log(xp.where(flat, 1, x1)))


pow = binary(
    "pow",
    "x1 to the power of x2; integers to a negative power are rounded towards 0.",
    "pow",
    kinds="numeric",
    autocast="float32",
    operator="pow",
    evaluate={"int": xp_math.integer_power, "float": xp_math.float_power, "": "pow"},
    vjp=(_pow_base, _pow_exponent),
    cycles=40.0,
)
negative = unary(
    "negative",
    "-x.",
    "negative",
    "neg",
    "__neg__",
    kinds="numeric",
    vjp=lambda xp, g, _out, _x: -g,
    traits=Trait.LINEAR,
    short="Neg",
)
positive = unary(
    "positive",
    "+x: x itself.",
    "positive",
    "__pos__",
    kinds="numeric",
    vjp=lambda xp, g, _out, _x: g,
    traits=Trait.LINEAR | Trait.ALIAS,
)
abs = unary(
    "abs",
    "The absolute value; of complex numbers the modulus. abs(INT_MIN) is INT_MIN.",
    "abs",
    "__abs__",
    kinds="numeric",
    result="real",
    vjp=lambda xp, g, _out, x: g * xp.sign(x),
)


def _sign_vjp(xp: Any, g: Any, out: Any, x: Any) -> Any:
    """For z / |z|: the part of g perpendicular to z, over |z|; 0 at 0 and for real numbers."""
    if not xp.isdtype(x.dtype, "complex floating"):
        return xp.zeros_like(g)
    size = xp.abs(x)
    across = g - out * xp.real(xp.conj(out) * g)
    return xp.where(size == 0, 0, across) / xp.where(size == 0, 1, size)


sign = unary(
    "sign",
    "-1, 0 or 1 by the sign of x; NaN stays; z / |z| for complex z.",
    "sign",
    kinds="numeric",
    vjp=_sign_vjp,
)
square = unary(
    "square",
    "x * x.",
    "square",
    kinds="numeric",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, 2 * x),
)
sqrt = unary(
    "sqrt",
    "The square root; NaN for x < 0.",
    "sqrt",
    kinds="floating",
    vjp=lambda xp, g, out, _x: g / conj_of(xp, 2 * out),
    cycles=8.0,
)
reciprocal = unary(
    "reciprocal",
    "1 / x.",
    "reciprocal",
    kinds="floating",
    autocast="float32",
    vjp=lambda xp, g, out, _x: -g * conj_of(xp, out * out),
    cycles=8.0,
)

# --- rounding ---------------------------------------------------------------------------------

floor = unary(
    "floor",
    "x rounded down.",
    "floor",
    "__floor__",
    kinds="real numeric",
    evaluate={"float": "floor", "": xp_math.same},
    vjp=no_slope,
)
ceil = unary(
    "ceil",
    "x rounded up.",
    "ceil",
    "__ceil__",
    kinds="real numeric",
    evaluate={"float": "ceil", "": xp_math.same},
    vjp=no_slope,
)
trunc = unary(
    "trunc",
    "x rounded towards 0.",
    "trunc",
    "__trunc__",
    kinds="real numeric",
    evaluate={"float": "trunc", "": xp_math.same},
    vjp=no_slope,
)
round = unary(
    "round",
    "x rounded to the nearest integer, halves to the even one.",
    "round",
    kinds="numeric",
    vjp=no_slope,
)

# --- parts of numbers -------------------------------------------------------------------------

real = unary(
    "real",
    "The real part.",
    "real",
    kinds="numeric",
    result="real",
    evaluate={"complex": "real", "": xp_math.same},
    vjp=lambda xp, g, _out, x_type: cast_to(xp, g, x_type.dtype),
    traits=Trait.LINEAR,
)


def _imag_vjp(xp: Any, g: Any, _out: Any, x_type: Any) -> Any:
    if not xp.isdtype(x_type.dtype, "complex floating"):
        return xp.zeros_like(g)
    return cast_to(xp, g, x_type.dtype) * 1j


imag = unary(
    "imag",
    "The imaginary part; 0 for real x.",
    "imag",
    kinds="numeric",
    result="real",
    evaluate={"complex": "imag", "": xp_math.zero},
    vjp=_imag_vjp,
    traits=Trait.LINEAR,
)
conj = unary(
    "conj",
    "The complex conjugate; x itself for real x.",
    "conj",
    kinds="numeric",
    evaluate={"complex": "conj", "": xp_math.same},
    vjp=lambda xp, g, _out, _x: conj_of(xp, g),
    traits=Trait.LINEAR,
)
signbit = unary(
    "signbit",
    "True where the sign bit is set: below 0, and -0.0.",
    "signbit",
    kinds="real floating",
    result="bool",
)
copysign = binary(
    "copysign",
    "The magnitude of x1 with the sign of x2.",
    "copysign",
    kinds="real floating",
    vjp=(lambda xp, g, out, x1, _x2: g * (xp.sign(x1) * xp.sign(out)), no_slope),
)


def _nextafter(xp: Any, x1: Any, x2: Any) -> Any:
    found = xp.nextafter(x1, x2)
    # For 0.0 and -0.0, NumPy before 2.5 returns the first in float16, and else the second.
    return xp.where(x1 == x2, x2, found) if found.dtype == np.float16 else found


nextafter = binary(
    "nextafter",
    "The next representable value after x1 towards x2; x2 itself where they are equal.",
    "nextafter",
    kinds="real floating",
    evaluate=_nextafter,
    cycles=8.0,
)
