"""The normal distribution's functions: quantiles, tails and their logarithms.

Rational approximations were fitted in 60 digits by weighted least squares; the comments give their
relative errors.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtypes import float32, float64
from weft.ops.activations import SCALED_TAIL, erf_values
from weft.ops.special_define import call, fraction, special

__all__ = ["erfcx", "erfinv", "log_ndtr", "ndtr", "ndtri"]

#: With r = q², the quantile of ½ + q is q (√(2π) + r m), m in 0.425² - r, |q| <= 0.425: 1e-16
_MIDDLE = (
    (4.874765941399952, 187.51430829996954, 2701.7441642282793, 18143.29751129328,
     57569.20304210195, 77306.0433026771, 31676.37213543497, 464.0954315760641),
    (1.0, 44.49063816590927, 770.7560475993312, 6590.023936836284, 29133.419819647403,
     63824.47207089225, 60275.96136170552, 17110.350727371555),
)  # fmt: skip
#: With r = sqrt(-log(p)), the quantile of 1 - p in r - 1.6, for r up to 5: 2e-17
_TAIL = (
    (1.4234371107496835, 4.631677810137748, 5.77357304440115, 3.6523344019864092,
     1.2727381964817082, 0.24233223316452332, 0.0227813737853716, 0.0007764014873449462),
    (1.0, 2.0541329846865857, 1.6781188161447853, 0.6909199778157165, 0.14843581199700842,
     0.015237256971144508, 0.0005489064665855527, 1.0501894065829096e-09),
)  # fmt: skip
#: The same in r - 5, for r from 5 to 27.5: 4e-17
_FAR = (
    (6.657904643501103, 5.461748543238972, 1.783291551983798, 0.2961124260231202,
     0.026468364985649244, 0.0012380998910055826, 2.696645379437893e-05, 1.9939460046218988e-07),
    (1.0, 0.5995263493779649, 0.1367668672985101, 0.014843647524369688, 0.0007841384175725335,
     1.836354213553579e-05, 1.4099235746511081e-07, 1.9956929957562424e-15),
)  # fmt: skip
_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI = math.sqrt(math.pi)
_ROOT_TAU = math.sqrt(2 * math.pi)


def _quantile(xp: Any, q: Any, tail: Any) -> Any:
    """The normal quantile of ½ + q; `tail` is ½ - |q|, exactly."""
    inside = xp.clip(q, -0.425, 0.425)
    square = inside * inside
    middle = q * (_ROOT_TAU + square * fraction(_MIDDLE, 0.180625 - square))
    r = xp.sqrt(-xp.log(xp.where(tail > 0, tail, 0.5)))
    near = fraction(_TAIL, xp.minimum(r, 5.0) - 1.6)
    far = fraction(_FAR, xp.maximum(r, 5.0) - 5.0)
    outer = xp.where(tail > 0, xp.where(r > 5, far, near), xp.where(tail == 0, xp.inf, xp.nan))
    return xp.where(xp.abs(q) <= 0.425, middle, xp.copysign(outer, q))


def _erfinv(xp: Any, x: Any) -> Any:
    return _quantile(xp, 0.5 * x, 0.5 * (1 - xp.abs(x))) * _ROOT_HALF


def _ndtri(xp: Any, p: Any) -> Any:
    return _quantile(xp, p - 0.5, xp.where(p < 0.5, p, 1 - p))


def _ndtr(xp: Any, x: Any) -> Any:
    low = _lower_tail(xp, xp.minimum(x, -1.0))
    high = _lower_tail(xp, xp.minimum(-x, -1.0))
    middle = 0.5 + 0.5 * _erf(xp, xp.clip(x, -1.0, 1.0) * _ROOT_HALF)
    return xp.where(x < -1, low, xp.where(x > 1, 1 - high, middle))


def _erf(xp: Any, x: Any) -> Any:
    return xp.erf(x) if hasattr(xp, "erf") else erf_values(xp, x)


def _lower_tail(xp: Any, x: Any) -> Any:
    """The part of the normal distribution below x, for x below 0, to all digits."""
    y = xp.maximum(x, -40.0)  # it is 0 from -38.6 on
    return 0.5 * _positive_erfcx(xp, -y * _ROOT_HALF) * _square_power(xp, y, -0.5)


def _square_power(xp: Any, x: Any, factor: float) -> Any:
    """exp(factor x²) in two steps: the square of a float32 is exact in float64."""
    short = xp.astype(xp.astype(x, float32.numpy), float64.numpy)
    return xp.exp(factor * short * short) * xp.exp(factor * (x - short) * (x + short))


def _positive_erfcx(xp: Any, x: Any) -> Any:
    """exp(x²) erfc(x) for x from 0 up."""
    t = 1 / (1 + 0.5 * xp.minimum(x, 28.0))
    far = xp.maximum(x, 28.0)
    square = 0.5 / (far * far)
    series = 1.0
    for odd in (13, 11, 9, 7, 5, 3, 1):
        series = 1 - odd * square * series
    near = t * fraction(SCALED_TAIL, t)
    return xp.where(x < 28, near, series / (far * _ROOT_PI))


def _erfcx(xp: Any, x: Any) -> Any:
    positive = _positive_erfcx(xp, xp.abs(x))
    power = _square_power(xp, xp.clip(x, -27.0, 0.0), 1.0)  # from 27 on it overflows
    return xp.where(x < 0, 2 * power - positive, positive)


def _log_ndtr(xp: Any, x: Any) -> Any:
    scaled = _positive_erfcx(xp, xp.abs(x) * _ROOT_HALF)
    low = xp.log(0.5 * scaled) - 0.5 * x * x
    middle = 0.5 * _erf(xp, xp.clip(x, -1.0, 1.0) * _ROOT_HALF) - 0.5
    upper = xp.where(x > 1, -_lower_tail(xp, xp.minimum(-x, -1.0)), middle)
    return xp.where(x < -1, low, xp.log1p(upper))


erfinv = special(
    "erfinv",
    """The inverse of `erf`: ±inf at ±1, NaN beyond.

    >>> weft.erfinv(weft.asarray([-1.0, 0.0, 0.5]))
    tensor([      -inf, 0.        , 0.47693628])
    """,
    _erfinv,
    "erfinv",
    vjp=lambda xp, g, out, _x: g * (0.5 * _ROOT_PI * xp.exp(out * out)),
    namespace="",
    autocast="float32",
)
erfcx = special(
    "erfcx",
    """exp(x²) erfc(x), which neither underflows nor loses digits for large x.

    >>> weft.special.erfcx(weft.asarray([0.0, 100.0]))
    tensor([1.        , 0.00564161])
    """,
    _erfcx,
    vjp=lambda xp, g, out, x: g * (2 * x * out - 2 / _ROOT_PI),
)
ndtr = special(
    "ndtr",
    """The normal distribution's cumulative function: how much of it lies below x.

    >>> weft.special.ndtr(weft.asarray([-1.0, 0.0, 1.0]))
    tensor([0.15865526, 0.5       , 0.8413448 ])
    """,
    _ndtr,
    vjp=lambda xp, g, _out, x: g * (xp.exp(-0.5 * x * x) / _ROOT_TAU),
)
ndtri = special(
    "ndtri",
    """The inverse of `ndtr`: the normal distribution's quantile.

    >>> weft.special.ndtri(weft.asarray([0.0, 0.5, 0.975]))
    tensor([     -inf, 0.       , 1.9599644])
    """,
    _ndtri,
    vjp=lambda xp, g, out, _x: g * (_ROOT_TAU * xp.exp(0.5 * out * out)),
)
log_ndtr = special(
    "log_ndtr",
    """The logarithm of `ndtr`, exact also where that is almost 0 or almost 1.

    >>> weft.special.log_ndtr(weft.asarray([-100.0, 0.0]))
    tensor([-5.0055244e+03, -6.9314718e-01])
    """,
    _log_ndtr,
    vjp=lambda xp, g, _out, x: g * (math.sqrt(2 / math.pi) / call("erfcx", -_ROOT_HALF * x)),
)
