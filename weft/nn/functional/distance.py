"""Distances, norms and cosines between vectors along an axis."""

from __future__ import annotations

import math

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.base.errors import RangeError
from weft.core.operands import cast
from weft.core.tensor import Tensor
from weft.ops.elementwise import abs, maximum, sqrt, square
from weft.ops.reduce import max, min, sum
from weft.ops.select import where

__all__ = ["cosine_similarity", "normalize", "pairwise_distance"]


def vector_norm(x: Tensor, p: float, dim: int | tuple[int, ...], keepdims: bool) -> Tensor:
    """The p-norm along an axis. At 0 its slope is 0, as for PyTorch."""
    if p == 2:
        total = sum(square(x), axis=dim, keepdims=keepdims)
        zero = total == 0
        return where(zero, 0, sqrt(where(zero, 1, total)))
    size = abs(x)
    if p == 1:
        return sum(size, axis=dim, keepdims=keepdims)
    if p == math.inf:
        return max(size, axis=dim, keepdims=keepdims)
    if p == -math.inf:
        return min(size, axis=dim, keepdims=keepdims)
    if p == 0:
        return sum((x != 0).astype(x.dtype), axis=dim, keepdims=keepdims)
    if p < 0:
        raise RangeError(f"there is no {p}-norm here", op="vector_norm")
    total = sum(where(size == 0, 0, where(size == 0, 1, size) ** p), axis=dim, keepdims=keepdims)
    zero = total == 0
    return where(zero, 0, where(zero, 1, total) ** (1 / p))


def _wide(x: Tensor) -> Tensor:
    """Narrow floats as float32: half of 1e-8 is 0."""
    return cast(x, float32) if x.dtype in NARROW_FLOATS else x


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """The input with vectors of length 1 along `dim`; shorter ones than eps are divided by it."""
    x = _wide(input)
    return cast(x / maximum(vector_norm(x, p, dim, True), eps), input.dtype)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; lengths count as eps at least."""
    a, b = _wide(x1), _wide(x2)
    along_a = a / maximum(vector_norm(a, 2, dim, True), eps)
    along_b = b / maximum(vector_norm(b, 2, dim, True), eps)
    out = sum(along_a * along_b, axis=dim)
    return cast(out, x1.dtype) if x1.dtype in NARROW_FLOATS else out


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)
