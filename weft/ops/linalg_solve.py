"""Square systems: solutions, inverses, determinants and powers.

All take a matrix or a stack of matrices in the last two axes, with the dtypes of the
factorisations in `linalg_factor`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dtypes import real_dtype
from weft.base.errors import ShapeError
from weft.base.shapes import broadcast_shapes
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.operands import cast, common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.arguments import integer
from weft.ops.batch_shape import solve_rule
from weft.ops.creation import eye
from weft.ops.elementwise import positive
from weft.ops.linalg_rules import (
    bind_with_hint,
    flat_in,
    floating,
    hermitian,
    identity_like,
    matrix_card,
    matrix_cost,
    square_size,
    square_type,
    widened,
)
from weft.ops.matmul import matmul
from weft.ops.reduce import products_of_others
from weft.ops.rules import check_kind, check_same, conj_of, sum_to
from weft.ops.shape import broadcast_to
from weft.ops.ways import but_last

__all__ = ["det", "inv", "matrix_power", "slogdet", "solve", "solve_cost", "solve_type"]

# --- solve -------------------------------------------------------------------------------------


def solve_type(x1: TensorType, x2: TensorType) -> TensorType:
    check_same(x1, x2)
    check_kind(x1, "floating")
    stack, size = square_size(x1, name="x1")
    if not x2.shape:
        raise ShapeError("x2 must be a vector or a matrix, not 0-d")
    rows = x2.shape[-2:][0]
    if rows != size:
        raise ShapeError(
            f"x1 has {size} rows and x2 has {rows}",
            hint="for x1 of shape (..., M, M), x2 is a vector (M,) or matrices (..., M, K)",
        )
    if x2.ndim == 1:
        return x2.like(shape=(*stack, size))
    return x2.like(shape=(*broadcast_shapes(stack, x2.shape[:-2]), *x2.shape[-2:]))


def solve_cost(inputs: Types, outputs: Types, **_attrs: Any) -> Cost:
    factor = matrix_cost(2 / 3)(inputs, outputs)
    return Cost(factor.flops + 2 * outputs[0].size * inputs[0].shape[-1], factor.bytes)


def _solve_x1(xp: Any, g: Any, out: Any, x1: Any, x2_type: Any) -> Any:
    if len(x2_type.shape) == 1:
        g, out = g[..., None], out[..., None]
    back = xp.linalg.solve(hermitian(xp, x1), g)
    return sum_to(xp, -xp.matmul(back, hermitian(xp, out)), x1.shape)


def _solve_x2(xp: Any, g: Any, _out: Any, x1: Any, x2_type: Any) -> Any:
    vectors = len(x2_type.shape) == 1
    back = xp.linalg.solve(hermitian(xp, x1), g[..., None] if vectors else g)
    return sum_to(xp, back[..., 0] if vectors else back, x2_type.shape)


_solve = Op(
    "solve",
    solve_type,
    lambda xp, x1, x2: xp.linalg.solve(x1, x2),
    kinds="floating",
    autocast="float32",
    vjp=(_solve_x1, _solve_x2),
    batch=solve_rule,
    traits=Trait.WIDEN,
    cost=solve_cost,
    ways=but_last(2),
)


@public(namespace="linalg")
def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution X of x1 @ X = x2, for a square x1; the stacks of matrices broadcast.

    A 1-d x2 is one vector, for every matrix of x1.

    >>> weft.linalg.solve(weft.asarray([[3.0, 1.0], [1.0, 2.0]]), weft.asarray([9.0, 8.0]))
    tensor([2., 3.])
    """
    hint = "no unique solution exists; weft.linalg.pinv(x1) @ x2 is the best approximation"
    operands = common((x1, x2), "solve", at_least="float")
    out: Tensor = bind_with_hint(hint, _solve, *operands)
    return out


# --- inverses and powers -----------------------------------------------------------------------


def _inv_vjp(xp: Any, g: Any, out: Any, _x: Any) -> Any:
    back = hermitian(xp, out)
    return -xp.matmul(xp.matmul(back, g), back)


_inv = matrix_card(
    "inv",
    square_type,
    lambda xp, x: xp.linalg.inv(x),
    _inv_vjp,
    flops=2,
)


@public(namespace="linalg")
def inv(x: Tensor, /) -> Tensor:
    """The inverse of a square matrix. To solve equations, `solve` is faster and more exact.

    >>> weft.linalg.inv(weft.asarray([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5 , 0.  ],
            [0.  , 0.25]])
    """
    hint = "the matrix has no inverse; weft.linalg.pinv(x) always exists"
    out: Tensor = bind_with_hint(hint, _inv, floating(x, "inv"))
    return out


