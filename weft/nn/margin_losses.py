"""Losses over several classes at once, triplets with a distance of your own, and CTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn.losses import Loss, WeightedLoss

__all__ = [
    "CTCLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "SoftMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)); targets are 1 or -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """The cross entropy of yes and no for each class, as a mean over the classes."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(WeightedLoss):
    """What each other class lacks to be `margin` below the target's class, to the power p."""

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, reduction)
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, self.reduction)


class MultiLabelMarginLoss(Loss):
    """What each class that is no target lacks to be 1 below each target."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, self.reduction)


class TripletMarginWithDistanceLoss(Loss):
    """TripletMarginLoss with a distance that is a function of two tensors."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(Loss):
    """Minus the log-probability of labels, over all of their alignments with the steps.

    See `functional.ctc_loss`. It takes log-probabilities (steps, batch, classes), labels, and the
    lengths of both.
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
