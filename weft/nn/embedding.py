"""Layers of learned vectors: Embedding, and EmbeddingBag for sums, means and maxima of them."""

from __future__ import annotations

from typing import Any

from weft.base.errors import RangeError
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops.creation import asarray, empty

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What both layers share: the table of vectors and its options."""

    weight: Parameter

    def _make(self, rows: int, features: int, options: dict[str, Any], weight: Any) -> None:
        self.num_embeddings = rows
        self.embedding_dim = features
        padding = options["padding_idx"]
        if padding is not None and not -rows <= padding < rows:
            raise RangeError(f"padding_idx {padding} is no row of {rows}", op=type(self).__name__)
        self.padding_idx: int | None = None if padding is None else padding % rows
        self.max_norm: float | None = options["max_norm"]
        self.norm_type: float = options["norm_type"]
        self.scale_grad_by_freq: bool = options["scale_grad_by_freq"]
        self.sparse: bool = options["sparse"]
        if weight is not None:
            self.weight = Parameter(asarray(weight).detach())
            return
        place = {"dtype": options["dtype"], "device": options["device"]}
        self.weight = Parameter(empty((rows, features), **place))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values, as PyTorch does."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Any:
        """A layer of given vectors; frozen ones are not learned. `options` are the layer's own."""
        vectors = asarray(embeddings)
        layer: Any = cls(*vectors.shape, **options, **{"_weight": vectors})
        layer.weight.requires_grad = not freeze
        return layer

    def extra_repr(self) -> str:
        usual = {
            "padding_idx": None,
            "max_norm": None,
            "norm_type": 2.0,
            "scale_grad_by_freq": False,
            "mode": getattr(self, "mode", None),
        }
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name, value in usual.items():
            if name == "mode" and value is not None:
                parts.append(f"mode={value!r}")
            elif getattr(self, name, value) != value:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class Embedding(_Table):
    """A learned vector for each number from 0 to num_embeddings - 1.

    The vector of `padding_idx` starts as zeros and gets no gradient. Vectors that are asked for and
    longer than `max_norm` are scaled down to it, in the weight itself.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {
            "padding_idx": padding_idx,
            "max_norm": max_norm,
            "norm_type": norm_type,
            "scale_grad_by_freq": scale_grad_by_freq,
            "sparse": sparse,
            "device": device,
            "dtype": dtype,
        }
        self._make(num_embeddings, embedding_dim, options, _weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the vectors of each bag of numbers.

    >>> layer = weft.nn.EmbeddingBag(10, 3, mode="sum")
    >>> layer(weft.asarray([1, 2, 4, 5]), weft.asarray([0, 3])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {
            "padding_idx": padding_idx,
            "max_norm": max_norm,
            "norm_type": norm_type,
            "scale_grad_by_freq": scale_grad_by_freq,
            "sparse": sparse,
            "device": device,
            "dtype": dtype,
        }
        self.mode = mode
        self.include_last_offset = include_last_offset
        self._make(num_embeddings, embedding_dim, options, _weight)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
