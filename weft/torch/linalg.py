"""`torch.linalg`: Weft's functions of that namespace, some with PyTorch's further arguments."""

from __future__ import annotations

from typing import Any

from weft.ops import linalg as core
from weft.ops.elementwise import conj
from weft.ops.shape import expand_dims, matrix_transpose, moveaxis, reshape, squeeze

#: The others are Weft's.
_OWN = ("diagonal", "eigh", "eigvalsh", "matrix_norm", "solve", "vector_norm")
_SAME = {name: getattr(core, name) for name in core.__all__ if name not in _OWN}
globals().update(_SAME)

__all__ = [*_OWN, *_SAME]


def solve(A: Any, B: Any, *, left: bool = True) -> Any:
    """The X with A X = B, or with `left=False` X A = B.

    B holds vectors where it has one axis less than A and the same leading sizes.
    """
    if not left:
        flipped = solve(matrix_transpose(A), matrix_transpose(B))
        return matrix_transpose(flipped)
    if B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]):
        return squeeze(core.solve(A, expand_dims(B, -1)), axis=-1)
    return core.solve(A, B)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The diagonal of the matrices that two axes hold, as the last axis."""
    return core.diagonal(moveaxis(A, (dim1, dim2), (-2, -1)), offset=offset)


def _lower(A: Any, UPLO: str) -> Any:
    """Matrices whose lower triangle counts."""
    return A if UPLO.upper() == "L" else conj(matrix_transpose(A))


def eigh(A: Any, UPLO: str = "L") -> Any:
    """Eigenvalues and eigenvectors of matrices of which one triangle is read."""
    return core.eigh(_lower(A, UPLO))


def eigvalsh(A: Any, UPLO: str = "L") -> Any:
    """Eigenvalues of matrices of which one triangle is read."""
    return core.eigvalsh(_lower(A, UPLO))


def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """The norm of the matrices that two axes hold."""
    axes = tuple(axis % A.ndim for axis in dim)
    found = core.matrix_norm(moveaxis(A, axes, (-2, -1)), ord=ord)
    if keepdim:
        for axis in sorted(axes):
            found = expand_dims(found, axis)
    return found


def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    """The norm of all elements as one vector, or along axes."""
    axis = tuple(dim) if isinstance(dim, list) else dim
    if not x.ndim:
        return core.vector_norm(reshape(x, (1,)), ord=ord)
    return core.vector_norm(x, ord=ord, axis=axis, keepdims=keepdim)
