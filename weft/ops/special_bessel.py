"""Modified Bessel functions of the first kind, of any integer order; sinc and its derivatives.

Derivatives stay in the family (I_n' is the mean of its neighbours), so that every order of
derivative is exact, at 0 too.
"""

from __future__ import annotations

import math
from typing import Any

from weft.core.bind import bind
from weft.core.operands import as_tensor, common
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.rules import check_kind
from weft.ops.special_define import call, chebyshev, wide

__all__ = ["i0", "i0e", "i1", "i1e", "sinc"]

# Chebyshev series, computed in 40 digits:
#: √x exp(-x) I0(x) in 8 / x, x >= 8
_I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09,
    4.94060238822497e-10, 1.1889147107846439e-11, -3.1499165279632416e-11,
    -1.3215811840447713e-11, -1.7941785315068062e-12, 7.180124451383666e-13,
    3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15,
    -3.425485619677219e-16, -2.8276239805165836e-16, 3.461222867697461e-17,
    4.46562142029676e-17, -4.830504485944182e-18, -7.233180487874754e-18,
    9.921475412173699e-19, 1.193650890845982e-18,
)  # fmt: skip
#: √x exp(-x) I1(x) in 8 / x, x >= 8
_I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17,
    -4.6503053684893586e-17, 4.414348323071708e-18, 7.517296310842105e-18,
    -9.314178867326884e-19, -1.242193275194891e-18,
)  # fmt: skip
#: Up to here, functions are summed as power series, of so many terms. Beyond, orders 0 and 1 have
#: Chebyshev series, and others follow by recurrence, which loses nothing there.
_LOW_ORDER = (8.0, 26)
_HIGH_ORDER = (20.0, 48)


def _series(xp: Any, x: Any, n: int, terms: int) -> Any:
    """exp(-x) I_n(x) for small x from 0 up."""
    half = 0.5 * x
    square, total = half * half, 1.0
    for k in range(terms, 0, -1):
        total = 1.0 + square / (k * (k + n)) * total
    out = xp.exp(-x) * total
    for k in range(1, n + 1):
        out = out * (half / k)
    return out


def _scaled(xp: Any, size: Any, n: int) -> Any:
    """exp(-x) I_n(x) for x from 0 up."""
    end, terms = _LOW_ORDER if n < 2 else _HIGH_ORDER
    near = _series(xp, xp.minimum(size, end), n, terms)
    large = xp.maximum(size, end)
    t = 16.0 / large - 1.0
    pair = [chebyshev(table, t) / xp.sqrt(large) for table in (_I0_FAR, _I1_FAR)[: n + 1]]
    before, out = pair[0], pair[-1]
    for k in range(1, n):
        before, out = out, before - (2 * k) * (out / large)
    return xp.where(size <= end, near, out)


def _bessel_i(xp: Any, x: Any, *, n: int, scaled: bool) -> Any:
    size = xp.abs(x)
    out = _scaled(xp, size, n)
    if not scaled:
        grown = out * xp.exp(0.5 * xp.where(xp.isinf(x), 0.0, size))
        grown = grown * xp.exp(0.5 * xp.where(xp.isinf(x), 0.0, size))
        out = xp.where(xp.isinf(x), xp.inf, grown)
    return xp.where(x < 0, -out, out) if n % 2 else out


def _bessel_type(x: TensorType, *, n: int, scaled: bool) -> TensorType:
    check_kind(x, "real floating")
    return x


def _bessel_vjp(xp: Any, g: Any, out: Any, x: Any, *, n: int, scaled: bool) -> Any:
    above = call("bessel_i", x, n=n + 1, scaled=scaled)
    below = call("bessel_i", x, n=n - 1, scaled=scaled) if n else above
    slope = 0.5 * (below + above)
    return g * (slope - xp.sign(x) * out if scaled else slope)


#: I_n(x), times exp(-|x|) if it is scaled.
_BESSEL_I = Op(
    "bessel_i",
    _bessel_type,
    wide(_bessel_i),
    kinds="real floating",
    vjp=(_bessel_vjp,),
    traits=Trait.ELEMENTWISE | Trait.WIDEN | Trait.COMPOSITE,
    cycles=120.0,
)


def _order(x: Any, n: int, scaled: bool, name: str) -> Tensor:
    (tensor,) = common((as_tensor(x, name),), name, at_least="float")
    out: Tensor = bind(_BESSEL_I, tensor, n=n, scaled=scaled)
    return out


@public()
def i0(x: Tensor, /) -> Tensor:
    """The modified Bessel function of the first kind, of order 0.

    >>> weft.i0(weft.asarray([0.0, 1.0]))
    tensor([1.       , 1.2660658])
    """
    return _order(x, 0, False, "i0")


@public(namespace="special")
def i0e(x: Tensor, /) -> Tensor:
    """exp(-|x|) i0(x), which does not overflow."""
    return _order(x, 0, True, "i0e")


@public(namespace="special")
def i1(x: Tensor, /) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
    return _order(x, 1, False, "i1")


@public(namespace="special")
def i1e(x: Tensor, /) -> Tensor:
    """exp(-|x|) i1(x), which does not overflow."""
    return _order(x, 1, True, "i1e")


# --- sinc --------------------------------------------------------------------------------------

_NEAR_ZERO = 2.0
_SINC_TERMS = 16


def _sinc(xp: Any, x: Any, *, n: int) -> Any:
    """The n-th derivative of sin(z) / z at z = πx, times π ** n."""
    turn = xp.round(x)
    apart, even = x - turn, 0.5 * turn == xp.floor(0.5 * turn)
    z = math.pi * x
    far = xp.where(xp.abs(z) < _NEAR_ZERO, _NEAR_ZERO, z)
    sine, cosine = xp.sin(math.pi * apart), xp.cos(math.pi * apart)
    sine, cosine = xp.where(even, sine, 0.0 - sine), xp.where(even, cosine, -cosine)
    turns = (sine, cosine, -sine, -cosine)
    outer = sine / far
    for k in range(1, n + 1):
        outer = (turns[k % 4] - k * outer) / far
    near = xp.clip(z, -_NEAR_ZERO, _NEAR_ZERO)
    first = (n + 1) // 2
    square, inner = near * near, 0.0
    for k in range(first + _SINC_TERMS, first - 1, -1):
        term = (-1.0) ** k / (math.factorial(2 * k - n) * (2 * k + 1))
        inner = inner * square + term
    if n % 2:
        inner = inner * near
    return math.pi**n * xp.where(xp.abs(z) < _NEAR_ZERO, inner, outer)


def _sinc_type(x: TensorType, *, n: int) -> TensorType:
    check_kind(x, "real floating")
    return x


_SINC = Op(
    "sinc",
    _sinc_type,
    wide(_sinc),
    kinds="real floating",
    vjp=(lambda xp, g, _out, x, *, n: g * call("sinc", x, n=n + 1),),
    traits=Trait.ELEMENTWISE | Trait.WIDEN | Trait.COMPOSITE,
    cycles=60.0,
)


@public("sinc")
def sinc(x: Tensor, /) -> Tensor:
    """sin(πx) / (πx), and 1 at 0.

    >>> weft.sinc(weft.asarray([0.0, 0.5, 1.0]))
    tensor([1.        , 0.63661975, 0.        ])
    """
    (tensor,) = common((as_tensor(x, "sinc"),), "sinc", at_least="float")
    out: Tensor = bind(_SINC, tensor, n=0)
    return out
