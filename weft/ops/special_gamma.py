"""The gamma function's logarithm and its derivatives, and Hurwitz's zeta function.

Rational approximations were fitted in 60 digits by weighted least squares; the comments give their
relative errors. Other arguments are led back to these by recurrence, reflection and Stirling's
series.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from weft.base.errors import GradientError, RangeError
from weft.core.bind import bind
from weft.core.operands import as_tensor, common
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.rules import check_kind
from weft.ops.special_define import binary_special, call, fraction, horner, special, wide

__all__ = ["betaln", "digamma", "lgamma", "multigammaln", "polygamma", "trigamma", "zeta"]

#: lgamma(1 + t) / (t (t - 1)) in t + ¼, for -¼ <= t <= 2: 3e-18
_BETWEEN = (
    (0.6504990445801452, 2.6382091209986465, 4.169536495081734, 3.2573640937198323,
     1.319560717295483, 0.26636957688399554, 0.023472397423059767, 0.0006513067403094499,
     1.222536931852396e-06),
    (1.0, 4.597344988048179, 8.447927635481276, 7.949235550214911, 4.084709715037991,
     1.134505639210644, 0.15852913815755076, 0.009471635200977548, 0.00016313590588183264),
)  # fmt: skip
#: digamma(1 + t) / (1 + t - root) for 0 <= t <= 1: 4e-24
_SLOPE = (
    (1.2503801375034054, 2.0430681656306935, 1.2259741012051741, 0.34299023598212486,
     0.04624740843456627, 0.0027471935124653707, 5.325207251533758e-05, 6.535203834910705e-08),
    (1.0, 2.3175044447029927, 1.9628122819260692, 0.7927869116886889, 0.1635270062686467,
     0.016792102615370907, 0.0007544415066884225, 1.0270669776893617e-05),
)  # fmt: skip
#: digamma's zero above 0, as the nearest float and what is left.
_ROOT = (1.4616321449683622, 9.549995429965697e-17)
#: Bernoulli's numbers B2, B4, …
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
#: In 1 / x²: x (lgamma(x) - Stirling's formula), and -x² (digamma(x) - log(x) + 1 / (2 x)).
STIRLING = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI[:8], 1))
_STIRLING_SLOPE = tuple(b / (2 * n) for n, b in enumerate(_BERNOULLI[:7], 1))
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def _offset(xp: Any, x: Any) -> Any:
    """x minus the nearest integer, exactly; 0 for infinities."""
    return xp.where(xp.isinf(x), 0.0, x - xp.round(x))


def lgamma_values(xp: Any, x: Any) -> Any:
    size = xp.abs(x)
    # From 3 to 8: lgamma(x) = log((x - 1) (x - 2) …) + lgamma(y) with y from 2 to 3.
    product, lower = 1.0, size
    for _ in range(5):
        again = (size < 8) & (lower >= 3)
        lower = xp.where(again, lower - 1, lower)
        product = xp.where(again, product * lower, product)
    # Below ¾: lgamma(x) = lgamma(1 + x) - log(x), down to -¼.
    low = size < 0.75
    t = xp.where(size < 0.25, x, xp.where(low, size, lower - 1))
    near = t * (t - 1) * fraction(_BETWEEN, xp.clip(t, -0.25, 2.0) + 0.25)
    logarithm = xp.log(xp.where(low, size, xp.where(size < 8, product, size)))
    inverse = 1 / xp.maximum(size, 8.0)
    series = horner(STIRLING, inverse * inverse) * inverse + (_HALF_LOG_TAU - 0.5)
    far = (size - 0.5) * (logarithm - 1) + series
    positive = xp.where(size < 8, near + xp.where(low, -logarithm, logarithm), far)
    sine = xp.abs(xp.sin(math.pi * _offset(xp, size)))
    mirrored = xp.log(math.pi / (size * sine)) - positive
    reflected = xp.where(sine == 0, xp.inf, mirrored)
    return xp.where((x < 0) & (size >= 0.25), reflected, positive)


def digamma_values(xp: Any, x: Any) -> Any:
    below = x < 0
    y = xp.where(below, 1 - x, x)
    # digamma(y) = 1 / (y - 1) + digamma(y - 1), and the other way round below 1.
    more, lower = xp.where(y < 1, -1 / y, 0.0), xp.where(y < 1, y + 1, y)
    for _ in range(8):
        again = (lower > 2) & (y < 10)
        lower = xp.where(again, lower - 1, lower)
        more = xp.where(again, more + 1 / lower, more)
    inside = xp.clip(lower, 1.0, 2.0)
    near = ((inside - _ROOT[0]) - _ROOT[1]) * fraction(_SLOPE, inside - 1) + more
    large = xp.maximum(y, 10.0)
    square = 1 / (large * large)
    far = xp.log(large) - 0.5 / large - square * horner(_STIRLING_SLOPE, square)
    positive = xp.where(y < 10, near, far)
    apart = _offset(xp, x)
    mirrored = positive - math.pi / xp.tan(math.pi * apart)
    reflected = xp.where(apart == 0, xp.nan, mirrored)  # a pole, of both signs
    return xp.where(below, reflected, xp.where(xp.isnan(x), x, positive))


def _zeta_sum(xp: Any, s: Any, q: Any) -> Any:
    """The sum of (q + k) ** -s over k = 0, 1, …, by Euler and Maclaurin, for q above 0."""
    total = xp.pow(q, -s)
    for k in range(1, 10):
        total = total + xp.pow(q + k, -s)
    a = q + 10.0
    last = xp.pow(a, -s)
    total = total + xp.pow(a, 1.0 - s) / (s - 1) + 0.5 * last
    low = xp.minimum(s, 1e3) if hasattr(s, "shape") else s  # `last` is 0 where s is larger
    factor, term = low, last / a
    for n, b in enumerate(_BERNOULLI, 1):
        total = total + (b / math.factorial(2 * n)) * (factor * term)
        factor = factor * (low + (2 * n - 1)) * (low + 2 * n)
        term = term / a / a
    return total


def _zeta(xp: Any, s: Any, q: Any) -> Any:
    positive = (q > 0) & (s > 1)
    total = _zeta_sum(xp, xp.where(positive, s, 2.0), xp.where(positive, q, 1.0))
    total = xp.where(xp.isinf(s), xp.where(q > 1, 0.0, xp.where(q == 1, 1.0, xp.inf)), total)
    total = xp.where(xp.isinf(q), 0.0, total)
    pole = (s == 1) | ((s > 1) & (q <= 0) & (q == xp.floor(q)))
    out = xp.where(positive, total, xp.where(pole, xp.inf, xp.nan))
    return xp.where(xp.isnan(s) | xp.isnan(q), xp.nan, out)


lgamma = special(
    "lgamma",
    """The logarithm of the absolute value of the gamma function; inf at 0, -1, -2, …

    >>> weft.lgamma(weft.asarray([0.5, 5.0]))  # gamma(5) is 4!
    tensor([0.5723649, 3.1780539])
    """,
    lgamma_values,
    "lgamma",
    vjp=lambda xp, g, _out, x: g * call("digamma", x),
    namespace="",
)
digamma = special(
    "digamma",
    """The derivative of `lgamma`.

    >>> weft.digamma(weft.asarray([1.0, 2.0]))
    tensor([-0.5772157 ,  0.42278433])
    """,
    digamma_values,
    "digamma",
    vjp=lambda xp, g, _out, x: g * call("polygamma", x, n=1),
    namespace="",
)


def _no_slope(_xp: Any, _g: Any, _out: Any, _x1: Any, _x2: Any) -> Any:
    raise GradientError(
        "the derivative with respect to the exponent is not known",
        op="zeta",
        hint="detach it: zeta(x.detach(), q)",
    )


zeta = binary_special(
    "zeta",
    """Hurwitz's zeta function: the sum of (q + k) ** -x over k = 0, 1, 2, …, for x above 1.

    With q = 1 it is Riemann's. It has a derivative with respect to q only; q must be positive.

    >>> weft.special.zeta(weft.asarray([2.0, 4.0]), 1.0)
    tensor([1.644934 , 1.0823232])
    """,
    _zeta,
    vjp=(_no_slope, lambda xp, g, _out, x1, x2: g * (-x1 * call("zeta", x1 + 1, x2))),
    cycles=600.0,
)

# --- derivatives of digamma --------------------------------------------------------------------


def _cotangent_slopes(n: int) -> list[float]:
    """The n-th derivative of cot, as a polynomial in cot: cot' = -(1 + cot²)."""
    terms = [0.0, 1.0]
    for _ in range(n):
        slopes = [k * c for k, c in enumerate(terms)][1:]
        terms = [0.0] * (len(slopes) + 2)
        for k, c in enumerate(slopes):
            terms[k] -= c
            terms[k + 2] -= c
    return terms


