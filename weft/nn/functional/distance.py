"""Distances, norms and cosines between vectors along an axis."""

from __future__ import annotations

import math

import numpy as np

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.base.errors import RangeError, ShapeError
from weft.base.promotion import result_dtype
from weft.base.shapes import Shape, broadcast_shapes, normalize_axis
from weft.core.autocast import autocasts
from weft.core.operands import cast, common
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.elementwise import abs, maximum, sqrt, square
from weft.ops.index import take
from weft.ops.linalg_rules import flat_in
from weft.ops.reduce import max, min, sum
from weft.ops.select import where
from weft.ops.shape import broadcast_to, reshape

__all__ = ["cosine_similarity", "normalize", "pairwise_distance", "pdist"]


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
        return flat_in(sum((x != 0).astype(x.dtype), axis=dim, keepdims=keepdims), x)
    if p < 0:
        raise RangeError(f"there is no {p}-norm here", op="vector_norm")
    total = sum(where(size == 0, 0, where(size == 0, 1, size) ** p), axis=dim, keepdims=keepdims)
    zero = total == 0
    return where(zero, 0, where(zero, 1, total) ** (1 / p))


def _wide(x: Tensor) -> Tensor:
    """Narrow floats as float32: half of 1e-8 is 0."""
    return cast(x, float32) if x.dtype in NARROW_FLOATS else x


@autocasts("float32")
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """The input with vectors of length 1 along `dim`; shorter ones than eps are divided by it."""
    x = _wide(input)
    return cast(x / maximum(vector_norm(x, p, dim, True), eps), input.dtype)


@autocasts("float32")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; lengths count as eps at least.

    `dim` is an axis of the shape to which the two broadcast.
    """
    shape = broadcast_shapes(x1.shape, x2.shape)
    axis = normalize_axis(dim, len(shape), "cosine_similarity")
    a, b = (_wide(_with_axis(x, axis, shape)) for x in common((x1, x2), "cosine_similarity"))
    along_a = a / maximum(vector_norm(a, 2, axis, True), eps)
    along_b = b / maximum(vector_norm(b, 2, axis, True), eps)
    return cast(sum(along_a * along_b, axis=axis), result_dtype([x1.dtype, x2.dtype], []))


def _with_axis(x: Tensor, axis: int, shape: Shape) -> Tensor:
    """x with the axes of `shape`, and along `axis` of its size."""
    if len(x.shape) == len(shape) and x.shape[axis] == shape[axis]:
        return x
    sizes = (1,) * (len(shape) - x.ndim) + x.shape
    return broadcast_to(reshape(x, sizes), (*sizes[:axis], shape[axis], *sizes[axis + 1 :]))


@autocasts("float32")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@autocasts("float32")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances between all pairs of rows: of 0 and 1, 0 and 2, …, 1 and 2, …

    >>> weft.nn.functional.pdist(weft.asarray([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]))
    tensor([5., 3., 4.])
    """
    if input.ndim != 2:
        raise ShapeError(f"the input has {input.ndim} axes, not 2", op="pdist")
    first, second = np.triu_indices(input.shape[0], 1)
    rows = [take(input, asarray(i, device=input.device), axis=0) for i in (first, second)]
    return vector_norm(rows[0] - rows[1], p, 1, False)
