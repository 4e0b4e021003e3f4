"""Triangular systems."""

from __future__ import annotations

from typing import Any

from weft.core.autocast import autocasts
from weft.core.operands import common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batch_shape import solve_rule
from weft.ops.linalg_rules import (
    bind_with_hint,
    hermitian,
    identity_like,
    matrix_sizes,
    square_size,
)
from weft.ops.linalg_solve import solve_cost, solve_type
from weft.ops.rules import apply, sum_to
from weft.ops.shape import matrix_transpose
from weft.ops.ways import but_last

__all__ = ["SOLVE_TRIANGULAR", "solve_triangular", "solved"]


def _triangle(xp: Any, a: Any, upper: bool, unit: bool) -> Any:
    """The part of a that counts."""
    off = 1 if unit else 0
    part = xp.triu(a, k=off) if upper else xp.tril(a, k=-off)
    return part + identity_like(xp, a) if unit else part


def solved(a: Any, b: Any, *, upper: bool, unit: bool = False) -> Any:
    """The solution by a triangle of a, in a derivative rule."""
    return apply(SOLVE_TRIANGULAR, a, b, upper=upper, unit=unit)


def _triangular_x1(xp: Any, g: Any, out: Any, a: Any, _b: Any, *, upper: bool, unit: bool) -> Any:
    whole = -xp.matmul(solved(hermitian(xp, a), g, upper=not upper, unit=unit), hermitian(xp, out))
    off = 1 if unit else 0
    return sum_to(xp, xp.triu(whole, k=off) if upper else xp.tril(whole, k=-off), a.shape)


def _triangular_x2(xp: Any, g: Any, _out: Any, a: Any, b: Any, *, upper: bool, unit: bool) -> Any:
    return sum_to(xp, solved(hermitian(xp, a), g, upper=not upper, unit=unit), b.shape)


def _triangular_type(a: TensorType, b: TensorType, *, upper: bool, unit: bool) -> TensorType:
    return solve_type(a, b)


SOLVE_TRIANGULAR = Op(
    "solve_triangular",
    _triangular_type,
    lambda xp, a, b, *, upper, unit: xp.linalg.solve(_triangle(xp, a, upper, unit), b),
    kinds="floating",
    autocast="float32",
    vjp=(_triangular_x1, _triangular_x2),
    batch=solve_rule,
    traits=Trait.WIDEN,
    cost=solve_cost,
    ways=but_last(2),
)


@public(namespace="linalg")
@autocasts("float32")
def solve_triangular(
    A: Tensor,
    B: Tensor,
    /,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """The solution X of A @ X = B (X @ A = B without `left`), reading one triangle of A.

    With `unitriangular` the diagonal counts as ones.

    >>> a = weft.asarray([[2.0, 0.0], [1.0, 4.0]])
    >>> weft.linalg.solve_triangular(a, weft.asarray([[2.0], [9.0]]), upper=False)
    tensor([[1.],
            [2.]])
    """
    matrix, right = common((A, B), "solve_triangular", at_least="float")
    square_size(type_of(matrix), "solve_triangular", "A")
    matrix_sizes(type_of(right), "solve_triangular", "B")
    if not left:
        matrix, right, upper = matrix_transpose(matrix), matrix_transpose(right), not upper
    hint = "a zero on the diagonal makes the triangle singular"
    out: Tensor = bind_with_hint(
        hint, SOLVE_TRIANGULAR, matrix, right, upper=bool(upper), unit=bool(unitriangular)
    )
    return out if left else matrix_transpose(out)
