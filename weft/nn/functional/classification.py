"""Losses over classes: negative log-likelihood and cross entropy, and one-hot vectors."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.dim_algebra import dim_max
from weft.base.errors import IndexError, RangeError, ShapeError
from weft.core.bind import bind
from weft.core.operands import cast
from weft.core.tensor import Tensor
from weft.nn.functional.loss import reduced
from weft.ops import entropy
from weft.ops.activations import log_softmax
from weft.ops.creation import arange
from weft.ops.embedding import embedding
from weft.ops.index import take
from weft.ops.reduce import sum
from weft.ops.select import where
from weft.ops.shape import reshape

__all__ = ["cross_entropy", "nll_loss", "one_hot"]


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Each class index as a vector of zeros with a one at that index, along a new last axis.

    Without a number of classes it is the largest index plus one.
    """
    if num_classes < 0:
        if not tensor.size:
            raise ShapeError("no index tells how many classes there are", op="one_hot")
        num_classes = int(tensor.max()) + 1
    classes = arange(num_classes, device=tensor.device)
    try:  # an embedding checks its indices in graphs, too, where Python cannot ask for them
        index = bind(embedding, classes[:, None], tensor, padding_idx=None)
    except IndexError:
        raise IndexError(
            f"an index is none of {num_classes} classes", op="one_hot", operands=[tensor.type]
        ) from None
    return cast(index == classes, dtypes.int64)


def _class_axis(input: Tensor, op: str) -> int:
    if not input.ndim:
        raise ShapeError("the input has no axis of classes", op=op, operands=[input.type])
    return 0 if input.ndim == 1 else 1


def _along(values: Tensor, axis: int, ndim: int) -> Tensor:
    """A vector laid along one axis of a tensor of `ndim` axes."""
    return reshape(values, (-1, *(1,) * (ndim - axis - 1)))


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of each target's class; the input holds log-probabilities.

    The mean is weighted by the weights of the targets' classes. Targets of `ignore_index` count
    for nothing.
    """
    axis = _class_axis(input, "nll_loss")
    losses: Tensor = bind(entropy.nll, input, target, axis=axis, ignore_index=ignore_index)
    kept = target != ignore_index
    if weight is None:
        if reduction != "mean":
            return reduced(losses, reduction, "nll_loss")
        return sum(losses) / sum(cast(kept, losses.dtype))
    _check_weight(weight, input, axis)
    weights = where(kept, take(weight, where(kept, target, 0).reshape(-1)).reshape(target.shape), 0)
    losses = losses * weights
    return sum(losses) / sum(weights) if reduction == "mean" else reduced(losses, reduction, "nll")


def _check_weight(weight: Tensor, input: Tensor, axis: int) -> None:
    if weight.shape != (input.shape[axis],):
        raise ShapeError(
            f"the weights have shape {weight.shape}; there are {input.shape[axis]} classes",
            op="cross_entropy",
            operands=[input.type, weight.type],
        )


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy between logits and classes, given as indices or as probabilities.

    Classes lie along axis 1 (axis 0 of a vector). Indices have the input's shape without that
    axis, probabilities all of it.

    >>> weft.nn.functional.cross_entropy(weft.asarray([[0.0, 1000.0]]), weft.asarray([0]))
    tensor(1000.)
    """
    axis = _class_axis(input, "cross_entropy")
    if not 0 <= label_smoothing <= 1:
        raise RangeError(f"label_smoothing {label_smoothing} is not in 0 … 1", op="cross_entropy")
    if weight is not None:
        _check_weight(weight, input, axis)
    if target.dtype.kind in ("float", "complex"):
        return _soft(input, target, weight, reduction, label_smoothing, axis)
    if reduction not in ("mean", "sum", "none"):
        raise RangeError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")
    if weight is None and not label_smoothing:
        found: tuple[Tensor, Any, Any] = bind(
            entropy.cross_entropy,
            input,
            target,
            axis=axis,
            ignore_index=ignore_index,
            reduction=reduction,
        )
        return found[0]
    logp = log_softmax(input, axis=axis)
    main = nll_loss(logp, target, weight, ignore_index, reduction)
    if not label_smoothing:
        return main
    kept = target != ignore_index
    spread = -sum(logp if weight is None else logp * _along(weight, axis, logp.ndim), axis=axis)
    smooth = where(kept, spread, 0)
    if reduction == "mean":
        counted = cast(kept, logp.dtype)
        if weight is not None:
            counted = where(
                kept, take(weight, where(kept, target, 0).reshape(-1)).reshape(target.shape), 0
            )
        smooth = sum(smooth) / sum(counted)
    else:
        smooth = reduced(smooth, reduction, "cross_entropy")
    share = label_smoothing / input.shape[axis]
    return main * (1 - label_smoothing) + smooth * share


def _soft(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    label_smoothing: float,
    axis: int,
) -> Tensor:
    """Cross entropy with probabilities as the target."""
    if target.shape != input.shape:
        raise ShapeError(
            f"probabilities of shape {target.shape} do not fit an input of shape {input.shape}",
            op="cross_entropy",
            operands=[input.type, target.type],
            hint="class indices are integers, of the input's shape without its axis of classes",
        )
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / input.shape[axis]
    logp = log_softmax(input, axis=axis)
    if weight is not None:
        logp = logp * _along(weight, axis, logp.ndim)
    losses = -sum(logp * target, axis=axis)
    if reduction == "mean":  # over samples, not over their probabilities
        return sum(losses) / dim_max(losses.size, 1)
    return reduced(losses, reduction, "cross_entropy")
