"""The error function: near 0 as a series, elsewhere by its distance from 1."""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.math.exponential import LOG2E, exp2_within, exp_of, exp_within
from weft.codegen.scalar.vec import Vec

__all__ = ["erf", "erf_single", "erfc"]

#: erf(x) / x - 1 in x², |x| < 1: 2**-29
_NEAR_SINGLE = (
    7.806903886375949e-05, -0.0007997853099368513, 0.005187162198126316, -0.026853347197175026,
    0.11283578723669052, -0.3761262595653534, 0.12837916612625122,
)  # fmt: skip
#: log(erfc(x)) for 1 ≤ x ≤ 4: 2**-29 of erf(x); beyond, erf is 1 in float32
_TAIL_SINGLE = (
    0.00018638574692886323, -0.0029477125499397516, 0.021838240325450897, -0.1031070351600647,
    -0.6381446123123169, -1.127089262008667, -0.00034151971340179443,
)  # fmt: skip
_END_SINGLE = 4.0
#: erf(x) / x - 1 in x², |x| < 1, as a fraction: that of `weft.ops.activations` less 1
_NEAR = (
    (0.12837916709551256, -0.31716062573704396, -0.04794873980117998, -0.008755018287738307,
     -0.00048627248131227914, -2.0299340464296638e-05),
    (1.0, 0.4593094395987429, 0.09325301545913575, 0.010582340341244072,
     0.0006812409484757653, 2.0299340464296638e-05),
)  # fmt: skip
#: (1 + 2 x) exp(x²) erfc(x) - 1 in t = (x - 4) / (x + 4), 0 ≤ x ≤ 28: 2**-55
_TAIL = (
    -1.8206098680308682e-09, -1.3670989863347383e-08, -7.71541861441783e-09,
    1.1534943745754157e-07, 6.270727157198311e-08, -8.351619688696847e-07, 3.0135049944875397e-07,
    5.7178872846321855e-06, -1.1224789135154701e-05, -2.4403169244974074e-05,
    0.000150622243948303, -0.00019925550755614952, -0.00075777334141333, 0.005031969755895426,
    -0.016197734059115006, 0.03716751556249286, -0.06633036581152939, 0.09373283499679412,
    -0.10103906603635213, 0.06809705425473732, 0.01537965210262074, -0.1396211168405629,
    0.2329951186255525,
)  # fmt: skip


def _fraction(fraction: Sequence[Sequence[float]], x: Vec) -> Vec:
    above, below = (x.poly(tuple(reversed(coefficients))) for coefficients in fraction)
    return above / below


def erf_single(x: Vec) -> Vec:
    size = abs(x)
    z = size * size
    near = size.fma(z.poly(_NEAR_SINGLE), size)
    tail = (size > _END_SINGLE).pick(_END_SINGLE, size)
    if x.f.module.machine.has("ex2"):
        far = 1.0 - exp2_within(tail.poly([LOG2E * one for one in _TAIL_SINGLE]))
    else:
        far = 1.0 - exp_within(tail.poly(_TAIL_SINGLE))
    return (size < 1.0).pick(near, far).intrinsic("copysign", x)


def _tail(x: Vec) -> Vec:
    """erfc(x) for x from 0 up."""
    x = (x > 28.0).pick(28.0, x)  # it is 0 from 27.3 on
    t = (x - 4.0) / (x + 4.0)
    square = x * x
    lost = x.fma(x, -square)
    return exp_of(-square, -lost) * ((t.poly(_TAIL) + 1.0) / x.fma(2.0, 1.0))


def _near(size: Vec) -> Vec:
    """erf(x) for 0 ≤ x ≤ 1, of others anything."""
    inside = (size > 1.0).pick(1.0, size)
    return inside.fma(_fraction(_NEAR, inside * inside), inside)


def erf(x: Vec) -> Vec:
    size = abs(x)
    return (size < 1.0).pick(_near(size), 1.0 - _tail(size)).intrinsic("copysign", x)


def erfc(x: Vec) -> Vec:
    size = abs(x)
    near, tail = _near(size), _tail(size)
    below = x < 0.0
    outer = below.pick(2.0 - tail, tail)
    return (size < 0.5).pick(below.pick(near + 1.0, 1.0 - near), outer)
