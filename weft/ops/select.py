"""Choosing between values: `where`, and `clip` built on it."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import known_less
from weft.base.dtypes import int_info
from weft.base.errors import DTypeError
from weft.base.shapes import broadcast_shapes
from weft.core.bind import bind
from weft.core.operands import Operand, as_tensor, cast, common, number_kind
from weft.core.public import public
from weft.core.tensor import Tensor
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops import masks
from weft.ops.define import BinaryFunction
from weft.ops.elementwise import equal, greater, less, logical_or, not_equal, sqrt
from weft.ops.rules import apply, check_same

__all__ = ["clip", "where"]


def _where_type(condition: TensorType, x1: TensorType, x2: TensorType) -> TensorType:
    check_same(x1, x2)
    if condition.dtype is not dtypes.bool:
        raise DTypeError(
            f"the condition must be bool, not {condition.dtype.name}", hint="write condition != 0"
        )
    return x1.like(shape=broadcast_shapes(condition.shape, x1.shape, x2.shape))


_where = Op(
    "where",
    _where_type,
    "where",
    numpy=masks.where,
    dispatch_on=1,
    traits=Trait.ELEMENTWISE,
    terms=((1, 2),),
    vjp=(
        None,
        lambda xp, g, _out, condition, _x1, _x2: masks.keep(xp, condition, g),
        lambda xp, g, _out, condition, _x1, _x2: masks.keep(xp, ~condition, g),
    ),
)


def _finite_where(xp: Any, condition: Any, x: Any) -> Any:
    return xp.where(xp.logical_or(condition, xp.isfinite(x)), x, xp.zeros_like(x))


#: A gradient that is there where a condition holds. Elsewhere it is zeros, and so is all that has
#: been computed of it: but 0 times the infinite slope of a root is NaN, which becomes 0. What is
#: finite stays as it is: "no gradient" may mean that it is 0 at this point, and then its own
#: derivative need not be. The condition says when the gradient of this gradient is there, too:
#: see `weft.autodiff.conditional_gradients`.
ONLY_WHERE: Op = Op(
    "only_where",
    lambda condition, x: _where_type(condition, x, x),
    _finite_where,
    dispatch_on=1,
    traits=Trait.ELEMENTWISE | Trait.LINEAR | Trait.COMPOSITE | Trait.CONDITIONAL,
    terms=(),
    vjp=(None, lambda xp, g, _out, condition, _x: apply(ONLY_WHERE, condition, g)),
)


#: `where` between the result of a branch or an iteration and another value, in control flow under
#: `vmap` in which elements go different ways. An element has a gradient on one side only.
CHOOSE = Op(
    "choose",
    _where_type,
    lambda xp, condition, x1, x2: xp.where(condition, x1, x2),
    numpy=masks.where,
    dispatch_on=1,
    traits=Trait.ELEMENTWISE | Trait.COMPOSITE,
    terms=((1, 2),),
    vjp=(
        None,
        lambda xp, g, _out, condition, _x1, _x2: masks.keep(xp, condition, g),
        lambda xp, g, _out, condition, _x1, _x2: masks.keep(xp, ~condition, g),
    ),
)


def choose(condition: Tensor, x1: Operand, x2: Operand) -> Tensor:
    """`where`, for control flow whose elements go different ways."""
    out: Tensor = bind(CHOOSE, condition, *common((x1, x2), "where"))
    return out


@public()
def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    """x1 where the condition is True, x2 elsewhere; the three broadcast.

    >>> weft.where(weft.asarray([True, False]), weft.asarray([1.0, 2.0]), 0)
    tensor([1., 0.])
    """
    test = as_tensor(condition, "where")
    if test.dtype is not dtypes.bool:
        raise DTypeError(
            f"the condition must be bool, not {test.dtype.name}",
            op="where",
            hint="write condition != 0",
        )
    out: Tensor = bind(_where, test, *common((x1, x2), "where"))
    return out


@public("clip", "clamp")
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """x with values below `min` raised to it and those above `max` lowered to it.

    NaN stays NaN, in x and in a bound. Where min is above max, the result is max. A Python integer
    beyond the range of x's dtype is ignored. Values on a bound keep their gradient.
    """
    x = as_tensor(x, "clip")
    result = x
    for bound, beyond in ((min, less), (max, greater)):
        if bound is not None and not _never_binds(x, bound, beyond is less):
            result = where(_replaced(result, bound, beyond), bound, result)
    if result.dtype.kind != x.dtype.kind:
        raise DTypeError(
            f"bounds of {x.dtype.name} values cannot be {result.dtype.kind}s",
            op="clip",
            operands=[x.type],
            hint="cast x or the bounds",
        )
    return cast(result, x.dtype) if result is not x else x.clone()


def _replaced(x: Tensor, bound: Operand, beyond: BinaryFunction) -> Tensor:
    """Where a bound replaces x: not where they are equal, so that x has the gradient there."""
    replaced = beyond(x, bound)
    if number_kind(bound) is not None and bound == bound:
        return replaced
    return logical_or(replaced, not_equal(bound, bound))  # NaN in a bound stays NaN


def root_or_zero(x: Tensor) -> Tensor:
    """The square root with slope 0 at 0, where sqrt has inf; for lengths and deviations."""
    none = equal(x, 0)
    return where(none, 0, sqrt(where(none, 1, x)))


def _never_binds(x: Tensor, bound: Any, is_lower: bool) -> bool:
    """Whether a Python integer is outside of the range of x's dtype, where it has no effect."""
    if x.dtype.kind not in ("int", "uint") or number_kind(bound) != "int":
        return False
    info = int_info(x.dtype)
    return known_less(bound, info.min) if is_lower else known_less(info.max, bound)
