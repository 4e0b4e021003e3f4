"""Products by the names that BLAS, NumPy and PyTorch have for them, made of `matmul`."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import int64
from weft.base.errors import ShapeError
from weft.core.autocast import autocasts
from weft.core.operands import as_tensor
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.elementwise import conj
from weft.ops.index import take
from weft.ops.linalg_matrix import outer
from weft.ops.linalg_norm import vector_norm
from weft.ops.matmul import matmul, tensordot
from weft.ops.reduce import sum
from weft.ops.shape import expand_dims, reshape

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "cdist",
    "dist",
    "dot",
    "inner",
    "kron",
    "mm",
    "mv",
    "pdist",
    "vdot",
]


def _check(op: str, x1: Tensor, x2: Tensor, *ndims: int) -> None:
    if (x1.ndim, x2.ndim) != ndims:
        raise ShapeError(
            f"operands of {ndims[0]} and {ndims[1]} axes are needed, not {x1.ndim} and {x2.ndim}",
            op=op,
            operands=[x1.type, x2.type],
            hint="matmul takes any number of axes",
        )


@public("mm")
def mm(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of two matrices.

    >>> weft.mm(weft.asarray([[1, 2]]), weft.asarray([[3], [4]]))
    tensor([[11]])
    """
    _check("mm", x1, x2, 2, 2)
    return matmul(x1, x2)


