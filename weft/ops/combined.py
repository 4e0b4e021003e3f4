"""Elementwise functions that are a few others put together."""

from __future__ import annotations

import math
from typing import Literal

from weft.base import dtypes
from weft.base.dtypes import NARROW_FLOATS, float_info
from weft.base.errors import DTypeError, RangeError
from weft.core.operands import Operand, as_tensor, cast, common
from weft.core.public import attach, public
from weft.core.tensor import Tensor
from weft.ops.creation import ones, zeros_like
from weft.ops.define import binary
from weft.ops.elementwise import (
    abs,
    add,
    copysign,
    divide,
    equal,
    floor_divide,
    imag,
    isfinite,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    multiply,
    not_equal,
    pow,
    remainder,
    subtract,
    trunc,
)
from weft.ops.select import clip, where

__all__ = [
    "addcdiv",
    "addcmul",
    "clamp_max",
    "clamp_min",
    "deg2rad",
    "div",
    "float_power",
    "fmod",
    "frac",
    "gcd",
    "heaviside",
    "isclose",
    "isneginf",
    "isposinf",
    "isreal",
    "lcm",
    "ldexp",
    "lerp",
    "logit",
    "nan_to_num",
    "rad2deg",
    "sub",
]

gcd = binary(
    "gcd",
    "The greatest common divisor of integers; it is never negative, and of two zeros it is 0.\n\n"
    "    >>> weft.gcd(weft.asarray([12, -8]), 18)\n    tensor([6, 2])\n    ",
    "gcd",
    kinds="integral",
)
lcm = binary(
    "lcm",
    "The least common multiple of integers; it is never negative, and of 0 it is 0.\n\n"
    "    >>> weft.lcm(weft.asarray([4, 6]), 10)\n    tensor([20, 30])\n    ",
    "lcm",
    kinds="integral",
)


# --- sums and products -------------------------------------------------------------------------


def _scaled(value: Operand, factor: Operand) -> Operand:
    return value if factor.__class__ is int and factor == 1 else multiply(value, factor)


@public("sub")
def sub(x1: Operand, x2: Operand, /, *, alpha: Operand = 1) -> Tensor:
    """x1 - alpha * x2.

    >>> weft.sub(weft.asarray([5, 6]), 2, alpha=2)
    tensor([1, 2])
    """
    return subtract(x1, _scaled(x2, alpha))


def _add_method(self: Tensor, other: Operand, /, *, alpha: Operand = 1) -> Tensor:
    """x + alpha * other."""
    return add(self, _scaled(other, alpha))


attach({"add": _add_method})


@public("div")
def div(
    x1: Operand, x2: Operand, /, *, rounding_mode: Literal["floor", "trunc"] | None = None
) -> Tensor:
    """x1 / x2, rounded down or towards zero where `rounding_mode` says so.

    >>> weft.div(weft.asarray([7, -7]), 2, rounding_mode="trunc")
    tensor([ 3, -3])
    """
    if rounding_mode is None:
        return divide(x1, x2)
    if rounding_mode == "floor":
        return floor_divide(x1, x2)
    if rounding_mode != "trunc":
        raise RangeError(
            f"rounding_mode must be None, 'floor' or 'trunc', not {rounding_mode!r}", op="div"
        )
    a, b = common((x1, x2), "div")
    if a.dtype.kind in ("float", "complex"):
        return trunc(divide(a, b))
    down = floor_divide(a, b)  # one too low where the signs differ and something is left over
    left_over = logical_and(not_equal(remainder(a, b), 0), not_equal(less(a, 0), less(b, 0)))
    return add(down, cast(left_over, down.dtype))


@public("addcmul")
def addcmul(x: Tensor, x1: Operand, x2: Operand, /, *, value: Operand = 1) -> Tensor:
    """x + value * x1 * x2.

    >>> weft.addcmul(weft.asarray([1, 1]), weft.asarray([2, 3]), weft.asarray([4, 5]))
    tensor([ 9, 16])
    """
    return add(x, _scaled(multiply(x1, x2), value))


@public("addcdiv")
def addcdiv(x: Tensor, x1: Operand, x2: Operand, /, *, value: Operand = 1) -> Tensor:
    """x + value * x1 / x2.

    >>> weft.addcdiv(weft.asarray([1.0]), weft.asarray([4.0]), weft.asarray([2.0]))
    tensor([3.])
    """
    return add(x, _scaled(divide(x1, x2), value))


