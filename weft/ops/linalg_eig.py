"""Eigenvalues of general square matrices, and the matrix exponential."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from weft.base import dtypes
from weft.base.dtypes import as_dtype, real_dtype
from weft.core.bind import bind
from weft.core.operands import cast
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.batching import leading
from weft.ops.linalg_factor import FINITE
from weft.ops.linalg_rules import (
    bind_with_hint,
    floating,
    hermitian,
    identity_like,
    matrix_card,
    matrix_cost,
    square_size,
    square_type,
    widened,
)
from weft.ops.rules import apply, check_kind, conj_of
from weft.ops.ways import but_last

__all__ = ["eig", "eigvals", "expm", "matrix_exp"]


class EigResult(NamedTuple):
    """Eigenvalues, and the eigenvectors as columns of length 1; both are complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _complex(dtype: Any) -> Any:
    return dtypes.complex128 if real_dtype(as_dtype(dtype)).itemsize == 8 else dtypes.complex64


def _eig_type(x: TensorType) -> tuple[TensorType, TensorType]:
    check_kind(x, "floating")
    stack, rows = square_size(x)
    kind = _complex(x.dtype)
    return x.like(shape=(*stack, rows), dtype=kind), x.like(dtype=kind)


def _eig_values(xp: Any, x: Any) -> Any:
    kind = _complex(x.dtype).numpy
    values, vectors = xp.linalg.eig(x)
    return xp.astype(values, kind, copy=False), xp.astype(vectors, kind, copy=False)


def _eig_vjp(xp: Any, g: Any, out: Any, x_type: Any) -> Any:
    """Vectors have length 1 and any phase: functions of them must not depend on the phase."""
    (g_values, g_vectors), (values, vectors) = g, out
    unit = identity_like(xp, vectors)
    adjoint = hermitian(xp, vectors)
    inner = xp.zeros_like(vectors)
    if g_vectors is not None:
        turn = xp.matmul(adjoint, g_vectors)
        lengths = xp.sum(xp.real(turn) * xp.real(unit), axis=-2, keepdims=True)
        turn = turn - xp.matmul(adjoint, vectors) * lengths
        gaps = conj_of(xp, values[..., None, :] - values[..., None])
        on = xp.real(unit) != 0
        inner = xp.where(on, 0, turn) / xp.where(on, 1, gaps)
    if g_values is not None:
        inner = inner + g_values[..., None] * unit
    whole = xp.linalg.solve(adjoint, xp.matmul(inner, adjoint))
    return whole if as_dtype(x_type.dtype).kind == "complex" else xp.real(whole)


_EIG = Op(
    "eig",
    _eig_type,
    _eig_values,
    kinds="floating",
    autocast="float32",
    vjp=(_eig_vjp,),
    batch=leading,
    outputs=2,
    cost=matrix_cost(25),
    ways=but_last(2),
)


@public(namespace="linalg")
def eig(x: Tensor, /) -> EigResult:
    """The eigenvalues and eigenvectors of a square matrix, in no particular order; both complex.

    For symmetric (Hermitian) matrices `eigh` is faster and more exact.

    >>> weft.linalg.eig(weft.asarray([[0.0, -1.0], [1.0, 0.0]])).eigenvalues
    tensor([0.+1.j, 0.-1.j])
    """
    return EigResult(*bind_with_hint(FINITE, _EIG, widened(floating(x, "eig"))))


@public(namespace="linalg")
def eigvals(x: Tensor, /) -> Tensor:
    """The eigenvalues of a square matrix, in no particular order; complex."""
    return eig(x).eigenvalues


# --- the matrix exponential --------------------------------------------------------------------

#: Padé's approximation of order 13: the numerator's coefficients; the denominator has the same
#: with alternating signs. Up to a norm of 5.37 its error is below float64's (Higham, 2005).
_PADE = tuple(
    math.factorial(26 - k) * math.factorial(13)
    / (math.factorial(26) * math.factorial(k) * math.factorial(13 - k))
    for k in range(14)
)  # fmt: skip
_LARGEST = 5.371920351148152


def _expm_values(x: Any) -> Any:
    """By scaling and squaring: exp(x) = exp(x / 2 ** s) ** (2 ** s)."""
    if not x.size:
        return x.copy()
    norm = np.max(np.sum(np.abs(x), axis=-2), axis=-1)
    known = np.isfinite(norm)
    with np.errstate(all="ignore"):
        times = np.ceil(np.log2(np.where(known & (norm > 0), norm, 1.0) / _LARGEST))
    times = np.maximum(times, 0).astype(np.int64)
    small = np.where(known[..., None, None], x, 0) * (0.5**times)[..., None, None].astype(
        norm.dtype
    )
    square = small @ small
    unit = np.eye(x.shape[-1], dtype=x.dtype)
    odd, even = unit * _PADE[13], unit * _PADE[12]
    for k in range(5, -1, -1):
        odd = odd @ square + unit * _PADE[2 * k + 1]
        even = even @ square + unit * _PADE[2 * k]
    odd = small @ odd
    out = np.linalg.solve(even - odd, even + odd)
    for turn in range(int(times.max(initial=0))):
        again = (times > turn)[..., None, None]
        out = np.where(again, out @ out, out)
    return np.where(known[..., None, None], out, np.nan).astype(x.dtype, copy=False)


def _expm_vjp(xp: Any, g: Any, _out: Any, x: Any) -> Any:
    """The upper right block of exp([[xᴴ, g], [0, xᴴ]]) is the derivative of exp at xᴴ along g."""
    turned = hermitian(xp, x)
    upper = xp.concat([turned, g], axis=-1)
    lower = xp.concat([xp.zeros_like(g), turned], axis=-1)
    whole = apply(_EXPM, xp.concat([upper, lower], axis=-2))
    size = x.shape[-1]
    return whole[..., :size, size:]


_EXPM = matrix_card(
    "expm",
    square_type,
    lambda xp, x: _expm_values(x),
    _expm_vjp,
    flops=20,
)


@public(namespace="linalg")
def expm(x: Tensor, /) -> Tensor:
    """The matrix exponential: 1 + x + x @ x / 2 + x @ x @ x / 6 + …

    >>> weft.linalg.expm(weft.asarray([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    tensor = floating(x, "expm")
    out: Tensor = bind(_EXPM, tensor)
    return cast(out, tensor.dtype)


@public(namespace="linalg")
def matrix_exp(x: Tensor, /) -> Tensor:
    """The matrix exponential; another name for `expm`."""
    return expm(x)