@public(namespace="linalg")
@autocasts("float32")
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """x @ x @ … @ x, n times; the identity for n = 0, and powers of the inverse for n < 0.

    >>> weft.linalg.matrix_power(weft.asarray([[1.0, 1.0], [0.0, 1.0]]), 10)
    tensor([[ 1., 10.],
            [ 0.,  1.]])
    """
    tensor = floating(x, "matrix_power")
    _, size = square_size(type_of(tensor), "matrix_power")
    power = integer(n, "n", "matrix_power", tensor)
    if power == 0:
        unit = eye(size, dtype=tensor.dtype, device=tensor.device)
        return flat_in(broadcast_to(unit, tensor.shape), tensor)
    factor = widened(tensor)
    if power < 0:
        factor, power = inv(factor), -power
    while power % 2 == 0:
        factor, power = matmul(factor, factor), power // 2
    result = factor
    while power := power // 2:
        factor = matmul(factor, factor)
        if power % 2:
            result = matmul(result, factor)
    return cast(positive(result) if result is x else result, tensor.dtype)


# --- determinants ------------------------------------------------------------------------------


class SlogdetResult(NamedTuple):
    """The sign of the determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


def _det_type(x: TensorType) -> TensorType:
    check_kind(x, "floating")
    stack, _ = square_size(x)
    return x.like(shape=stack)


def _slogdet_type(x: TensorType) -> tuple[TensorType, TensorType]:
    sign = _det_type(x)
    return sign, sign.like(dtype=real_dtype(x.dtype))


#: Up to this size, the adjugate is computed as a polynomial.
_SMALL = 8


def _det_vjp(xp: Any, g: Any, out: Any, x: Any) -> Any:
    """The conjugate cofactors: det(x) times the inverse, where there is one."""
    each = g[..., None, None]
    if xp is np and np.all(out):
        return each * hermitian(xp, out[..., None, None] * xp.linalg.inv(x))
    singular = _is_singular(xp, out, x)[..., None, None]
    unit = identity_like(xp, x)
    regular = out[..., None, None] * xp.linalg.inv(xp.where(singular, unit, x))
    adjugate = _adjugate(xp, xp.where(singular, x, unit))
    return each * hermitian(xp, xp.where(singular, adjugate, regular))


def _is_singular(xp: Any, det: Any, x: Any) -> Any:
    size = x.shape[-1]
    if not isinstance(size, Dim) and size > _SMALL:
        return det == 0
    # |det| is at most the product of the lengths of the rows: is it only the rounding of that?
    most = xp.prod(xp.linalg.vector_norm(x, axis=-1), axis=-1)
    return xp.abs(det) <= most * (4 * xp.finfo(x.dtype).eps) * size


def _adjugate(xp: Any, x: Any) -> Any:
    """The matrix with x @ adjugate = det(x) * identity; exists for singular matrices too."""
    size, unit = x.shape[-1], identity_like(xp, x)
    if not isinstance(size, Dim) and size <= _SMALL:
        # Faddeev and LeVerrier: a polynomial, smooth in every order
        power = unit
        for k in range(1, size):
            product = xp.matmul(x, power)
            power = product - xp.linalg.trace(product)[..., None, None] / k * unit
        return power if size % 2 else -power
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    phase = xp.linalg.det(u) * xp.linalg.det(vh)
    scaled = hermitian(xp, vh) * products_of_others(xp, s)[..., None, :]
    return phase[..., None, None] * xp.matmul(scaled, hermitian(xp, u))


def _slogdet_vjp(xp: Any, g: Any, out: Any, x: Any) -> Any:
    """The transposed inverse; NaN if x is singular."""
    (g_sign, g_log), (sign, _) = g, out
    factor = xp.zeros_like(sign) if g_log is None else g_log
    if g_sign is not None and xp.isdtype(x.dtype, "complex floating"):
        factor = factor + 1j * xp.imag(conj_of(xp, sign) * g_sign)
    singular = (sign == 0)[..., None, None]
    inverse = xp.linalg.inv(xp.where(singular, identity_like(xp, x), x))
    return factor[..., None, None] * hermitian(xp, xp.where(singular, xp.nan, inverse))


_det = matrix_card(
    "det",
    _det_type,
    lambda xp, x: xp.linalg.det(x),
    _det_vjp,
    flops=2 / 3,
)
_slogdet = matrix_card(
    "slogdet",
    _slogdet_type,
    lambda xp, x: tuple(xp.linalg.slogdet(x)),
    _slogdet_vjp,
    flops=2 / 3,
    outputs=2,
)


@public(namespace="linalg")
def det(x: Tensor, /) -> Tensor:
    """The determinant of a square matrix; use `slogdet` where it may overflow."""
    out: Tensor = bind(_det, floating(x, "det"))
    return out


@public(namespace="linalg")
def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of the determinant.

    The determinant is sign * exp(logabsdet); where it is zero, they are 0 and -inf.
    """
    return SlogdetResult(*bind(_slogdet, floating(x, "slogdet")))
