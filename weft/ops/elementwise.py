"""Elementwise ops: out[i] depends on the inputs' [i] only, and inputs broadcast.

Each line of the tables below is one card. Numerics that hold in every mode:

- NaN propagates through arithmetic, `maximum`, `minimum` and `clip`; 1/0 is inf, without warnings.
- Integers wrap. Integer `//` and `%` by zero give 0; INT_MIN // -1 wraps to INT_MIN.
- An integer to a negative power is the exact power rounded towards zero (2 ** -1 is 0; 0 ** -1
  is 0). Shifts by the width or more give 0 (-1 for `>>` of a negative number).
- float16 and bfloat16 are computed in float32 and rounded once.
- Integers and bools become the default floating dtype where a function is only defined for floats.
"""

from __future__ import annotations

from weft.ir.op import Trait
from weft.ops import xp_math
from weft.ops.define import binary, unary
from weft.ops.rules import conj_of

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]

# fmt: off  (a table: one card after the other)

# --- arithmetic --------------------------------------------------------------------------------

add = binary(
    "add",
    "x1 + x2, element by element.",
    "add",
    kinds="numeric",
    operator="add",
    vjp=(lambda xp, g, _out, _x1, _x2: g, lambda xp, g, _out, _x1, _x2: g),
    traits=Trait.COMMUTATIVE | Trait.LINEAR,
)
subtract = binary(
    "subtract",
    "x1 - x2, element by element.",
    "subtract",
    "sub",
    kinds="numeric",
    operator="sub",
    vjp=(lambda xp, g, _out, _x1, _x2: g, lambda xp, g, _out, _x1, _x2: -g),
    traits=Trait.LINEAR,
)
multiply = binary(
    "multiply",
    "x1 * x2, element by element.",
    "multiply",
    "mul",
    kinds="numeric",
    operator="mul",
    vjp=(
        lambda xp, g, _out, _x1, x2: g * conj_of(xp, x2),
        lambda xp, g, _out, x1, _x2: g * conj_of(xp, x1),
    ),
    traits=Trait.COMMUTATIVE | Trait.LINEAR,
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
)
floor_divide = binary(
    "floor_divide",
    "x1 / x2 rounded down; 0 where an integer is divided by 0.",
    "floor_divide",
    kinds="real numeric",
    operator="floordiv",
    evaluate=xp_math.floor_divide,
)
remainder = binary(
    "remainder",
    "x1 - floor(x1 / x2) * x2, with the sign of x2; 0 for an integer % 0.",
    "remainder",
    kinds="real numeric",
    operator="mod",
)
pow = binary(
    "pow",
    "x1 to the power of x2; integers to a negative power are rounded towards 0.",
    "pow",
    kinds="numeric",
    operator="pow",
    evaluate=xp_math.power,
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
)
positive = unary(
    "positive",
    "+x: x itself.",
    "positive",
    "__pos__",
    kinds="numeric",
    vjp=lambda xp, g, _out, _x: g,
    traits=Trait.LINEAR,
)
abs = unary(
    "abs",
    "The absolute value; of complex numbers the modulus. abs(INT_MIN) is INT_MIN.",
    "abs",
    "__abs__",
    kinds="numeric",
    result="real",
)
sign = unary(
    "sign",
    "-1, 0 or 1 by the sign of x; NaN stays; z / |z| for complex z.",
    "sign",
    kinds="numeric",
)
square = unary(
    "square", "x * x.", "square", kinds="numeric", vjp=lambda xp, g, _out, x: g * conj_of(xp, 2 * x)
)
sqrt = unary(
    "sqrt",
    "The square root; NaN for x < 0.",
    "sqrt",
    kinds="floating",
    vjp=lambda xp, g, out, _x: g / conj_of(xp, 2 * out),
)
reciprocal = unary(
    "reciprocal",
    "1 / x.",
    "reciprocal",
    kinds="floating",
    vjp=lambda xp, g, out, _x: -g * conj_of(xp, out * out),
)

# --- exponentials and logarithms ---------------------------------------------------------------

