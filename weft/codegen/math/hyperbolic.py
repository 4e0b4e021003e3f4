"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import math

from weft.codegen.math.exponential import exp, exp_of, expm1
from weft.codegen.math.logarithm import log1p
from weft.codegen.math.parts import clamped
from weft.codegen.scalar.vec import Vec

__all__ = ["acosh", "asinh", "atanh", "cosh", "sinh", "tanh", "tanh_single"]

#: (tanh(x) / x - 1) / x² in x², x² ≤ 0.4: 2**-27
_TANH = (
    -0.005636951886117458, 0.020579639822244644, -0.05372201278805733, 0.1333123743534088,
    -0.33333274722099304,
)  # fmt: skip
#: (sinh(x) / x - 1) / x² in x², x ≤ 1: 2**-56
_SINH = (
    7.746278224820664e-13, 1.6057676882739152e-10, 2.5052117723953203e-08, 2.7557319191250885e-06,
    0.00019841269841324471, 0.008333333333333299, 0.16666666666666666,
)  # fmt: skip

_LARGE = 2.0**500  # the square of anything below is finite


def tanh_single(x: Vec) -> Vec:
    size = abs(x)
    z = size * size
    near = (size * z).fma(z.poly(_TANH), size)
    far = 1.0 - 2.0 / (exp(size * 2.0) + 1.0)
    return (z < 0.4).pick(near, far).intrinsic("copysign", x)


def tanh(x: Vec) -> Vec:
    size = abs(x)
    power = expm1((size > 40.0).pick(80.0, size * 2.0))
    return (power / (power + 2.0)).intrinsic("copysign", x)


def sinh(x: Vec) -> Vec:
    size = abs(x)
    z = clamped(x, -1.0, 1.0) * clamped(x, -1.0, 1.0)
    near = (size * z).fma(z.poly(_SINH), size)
    half = exp_of(size, add=-1)
    out = (size < 1.0).pick(near, half - 0.25 / half)
    return out.intrinsic("copysign", x)


def cosh(x: Vec) -> Vec:
    half = exp_of(abs(x), add=-1)
    return half + 0.25 / half


def asinh(x: Vec) -> Vec:
    size = abs(x)
    large = size > _LARGE
    square = size * size
    inner = size + square / ((square + 1.0).intrinsic("sqrt") + 1.0)
    return _of_inner(large, size, inner).intrinsic("copysign", x)


def acosh(x: Vec) -> Vec:
    more = x - 1.0
    inner = more + (more * (more + 2.0)).intrinsic("sqrt")
    out = _of_inner(x > _LARGE, x, inner)
    return (x < 1.0).pick(math.nan, out)


def _of_inner(large: Vec, x: Vec, inner: Vec) -> Vec:
    """log(1 + inner), or log(2 x) where x is large."""
    return log1p(large.pick(x, inner)) + large.pick(x.make(math.log(2.0)), 0.0)


def atanh(x: Vec) -> Vec:
    size = abs(x)
    return (log1p((size * 2.0) / (1.0 - size)) * 0.5).intrinsic("copysign", x)
