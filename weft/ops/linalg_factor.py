"""Factorisations: Cholesky, QR, eigenvalues of symmetric matrices, singular values.

All take a matrix or a stack of matrices in the last two axes. Integers become the default
floating dtype; float16 and bfloat16 are computed in float32 and rounded once. Of a matrix that
should be symmetric (Hermitian), only the lower triangle is read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from weft.base.dtypes import real_dtype
from weft.base.errors import ShapeError
from weft.core.bind import bind
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.linalg_rules import (
    adjoint,
    bind_with_hint,
    floating,
    matrix_cost,
    matrix_sizes,
    square_size,
    square_type,
)
from weft.ops.rules import check_kind

__all__ = ["cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals"]

_FINITE = "the matrix must be free of NaN and infinities"

# --- Cholesky ----------------------------------------------------------------------------------

_cholesky = Op(
    "cholesky",
    square_type,
    lambda xp, x: xp.linalg.cholesky(x),
    kinds="floating",
    traits=Trait.WIDEN,
    cost=matrix_cost(1 / 3),
)


@public(namespace="linalg")
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangle L with x = L @ Lᴴ, or the upper U = Lᴴ with x = Uᴴ @ U.

    x is a symmetric (Hermitian) positive definite matrix, or a stack of them.

    >>> weft.linalg.cholesky(weft.asarray([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    hint = "x must be symmetric and positive definite; x + 1e-6 * weft.eye(n) often is"
    lower: Tensor = bind_with_hint(hint, _cholesky, floating(x, "cholesky"))
    return adjoint(lower) if upper else lower


# --- QR ----------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """Orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


def _qr_type(x: TensorType, *, mode: str) -> tuple[TensorType, TensorType]:
    check_kind(x, "floating")
    stack, rows, columns = matrix_sizes(x)
    inner = rows if mode == "complete" else min(rows, columns)
    return x.like(shape=(*stack, rows, inner)), x.like(shape=(*stack, inner, columns))


_qr = Op(
    "qr",
    _qr_type,
    lambda xp, x, *, mode: tuple(xp.linalg.qr(x, mode=mode)),
    kinds="floating",
    traits=Trait.WIDEN,
    outputs=2,
    cost=matrix_cost(4),
)


@public(namespace="linalg")
def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """x = Q @ R with orthonormal columns Q and an upper triangle R.

    With K = min(M, N), Q is M × K and R is K × N; in mode "complete", M × M and M × N.
    """
    tensor = floating(x, "qr")
    if mode not in ("reduced", "complete"):
        raise ShapeError(
            f"mode must be 'reduced' or 'complete', not {mode!r}",
            op="qr",
            operands=[type_of(tensor)],
        )
    return QRResult(*bind(_qr, tensor, mode=mode))


# --- eigenvalues -------------------------------------------------------------------------------


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and the eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _eigh_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_kind(x, "floating")
    stack, rows = square_size(x)
    return x.like(shape=(*stack, rows), dtype=real_dtype(x.dtype)), x


_eigh = Op(
    "eigh",
    _eigh_type,
    lambda xp, x: tuple(xp.linalg.eigh(x)),
    kinds="floating",
    traits=Trait.WIDEN,
    outputs=2,
    cost=matrix_cost(9),
)


@public(namespace="linalg")
def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues and eigenvectors of a symmetric (Hermitian) matrix, in ascending order.

    >>> weft.linalg.eigh(weft.asarray([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
    tensor([1., 3.])
    """
    return EighResult(*bind_with_hint(_FINITE, _eigh, floating(x, "eigh")))


@public(namespace="linalg")
def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of a symmetric (Hermitian) matrix, in ascending order."""
    return eigh(x).eigenvalues


# --- singular values ---------------------------------------------------------------------------


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _svd_type(x: TensorType, *, full_matrices: bool) -> tuple[TensorType, TensorType, TensorType]:
    check_kind(x, "floating")
    stack, rows, columns = matrix_sizes(x)
    inner = min(rows, columns)
    left, right = (rows, columns) if full_matrices else (inner, inner)
    return (
        x.like(shape=(*stack, rows, left)),
        x.like(shape=(*stack, inner), dtype=real_dtype(x.dtype)),
        x.like(shape=(*stack, right, columns)),
    )


_svd = Op(
    "svd",
    _svd_type,
    lambda xp, x, *, full_matrices: tuple(xp.linalg.svd(x, full_matrices=full_matrices)),
    kinds="floating",
    traits=Trait.WIDEN,
    outputs=3,
    cost=matrix_cost(14),
)


@public(namespace="linalg")
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U @ diag(S) @ Vh: the singular value decomposition, S in descending order.

    U is M × M and Vh N × N; without `full_matrices`, M × K and K × N, with K = min(M, N).
    """
    tensor = floating(x, "svd")
    return SVDResult(*bind_with_hint(_FINITE, _svd, tensor, full_matrices=bool(full_matrices)))


@public(namespace="linalg")
def svdvals(x: Tensor, /) -> Tensor:
    """The singular values of x, in descending order."""
    return svd(x, full_matrices=False).S
