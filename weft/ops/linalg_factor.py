"""Factorisations: Cholesky, QR, eigenvalues of symmetric matrices, singular values.

All take a matrix or a stack of matrices in the last two axes. Integers become the default
floating dtype; float16 and bfloat16 are computed in float32 and rounded once. Of a matrix that
should be symmetric (Hermitian), only the lower triangle is read.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from weft.base.dim_algebra import dim_min, known_less
from weft.base.dtypes import real_dtype
from weft.base.errors import GradientError, ShapeError
from weft.core.bind import bind
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.types import TensorType
from weft.ops.linalg_rules import (
    adjoint,
    bind_with_hint,
    floating,
    hermitian,
    identity_like,
    matrix_card,
    matrix_sizes,
    square_size,
    square_type,
)
from weft.ops.linalg_triangular import solved
from weft.ops.rules import check_kind

__all__ = ["cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals"]

FINITE = "the matrix must be free of NaN and infinities"

# --- Cholesky ----------------------------------------------------------------------------------


def _cholesky_vjp(xp: Any, g: Any, out: Any, _x: Any) -> Any:
    """By L⁻¹ dx L⁻ᴴ = Φ + Φᴴ, Φ = L⁻¹ dL; symmetric (Hermitian), as x is meant to be."""
    upper = hermitian(xp, out)
    inner = xp.matmul(upper, xp.tril(g))
    half = xp.tril(inner, k=-1) + xp.real(inner) * (0.5 * identity_like(xp, inner))
    left = solved(upper, half, upper=True)  # L⁻ᴴ Φ L⁻¹
    both = solved(upper, hermitian(xp, left), upper=True)
    return (both + hermitian(xp, both)) / 2


_cholesky = matrix_card(
    "cholesky",
    square_type,
    lambda xp, x: xp.linalg.cholesky(x),
    _cholesky_vjp,
    flops=1 / 3,
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
    inner = rows if mode == "complete" else dim_min(rows, columns)
    return x.like(shape=(*stack, rows, inner)), x.like(shape=(*stack, inner, columns))


def _qr_vjp(xp: Any, g: Any, out: Any, x: Any, *, mode: str) -> Any:
    (g_q, g_r), (q, r) = g, out
    rows, columns = x.shape[-2:]
    if rows > columns and mode == "complete":
        if g_q is not None:
            raise _not_unique("the columns of Q beyond those of x", 'qr(x, mode="reduced")', "qr")
        q, r, g_r = q[..., :columns], r[..., :columns, :], g_r[..., :columns, :]
    if rows >= columns:
        return _tall_qr_vjp(xp, g_q, g_r, q, r)
    # x is [x1, x2] and R is [R1, R2] with x1 = Q @ R1 square, and R2 = Qᴴ @ x2.
    g_r1 = g_r2 = None
    if g_r is not None:
        g_r1, g_r2 = g_r[..., :rows], g_r[..., rows:]
        more = xp.matmul(x[..., rows:], hermitian(xp, g_r2))
        g_q = more if g_q is None else g_q + more
    g_x1 = _tall_qr_vjp(xp, g_q, g_r1, q, r[..., :rows])
    g_x2 = xp.zeros_like(x[..., rows:]) if g_r2 is None else xp.matmul(q, g_r2)
    return xp.concat([g_x1, g_x2], axis=-1)


def _tall_qr_vjp(xp: Any, g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    """(g_Q + Q (T + Tᴴ)) R⁻ᴴ, T the upper triangle, its diagonal halved, of g_R Rᴴ - Qᴴ g_Q."""
    inner = xp.zeros_like(r)
    if g_r is not None:
        inner = inner + xp.matmul(g_r, hermitian(xp, r))
    if g_q is not None:
        inner = inner - xp.matmul(hermitian(xp, q), g_q)
    above = xp.triu(inner, k=1) + xp.real(inner) * (0.5 * identity_like(xp, inner))
    turned = xp.matmul(q, above + hermitian(xp, above))
    if g_q is not None:
        turned = turned + g_q
    return hermitian(xp, solved(r, hermitian(xp, turned), upper=True))


def _not_unique(what: str, instead: str, op: str) -> GradientError:
    return GradientError(
        f"{what} are not determined by x, so they have no gradient",
        op=op,
        hint=f"use {instead}",
    )


_qr = matrix_card(
    "qr",
    _qr_type,
    lambda xp, x, *, mode: tuple(xp.linalg.qr(x, mode=mode)),
    _qr_vjp,
    flops=4,
    outputs=2,
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


def _eigh_vjp(xp: Any, g: Any, out: Any, _x: Any) -> Any:
    """Symmetric. Eigenvectors of equal eigenvalues are not unique: their gradient is not finite."""
    (g_values, g_vectors), (values, vectors) = g, out
    unit = identity_like(xp, vectors)
    inner = xp.zeros_like(vectors)
    if g_values is not None:
        inner = inner + g_values[..., None] * unit
    if g_vectors is not None:
        gaps = values[..., None, :] - values[..., None]
        turn = xp.matmul(hermitian(xp, vectors), g_vectors)
        inner = inner + _off_diagonal(xp, turn, gaps)
    whole = xp.matmul(xp.matmul(vectors, inner), hermitian(xp, vectors))
    return (whole + hermitian(xp, whole)) / 2


def _off_diagonal(xp: Any, x: Any, gaps: Any) -> Any:
    """x / gaps, with a diagonal of zeros."""
    on = identity_like(xp, x) != 0
    return xp.where(on, 0, x) / xp.where(on, 1, gaps)


_eigh = matrix_card(
    "eigh",
    _eigh_type,
    lambda xp, x: tuple(xp.linalg.eigh(x)),
    _eigh_vjp,
    flops=9,
    outputs=2,
)


@public(namespace="linalg")
def eigh(x: Tensor, /) -> EighResult:
    """The eigenvalues and eigenvectors of a symmetric (Hermitian) matrix, in ascending order.

    >>> weft.linalg.eigh(weft.asarray([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
    tensor([1., 3.])
    """
    return EighResult(*bind_with_hint(FINITE, _eigh, floating(x, "eigh")))


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
    inner = dim_min(rows, columns)
    left, right = (rows, columns) if full_matrices else (inner, inner)
    return (
        x.like(shape=(*stack, rows, left)),
        x.like(shape=(*stack, inner), dtype=real_dtype(x.dtype)),
        x.like(shape=(*stack, right, columns)),
    )


def _svd_vjp(xp: Any, g: Any, out: Any, _x: Any, *, full_matrices: bool) -> Any:
    """Vectors of equal singular values are not unique: their gradient is not finite."""
    (g_u, g_s, g_vh), (u, s, vh) = g, out
    size, rows, columns = s.shape[-1], u.shape[-2], vh.shape[-1]
    if full_matrices:
        if (g_u is not None and rows > size) or (g_vh is not None and columns > size):
            raise _not_unique(
                "the singular vectors beyond the singular values",
                "svd(x, full_matrices=False)",
                "svd",
            )
        u, vh = u[..., :size], vh[..., :size, :]
    uh, v = hermitian(xp, u), hermitian(xp, vh)
    unit = identity_like(xp, uh @ u)
    inner = xp.zeros_like(unit)
    if g_s is not None:
        inner = inner + g_s[..., None] * unit
    gaps = s[..., None, :] ** 2 - s[..., None] ** 2
    if g_u is not None:
        turn = xp.matmul(uh, g_u)
        inner = inner + _off_diagonal(xp, turn - hermitian(xp, turn), gaps) * s[..., None, :]
        if xp.isdtype(u.dtype, "complex floating"):  # a common phase of a pair of vectors
            inner = inner + (1j * xp.imag(turn) / s[..., None]) * unit
    if g_vh is not None:
        g_v = hermitian(xp, g_vh)
        turn = xp.matmul(vh, g_v)
        inner = inner + s[..., None] * _off_diagonal(xp, turn - hermitian(xp, turn), gaps)
    whole = xp.matmul(xp.matmul(u, inner), vh)
    if g_u is not None and rows != size:
        beside = (g_u - xp.matmul(u, xp.matmul(uh, g_u))) / s[..., None, :]
        whole = whole + xp.matmul(_if_longer(xp, rows, size, beside), vh)
    if g_vh is not None and columns != size:
        beside = (g_vh - xp.matmul(xp.matmul(g_vh, v), vh)) / s[..., None]
        whole = whole + xp.matmul(u, _if_longer(xp, columns, size, beside))
    return whole


def _if_longer(xp: Any, long: int, size: int, x: Any) -> Any:
    """x if `long` is above `size`, else zeros; decided at run time if the sizes are symbolic."""
    return x if known_less(size, long) else xp.where(xp.asarray(long) > size, x, 0)


_svd = matrix_card(
    "svd",
    _svd_type,
    lambda xp, x, *, full_matrices: tuple(xp.linalg.svd(x, full_matrices=full_matrices)),
    _svd_vjp,
    flops=14,
    outputs=3,
)


@public(namespace="linalg")
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U @ diag(S) @ Vh: the singular value decomposition, S in descending order.

    U is M × M and Vh N × N; without `full_matrices`, M × K and K × N, with K = min(M, N).
    """
    tensor = floating(x, "svd")
    return SVDResult(*bind_with_hint(FINITE, _svd, tensor, full_matrices=bool(full_matrices)))


@public(namespace="linalg")
def svdvals(x: Tensor, /) -> Tensor:
    """The singular values of x, in descending order."""
    return svd(x, full_matrices=False).S
