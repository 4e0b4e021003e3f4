"""Losses. `reduction` says what becomes of the losses of single elements: "mean", "sum", "none"."""

from __future__ import annotations

import math
from typing import Any

from weft.base.errors import RangeError, ShapeError
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.operands import common
from weft.core.tensor import Tensor
from weft.nn.functional.distance import pairwise_distance
from weft.ops import entropy, neural
from weft.ops.activations import relu
from weft.ops.elementwise import abs, exp, log, maximum, square
from weft.ops.reduce import mean, sum
from weft.ops.select import where

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "triplet_margin_loss",
]


def reduced(losses: Tensor, reduction: str, op: str) -> Tensor:
    """Losses as the caller wants them."""
    if reduction == "mean":
        return mean(losses)
    if reduction == "sum":
        return sum(losses)
    if reduction == "none":
        return losses
    raise RangeError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}", op=op)


def _difference(input: Tensor, target: Tensor, op: str) -> Tensor:
    """input - target, which must have one shape: broadcasting here is nearly always a mistake."""
    if input.shape != target.shape:
        raise ShapeError(
            f"input and target differ in shape: {input.shape} and {target.shape}",
            op=op,
            operands=[input.type, target.type],
            hint="bring them to one shape with reshape or broadcast_to",
        )
    return input - target


# --- distances ---------------------------------------------------------------------------------


@autocasts("float32")
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The squared difference; with weights, the mean is divided by their sum."""
    return _weighted(square(_difference(input, target, "mse_loss")), weight, reduction, "mse_loss")


@autocasts("float32")
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """The absolute difference; with weights, the mean is divided by their sum."""
    return _weighted(abs(_difference(input, target, "l1_loss")), weight, reduction, "l1_loss")


def _weighted(losses: Tensor, weight: Tensor | None, reduction: str, op: str) -> Tensor:
    if weight is None:
        return reduced(losses, reduction, op)
    losses = losses * _fitting_weight(weight, losses, op)
    return sum(losses) / sum(weight) if reduction == "mean" else reduced(losses, reduction, op)


def _fitting_weight(weight: Tensor, losses: Tensor, op: str) -> Tensor:
    if weight.shape != losses.shape:
        raise ShapeError(
            f"the weights have shape {weight.shape}, the input {losses.shape}",
            op=op,
            operands=[losses.type, weight.type],
        )
    return weight


@autocasts("float32")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared difference up to `delta`, and from there on a straight line.

    With weights, the mean is still divided by the number of elements, as in PyTorch.
    """
    if not delta > 0:
        raise RangeError(f"delta must be above 0, not {delta}", op="huber_loss")
    distance = abs(_difference(input, target, "huber_loss"))
    losses = where(distance <= delta, square(distance) * 0.5, (distance - 0.5 * delta) * delta)
    if weight is not None:
        losses = losses * _fitting_weight(weight, losses, "huber_loss")
    return reduced(losses, reduction, "huber_loss")


@autocasts("float32")
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """The absolute difference, made smooth within `beta` of 0."""
    if beta < 0:
        raise RangeError(f"beta must not be negative: {beta}", op="smooth_l1_loss")
    if beta == 0:
        return l1_loss(input, target, reduction)
    distance = abs(_difference(input, target, "smooth_l1_loss"))
    losses = where(distance < beta, square(distance) * (0.5 / beta), distance - 0.5 * beta)
    return reduced(losses, reduction, "smooth_l1_loss")


# --- probabilities -----------------------------------------------------------------------------


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The cross entropy of probabilities; their logarithms are taken to be -100 at least."""
    _difference(input.detach(), target, "binary_cross_entropy")
    losses: Tensor = bind(
        entropy.binary_cross_entropy, *common((input, target), "binary_cross_entropy")
    )
    if weight is not None:
        losses = losses * weight
    return reduced(losses, reduction, "binary_cross_entropy")


@autocasts("float32")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The cross entropy of sigmoid(input), exact also for large logits."""
    _difference(input.detach(), target, "binary_cross_entropy_with_logits")
    below: Tensor = bind(neural.softplus, -input)  # -log(sigmoid(input))
    losses = (1 - target) * input
    if pos_weight is None:
        losses = losses + below
    else:
        losses = losses + ((pos_weight - 1) * target + 1) * below
    if weight is not None:
        losses = losses * weight
    return reduced(losses, reduction, "binary_cross_entropy_with_logits")


@autocasts("float32")
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """The divergence of `target` from `input`, which is given as log-probabilities.

    "batchmean" divides the sum by the size of the first axis, as the definition has it.
    """
    if log_target:
        losses = exp(target) * (target - input)
    else:
        positive = target > 0
        logs = where(positive, log(where(positive, target, 1)), 0)  # 0 log 0 is 0
        losses = target * (logs - input)
    if reduction == "batchmean":
        return sum(losses) / input.shape[0]
    return reduced(losses, reduction, "kl_div")


@autocasts("float32")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of counts; with `full`, Stirling's term for log(target!) too."""
    losses = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        many = where(target > 1, target, 1)
        stirling = many * log(many) - many + 0.5 * log(2 * math.pi * many)
        losses = losses + where(target > 1, stirling, 0)
    return reduced(losses, reduction, "poisson_nll_loss")


@autocasts("float32")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of targets under normal distributions; var is at least eps."""
    spread: Any = var if isinstance(var, Tensor) else input.detach() * 0 + var
    if spread.shape != input.shape and spread.shape == input.shape[:-1]:
        spread = spread[..., None]
    # The floor under var passes no gradient of its own, and hides none either.
    spread = spread + maximum(eps - spread.detach(), 0)
    losses = 0.5 * (log(spread) + square(input - target) / spread)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction, "gaussian_nll_loss")


# --- margins -----------------------------------------------------------------------------------


@autocasts("float32")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """The input where the target is 1; where it is -1, what the input lacks of the margin."""
    losses = where(target != 1, relu(margin - input), 0) + where(target != -1, input, 0)
    return reduced(losses, reduction, "hinge_embedding_loss")


@autocasts("float32")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """What input1 lacks to be `margin` above input2 where the target is 1, below where it is -1."""
    losses = _at_least_0(margin - target * (input1 - input2))
    return reduced(losses, reduction, "margin_ranking_loss")


def _at_least_0(x: Tensor) -> Tensor:
    """clamp_min(0) as PyTorch differentiates it: at 0 itself the slope is 1."""
    return where(x >= 0, x, 0)


@autocasts("float32")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1; where it is -1, what the cosine exceeds the margin by."""
    along = [sum(x, axis=-1) for x in (input1 * input2, square(input1), square(input2))]
    eps = 1e-12  # as PyTorch has it here
    cos = along[0] / ((along[1] + eps) * (along[2] + eps)) ** 0.5
    losses = where(target == 1, 1 - cos, 0) + where(target == -1, _at_least_0(cos - margin), 0)
    return reduced(losses, reduction, "cosine_embedding_loss")


@autocasts("float32")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """What the negative lacks to be `margin` farther from the anchor than the positive is.

    With `swap`, the negative's distance from the positive counts where it is smaller.
    """
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        other = pairwise_distance(positive, negative, p, eps)
        far = where(other < far, other, far)
    return reduced(_at_least_0(near - far + margin), reduction, "triplet_margin_loss")