def _polygamma(xp: Any, x: Any, *, n: int) -> Any:
    if n == 0:
        return digamma_values(xp, x)
    below = x < 0
    y = xp.where(below, 1 - x, x)
    sign, scale = -1.0 if n % 2 == 0 else 1.0, float(math.factorial(n))
    positive = (sign * scale) * _zeta_sum(xp, float(n + 1), xp.where(xp.isinf(y), 1.0, y))
    positive = xp.where(xp.isinf(y), 0.0, positive)
    apart = _offset(xp, x)
    cot = 1 / xp.tan(math.pi * xp.where(apart == 0, 0.25, apart))
    slope = math.pi ** (n + 1) * horner(_cotangent_slopes(n), cot)
    reflected = xp.where(apart == 0, sign * xp.inf, -sign * positive - slope)
    return xp.where(below, reflected, xp.where(x == 0, sign * xp.inf, positive))


def _polygamma_type(x: TensorType, *, n: int) -> TensorType:
    check_kind(x, "real floating")
    return x


POLYGAMMA = Op(
    "polygamma",
    _polygamma_type,
    wide(_polygamma),
    kinds="real floating",
    vjp=(lambda xp, g, _out, x, *, n: g * call("polygamma", x, n=n + 1),),
    traits=Trait.ELEMENTWISE | Trait.WIDEN | Trait.COMPOSITE,
    cycles=600.0,
)
#: Up to here, n! is a float.
_MOST = 170


