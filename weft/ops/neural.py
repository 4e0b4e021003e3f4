"""Cards of common layers: one node each instead of up to eleven.

They serve `weft.nn.functional`, which has their public functions. Their evaluation rules are
written in other ops, which the compiler records.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dim_algebra import dim_max
from weft.base.errors import ShapeError
from weft.base.shapes import Shape, reduced_shape, size_of
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.batch_shape import linear_rule
from weft.ops.batching import shifted
from weft.ops.matmul import numpy_matmul
from weft.ops.rules import check_kind, check_same, unary_rule
from weft.ops.ways import but_axis, linear_layer

Axes = tuple[int, ...]

# --- x @ weight.T + bias -----------------------------------------------------------------------


def _linear_type(x: TensorType, weight: TensorType, bias: TensorType) -> TensorType:
    check_same(x, weight, bias)
    check_kind(x, "real floating")
    check_linear(x.shape, weight.shape)
    if bias.shape != weight.shape[:1] or weight.ndim != 2:
        raise ShapeError(f"the bias has shape {bias.shape}, not {weight.shape[:1]} as the weight")
    return x.like(shape=(*x.shape[:-1], weight.shape[0]))


def check_linear(x: Shape, weight: Shape) -> None:
    if len(weight) != 2:
        raise ShapeError(f"the weight must have 2 axes (outputs, inputs), not shape {weight}")
    if not x or x[-1] != weight[1]:
        raise ShapeError(
            f"the weight of shape {weight} takes {weight[1]} features; "
            + (f"the last axis of the input has {x[-1]}" if x else "the input has no axis"),
            hint="make the layer with as many in_features as the input has in its last axis",
        )


def _linear_numpy(x: Any, weight: Any, bias: Any) -> Any:
    if not x.ndim or bias.shape != weight.shape[:1] or weight.ndim != 2:
        raise ValueError  # NumPy would accept it; the type rule explains the error
    if x.ndim < 3:
        out = numpy_matmul(x, weight.T)
    else:  # one large product instead of many small ones
        flat = x.reshape(size_of(x.shape[:-1]), x.shape[-1])
        out = numpy_matmul(flat, weight.T).reshape(*x.shape[:-1], weight.shape[0])
    out += bias
    return out


def _linear_vjp_weight(xp: Any, g: Any, _out: Any, x: Any, weight_type: Any, _bias: Any) -> Any:
    if g.ndim != 2:
        rows = size_of(x.shape[:-1])
        g = xp.reshape(g, (rows, weight_type.shape[0]))
        x = xp.reshape(x, (rows, weight_type.shape[1]))
    return xp.matmul(g.mT, x)


def _linear_vjp_bias(_xp: Any, g: Any, _out: Any, _x: Any, _weight: Any, _bias: Any) -> Any:
    return g.sum(axis=tuple(range(g.ndim - 1)))  # the method takes half the time of xp.sum


def _linear_cost(inputs: Types, outputs: Types) -> Cost:
    moved = sum(t.nbytes for t in (*inputs, *outputs))
    return Cost(2 * outputs[0].size * inputs[0].shape[-1] + outputs[0].size, moved)


linear = Op(
    "linear",
    _linear_type,
    lambda xp, x, weight, bias: xp.matmul(x, xp.permute_dims(weight, (1, 0))) + bias,
    numpy=_linear_numpy,
    kinds="real floating",
    autocast="lower",
    traits=Trait.WIDEN | Trait.COMPOSITE | Trait.PRODUCT,
    vjp=(
        lambda xp, g, _out, _x, weight, _bias: xp.matmul(g, weight),
        _linear_vjp_weight,
        _linear_vjp_bias,
    ),
    batch=linear_rule,
    cost=_linear_cost,
    terms=((0, 2), (1, 2)),
    ways=linear_layer,
)

# --- mean 0 and variance 1 along some axes -----------------------------------------------------


def _standardize_type(
    x: TensorType, *, axis: Axes, eps: float
) -> tuple[TensorType, TensorType, TensorType]:
    check_kind(x, "real floating")
    statistic = x.like(shape=reduced_shape(x.shape, axis, keepdims=True))
    return x, statistic, statistic


def _count(shape: Shape, axis: Axes) -> int:
    return size_of(tuple(shape[i] for i in axis))


def _standardize_values(xp: Any, x: Any, *, axis: Axes, eps: float) -> Any:
    n = dim_max(_count(x.shape, axis), 1)
    mean = xp.sum(x, axis=axis, keepdims=True) / n
    centred = x - mean
    var = xp.sum(centred * centred, axis=axis, keepdims=True) / n
    return centred * (1 / xp.sqrt(var + eps)), mean, var  # one division for each statistic


def _standardize_numpy(x: Any, *, axis: Axes, eps: float) -> Any:
    """The same with fewer arrays."""
    share = x.dtype.type(1 / max(_count(x.shape, axis), 1))
    mean = np.add.reduce(x, axis=axis, keepdims=True)
    mean *= share
    out = x - mean
    var = np.add.reduce(out * out, axis=axis, keepdims=True)
    var *= share
    out *= 1 / np.sqrt(var + x.dtype.type(eps))
    return out, mean, var


def _standardize_vjp(xp: Any, g: Any, out: Any, x_type: Any, *, axis: Axes, eps: float) -> Any:
    standard, _mean, var = out
    g_standard, g_mean, g_var = g
    n = dim_max(_count(x_type.shape, axis), 1)
    scale = xp.sqrt(var + eps)
    parts = []
    if g_standard is not None:
        even = xp.sum(g_standard, axis=axis, keepdims=True) / n
        along = xp.sum(g_standard * standard, axis=axis, keepdims=True) / n
        parts.append((g_standard - even - standard * along) * (1 / scale))
    if g_mean is not None:
        parts.append(xp.broadcast_to(g_mean / n, x_type.shape))
    if g_var is not None:
        parts.append(g_var * 2 / n * (standard * scale))
    return sum(parts[1:], start=parts[0])


#: x with mean 0 and variance 1 along some axes; also the mean and the (biased) variance it had.
standardize = Op(
    "standardize",
    _standardize_type,
    _standardize_values,
    numpy=_standardize_numpy,
    kinds="real floating",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    outputs=3,
    vjp=(_standardize_vjp,),
    batch=shifted("axis"),
    ways=but_axis,
)

# --- log(1 + exp(x)) ---------------------------------------------------------------------------


def _softplus_values(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


#: A smooth relu. Written with maximum and abs, its slope at 0 would be 0 instead of 1/2.
softplus = Op(
    "softplus",
    unary_rule("real floating", "same"),
    _softplus_values,
    kinds="real floating",
    autocast="float32",
    traits=Trait.ELEMENTWISE | Trait.WIDEN,
    vjp=(lambda xp, g, _out, x: g / (1 + xp.exp(-x)),),
    cycles=16.0,
)
