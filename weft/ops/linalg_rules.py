"""Shared by the functions of `weft.linalg`: checks of matrices, conversions, costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import dim_min
from weft.base.dims import scaled
from weft.base.dtypes import NARROW_FLOATS, float32
from weft.base.errors import LinAlgError, ShapeError
from weft.base.shapes import Shape, size_of
from weft.core.bind import bind
from weft.core.operands import cast, common, constant
from weft.core.tensor import Tensor
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.batching import leading
from weft.ops.elementwise import add, conj, real
from weft.ops.reduce import sum as total
from weft.ops.rules import check_kind, conj_of
from weft.ops.select import where
from weft.ops.shape import matrix_transpose
from weft.ops.ways import but_last

__all__ = [
    "adjoint",
    "bind_with_hint",
    "flat_in",
    "floating",
    "hermitian",
    "identity_like",
    "matrix_card",
    "matrix_cost",
    "matrix_sizes",
    "square_size",
    "square_type",
    "widened",
]


def flat_in(value: Tensor, x: Tensor) -> Tensor:
    """A value that does not depend on x, but has a gradient of zeros."""
    if x._node is None:
        return value
    nothing = where(constant(False, dtypes.bool, x.device), x, 0)
    part = real(nothing) if value.dtype.kind == "float" else nothing
    return add(value, total(cast(part, value.dtype)))


def floating(x: Any, op: str) -> Tensor:
    """x as a tensor of a floating dtype."""
    return common((x,), op, at_least="float")[0]


def widened(x: Tensor) -> Tensor:
    """Narrow floats as float32, for functions of several ops, to round their result only once."""
    return cast(x, float32) if x.dtype in NARROW_FLOATS else x


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of each matrix."""
    turned = matrix_transpose(x)
    return conj(turned) if x.dtype.kind == "complex" else turned


def hermitian(xp: Any, x: Any) -> Any:
    """The conjugate transpose of each matrix, in a derivative rule."""
    return conj_of(xp, x).mT


def identity_like(xp: Any, x: Any) -> Any:
    """The identity matrix of x's columns, in a derivative rule."""
    return xp.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def matrix_sizes(x: TensorType, op: str = "", name: str = "x") -> tuple[Shape, int, int]:
    """The shape of the stack, and the rows and columns of each matrix."""
    if x.ndim < 2:
        raise ShapeError(
            f"{name} must be a matrix or a stack of matrices; it has {x.ndim} axes",
            op=op,
            operands=[x] if op else (),
            hint="a matrix has two axes: reshape it",
        )
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def square_size(x: TensorType, op: str = "", name: str = "x") -> tuple[Shape, int]:
    """The shape of the stack, and the rows of each square matrix."""
    stack, rows, columns = matrix_sizes(x, op, name)
    if rows != columns:
        raise ShapeError(
            f"{name} must be a square matrix, not {rows} × {columns}",
            op=op,
            operands=[x] if op else (),
        )
    return stack, rows


def square_type(x: TensorType) -> TensorType:
    """The type rule of ops from square matrices to square matrices."""
    check_kind(x, "floating")
    square_size(x)
    return x


def bind_with_hint(hint: str, op: Op, *inputs: Tensor, **attrs: Any) -> Any:
    """`bind`, with a hint in the error for matrices that the op is not defined for."""
    try:
        return bind(op, *inputs, **attrs)
    except LinAlgError as error:
        error.hint = error.hint or hint
        raise


def matrix_cost(factor: float) -> Callable[..., Cost]:
    """`factor` × rows × columns × min(rows, columns) operations for each matrix."""

    def cost(inputs: Types, outputs: Types, **_attrs: Any) -> Cost:
        stack, rows, columns = matrix_sizes(inputs[0])
        work = size_of(stack) * rows * columns * dim_min(rows, columns)
        return Cost(scaled(work, factor), sum(t.nbytes for t in (*inputs, *outputs)))

    return cost


def matrix_card(
    name: str,
    infer: Callable[..., Any],
    evaluate: Callable[..., Any],
    vjp: Callable[..., Any],
    *,
    flops: float,
    outputs: int = 1,
) -> Op:
    """The card of a function of each matrix of a stack, with a cost of `flops` (`matrix_cost`)."""
    return Op(
        name,
        infer,
        evaluate,
        kinds="floating",
        autocast="float32",
        vjp=(vjp,),
        batch=leading,
        traits=Trait.WIDEN,
        outputs=outputs,
        cost=matrix_cost(flops),
        ways=but_last(2),
    )
