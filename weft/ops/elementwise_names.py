"""More elementwise functions that are a few others put together."""

from __future__ import annotations

import math

from weft.core.operands import Operand, common
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.elementwise import (
    divide,
    isnan,
    logaddexp,
    maximum,
    minimum,
    multiply,
    pow,
    subtract,
)
from weft.ops.select import where

__all__ = ["exp2", "fmax", "fmin", "logaddexp2", "rsub"]


@public("exp2")
def exp2(x: Tensor, /) -> Tensor:
    """2 to the power of x.

    >>> weft.exp2(weft.asarray([0.0, 3.0]))
    tensor([1., 8.])
    """
    return pow(2.0, x)


@public("logaddexp2")
def logaddexp2(x1: Operand, x2: Operand, /) -> Tensor:
    """log2(2 ** x1 + 2 ** x2), without overflow in between.

    >>> weft.logaddexp2(weft.asarray([1.0]), weft.asarray([1.0]))
    tensor([2.])
    """
    first, second = common((x1, x2), "logaddexp2", at_least="float")
    factor = math.log(2.0)
    return divide(logaddexp(multiply(first, factor), multiply(second, factor)), factor)


def _skipping_nan(x1: Operand, x2: Operand, name: str) -> Tensor:
    first, second = common((x1, x2), name)
    larger = maximum(first, second) if name == "fmax" else minimum(first, second)
    if first.dtype.kind != "float":
        return larger
    return where(isnan(first), second, where(isnan(second), first, larger))


@public("fmax")
def fmax(x1: Operand, x2: Operand, /) -> Tensor:
    """The larger of two; where one is NaN, the other. `maximum` gives NaN there.

    >>> weft.fmax(weft.asarray([1.0, weft.nan]), weft.asarray([2.0, 0.0]))
    tensor([2., 0.])
    """
    return _skipping_nan(x1, x2, "fmax")


@public("fmin")
def fmin(x1: Operand, x2: Operand, /) -> Tensor:
    """The smaller of two; where one is NaN, the other. `minimum` gives NaN there.

    >>> weft.fmin(weft.asarray([1.0, weft.nan]), weft.asarray([2.0, 0.0]))
    tensor([1., 0.])
    """
    return _skipping_nan(x1, x2, "fmin")


@public("rsub")
def rsub(x1: Operand, x2: Operand, /, *, alpha: Operand = 1) -> Tensor:
    """x2 - alpha * x1.

    >>> weft.rsub(weft.asarray([1.0]), 5.0)
    tensor([4.])
    """
    return subtract(x2, multiply(x1, alpha))
