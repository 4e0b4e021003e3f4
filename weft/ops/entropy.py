"""Cards of losses over probabilities: cross entropy of classes, and binary cross entropy.

They serve `weft.nn.functional`. Their evaluation rules are written in other ops, which the compiler
records.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.errors import DTypeError, IndexError, ShapeError
from weft.base.shapes import Shape
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ir.ways import Span
from weft.ops.batch_loss import cross_entropy_rule
from weft.ops.batching import shifted
from weft.ops.rules import apply, binary_rule, check_kind
from weft.ops.ways import class_losses, picked_classes

# --- class indices -----------------------------------------------------------------------------


def _check_classes(x: TensorType, target: TensorType, axis: int) -> Shape:
    """The shape of the losses: that of the input without its axis of classes."""
    check_kind(x, "real floating")
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
    """A mask of x's shape: where each element's own class is."""
    classes = xp.arange(x.shape[axis], dtype=target.dtype, device=target.device)
    return xp.expand_dims(target, axis=axis) == xp.reshape(
        classes, (-1, *(1,) * (x.ndim - axis - 1))
    )


def _picked(x: Any, target: Any, axis: int, ignore_index: int) -> tuple[Any, Any]:
    """x at each target (0 for ignored ones), and a mask of the ignored ones, or None."""
    classes = x.shape[axis]
    ignored = None
    if target.shape != x.shape[:axis] + x.shape[axis + 1 :] or target.dtype.kind not in "iu":
        raise ValueError  # NumPy might accept it; the type rule explains the error
    # As unsigned integers, negative targets are large: one comparison finds all that are invalid.
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

# The negative log-likelihood: minus the log-probability of each target class.


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


def _nll_here(xp: Any, span: Span, logp: Any, target: Any, *, axis: int, ignore_index: int) -> Any:
    """The losses whose class a rank has, and zeros for others."""
    ignored = target == ignore_index
    here, place = span.place(xp, xp.where(ignored, 0, target))
    wanted = xp.where(ignored | (~here & (place == 0)), -1, place)
    return apply(nll, logp, wanted, axis=axis, ignore_index=-1)


nll = Op(
    "nll",
    _nll_type,
    _nll_values,
    numpy=_nll_numpy,
    kinds="real floating",
    autocast="float32",
    traits=Trait.WIDEN,
    vjp=(_nll_vjp, None),
    batch=shifted("axis"),
    ways=picked_classes(_nll_here),
)

# Cross entropy: nll(log_softmax(x)). It also returns the log-probabilities, which backward needs,
# and the number of targets that were not ignored.


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
    losses = apply(nll, logp, target, axis=axis, ignore_index=ignore_index)
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
            grad[np.arange(len(target)), target] -= 1  # if none is ignored: in place
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
    autocast="float32",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    outputs=3,
    vjp=(_cross_entropy_vjp, None),
    batch=cross_entropy_rule,
    ways=class_losses,
)

# --- yes or no ---------------------------------------------------------------------------------


def _log(xp: Any, p: Any) -> Any:
    return xp.maximum(xp.log(p), -100)  # so that no loss is infinite


def _bce_values(xp: Any, p: Any, target: Any) -> Any:
    return (target - 1) * _log(xp, 1 - p) - target * _log(xp, p)


#: The binary cross entropy of probabilities p and targets, element by element. Its derivative in p
#: is the true one (up to 1e12) even where the logarithm is clamped, so that training can recover.
binary_cross_entropy = Op(
    "binary_cross_entropy",
    binary_rule("real floating", "same"),
    _bce_values,
    kinds="real floating",
    autocast="float32",
    traits=Trait.ELEMENTWISE | Trait.WIDEN,
    vjp=(
        lambda xp, g, _out, x1, x2: g * (x1 - x2) / xp.maximum((1 - x1) * x1, 1e-12),
        lambda xp, g, _out, x1, _x2: g * (_log(xp, 1 - x1) - _log(xp, x1)),
    ),
    cycles=40.0,
)