exp = unary(
    "exp",
    "e to the power of x.",
    "exp",
    kinds="floating",
    vjp=lambda xp, g, out, _x: g * conj_of(xp, out),
)
expm1 = unary(
    "expm1",
    "exp(x) - 1, exact also for small x.",
    "expm1",
    kinds="floating",
    evaluate=xp_math.expm1,
    vjp=lambda xp, g, out, _x: g * conj_of(xp, out + 1),
)
log = unary(
    "log",
    "The natural logarithm; -inf at 0, NaN below.",
    "log",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, x),
)
log1p = unary(
    "log1p",
    "log(1 + x), exact also for small x.",
    "log1p",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g / conj_of(xp, 1 + x),
)
log2 = unary("log2", "The logarithm to base 2.", "log2", kinds="floating")
log10 = unary("log10", "The logarithm to base 10.", "log10", kinds="floating")
logaddexp = binary(
    "logaddexp",
    "log(exp(x1) + exp(x2)) without overflow.",
    "logaddexp",
    kinds="real floating",
    traits=Trait.COMMUTATIVE,
)

# --- trigonometry ------------------------------------------------------------------------------

sin = unary(
    "sin",
    "The sine.",
    "sin",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, xp.cos(x)),
)
cos = unary(
    "cos",
    "The cosine.",
    "cos",
    kinds="floating",
    vjp=lambda xp, g, _out, x: -g * conj_of(xp, xp.sin(x)),
)
tan = unary(
    "tan",
    "The tangent.",
    "tan",
    kinds="floating",
    vjp=lambda xp, g, out, _x: g * conj_of(xp, 1 + out * out),
)
asin = unary("asin", "The arc sine.", "asin", kinds="floating")
acos = unary("acos", "The arc cosine.", "acos", kinds="floating")
atan = unary("atan", "The arc tangent.", "atan", kinds="floating")
atan2 = binary(
    "atan2", "The angle of the point (x2, x1), in (-pi, pi].", "atan2", kinds="real floating"
)
sinh = unary(
    "sinh",
    "The hyperbolic sine.",
    "sinh",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, xp.cosh(x)),
)
cosh = unary(
    "cosh",
    "The hyperbolic cosine.",
    "cosh",
    kinds="floating",
    vjp=lambda xp, g, _out, x: g * conj_of(xp, xp.sinh(x)),
)
tanh = unary(
    "tanh",
    "The hyperbolic tangent.",
    "tanh",
    kinds="floating",
    evaluate=xp_math.tanh,
    vjp=lambda xp, g, out, _x: g * conj_of(xp, 1 - out * out),
)
asinh = unary("asinh", "The inverse hyperbolic sine.", "asinh", kinds="floating")
acosh = unary("acosh", "The inverse hyperbolic cosine.", "acosh", kinds="floating")
atanh = unary("atanh", "The inverse hyperbolic tangent.", "atanh", kinds="floating")
hypot = binary(
    "hypot",
    "sqrt(x1**2 + x2**2) without overflow.",
    "hypot",
    kinds="real floating",
    traits=Trait.COMMUTATIVE,
)

# --- rounding ----------------------------------------------------------------------------------

floor = unary(
    "floor",
    "x rounded down.",
    "floor",
    "__floor__",
    kinds="real numeric",
    evaluate=xp_math.rounding("floor"),
)
ceil = unary(
    "ceil",
    "x rounded up.",
    "ceil",
    "__ceil__",
    kinds="real numeric",
    evaluate=xp_math.rounding("ceil"),
)
trunc = unary(
    "trunc",
    "x rounded towards 0.",
    "trunc",
    "__trunc__",
    kinds="real numeric",
    evaluate=xp_math.rounding("trunc"),
)
round = unary(
    "round", "x rounded to the nearest integer, halves to the even one.", "round", kinds="numeric"
)

# --- comparison --------------------------------------------------------------------------------

