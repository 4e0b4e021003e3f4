"""Matrix products: the `matmul` card, `@`, and the products built from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import broadcast_shapes, size_of, unfit
from weft.core.bind import bind
from weft.core.bind import operator as fast_operator
from weft.core.operands import assign, common, number_kind
from weft.core.public import attach, public
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.arguments import axes_of, integer, shared_axis
from weft.ops.batch_shape import matmul_rule
from weft.ops.elementwise import conj
from weft.ops.rules import check_kind, check_same, conj_of, sum_to
from weft.ops.shape import expand_dims, moveaxis, permute_dims, reshape
from weft.ops.ways import multiplied

__all__ = ["matmul", "tensordot", "vecdot"]

# --- the card ----------------------------------------------------------------------------------


def _matmul_type(x1: TensorType, x2: TensorType) -> TensorType:
    check_same(x1, x2)
    check_kind(x1, "numeric")
    if not x1.shape or not x2.shape:
        raise ShapeError(
            f"{'x1' if not x1.shape else 'x2'} is 0-d; each operand needs at least one axis",
            hint="use * to scale by a number",
        )
    inner1, inner2 = x1.shape[-1], x2.shape[-2:][0]
    if inner1 != inner2:
        fix = "the last axis of x1 must be as long as the second-to-last of x2"
        if x2.ndim == 1:
            fix = "the last axis of x1 must be as long as x2"
        elif x2.shape[-1] == inner1:
            fix += "; x1 @ x2.mT would fit"
        raise unfit(f"the inner sizes differ: {inner1} and {inner2}", inner1, inner2, hint=fix)
    columns = x2.shape[-1:] if x2.ndim > 1 else ()
    stack = _stacked(x1.shape[:-2], x2.shape[:-2])
    return x1.like(shape=(*stack, *x1.shape[-2:-1], *columns))


def _stacked(stack1: tuple[int, ...], stack2: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the stack of the products of two stacks of matrices."""
    try:
        return broadcast_shapes(stack1, stack2)
    except ShapeError as error:
        raise ShapeError(
            f"the stacks of matrices, {stack1} and {stack2}, do not broadcast", hint=error.hint
        ) from None


_empty = np.empty
_of_matrices = np.matmul


def numpy_matmul(a: Any, b: Any) -> Any:
    """`ndarray.dot` where it is equivalent: for small arrays `np.matmul` takes twice as long.

    `dot` scales by an operand of one element, and a scale of 0 skips infinities and NaN.
    """
    columns = b.ndim
    rows = a.ndim
    if columns == 1 and rows == 1:
        return a.dot(b, _empty((), a.dtype))  # without it, NumPy returns a scalar
    if 0 < columns < 3 and rows and a.size != 1 and b.size != 1:
        if rows < 3:
            return a.dot(b)
        if columns == 2 and a.size and a.flags.c_contiguous:
            flat = a.reshape(-1, a.shape[-1])  # one large product instead of many small ones
            return flat.dot(b).reshape(*a.shape[:-1], b.shape[1])
    return _of_matrices(a, b)


def _vjp_x1(xp: Any, g: Any, _out: Any, x1_type: Any, x2: Any) -> Any:
    other = conj_of(xp, x2)
    if x2.ndim == 1:
        return sum_to(xp, g[..., None] * other, x1_type.shape)
    rows = g if len(x1_type.shape) > 1 else g[..., None, :]
    return sum_to(xp, xp.matmul(rows, other.mT), x1_type.shape)


def _vjp_x2(xp: Any, g: Any, _out: Any, x1: Any, x2_type: Any) -> Any:
    other = conj_of(xp, x1)
    shape = x2_type.shape
    if x1.ndim == 1:
        column, row = (other, g) if len(shape) == 1 else (other[:, None], g[..., None, :])
        return sum_to(xp, column * row, shape)
    if len(shape) == 1:
        return sum_to(xp, xp.matmul(g[..., None, :], other), shape)
    if len(shape) == 2 and x1.ndim > 2:  # one large product instead of a sum of many small ones
        rows = size_of(x1.shape[:-1])
        other = xp.reshape(other, (rows, x1.shape[-1]))
        g = xp.reshape(g, (rows, shape[-1]))
    return sum_to(xp, xp.matmul(other.mT, g), shape)


def _matmul_cost(inputs: Types, outputs: Types) -> Cost:
    moved = sum(t.nbytes for t in (*inputs, *outputs))
    return Cost(2 * outputs[0].size * inputs[0].shape[-1], moved)


_matmul = Op(
    "matmul",
    _matmul_type,
    "matmul",
    numpy=numpy_matmul,
    kinds="numeric",
    autocast="lower",
    traits=Trait.LINEAR | Trait.WIDEN | Trait.PRODUCT,
    vjp=(_vjp_x1, _vjp_x2),
    batch=matmul_rule,
    cost=_matmul_cost,
    short="MatMul",
    ways=multiplied,
)


# --- its function and operator -----------------------------------------------------------------


def _operands(x1: Any, x2: Any, op: str) -> list[Tensor]:
    """Both as tensors of one dtype. Numbers have no axes, and are refused."""
    if x1.__class__ is x2.__class__ is Tensor and x1._data.dtype is x2._data.dtype:
        return [x1, x2]
    for value in (x1, x2):
        if number_kind(value) is not None:
            raise DTypeError(
                f"the number {value!r} has no axes to sum over",
                op=op,
                operands=[t.type for t in (x1, x2) if isinstance(t, Tensor)],
                hint="use * to scale by a number",
            )
    return common((x1, x2), op)


