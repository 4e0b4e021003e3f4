"""A softmax over very many classes: frequent ones at once, rare ones in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.errors import RangeError, ShapeError
from weft.core.tensor import Tensor, type_of
from weft.nn.containers import ModuleList, Sequential
from weft.nn.functional.checks import below
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.ops.activations import log_softmax
from weft.ops.index import take_along_axis
from weft.ops.reduce import argmax, mean
from weft.ops.select import clip, where
from weft.ops.shape import concat, expand_dims, squeeze

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class ASMOutput(NamedTuple):
    """The log-probability of each target, and the loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A log-softmax in which rare classes have fewer features (Grave and others, 2016).

    Classes are numbered from the most frequent on. Those below cutoffs[0] stand in the head, with
    an entry for each cluster besides. Cluster i has in_features / div_value ** (i + 1) features.
    All clusters are computed for all samples: shapes do not depend on the targets.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends or ends != sorted(set(ends)) or ends[0] < 1 or ends[-1] > n_classes - 1:
            raise RangeError(
                f"cutoffs {ends} are not different numbers from 1 to {n_classes - 1} in order",
                op="AdaptiveLogSoftmaxWithLoss",
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        self.n_clusters = len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        place = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            features = int(in_features // div_value ** (i + 1))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, features, bias=False, **place),
                    Linear(features, classes, bias=False, **place),
                )
            )

    def reset_parameters(self) -> None:
        """Draw new first values, as PyTorch does."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes."""
        head = log_softmax(self.head(input), axis=-1)
        parts = [head[..., : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            own = log_softmax(cluster(input), axis=-1)
            parts.append(own + expand_dims(head[..., self.shortlist_size + i], -1))
        return concat(parts, axis=-1)

    def predict(self, input: Tensor) -> Tensor:
        """The class of the highest probability."""
        return argmax(self.log_prob(input), axis=-1)

    def forward(self, input: Tensor, target: Tensor) -> ASMOutput:
        if target.shape != input.shape[:-1]:
            raise ShapeError(
                f"targets of shape {target.shape} do not fit an input of shape {input.shape}",
                op="AdaptiveLogSoftmaxWithLoss",
                operands=[type_of(input), type_of(target)],
            )
        message = f"a target is none of {self.n_classes} classes"
        target = below(target, self.n_classes, message, "AdaptiveLogSoftmaxWithLoss")
        head = log_softmax(self.head(input), axis=-1)
        limit = self.shortlist_size
        out = _chosen(head, clip(target, 0, limit - 1))
        for i, cluster in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            own = log_softmax(cluster(input), axis=-1)
            inside = _chosen(own, clip(target - low, 0, high - low - 1)) + head[..., limit + i]
            out = where(target >= low, inside, out)
        return ASMOutput(out, -mean(out))


def _chosen(scores: Tensor, classes: Tensor) -> Tensor:
    return squeeze(take_along_axis(scores, expand_dims(classes, -1), axis=-1), -1)
