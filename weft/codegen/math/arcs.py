"""asin, acos, atan and atan2, in float64."""

from __future__ import annotations

import math

from weft.codegen.scalar.vec import Vec

__all__ = ["acos", "asin", "atan", "atan2"]

#: (asin(s) / s - 1) / s² in s², s ≤ ½: 2**-57
_ASIN = (
    0.028778442630682865, -0.014881409421021383, 0.017419357984227668, 0.005450878180048017,
    0.010324318290690684, 0.011478952689927567, 0.013971235301162371, 0.017352391265906313,
    0.022372173002005745, 0.03038194413708521, 0.04464285714637338, 0.07499999999998425,
    0.16666666666666669,
)  # fmt: skip
#: (atan(q) / q - 1) / q² in q², q ≤ √2 - 1: 2**-57
_ATAN = (
    -0.01917540470180761, 0.039230447776403, -0.050854078342649316, 0.05858140904796048,
    -0.06664510525499603, 0.07692183125376109, -0.09090904575306448, 0.11111111015187017,
    -0.14285714284665682, 0.19999999999995516, -0.3333333333333333,
)  # fmt: skip
_QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)  # and what is left


def _asin_parts(x: Vec) -> tuple[Vec, Vec, Vec]:
    """Whether |x| > ½, and s + rest = asin of |x|, or of √((1 - |x|) / 2) there."""
    size = abs(x)
    outer = size > 0.5
    z = outer.pick((1.0 - size) * 0.5, size * size)
    s = outer.pick(z.intrinsic("sqrt"), size)
    return outer, s, s * z * z.poly(_ASIN)


def asin(x: Vec) -> Vec:
    outer, s, rest = _asin_parts(x)
    high, low = _QUARTER_PI
    # π/2 - 2 (s + rest), the large parts first
    far = 2.0 * high - (2.0 * s + (2.0 * rest - 2.0 * low))
    return outer.pick(far, s + rest).intrinsic("copysign", x)


def acos(x: Vec) -> Vec:
    outer, s, rest = _asin_parts(x)
    below = x < 0.0
    high, low = _QUARTER_PI
    near = below.pick(s + (rest + 2.0 * low), 2.0 * low - (s + rest)) + 2.0 * high
    twice = 2.0 * (s + rest)
    far = below.pick(4.0 * high - (twice - 4.0 * low), twice)
    return outer.pick(far, near)


def _angle(low: Vec, high: Vec) -> tuple[Vec, Vec]:
    """atan(low / high), 0 ≤ low ≤ high, as a + k π/4."""
    middle = low > high * (math.sqrt(2.0) - 1.0)
    q = middle.pick(low - high, low) / middle.pick(low + high, high)
    z = q * q
    return (q * z).fma(z.poly(_ATAN), q), middle.pick(q.make(1.0), 0.0)


def _add_octants(a: Vec, k: Vec) -> Vec:
    high, low = _QUARTER_PI
    return k.fma(high, k.fma(low, a))


def atan(x: Vec) -> Vec:
    size = abs(x)
    steep = size > 1.0
    a, k = _angle(steep.pick(1.0 / size, size), x.make(1.0))
    a, k = steep.pick(-a, a), steep.pick(2.0 - k, k)
    return _add_octants(a, k).intrinsic("copysign", x)


def atan2(y: Vec, x: Vec) -> Vec:
    rise, run = abs(y), abs(x)
    steep = rise > run
    low, high = steep.pick(run, rise), steep.pick(rise, run)
    # Infinities count as 1 beside 0, two of them as equal; 0 of both as the angle 0; and the sum of
    # the two must not overflow.
    endless = high.equals(math.inf)
    low = endless.pick(low.equals(math.inf).pick(low.make(1.0), 0.0), low)
    high = (endless | high.equals(0.0)).pick(1.0, high)
    large = high > 2.0**1000
    low, high = large.pick(low * 0.5, low), large.pick(high * 0.5, high)
    a, k = _angle(low, high)
    a, k = steep.pick(-a, a), steep.pick(2.0 - k, k)
    behind = x.as_bits() < 0
    a, k = behind.pick(-a, a), behind.pick(4.0 - k, k)
    out = _add_octants(a, k).intrinsic("copysign", y)
    return x.compare("uno", y).pick(x + y, out)