@public("lerp")
def lerp(start: Tensor, end: Tensor, weight: Operand, /) -> Tensor:
    """start + weight * (end - start): at 0 exactly start, at 1 exactly end.

    >>> weft.lerp(weft.asarray([0.0, 10.0]), weft.asarray([1.0, 20.0]), 0.5)
    tensor([ 0.5, 15. ])
    """
    ends = common((start, end), "lerp")
    dtype = ends[0].dtype
    if isinstance(weight, Tensor):
        dtype = common((ends[0], weight), "lerp")[0].dtype
        weight = cast(weight, dtypes.float32) if dtype in NARROW_FLOATS else weight
    if dtype in NARROW_FLOATS:  # rounded once
        ends = [cast(x, dtypes.float32) for x in ends]
    first, last = ends
    gap = subtract(last, first)
    from_start = add(first, multiply(gap, weight))
    from_end = subtract(last, multiply(gap, subtract(1, weight)))
    return cast(
        where(less(abs(as_tensor(weight, "lerp", like=first)), 0.5), from_start, from_end), dtype
    )


@public("clamp_min")
def clamp_min(x: Tensor, min: Operand, /) -> Tensor:
    """x with values below `min` raised to it.

    >>> weft.clamp_min(weft.asarray([1, 5]), 3)
    tensor([3, 5])
    """
    return clip(x, min=min)


@public("clamp_max")
def clamp_max(x: Tensor, max: Operand, /) -> Tensor:
    """x with values above `max` lowered to it.

    >>> weft.clamp_max(weft.asarray([1, 5]), 3)
    tensor([1, 3])
    """
    return clip(x, max=max)


# --- powers, quotients, parts ------------------------------------------------------------------


@public("float_power")
def float_power(x1: Operand, x2: Operand, /) -> Tensor:
    """x1 ** x2 in float64, or complex128 for complex numbers.

    >>> weft.float_power(weft.asarray([2, 3]), -1)
    tensor([0.5       , 0.33333333], dtype=float64)
    """
    a, b = common((x1, x2), "float_power")
    wide = dtypes.complex128 if a.dtype.kind == "complex" else dtypes.float64
    return pow(cast(a, wide), cast(b, wide))


@public("fmod")
def fmod(x1: Operand, x2: Operand, /) -> Tensor:
    """What is left of x1 divided by x2, with the sign of x1. `remainder` has the sign of x2.

    >>> weft.fmod(weft.asarray([7, -7]), 3)
    tensor([ 1, -1])
    """
    a, b = common((x1, x2), "fmod")
    if a.dtype.kind == "float":
        return copysign(remainder(abs(a), abs(b)), a)
    rest = remainder(a, b)
    other_sign = logical_and(not_equal(rest, 0), not_equal(less(rest, 0), less(a, 0)))
    return where(other_sign, subtract(rest, b), rest)


@public("frac")
def frac(x: Tensor, /) -> Tensor:
    """The part of each number behind the point, with its sign.

    >>> weft.frac(weft.asarray([2.5, -1.25]))
    tensor([ 0.5 , -0.25])
    """
    return subtract(x, trunc(x))


@public("ldexp")
def ldexp(x: Tensor, exponent: Operand, /) -> Tensor:
    """x * 2 ** exponent, for integer exponents.

    >>> weft.ldexp(weft.asarray([1.0, 3.0]), weft.asarray([4, -1]))
    tensor([16. ,  1.5])
    """
    number, power = as_tensor(x, "ldexp"), as_tensor(exponent, "ldexp")
    if number.dtype.kind not in ("float", "complex"):
        number = cast(number, dtypes.default_float())
    if power.dtype.kind not in ("int", "uint"):
        raise DTypeError(f"the exponent must be an integer, not {power.dtype.name}", op="ldexp")
    for _ in range(3):  # in four parts, so that no factor leaves the range before the product does
        half = floor_divide(power, 2)
        number = multiply(number, pow(2.0, cast(subtract(power, half), number.dtype)))
        power = half
    return multiply(number, pow(2.0, cast(power, number.dtype)))


