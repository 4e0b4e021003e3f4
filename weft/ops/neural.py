"""Cards behind layers and losses that run in every step: one node each instead of up to eleven.

They serve `weft.nn.functional`, where their public functions are. Each is also a composition of
other ops, and its evaluation rule says which: a compiler runs that rule on symbolic values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.errors import DTypeError, IndexError, ShapeError
from weft.base.shapes import Shape, reduced_shape, size_of
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.rules import check_kind, check_same

Axes = tuple[int, ...]

# --- x @ weight.T + bias -----------------------------------------------------------------------


def _linear_type(x: TensorType, weight: TensorType, bias: TensorType) -> TensorType:
    check_same(x, weight, bias)
    check_kind(x, "real floating")
    check_linear(x.shape, weight.shape)
    if bias.shape != weight.shape[:1]:
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
    if x.ndim < 3:
        out = x.dot(weight.T)
    else:  # one large product instead of many small ones
        flat = x.reshape(size_of(x.shape[:-1]), x.shape[-1])
        out = flat.dot(weight.T).reshape(*x.shape[:-1], weight.shape[0])
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
    traits=Trait.WIDEN,
    vjp=(
        lambda xp, g, _out, _x, weight, _bias: xp.matmul(g, weight),
        _linear_vjp_weight,
        _linear_vjp_bias,
    ),
    cost=_linear_cost,
)

# --- class indices -----------------------------------------------------------------------------


def _check_classes(x: TensorType, target: TensorType, axis: int) -> Shape:
    """The shape of the losses: that of the input without its axis of classes."""
    check_kind(x, "real floating", "the input")
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if target.dtype.kind not in ("int", "uint"):
        raise DTypeError(
            f"class indices must be integers, not {target.dtype.name}",
            hint="cast them with astype(weft.int64); probabilities have the shape of the input",
        )
    if target.shape != rest:
        raise ShapeError(
            f"targets of shape {target.shape} do not fit an input of shape {x.shape}, "
            f"whose classes lie along axis {axis}",
            hint=f"the targets must have shape {rest}",
        )
    return rest


def _hits(xp: Any, x: Any, target: Any, axis: int) -> Any:
    """Where each element's own class is, as a mask of x's shape; nowhere for none of them."""
    classes = xp.arange(x.shape[axis], dtype=target.dtype)
    return xp.expand_dims(target, axis=axis) == xp.reshape(
        classes, (-1, *(1,) * (x.ndim - axis - 1))
    )


def _picked(x: Any, target: Any, axis: int, ignore_index: int) -> tuple[Any, Any]:
    """By NumPy: x at each target (0 for ignored ones), and which are ignored; None for none."""
    classes = x.shape[axis]
    ignored = None
    # Read as unsigned, negative targets are large ones: one look finds all that are out of range.
    largest = _largest(target.view(_UNSIGNED[target.itemsize]), axis=None) if target.size else -1
    if largest >= classes or 0 <= ignore_index < classes:
        ignored = target == ignore_index
        target = np.where(ignored, 0, target)
        if target.size and (target.min() < 0 or target.max() >= classes):
            wrong = target[(target < 0) | (target >= classes)][0]
            raise IndexError(
                f"the target {wrong} is none of the {classes} classes",
                hint=f"classes are numbered 0 … {classes - 1}; {ignore_index} is ignored",
            )
    if axis == 1 and x.ndim == 2:
        found = x[np.arange(len(target)), target]
    else:
        found = np.take_along_axis(x, np.expand_dims(target, axis), axis).squeeze(axis)
    if ignored is not None:
        found = np.where(ignored, x.dtype.type(0), found)
    return found, ignored


_UNSIGNED = {8: np.uint64, 4: np.uint32, 2: np.uint16, 1: np.uint8}
_largest = np.maximum.reduce
_total = np.add.reduce

# The negative log-likelihood: minus the log-probability of each target's class.


def _nll_type(logp: TensorType, target: TensorType, *, axis: int, ignore_index: int) -> TensorType:
    return logp.like(shape=_check_classes(logp, target, axis))


def _nll_values(xp: Any, logp: Any, target: Any, *, axis: int, ignore_index: int) -> Any:
    wanted = xp.where(target == ignore_index, -1, target)
    return -xp.sum(xp.where(_hits(xp, logp, wanted, axis), logp, 0), axis=axis)


def _nll_numpy(logp: Any, target: Any, *, axis: int, ignore_index: int) -> Any:
    return np.negative(_picked(logp, target, axis, ignore_index)[0])


def _nll_vjp(
    xp: Any, g: Any, _out: Any, logp_type: Any, target: Any, *, axis: int, ignore_index: int
) -> Any:
    wanted = xp.where(target == ignore_index, -1, target)
    return xp.where(_hits(xp, logp_type, wanted, axis), -xp.expand_dims(g, axis=axis), 0)


nll = Op(
    "nll",
    _nll_type,
    _nll_values,
    numpy=_nll_numpy,
    kinds="real floating",
    traits=Trait.WIDEN,
    vjp=(_nll_vjp, None),
)

# Cross entropy: the same of log_softmax(x). It also returns the log-probabilities, which backward
# needs, and the number of targets that were not ignored.


def _cross_entropy_type(
    x: TensorType, target: TensorType, *, axis: int, ignore_index: int, reduction: str
) -> tuple[TensorType, TensorType, TensorType]:
    rest = _check_classes(x, target, axis)
    return x.like(shape=rest if reduction == "none" else ()), x, x.like(shape=())


def _cross_entropy_values(
    xp: Any, x: Any, target: Any, *, axis: int, ignore_index: int, reduction: str
) -> Any:
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    logp = shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
    losses = _nll_values(xp, logp, target, axis=axis, ignore_index=ignore_index)
    count = xp.sum(xp.astype(target != ignore_index, as_dtype(x.dtype).numpy))
    if reduction != "none":
        losses = xp.sum(losses) / count if reduction == "mean" else xp.sum(losses)
    return losses, logp, count


def _cross_entropy_numpy(
    x: Any, target: Any, *, axis: int, ignore_index: int, reduction: str
) -> Any:
    logp = x - _largest(x, axis=axis, keepdims=True)
    logp -= np.log(_total(np.exp(logp), axis=axis, keepdims=True))
    losses, ignored = _picked(logp, target, axis, ignore_index)
    size = target.size if ignored is None else target.size - np.count_nonzero(ignored)
    count = x.dtype.type(size)
    if reduction == "none":
        return np.negative(losses), logp, count
    total = -_total(losses, axis=None)
    return total / count if reduction == "mean" else total, logp, count


def _cross_entropy_vjp(
    xp: Any,
    g: Any,
    out: Any,
    _x: Any,
    target: Any,
    *,
    axis: int,
    ignore_index: int,
    reduction: str,
) -> Any:
    g_loss, g_logp, _ = g
    _, logp, count = out
    grad = None
    if g_loss is not None:
        scale = g_loss / count if reduction == "mean" else g_loss
        grad = xp.exp(logp)
        if xp is np and axis == 1 and grad.ndim == 2 and count == target.size:
            grad[np.arange(len(target)), target] -= 1  # where none is ignored: in place
            grad *= scale[:, None] if reduction == "none" else scale
        else:
            hits = xp.astype(_hits(xp, logp, target, axis), as_dtype(logp.dtype).numpy)
            scale = xp.where(target == ignore_index, 0, scale)
            grad = (grad - hits) * xp.expand_dims(scale, axis=axis)
    if g_logp is not None:
        more = g_logp - xp.exp(logp) * xp.sum(g_logp, axis=axis, keepdims=True)
        grad = more if grad is None else grad + more
    return grad


cross_entropy = Op(
    "cross_entropy",
    _cross_entropy_type,
    _cross_entropy_values,
    numpy=_cross_entropy_numpy,
    kinds="real floating",
    traits=Trait.WIDEN,
    outputs=3,
    vjp=(_cross_entropy_vjp, None),
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
    n = _count(x.shape, axis)
    mean = xp.sum(x, axis=axis, keepdims=True) / n if n else xp.sum(x, axis=axis, keepdims=True)
    centred = x - mean
    var = xp.sum(centred * centred, axis=axis, keepdims=True) / max(n, 1)
    return centred / xp.sqrt(var + eps), mean, var


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
    n = max(_count(x_type.shape, axis), 1)
    scale = xp.sqrt(var + eps)
    parts = []
    if g_standard is not None:
        even = xp.sum(g_standard, axis=axis, keepdims=True) / n
        along = xp.sum(g_standard * standard, axis=axis, keepdims=True) / n
        parts.append((g_standard - even - standard * along) / scale)
    if g_mean is not None:
        parts.append(xp.broadcast_to(g_mean / n, x_type.shape))
    if g_var is not None:
        parts.append(g_var * (2 / n) * (standard * scale))
    return sum(parts[1:], start=parts[0])


#: x with mean 0 and variance 1 along some axes; also the mean and the (biased) variance it had.
standardize = Op(
    "standardize",
    _standardize_type,
    _standardize_values,
    numpy=_standardize_numpy,
    kinds="real floating",
    traits=Trait.WIDEN,
    outputs=3,
    vjp=(_standardize_vjp,),
)