@public("bmm")
def bmm(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of two stacks of matrices of one length.

    >>> weft.bmm(weft.ones(4, 2, 3), weft.ones(4, 3, 5)).shape
    (4, 2, 5)
    """
    _check("bmm", x1, x2, 3, 3)
    if x1.shape[0] != x2.shape[0]:
        raise ShapeError(
            f"the stacks differ in length: {x1.shape[0]} and {x2.shape[0]}",
            op="bmm",
            operands=[x1.type, x2.type],
            hint="matmul broadcasts stacks",
        )
    return matmul(x1, x2)


@public("mv")
def mv(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of a matrix and a vector.

    >>> weft.mv(weft.asarray([[1, 2], [3, 4]]), weft.asarray([1, 1]))
    tensor([3, 7])
    """
    _check("mv", x1, x2, 2, 1)
    return matmul(x1, x2)


@public("dot")
@autocasts("")
def dot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The sum of the products of the elements of two vectors; nothing is conjugated.

    >>> weft.dot(weft.asarray([1, 2]), weft.asarray([3, 4]))
    tensor(11)
    """
    _check("dot", x1, x2, 1, 1)
    return matmul(x1, x2)


@public("inner")
@autocasts("")
def inner(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Sums of products over the last axis of both; the other axes of both follow each other.

    >>> weft.inner(weft.asarray([[1, 2], [3, 4]]), weft.asarray([1, 1]))
    tensor([3, 7])
    """
    first, second = as_tensor(x1, "inner"), as_tensor(x2, "inner")
    if not (first.ndim and second.ndim):
        product: Tensor = first * second
        return product
    return tensordot(first, second, axes=((-1,), (-1,)))


@public("kron")
def kron(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The Kronecker product: x2 times each element of x1, in the place of that element.

    >>> weft.kron(weft.asarray([[1, 2]]), weft.asarray([[1, 1]]))
    tensor([[1, 1, 2, 2]])
    """
    first, second = as_tensor(x1, "kron"), as_tensor(x2, "kron")
    ndim = max(first.ndim, second.ndim)
    left = (1,) * (ndim - first.ndim) + first.shape
    right = (1,) * (ndim - second.ndim) + second.shape
    first = reshape(first, [n for size in left for n in (size, 1)])
    second = reshape(second, [n for size in right for n in (1, size)])
    return reshape(first * second, [a * b for a, b in zip(left, right, strict=True)])


# --- a product added to a tensor ---------------------------------------------------------------


def _added(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * x + alpha * product; where beta is 0, what x holds does not matter."""
    term = product if _is(alpha, 1) else product * alpha
    if _is(beta, 0):
        return term
    total: Tensor = (x if _is(beta, 1) else x * beta) + term
    return total


def _is(factor: Any, number: int) -> bool:
    return not isinstance(factor, Tensor) and bool(factor == number)


@public("addmm")
@autocasts("lower")
def addmm(x: Tensor, x1: Tensor, x2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * x + alpha * (x1 @ x2), of matrices.

    >>> weft.addmm(weft.asarray([1, 1]), weft.asarray([[1, 2]]), weft.asarray([[1, 0], [0, 1]]))
    tensor([[2, 3]])
    """
    return _added(x, mm(x1, x2), beta, alpha)


@public("addmv")
@autocasts("lower")
def addmv(x: Tensor, x1: Tensor, x2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * x + alpha * (x1 @ x2), of a matrix and a vector.

    >>> weft.addmv(weft.asarray([1]), weft.asarray([[1, 2]]), weft.asarray([1, 1]), alpha=2)
    tensor([7])
    """
    return _added(x, mv(x1, x2), beta, alpha)


@public("addr")
@autocasts("lower")
def addr(x: Tensor, x1: Tensor, x2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * x + alpha * outer(x1, x2).

    >>> weft.addr(weft.asarray(1), weft.asarray([1, 2]), weft.asarray([3, 4]))
    tensor([[4, 5],
            [7, 9]])
    """
    return _added(x, outer(x1, x2), beta, alpha)


@public("baddbmm")
@autocasts("lower")
def baddbmm(x: Tensor, x1: Tensor, x2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * x + alpha * bmm(x1, x2).

    >>> weft.baddbmm(weft.zeros(2, 2, 2), weft.ones(2, 2, 3), weft.ones(2, 3, 2)).sum()
    tensor(24.)
    """
    return _added(x, bmm(x1, x2), beta, alpha)


@public("addbmm")
@autocasts("lower")
def addbmm(x: Tensor, x1: Tensor, x2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * x + alpha * the sum of the products of two stacks of matrices.

    >>> weft.addbmm(weft.zeros(2, 2), weft.ones(4, 2, 3), weft.ones(4, 3, 2))
    tensor([[12., 12.],
            [12., 12.]])
    """
    return _added(x, sum(bmm(x1, x2), axis=0), beta, alpha)


# --- distances ---------------------------------------------------------------------------------


@public("dist")
@autocasts("float32")
def dist(x1: Tensor, x2: Tensor, /, p: float = 2) -> Tensor:
    """The p-norm of x1 - x2. Where they are equal, its gradient is 0.

    >>> weft.dist(weft.asarray([1.0, 2.0]), weft.asarray([4.0, 6.0]))
    tensor(5.)
    """
    return vector_norm(x1 - x2, ord=p)


@public()
@autocasts("float32")
def cdist(x1: Tensor, x2: Tensor, /, p: float = 2) -> Tensor:
    """The p-norm of the difference of each row of x1 and each row of x2.

    >>> weft.cdist(weft.asarray([[0.0, 0.0]]), weft.asarray([[3.0, 4.0], [6.0, 8.0]]))
    tensor([[ 5., 10.]])
    """
    if x1.ndim < 2 or x2.ndim < 2:
        raise ShapeError("rows of matrices are compared", op="cdist", operands=[x1.type, x2.type])
    return vector_norm(expand_dims(x1, -2) - expand_dims(x2, -3), ord=p, axis=-1)


@public("vdot")
@autocasts("")
def vdot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of two vectors, of which the first one is conjugated.

    >>> weft.vdot(weft.asarray([1.0, 2.0]), weft.asarray([3.0, 4.0]))
    tensor(11.)
    """
    _check("vdot", x1, x2, 1, 1)
    return dot(conj(x1), x2)


@public()
@autocasts("float32")
def pdist(x: Tensor, /, p: float = 2) -> Tensor:
    """The distances between all pairs of rows i < j, in the order of the pairs.

    >>> weft.pdist(weft.asarray([[0.0], [1.0], [3.0]]))
    tensor([1., 3., 2.])
    """
    if x.ndim != 2:
        raise ShapeError("x must be a matrix of rows", op="pdist", operands=[x.type])
    count = range(x.shape[0])
    pairs = [(i, j) for i in count for j in count[i + 1 :]]
    first, second = (asarray([n[k] for n in pairs], dtype=int64, device=x.device) for k in (0, 1))
    return vector_norm(take(x, first, axis=0) - take(x, second, axis=0), ord=p, axis=-1)
