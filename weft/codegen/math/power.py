"""x ** y and the length of (x, y).

x ** y = exp(y log|x|) needs more digits of the logarithm than a float has: float32 computes in
float64, and float64 has the logarithm as the sum of two.
"""

from __future__ import annotations

import math

from weft.codegen.math.exponential import exp_of
from weft.codegen.math.logarithm import normal, taken_apart
from weft.codegen.math.parts import LN2
from weft.codegen.scalar.vec import Vec

__all__ = ["hypot", "hypot_single", "pow", "pow_single"]

#: ((2 atanh(s) / s - 2) / s² - 2/3) / s² in s²: 2**-66 of the logarithm
_LOG = (
    0.1172360405050347, 0.11706195642679972, 0.1333480621418462, 0.15384594934551063,
    0.18181818335654723, 0.22222222221654728, 0.2857142857142937, 0.4,
)  # fmt: skip
#: 2 atanh(s) / s in s²: 2**-43
_LOG_SHORT = (
    0.19363186932161763, 0.22191373380944632, 0.2857175496835035, 0.39999998795219155,
    0.6666666666737665, 2.0,
)  # fmt: skip
#: (exp(r) - 1 - r) / r²: 2**-37 of exp
_EXP_SHORT = (
    2.486058769361771e-05, 0.00019900283892872823, 0.0013888852826635335, 0.008333297260228205,
    0.041666666721758894, 0.1666666672177675, 0.5,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)  # and what is left


def pow_single(x: Vec, y: Vec) -> Vec:
    """In float64, with as many digits as float32 needs: 2**-43 of the logarithm, 2**-37 of exp."""
    size = abs(x)
    wide = size.convert("fpext", "double")
    exponent, m = taken_apart(wide)  # no float32 is denormal in float64
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = s * z.poly(_LOG_SHORT)
    found = exponent.convert("sitofp", "double").fma(LN2["double"][0], series)
    found = size.equals(0.0).pick(-math.inf, found)
    found = (size < math.inf).pick(found, wide)
    out = exp_of(found * y.convert("fpext", "double"), series=_EXP_SHORT)
    return _signed(x, y, out.convert("fptrunc", "float"))


def pow(x: Vec, y: Vec) -> Vec:
    high, low = _long_log(abs(x))
    product = y * high
    lost = y.fma(high, -product) + y * low
    lost = (abs(product) < 1000.0).pick(lost, 0.0)  # inf - inf elsewhere
    return _signed(x, y, exp_of(product, lost))


def _sum(large: Vec, small: Vec) -> tuple[Vec, Vec]:
    """large + small, and the rounding error; |large| ≥ |small|, or large is 0."""
    total = large + small
    return total, small - (total - large)


def _long_log(x: Vec) -> tuple[Vec, Vec]:
    """log(x) for x ≥ 0, and what a float cannot hold of it."""
    made, less = normal(x)
    exponent, m = taken_apart(made)
    e = exponent.convert("sitofp", x.kind) + less
    f = m - 1.0
    # s = f / (2 + f), as two floats each
    below = m + 1.0
    s = f / below
    s_low = (-s).fma(m - (below - 1.0), (-s).fma(below, f)) / below
    z = s * s
    z_low = s.fma(s, -z) + 2.0 * s * s_low
    # 2 s + s z (2/3 + z Q(z)): the second term too needs more digits than a float has
    third, third_low = _sum(x.make(_TWO_THIRDS[0]), z.fma(z.poly(_LOG), _TWO_THIRDS[1]))
    cube = s * z
    cube_low = s.fma(z, -cube) + (s * z_low + s_low * z)
    term = cube * third
    term_low = cube.fma(third, -term) + (cube * third_low + cube_low * third)
    part, part_low = _sum(2.0 * s, term)
    part_low = part_low + (2.0 * s_low + term_low)
    whole = e * LN2["double"][0]
    whole_low = e.fma(LN2["double"][0], -whole) + e * LN2["double"][1]
    high, low = _sum(whole, part)
    low = low + (whole_low + part_low)
    plain = (x > 0.0) & (x < math.inf)
    odd = x.equals(0.0).pick(-math.inf, x)
    return plain.pick(high, odd), plain.pick(low, 0.0)


def _signed(x: Vec, y: Vec, size: Vec) -> Vec:
    """x ** y, given |x| ** y."""
    whole = y.intrinsic("trunc").equals(y)
    half = y * 0.5
    odd = whole & half.intrinsic("trunc").differs(half)
    out = (odd & (x.as_bits() < 0)).pick(-size, size)
    unreal = (x < 0.0) & (x > -math.inf) & ~whole
    out = unreal.pick(math.nan, out)
    one = y.equals(0.0) | x.equals(1.0)
    one = one | (abs(x).equals(1.0) & abs(y).equals(math.inf))
    return one.pick(1.0, out)


def hypot_single(x: Vec, y: Vec) -> Vec:
    a, b = (value.convert("fpext", "double") for value in (x, y))
    root = a.fma(a, b * b).intrinsic("sqrt").convert("fptrunc", "float")
    return _endless(x, y, root)


def hypot(x: Vec, y: Vec) -> Vec:
    a, b = abs(x), abs(y)
    less = a < b
    long, short = less.pick(b, a), less.pick(a, b)
    # Squares must neither overflow nor underflow.
    down, up = long > 2.0**500, long < 2.0**-500
    scale = down.pick(2.0**-600, up.pick(long.make(2.0**600), 1.0))
    back = down.pick(2.0**600, up.pick(long.make(2.0**-600), 1.0))
    long, short = long * scale, short * scale
    return _endless(x, y, long.fma(long, short * short).intrinsic("sqrt") * back)


def _endless(x: Vec, y: Vec, out: Vec) -> Vec:
    """An infinite side makes the length infinite, even if the other is NaN."""
    endless = abs(x).equals(math.inf) | abs(y).equals(math.inf)
    return endless.pick(math.inf, out)
