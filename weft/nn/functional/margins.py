"""Losses over several classes at once, and triplets with a distance of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.errors import RangeError, ShapeError
from weft.core.autocast import autocasts
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.nn.functional.activation import logsigmoid, softplus
from weft.nn.functional.classification import one_hot
from weft.nn.functional.distance import pairwise_distance
from weft.nn.functional.loss import reduced
from weft.ops.index import take_along_axis
from weft.ops.reduce import cumulative_sum, mean, sum
from weft.ops.select import where
from weft.ops.shape import expand_dims

__all__ = [
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "triplet_margin_with_distance_loss",
]


def _above_0(x: Tensor) -> Tensor:
    """clamp_min(0) as PyTorch's margin losses differentiate it: at 0 itself the slope is 0."""
    return where(x > 0, x, 0.0)


@autocasts("float32")
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)); targets are 1 or -1."""
    _same_shape(input, target, "soft_margin_loss")
    return reduced(softplus(-target * input), reduction, "soft_margin_loss")


@autocasts("float32")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of yes and no for each class, as a mean over the classes."""
    _same_shape(input, target, "multilabel_soft_margin_loss")
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced(mean(losses, axis=-1), reduction, "multilabel_soft_margin_loss")


def _same_shape(input: Tensor, target: Tensor, op: str) -> None:
    if input.shape != target.shape:
        raise ShapeError(
            f"input and target differ in shape: {input.shape} and {target.shape}",
            op=op,
            operands=[type_of(input), type_of(target)],
        )


@autocasts("float32")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What each other class lacks to be `margin` below the target's class, to the power p."""
    if p not in (1, 2):
        raise RangeError(f"p is 1 or 2, not {p}", op="multi_margin_loss")
    if input.ndim not in (1, 2) or target.shape not in (input.shape[:-1], (1,) * (2 - input.ndim)):
        raise ShapeError(
            f"classes {target.shape} do not fit scores {input.shape}",
            op="multi_margin_loss",
            operands=[type_of(input), type_of(target)],
        )
    classes = input.shape[-1]
    if input.ndim == 1 and target.ndim == 1:
        target = target[0]
    own = one_hot(target, classes) == 1  # it checks that targets are classes
    chosen = sum(where(own, input, 0.0), axis=-1, keepdims=True)
    losses = _above_0(margin - chosen + input)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * sum(where(own, weight, 0.0), axis=-1, keepdims=True)
    return reduced(sum(where(own, 0.0, losses), axis=-1) / classes, reduction, "multi_margin_loss")


@autocasts("float32")
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """What each class that is no target lacks to be 1 below each target.

    A row of `target` lists the classes of a sample; -1 ends the list.
    """
    _same_shape(input, target, "multilabel_margin_loss")
    classes = input.shape[-1]
    ended = cumulative_sum(cast(target < 0, dtypes.int64), axis=-1) > 0
    listed = where(ended, 0, target)
    hits = (one_hot(listed, classes) == 1) & ~expand_dims(ended, -1)  # (…, place, class)
    is_target = sum(cast(hits, dtypes.int64), axis=-2) > 0
    chosen = take_along_axis(input, listed, axis=-1)
    lack = _above_0(1 - expand_dims(chosen, -1) + expand_dims(input, -2))
    counted = ~expand_dims(ended, -1) & ~expand_dims(is_target, -2)
    losses = sum(where(counted, lack, 0.0), axis=(-2, -1)) / classes
    return reduced(losses, reduction, "multilabel_margin_loss")


@autocasts("float32")
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """What the negative lacks to be `margin` farther from the anchor than the positive is.

    The distance is `pairwise_distance`, or a function of two tensors that is given.
    """
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        other = distance(positive, negative)
        far = where(other < far, other, far)
    losses = margin + near - far
    losses = where(losses >= 0, losses, 0.0)
    return reduced(losses, reduction, "triplet_margin_with_distance_loss")
