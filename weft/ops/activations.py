"""Activations and the error function: sigmoid, relu, erf, and the softmax family.

Each is one card with one derivative rule, although most could be written with other ops: in eager
mode a node costs microseconds, and the stable forms below are easy to get wrong. Evaluation rules
use only the Array API, so the compiler can record the ops of a composite.

- relu'(0) is 0. NaN propagates.
- softmax and log_softmax subtract the maximum first: logits of 1e30 neither overflow nor lose
  their differences. A row of -inf only has no softmax: it is NaN.
- erf and erfc are exact to a few units in the last place; erfc also where it is tiny.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import as_dtype
from weft.base.promotion import promote_weak
from weft.base.shapes import Axis, normalize_axes, reduced_shape, size_of
from weft.core.bind import bind
from weft.core.operands import as_tensor, cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.arguments import axis_of
from weft.ops.batching import shifted
from weft.ops.define import unary
from weft.ops.masks import keep
from weft.ops.rules import check_kind
from weft.ops.ways import but_axis

__all__ = ["erf", "erfc", "log_softmax", "logsumexp", "relu", "sigmoid", "softmax"]

# --- the error function ------------------------------------------------------------------------

# Rational approximations, fitted in 50 digits by weighted least squares; relative errors:
#: erf(x) / x in x², |x| < 1: 3e-18
_NEAR = (
    (1.1283791670955126, 0.1421488138616989, 0.04530427565795577, 0.0018273220535057646,
     0.00019496846716348618),
    (1.0, 0.4593094395987429, 0.09325301545913575, 0.010582340341244072,
     0.0006812409484757653, 2.0299340464296638e-05),
)  # fmt: skip
#: exp(x²) erfc(x) / t in t = 1 / (1 + x / 2), 0 <= x <= 28: 7e-18
SCALED_TAIL = (
    (0.28209479177376523, 0.09332636159814162, 1.3614014597849768, 0.7526198032848885,
     2.428964768776195, 1.671960706591951, 2.1772571659714712, 1.4563963880568889,
     1.002297011052262, 0.4627788019066826, 0.1321554356041898),
    (1.0, -0.6691666620224288, 4.6202091833427605, -1.9917206454402618, 6.680848116517755,
     -1.6844975246944105, 3.620881923163051, -0.4415537786343148, 0.6814868242201972,
     -0.02549395593574369, 0.030259213884809042),
)  # fmt: skip
#: erf(x) / x in x², |x| < 3.92: 2e-8; beyond, erf is 1 in float32
_SINGLE = (
    (1.12837911, 0.190125555, 0.0527079888, 0.00375287049, 0.000284473412, 2.05043693e-06),
    (1.0, 0.50182718, 0.113989823, 0.0149434255, 0.00115923898, 3.80743986e-05),
)
_SINGLE_END = 4.0

Fraction = tuple[tuple[float, ...], tuple[float, ...]]


def _fraction(fraction: Fraction, x: Any) -> Any:
    above, below = (_polynomial(coefficients, x) for coefficients in fraction)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    out = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        out += coefficient
        out *= x
    out += coefficients[0]
    return out


def _tail(xp: Any, x: Any) -> Any:
    """erfc(x) for x from 0 up, in float64."""
    x = xp.minimum(x, 28.0)  # erfc is 0 from 27.3 on
    t = 1 / (1 + 0.5 * x)
    short = xp.astype(xp.astype(x, dtypes.float32.numpy), dtypes.float64.numpy)
    squared = xp.exp(-short * short) * xp.exp((short - x) * (short + x))  # exp(-x²), exactly
    return squared * t * _fraction(SCALED_TAIL, t)


_BLOCK = 65536  # elements per block: a block stays in the cache


def _erf(xp: Any, x: Any) -> Any:
    if xp is np and x.size > _BLOCK and x.flags.c_contiguous:
        flat, out = x.reshape(-1), np.empty(x.size, x.dtype)
        for start in range(0, x.size, _BLOCK):
            out[start : start + _BLOCK] = erf_values(np, flat[start : start + _BLOCK])
        return out.reshape(x.shape)
    return erf_values(xp, x)


def erf_values(xp: Any, x: Any) -> Any:
    if as_dtype(x.dtype) is not dtypes.float64:
        inside = xp.clip(x, -_SINGLE_END, _SINGLE_END)
        return xp.clip(inside * _fraction(_SINGLE, inside * inside), -1, 1)
    size = xp.abs(x)
    inside = xp.minimum(size, 1)
    near = inside * _fraction(_NEAR, inside * inside)
    return xp.copysign(xp.where(size < 1, near, 1 - _tail(xp, size)), x)


def erfc_values(xp: Any, x: Any) -> Any:
    wide = xp.astype(x, dtypes.float64.numpy, copy=False)
    tail = _tail(xp, xp.abs(wide))
    return xp.astype(xp.where(wide < 0, 2 - tail, tail), as_dtype(x.dtype).numpy, copy=False)


_SLOPE = 2 / np.sqrt(np.pi).item()

# --- elementwise -------------------------------------------------------------------------------

erf = unary(
    "erf",
    "The error function: 2/√π times the integral of exp(-t²) from 0 to x.",
    "erf",
    kinds="real floating",
    evaluate=_erf,
    vjp=lambda xp, g, _out, x: g * (_SLOPE * xp.exp(-x * x)),
    cycles=16.0,
)
erfc = unary(
    "erfc",
    "1 - erf(x), exact also where erf(x) is almost 1.",
    "erfc",
    kinds="real floating",
    evaluate=erfc_values,
    vjp=lambda xp, g, _out, x: g * (-_SLOPE * xp.exp(-x * x)),
    cycles=40.0,
)
relu = unary(
    "relu",
    "x where it is above 0, else 0.",
    "relu",
    kinds="real numeric",
    evaluate=lambda xp, x: xp.maximum(x, 0),
    vjp=lambda xp, g, out, _x: keep(xp, out > 0, g),
)
sigmoid = unary(
    "sigmoid",
    "1 / (1 + exp(-x)).",
    "sigmoid",
    kinds="real floating",
    evaluate=lambda xp, x: 1 / (1 + xp.exp(-x)),
    vjp=lambda xp, g, out, _x: g * (out * (1 - out)),
    cycles=16.0,
)

# --- the softmax family ------------------------------------------------------------------------


def _softmax_type(x: TensorType, *, axis: int) -> TensorType:
    check_kind(x, "real floating")
    return x


def _shifted(xp: Any, x: Any, axis: int) -> Any:
    """x minus its maximum along the axis: at most 0."""
    return x - xp.max(x, axis=axis, keepdims=True) if x.shape[axis] else x


def _softmax_values(xp: Any, x: Any, *, axis: int) -> Any:
    powers = xp.exp(_shifted(xp, x, axis))
    return powers / xp.sum(powers, axis=axis, keepdims=True)


def _log_softmax_values(xp: Any, x: Any, *, axis: int) -> Any:
    shifted = _shifted(xp, x, axis)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))


_largest = np.maximum.reduce
_total = np.add.reduce


def _softmax_numpy(x: Any, *, axis: int) -> Any:
    """The same with fewer arrays and less Python."""
    if not x.shape[axis]:
        return x
    out = x - _largest(x, axis=axis, keepdims=True)
    np.exp(out, out=out)
    out /= _total(out, axis=axis, keepdims=True)
    return out


def _log_softmax_numpy(x: Any, *, axis: int) -> Any:
    if not x.shape[axis]:
        return x
    out = x - _largest(x, axis=axis, keepdims=True)
    out -= np.log(_total(np.exp(out), axis=axis, keepdims=True))
    return out


def _passes(count: int) -> Callable[..., Cost]:
    """The cost of an op that goes over its input `count` times."""

    def cost(inputs: Types, outputs: Types, **_: Any) -> Cost:
        moved = sum(t.nbytes for t in (*inputs, *outputs))
        return Cost(count * inputs[0].size, moved)

    return cost


_softmax = Op(
    "softmax",
    _softmax_type,
    _softmax_values,
    numpy=_softmax_numpy,
    kinds="real floating",
    autocast="float32",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    vjp=(lambda xp, g, out, _x, *, axis: out * (g - xp.sum(g * out, axis=axis, keepdims=True)),),
    batch=shifted("axis"),
    cost=_passes(5),
    ways=but_axis,
)
_log_softmax = Op(
    "log_softmax",
    _softmax_type,
    _log_softmax_values,
    numpy=_log_softmax_numpy,
    kinds="real floating",
    autocast="float32",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    vjp=(lambda xp, g, out, _x, *, axis: g - xp.exp(out) * xp.sum(g, axis=axis, keepdims=True),),
    batch=shifted("axis"),
    cost=_passes(5),
    ways=but_axis,
)


def _logsumexp_type(x: TensorType, *, axis: tuple[int, ...], keepdims: bool) -> TensorType:
    check_kind(x, "real floating")
    return x.like(shape=reduced_shape(x.shape, axis, keepdims))


def _logsumexp_values(xp: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    sizes = tuple(x.shape[i] for i in axis)
    if not size_of(sizes):
        return xp.log(xp.sum(x, axis=axis, keepdims=keepdims))  # -inf: the sum of nothing is 0
    top = xp.max(x, axis=axis, keepdims=True)
    top = xp.where(xp.isinf(top), 0, top)  # inf - inf is NaN
    out = xp.log(xp.sum(xp.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else xp.reshape(out, reduced_shape(x.shape, axis, keepdims=False))


def _logsumexp_vjp(
    xp: Any, g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool
) -> Any:
    kept = reduced_shape(x.shape, axis, keepdims=True)
    whole = xp.reshape(out, kept)
    whole = xp.where(whole == -xp.inf, 0, whole)  # a sum of zeros: each part has slope 0
    return xp.reshape(g, kept) * xp.exp(x - whole)


_logsumexp = Op(
    "logsumexp",
    _logsumexp_type,
    _logsumexp_values,
    kinds="real floating",
    autocast="float32",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    vjp=(_logsumexp_vjp,),
    batch=shifted("axis"),
    cost=_passes(4),
    ways=but_axis,
)


def _floats(x: Tensor, op: str) -> Tensor:
    """x, with integers and bools as the default float."""
    tensor = x if isinstance(x, Tensor) else as_tensor(x, op)
    if tensor._data.dtype.kind in "iub":
        tensor = cast(tensor, promote_weak(tensor.dtype, "float"))
    return tensor


@public("softmax")
def softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """exp(x) divided by its sum along `axis`: positive numbers that add up to 1.

    >>> weft.softmax(weft.asarray([0.0, 0.0, 1000.0]))
    tensor([0., 0., 1.])
    """
    tensor = _floats(x, "softmax")
    out: Tensor = bind(_softmax, tensor, axis=axis_of(tensor, axis, "softmax"))
    return out


@public("log_softmax")
def log_softmax(x: Tensor, /, *, axis: int = -1) -> Tensor:
    """The logarithm of softmax, exact also where softmax is almost 0 or 1.

    >>> weft.log_softmax(weft.asarray([0.0, 0.0, 1000.0]))
    tensor([-1000., -1000.,     0.])
    """
    tensor = _floats(x, "log_softmax")
    out: Tensor = bind(_log_softmax, tensor, axis=axis_of(tensor, axis, "log_softmax"))
    return out


@public("logsumexp")
def logsumexp(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over `axis` (all axes by default) without overflow.

    >>> weft.logsumexp(weft.asarray([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    tensor = _floats(x, "logsumexp")
    axes = normalize_axes(axis, tensor.ndim, "logsumexp")
    out: Tensor = bind(_logsumexp, tensor, axis=axes, keepdims=bool(keepdims))
    return out
