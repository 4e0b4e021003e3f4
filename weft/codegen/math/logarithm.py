"""Logarithms.

x is split into 2 ** e times m between √½ and √2; log(m) = f - rest(f) with f = m - 1, where the
rest is small enough for its errors not to count.
"""

from __future__ import annotations

import math

from weft.codegen.math.exponential import exp
from weft.codegen.math.parts import FORMATS, LN2, power_of_two
from weft.codegen.scalar.vec import Vec

__all__ = ["log", "log1p", "log2", "log10", "logaddexp", "softplus", "taken_apart"]

#: (log(1 + f) - f + f² / 2) / f³: 2**-28
_SINGLE = (
    0.06971611827611923, -0.11479733884334564, 0.11685419827699661, -0.12425687164068222,
    0.14249058067798615, -0.1666780263185501, 0.20000715553760529, -0.2499999701976776,
    0.3333333134651184,
)  # fmt: skip
#: (2 atanh(s) / s - 2) / s² in s², s = f / (2 + f): 2**-57
_DOUBLE = (
    0.1461703754879165, 0.1533167403016786, 0.18182890556695602, 0.2222221111514416,
    0.2857142862609589, 0.3999999999989924, 0.666666666666667,
)  # fmt: skip
_ROOT_HALF_BITS = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
_LEAST = {"float": 2.0**-126, "double": 2.0**-1022}


def taken_apart(x: Vec) -> tuple[Vec, Vec]:
    """e, as integers, and m, of normal numbers above 0 (undefined for others)."""
    bits = x.as_bits()
    e = (bits - _ROOT_HALF_BITS[x.kind]) >> FORMATS[x.kind].digits
    return e, (bits - (e << FORMATS[x.kind].digits)).convert("bitcast", x.kind)


def normal(x: Vec) -> tuple[Vec, Vec]:
    """Denormal numbers made normal, and what that adds to e, as a float."""
    few = x < _LEAST[x.kind]
    digits = FORMATS[x.kind].digits
    return few.pick(x * 2.0**digits, x), few.pick(x.make(-float(digits)), 0.0)


def _rest(f: Vec) -> Vec:
    """f - log(1 + f)."""
    half = f * f * 0.5
    if f.kind == "float":
        return (-(f * f * f)).fma(f.poly(_SINGLE), half)
    s = f / (f + 2.0)
    z = s * s
    return half - s * (half + z * z.poly(_DOUBLE))


def _specials(x: Vec, out: Vec) -> Vec:
    """A logarithm where x is 0, negative, infinite or NaN."""
    odd = (x < 0.0).pick(x.make(math.nan), x)
    odd = x.equals(0.0).pick(-math.inf, odd)
    return ((x > 0.0) & (x < math.inf)).pick(out, odd)


def _combined(e: Vec, f: Vec) -> Vec:
    """e log(2) + log(1 + f)."""
    high, low = LN2[f.kind]
    return e.fma(high, f - e.fma(-low, _rest(f)))


def _split(x: Vec) -> tuple[Vec, Vec]:
    made, less = normal(x)
    e, m = taken_apart(made)
    return e.convert("sitofp", x.kind) + less, m - 1.0


def log(x: Vec) -> Vec:
    return _specials(x, _combined(*_split(x)))


def log2(x: Vec) -> Vec:
    e, f = _split(x)
    return _specials(x, (f - _rest(f)).fma(1.4426950408889634, e))


def log10(x: Vec) -> Vec:
    e, f = _split(x)
    part = (f - _rest(f)) * 0.4342944819032518
    return _specials(x, e.fma(0.3010299956639812, e.fma(-2.8037281277851704e-18, part)))


def log1p(x: Vec) -> Vec:
    whole = x + 1.0
    e, m = taken_apart(whole)
    # 1 + x lost digits of x: f = (1 + x) / 2 ** e - 1 is computed from x itself, unless x is so
    # large that 2 ** -e would not be a normal number.
    scale = power_of_two(0 - e, x.kind)
    f = (e > 100).pick(m - 1.0, x.fma(scale, scale - 1.0))
    out = _combined(e.convert("sitofp", x.kind), f)
    out = x.equals(0.0).pick(x, out)  # -0 stays
    odd = (whole < 0.0).pick(x.make(math.nan), whole)
    odd = whole.equals(0.0).pick(-math.inf, odd)
    return ((whole > 0.0) & (whole < math.inf)).pick(out, odd)


def softplus(x: Vec) -> Vec:
    """log(1 + exp(x)) as its card writes it."""
    above = (x < 0.0).pick(0.0, x)  # NaN stays
    return above + log1p(exp(-abs(x)))


def logaddexp(x: Vec, y: Vec) -> Vec:
    apart = x - y
    larger = (apart > 0.0).pick(x, y)
    out = larger + log1p(exp(-abs(apart)))
    out = apart.is_nan().pick(apart, out)
    return x.equals(y).pick(x + math.log(2.0), out)  # also equal infinities