@public("matmul")
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product: x1 @ x2.

    The last two axes hold matrices, the axes before them a stack, which broadcasts. A 1-d operand
    is a row on the left and a column on the right; its axis is not in the result.

    >>> weft.asarray([[1, 2], [3, 4]]) @ weft.asarray([10, 1])
    tensor([12, 34])
    """
    out: Tensor = bind(_matmul, *_operands(x1, x2, "matmul"))
    return out


#: What @ takes as its other operand (numbers only for a better error).
_OPERANDS = (Tensor, np.ndarray, np.generic, int, float, complex)


def _promoted(self: Tensor, other: Any) -> Any:
    if not isinstance(other, _OPERANDS):
        return NotImplemented
    return bind(_matmul, *_operands(self, other, "matmul"))


def _reflected(self: Tensor, other: Any, /) -> Any:
    if not isinstance(other, _OPERANDS):
        return NotImplemented
    return bind(_matmul, *_operands(other, self, "matmul"))


def _in_place(self: Tensor, other: Any, /) -> Any:
    out = _forward(self, other)
    return out if out is NotImplemented else assign(self, out, "matmul in place")


_forward = fast_operator(_matmul, _promoted)
for _name, _method in (
    ("__matmul__", _forward),
    ("__rmatmul__", _reflected),
    ("__imatmul__", _in_place),
):
    _method.__name__ = _method.__qualname__ = _name
    attach({_name: _method})


# --- products built from it --------------------------------------------------------------------


@public("vecdot")
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot product of vectors that lie along `axis`: the sum of conj(x1) * x2.

    The other axes broadcast.

    >>> weft.vecdot(weft.asarray([[1, 2], [3, 4]]), weft.asarray([10, 1]))
    tensor([12, 34])
    """
    x1, x2 = _operands(x1, x2, "vecdot")
    along = shared_axis(axis, x1, x2, "vecdot")
    if x1.shape[along] != x2.shape[along]:
        raise ShapeError(
            f"the vectors differ in length: {x1.shape[along]} and {x2.shape[along]}",
            op="vecdot",
            operands=[type_of(x1), type_of(x2)],
            hint="the axis that is summed over does not broadcast",
        )
    if x1.dtype.kind == "complex":
        x1 = conj(x1)
    if x1.ndim == x2.ndim == 1:
        return matmul(x1, x2)
    row = expand_dims(moveaxis(x1, along, -1), -2)
    column = expand_dims(moveaxis(x2, along, -1), -1)
    out = matmul(row, column)
    return reshape(out, out.shape[:-2])


def _contracted(
    axes: int | tuple[Sequence[int], Sequence[int]], x1: Tensor, x2: Tensor
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of each operand that `tensordot` sums over."""
    types = [type_of(x1), type_of(x2)]
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise ShapeError(
                f"axes must be an int or two sequences of ints, not {axes!r}",
                op="tensordot",
                operands=types,
            )
        first = axes_of(x1, axes[0], "tensordot")
        second = axes_of(x2, axes[1], "tensordot")
    else:
        count = integer(axes, "axes", "tensordot", x1, x2)
        if not 0 <= count <= min(x1.ndim, x2.ndim):
            raise ShapeError(
                f"{count} axes cannot be summed over: the operands have {x1.ndim} and {x2.ndim}",
                op="tensordot",
                operands=types,
                hint="with one int, the last axes of x1 meet the first axes of x2",
            )
        first = tuple(range(x1.ndim - count, x1.ndim))
        second = tuple(range(count))
    if len(first) != len(second):
        raise ShapeError(
            f"{len(first)} axes of x1 cannot meet {len(second)} axes of x2",
            op="tensordot",
            operands=types,
        )
    for i, j in zip(first, second, strict=True):
        if x1.shape[i] != x2.shape[j]:
            raise ShapeError(
                f"axis {i} of x1 and axis {j} of x2 differ in size: "
                f"{x1.shape[i]} and {x2.shape[j]}",
                op="tensordot",
                operands=types,
            )
    return first, second


@public("tensordot")
def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Products of elements, summed over pairs of axes: one axis of x1 and one of x2 each.

    `axes` names them: (axes of x1, axes of x2); one int n means the last n axes of x1 and the
    first n of x2. The axes that are left follow each other in the result, those of x1 first.

    >>> weft.tensordot(weft.ones((2, 3, 4)), weft.ones((4, 3)), axes=((1, 2), (1, 0)))
    tensor([12., 12.])
    """
    x1, x2 = _operands(x1, x2, "tensordot")
    first, second = _contracted(axes, x1, x2)
    left = tuple(i for i in range(x1.ndim) if i not in first)
    right = tuple(i for i in range(x2.ndim) if i not in second)
    rows = tuple(x1.shape[i] for i in left)
    columns = tuple(x2.shape[i] for i in right)
    inner = size_of(tuple(x1.shape[i] for i in first))
    matrix1 = reshape(permute_dims(x1, (*left, *first)), (size_of(rows), inner))
    matrix2 = reshape(permute_dims(x2, (*second, *right)), (inner, size_of(columns)))
    return reshape(matmul(matrix1, matrix2), (*rows, *columns))
