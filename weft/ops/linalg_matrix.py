"""Functions of matrices and vectors that need no factorisation."""

from __future__ import annotations

from typing import Any

from weft.base.dim_algebra import Dim, dim_max, dim_min
from weft.base.errors import ShapeError
from weft.base.shapes import size_of
from weft.core.operands import as_tensor, cast, common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ops.arguments import integer, shared_axis
from weft.ops.creation import arange
from weft.ops.elementwise import multiply, subtract
from weft.ops.linalg_rules import matrix_sizes, widened
from weft.ops.reduce import sum
from weft.ops.shape import reshape, stack

__all__ = ["cross", "diagonal", "outer", "trace"]


@public("diagonal", namespace="linalg")
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonal of each matrix in the last two axes; above it for offset > 0, below for < 0.

    >>> weft.linalg.diagonal(weft.asarray([[1, 2, 3], [4, 5, 6]]), offset=1)
    tensor([2, 6])
    """
    x = as_tensor(x, "diagonal")
    batch, rows, columns = matrix_sizes(type_of(x), "diagonal")
    k = integer(offset, "offset", "diagonal", x)
    length = dim_max(dim_min(rows + min(k, 0), columns - max(k, 0)), 0)
    if isinstance(length, Dim):
        along = arange(length, device=x.device)
        return x[(..., along + max(-k, 0), along + max(k, 0))]
    flat = reshape(x, (*batch, rows * columns))
    # In row-major order, the next element of a diagonal is one row and one column on.
    step = columns + 1
    start = (k if k >= 0 else -k * columns) if length else 0
    return flat[..., start : start + length * step : step]


@public("trace", namespace="linalg")
def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of each matrix; small integers are summed as 64-bit ones.

    >>> weft.linalg.trace(weft.asarray([[1, 2], [3, 4]]))
    tensor(5)
    """
    x = as_tensor(x, "trace")
    matrix_sizes(type_of(x), "trace")
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@public("outer", namespace="linalg")
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of an element of one vector and an element of another: out[i, j] = x1[i] x2[j].

    >>> weft.linalg.outer(weft.asarray([1, 2]), weft.asarray([10, 20, 30]))
    tensor([[10, 20, 30],
            [20, 40, 60]])
    """
    x1, x2 = common((x1, x2), "outer")
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(
            f"both operands must be vectors; they have {x1.ndim} and {x2.ndim} axes",
            op="outer",
            operands=[type_of(x1), type_of(x2)],
            hint="use tensordot(x1, x2, axes=0) for more axes",
        )
    return multiply(reshape(x1, (size_of(x1.shape), 1)), reshape(x2, (1, size_of(x2.shape))))


@public(namespace="linalg")
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements that lie along `axis`; other axes broadcast.

    >>> weft.linalg.cross(weft.asarray([1, 0, 0]), weft.asarray([0, 1, 0]))
    tensor([0, 0, 1])
    """
    x1, x2 = common((x1, x2), "cross")
    along = shared_axis(axis, x1, x2, "cross")
    if x1.shape[along] != 3 or x2.shape[along] != 3:
        raise ShapeError(
            f"vectors must have 3 elements, not {x1.shape[along]} and {x2.shape[along]}",
            op="cross",
            operands=[type_of(x1), type_of(x2)],
            hint="name the axis of the vectors: cross(x1, x2, axis=...)",
        )

    def parts(x: Tensor) -> list[Tensor]:
        behind = (slice(None),) * (-along - 1)
        return [x[(..., i, *behind)] for i in range(3)]

    a, b = parts(widened(x1)), parts(widened(x2))
    turns = ((1, 2), (2, 0), (0, 1))
    products = [subtract(multiply(a[i], b[j]), multiply(a[j], b[i])) for i, j in turns]
    return cast(stack(products, axis=along), x1.dtype)
