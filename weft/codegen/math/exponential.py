"""exp and functions of it alone.

x is split into n log(2) + r, |r| ≤ log(2) / 2: exp(r) = 1 + r + r² P(r), and 2 ** n moves the
exponent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.codegen.math.parts import (
    FORMATS,
    LN2,
    clamped,
    clamped_below,
    power_of_two,
    scaled,
    to_integer,
)
from weft.codegen.scalar.vec import Vec

__all__ = ["LOG2E", "exp", "exp2_within", "exp_of", "exp_within", "expm1", "sigmoid"]

LOG2E = 1.4426950408889634
#: log2(e) less what float32 holds of it; log(2).
_LOG2E_LOW, _LN2 = 1.92596298909109e-08, 0.6931471805599453
#: (exp(r) - 1 - r) / r²; relative errors of exp: 2**-28, 2**-61
_SERIES = {
    "float": (0.0013819255400449038, 0.008369091898202896, 0.04166829586029053,
              0.166665181517601, 0.4999999403953552),
    "double": (2.0915339331068516e-09, 2.510613054343116e-08, 2.755727206220542e-07,
               2.7557253186385903e-06, 2.480158732680484e-05, 0.00019841269876581002,
               0.0013888888888883386, 0.008333333333325628, 0.04166666666666667,
               0.1666666666666667, 0.5),
}  # fmt: skip
#: Where exp is 0, and where it is infinite: n must stay in the range of exponents.
_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.5)}
#: Below the first expm1 is -1, above the second infinite; nearer to 0 than the third it is x.
_RANGE_LESS_ONE = {"float": (-20.0, 89.0, 2.0**-25), "double": (-40.0, 709.9, 2.0**-54)}

#: Below, exp(-x) overflows.
_SIGMOID_END = {"float": -88.72283172607422, "double": -709.782712893384}


def _split(x: Vec) -> tuple[Vec, Vec, Vec]:
    n, bits = to_integer(x, LOG2E)
    high, low = LN2[x.kind]
    return n, bits, n.fma(-low, n.fma(-high, x))


def exp_of(
    x: Vec, more: Vec | None = None, add: int = 0, series: Sequence[float] | None = None
) -> Vec:
    """exp(x + more) * 2 ** add, where `more` is what x could not hold."""
    return exp_within(clamped(x, *_RANGE[x.kind]), more, add, series)


def exp_within(
    x: Vec, more: Vec | None = None, add: int = 0, series: Sequence[float] | None = None
) -> Vec:
    """The same for x in the range of exp; `series` may be a shorter one."""
    if x.kind == "float" and more is None and not add and x.f.module.machine.has("ex2"):
        return _by_exp2(x)
    n, bits, r = _split(x)
    if more is not None:
        r = r + more
    part = r.poly(series or _SERIES[x.kind]).fma(r * r, r)
    return scaled(part + 1.0, n, bits, add)


def _by_exp2(x: Vec) -> Vec:
    """exp(x) by an instruction for powers of 2, and what rounding x * log2(e) lost."""
    power = x * LOG2E
    lost = x.fma(_LOG2E_LOW, x.fma(LOG2E, -power))
    found = power.intrinsic("exp2")
    return found.equals(math.inf).pick(found, found.fma(lost * _LN2, found))


def exp2_within(x: Vec) -> Vec:
    """2 ** x in float32 where it is a normal number, by an instruction for it."""
    name = x.f.module.declare("float", "llvm.nvvm.ex2.approx.ftz.f", "float")
    if x.lanes == 1:
        return Vec(x.f, x.kind, 1, x.f(f"call float @{name}(float {x.name})"))
    made = "poison"
    for lane in range(x.lanes):
        one = x.f(f"extractelement {x.type} {x.name}, i32 {lane}")
        one = x.f(f"call float @{name}(float {one})")
        made = x.f(f"insertelement {x.type} {made}, float {one}, i32 {lane}")
    return Vec(x.f, x.kind, x.lanes, made)


def exp(x: Vec) -> Vec:
    return exp_of(x)


def expm1(x: Vec) -> Vec:
    low, high, tiny = _RANGE_LESS_ONE[x.kind]
    _, bits, r = _split(clamped(x, low, high))
    series = r.poly(_SERIES[x.kind]).fma(r * r, r)
    # Half of 2 ** n, as 2 ** n itself may be too large.
    half = power_of_two(bits - (x.make(FORMATS[x.kind].magic).as_bits() + 1), x.kind)
    out = half.fma(series, half - 0.5) * 2.0
    return (abs(x) < tiny).pick(x, out)


def sigmoid(x: Vec) -> Vec:
    """1 / (1 + exp(-x)); 0 once exp(-x) is infinite."""
    power = exp_within(clamped_below(-abs(x), _RANGE[x.kind][0]))
    total = power + 1.0
    lost = power - (total - 1.0)  # the sum's rounding error
    out = (x < 0.0).pick(power, 1.0) / total
    out = (out * lost).fma(-0.75, out)  # by lost / total: 1 / total is between 0.5 and 1
    return (x < _SIGMOID_END[x.kind]).pick(0.0, out)