equal = binary(
    "equal",
    "x1 == x2, element by element; NaN equals nothing.",
    "equal",
    kinds="all",
    operator="eq",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
not_equal = binary(
    "not_equal",
    "x1 != x2, element by element.",
    "not_equal",
    kinds="all",
    operator="ne",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
less = binary(
    "less", "x1 < x2, element by element.", "less", kinds="real", operator="lt", result="bool"
)
less_equal = binary(
    "less_equal",
    "x1 <= x2, element by element.",
    "less_equal",
    kinds="real",
    operator="le",
    result="bool",
)
greater = binary(
    "greater", "x1 > x2, element by element.", "greater", kinds="real", operator="gt", result="bool"
)
greater_equal = binary(
    "greater_equal",
    "x1 >= x2, element by element.",
    "greater_equal",
    kinds="real",
    operator="ge",
    result="bool",
)
maximum = binary(
    "maximum",
    "The larger of x1 and x2; NaN where either is NaN.",
    "maximum",
    kinds="real",
    traits=Trait.COMMUTATIVE,
)
minimum = binary(
    "minimum",
    "The smaller of x1 and x2; NaN where either is NaN.",
    "minimum",
    kinds="real",
    traits=Trait.COMMUTATIVE,
)
isfinite = unary(
    "isfinite", "True where x is neither NaN nor infinite.", "isfinite", kinds="all", result="bool"
)
isinf = unary("isinf", "True where x is infinite.", "isinf", kinds="all", result="bool")
isnan = unary("isnan", "True where x is NaN.", "isnan", kinds="all", result="bool")

# --- logic and bits ----------------------------------------------------------------------------

logical_and = binary(
    "logical_and",
    "True where both are nonzero.",
    "logical_and",
    kinds="all",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
logical_or = binary(
    "logical_or",
    "True where either is nonzero.",
    "logical_or",
    kinds="all",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
logical_xor = binary(
    "logical_xor",
    "True where exactly one is nonzero.",
    "logical_xor",
    kinds="all",
    result="bool",
    traits=Trait.COMMUTATIVE,
)
logical_not = unary(
    "logical_not", "True where x is zero.", "logical_not", kinds="all", result="bool"
)
bitwise_and = binary(
    "bitwise_and",
    "x1 & x2.",
    "bitwise_and",
    kinds="integral or bool",
    operator="and",
    traits=Trait.COMMUTATIVE,
)
bitwise_or = binary(
    "bitwise_or",
    "x1 | x2.",
    "bitwise_or",
    kinds="integral or bool",
    operator="or",
    traits=Trait.COMMUTATIVE,
)
bitwise_xor = binary(
    "bitwise_xor",
    "x1 ^ x2.",
    "bitwise_xor",
    kinds="integral or bool",
    operator="xor",
    traits=Trait.COMMUTATIVE,
)
bitwise_invert = unary(
    "bitwise_invert", "~x.", "bitwise_invert", "__invert__", kinds="integral or bool"
)
bitwise_left_shift = binary(
    "bitwise_left_shift",
    "x1 << x2; 0 where x2 is negative or at least the width of x1.",
    "bitwise_left_shift",
    kinds="integral",
    operator="lshift",
)
bitwise_right_shift = binary(
    "bitwise_right_shift",
    "x1 >> x2, keeping the sign; a shift out of range leaves 0 or -1.",
    "bitwise_right_shift",
    kinds="integral",
    operator="rshift",
)

# --- parts of numbers --------------------------------------------------------------------------

real = unary(
    "real",
    "The real part.",
    "real",
    kinds="numeric",
    result="real",
    evaluate=xp_math.real,
    traits=Trait.LINEAR,
)
imag = unary(
    "imag",
    "The imaginary part; 0 for real x.",
    "imag",
    kinds="numeric",
    result="real",
    evaluate=xp_math.imag,
    traits=Trait.LINEAR,
)
conj = unary(
    "conj",
    "The complex conjugate; x itself for real x.",
    "conj",
    kinds="numeric",
    evaluate=conj_of,
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
    "copysign", "The magnitude of x1 with the sign of x2.", "copysign", kinds="real floating"
)
nextafter = binary(
    "nextafter",
    "The next representable value after x1 towards x2.",
    "nextafter",
    kinds="real floating",
)