# --- angles and functions of probability --------------------------------------------------------


@public("deg2rad")
def deg2rad(x: Tensor, /) -> Tensor:
    """Degrees as radians.

    >>> weft.deg2rad(weft.asarray([180.0]))
    tensor([3.1415927])
    """
    return multiply(x, math.pi / 180)


@public("rad2deg")
def rad2deg(x: Tensor, /) -> Tensor:
    """Radians as degrees.

    >>> weft.rad2deg(weft.asarray([weft.pi]))
    tensor([180.])
    """
    return multiply(x, 180 / math.pi)


@public("logit")
def logit(x: Tensor, /, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`; x is first brought into [eps, 1 - eps].

    >>> weft.logit(weft.asarray([0.5, 0.75]))
    tensor([0.       , 1.0986123])
    """
    inside = as_tensor(x, "logit") if eps is None else clip(x, eps, 1 - eps)
    return subtract(log(inside), log1p(multiply(inside, -1)))


@public("heaviside")
def heaviside(x: Tensor, at_zero: Operand, /) -> Tensor:
    """0 for negative numbers, 1 for positive ones, `at_zero` at 0.

    >>> weft.heaviside(weft.asarray([-1.5, 0.0, 2.0]), 0.5)
    tensor([0. , 0.5, 1. ])
    """
    a, b = common((x, at_zero), "heaviside")
    step = where(less(a, 0), zeros_like(a), ones((), dtype=a.dtype, device=a.device))
    known = where(equal(a, 0), b, step)
    return where(isnan(a), a, known) if a.dtype.kind == "float" else known


# --- questions ---------------------------------------------------------------------------------


@public("nan_to_num")
def nan_to_num(
    x: Tensor, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with numbers for NaN and infinities: by default 0, and the largest and smallest float.

    >>> weft.nan_to_num(weft.asarray([float("nan"), 1.0]))
    tensor([0., 1.])
    """
    number = as_tensor(x, "nan_to_num")
    if number.dtype.kind == "complex":
        raise DTypeError("complex numbers are not taken", op="nan_to_num", operands=[number.type])
    if number.dtype.kind != "float":
        return number.clone()
    info = float_info(number.dtype)
    found = where(isnan(number), nan, number)
    found = where(equal(number, math.inf), info.max if posinf is None else posinf, found)
    return where(equal(number, -math.inf), info.min if neginf is None else neginf, found)


@public("isclose")
def isclose(
    x1: Operand, x2: Operand, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|, element by element; equal infinities are close.

    >>> weft.isclose(weft.asarray([1.0, 1.1]), weft.asarray([1.0, 1.0]))
    tensor([ True, False])
    """
    a, b = common((x1, x2), "isclose")
    same = equal(a, b)
    if a.dtype.kind in ("int", "uint", "bool"):
        a, b = cast(a, dtypes.float64), cast(b, dtypes.float64)
    near = less_equal(abs(subtract(a, b)), add(multiply(abs(b), rtol), atol))
    found = logical_or(same, logical_and(isfinite(b), near))
    return logical_or(found, logical_and(isnan(a), isnan(b))) if equal_nan else found


@public("isposinf")
def isposinf(x: Tensor, /) -> Tensor:
    """Whether each element is +inf.

    >>> weft.isposinf(weft.asarray([weft.inf, -weft.inf, 1.0]))
    tensor([ True, False, False])
    """
    return _is_infinite(x, math.inf)


@public("isneginf")
def isneginf(x: Tensor, /) -> Tensor:
    """Whether each element is -inf.

    >>> weft.isneginf(weft.asarray([weft.inf, -weft.inf, 1.0]))
    tensor([False,  True, False])
    """
    return _is_infinite(x, -math.inf)


def _is_infinite(x: Tensor, which: float) -> Tensor:
    if x.dtype.kind == "float":
        return equal(x, which)
    return zeros_like(x, dtype=dtypes.bool)


@public("isreal")
def isreal(x: Tensor, /) -> Tensor:
    """Whether each element has no imaginary part.

    >>> weft.isreal(weft.asarray([1 + 0j, 1j]))
    tensor([ True, False])
    """
    if x.dtype.kind == "complex":
        return equal(imag(x), 0)
    return logical_not(zeros_like(x, dtype=dtypes.bool))