@public()
def polygamma(n: int, x: Tensor, /) -> Tensor:
    """The n-th derivative of `digamma`; `digamma` itself for n = 0.

    >>> weft.polygamma(1, weft.asarray([1.0, 2.0]))  # π² / 6, and 1 less
    tensor([1.644934  , 0.64493406])
    """
    try:
        order = operator.index(n)
    except TypeError:
        raise RangeError(f"n must be an int, not {n!r:.60}", op="polygamma") from None
    if not 0 <= order <= _MOST:
        raise RangeError(f"n must be from 0 to {_MOST}, not {order}", op="polygamma")
    (tensor,) = common((as_tensor(x, "polygamma"),), "polygamma", at_least="float")
    out: Tensor = bind(POLYGAMMA, tensor, n=order)
    return out


@public(namespace="special")
def trigamma(x: Tensor, /) -> Tensor:
    """The second derivative of `lgamma`: polygamma(1, x)."""
    return polygamma(1, x)


# --- beta and multivariate gamma ---------------------------------------------------------------


def _betaln(xp: Any, x1: Any, x2: Any) -> Any:
    small, large = xp.minimum(x1, x2), xp.maximum(x1, x2)
    plain = lgamma_values(xp, large) - lgamma_values(xp, small + large)
    # Large lgammas cancel: take the difference of Stirling's formulas term by term instead.
    high = xp.maximum(large, 8.0)
    both = high + xp.maximum(small, 0.0)
    rests = [horner(STIRLING, 1 / (v * v)) / v for v in (high, both)]
    logs = (high - 0.5) * xp.log1p(xp.maximum(small, 0.0) / high)
    apart = (rests[0] - rests[1]) - logs - small * (xp.log(both) - 1)
    return lgamma_values(xp, small) + xp.where((large >= 8) & (small > 0), apart, plain)


betaln = binary_special(
    "betaln",
    """The logarithm of the beta function: lgamma(x1) + lgamma(x2) - lgamma(x1 + x2).

    >>> weft.special.betaln(2.0, 3.0)  # log(1 / 12)
    tensor(-2.4849067)
    """,
    _betaln,
    vjp=(
        lambda xp, g, _out, x1, x2: g * (call("digamma", x1) - call("digamma", x1 + x2)),
        lambda xp, g, _out, x1, x2: g * (call("digamma", x2) - call("digamma", x1 + x2)),
    ),
    cycles=300.0,
)


@public(namespace="special")
def multigammaln(x: Tensor, p: int, /) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p, for x above (p - 1) / 2."""
    size = operator.index(p)
    if size < 1:
        raise RangeError(f"the dimension must be 1 or more, not {size}", op="multigammaln")
    (tensor,) = common((as_tensor(x, "multigammaln"),), "multigammaln", at_least="float")
    out = lgamma(tensor) + size * (size - 1) / 4 * math.log(math.pi)
    for j in range(1, size):
        out = out + lgamma(tensor - j / 2)
    return out
