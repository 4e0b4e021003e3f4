"""The cards of draws by rejection, and what they share with their public functions."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import DType
from weft.base.errors import GradientError
from weft.base.shapes import Shape
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import TensorType
from weft.ops import rejection
from weft.ops.batch_random import draw_rule
from weft.ops.draws import FLOATS, check_dtype, check_fits, drawn_type
from weft.ops.rules import apply, binary_rule, sum_to
from weft.ops.special_gamma import digamma_values

__all__ = ["random_binomial", "random_log_gamma", "random_poisson"]


def _one_type(state: TensorType, x: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
    check_dtype(x.dtype, FLOATS, "")
    check_fits(x.shape, shape, "")
    return drawn_type(state, shape, dtype)


def _two_type(
    state: TensorType, n: TensorType, p: TensorType, *, shape: Shape, dtype: DType
) -> TensorType:
    for operand in (n, p):
        check_dtype(operand.dtype, FLOATS, "")
        check_fits(operand.shape, shape, "")
    return drawn_type(state, shape, dtype)


def _by_alpha(_xp: Any, _g: Any, _out: Any, _x1: Any, _x2: Any) -> Any:
    raise GradientError(
        "gamma numbers have only one derivative with respect to alpha",
        op="gamma",
        hint="detach alpha, or the first gradient",
    )


def _by_log_x(xp: Any, g: Any, out: Any, x1: Any, x2: Any) -> Any:
    return g * (apply(OPS["digamma"], x1) - x2 - out * (x1 - xp.exp(x2)))


#: d log(x) / d alpha of gamma numbers x, from alpha and log(x).
_SLOPE = Op(
    "log_gamma_slope",
    binary_rule("real floating", "same"),
    lambda xp, x1, x2: rejection.log_gamma_slope(xp, x1, x2, digamma_values),
    kinds="real floating",
    vjp=(_by_alpha, _by_log_x),
    traits=Trait.ELEMENTWISE | Trait.WIDEN,
    cycles=3000.0,
)


def _log_gamma_vjp(
    xp: Any, g: Any, out: Any, _state: Any, x: Any, *, shape: Shape, dtype: DType
) -> Any:
    return sum_to(xp, g * apply(_SLOPE, xp.broadcast_to(x, shape), out), x.shape)


def _card(name: str, infer: Any, evaluate: Any, vjp: Any) -> Op:
    return Op(
        name,
        infer,
        evaluate,
        kinds="unsigned integer",  # of the state
        traits=Trait.RANDOM,
        vjp=vjp,
        batch=draw_rule,
        may_fail=True,
    )


random_log_gamma = _card("random_log_gamma", _one_type, rejection.log_gamma, (None, _log_gamma_vjp))
random_poisson = _card("random_poisson", _one_type, rejection.poisson, (None, None))
random_binomial = _card("random_binomial", _two_type, rejection.binomial, (None, None, None))
