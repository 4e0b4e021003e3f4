"""Transformer layers: attention and a small network, each with a residual and a normalization."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from weft.base import dtypes
from weft.base.errors import RangeError
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.attention import MultiheadAttention
from weft.nn.containers import ModuleList
from weft.nn.dropout import Dropout
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.normalization import LayerNorm
from weft.ops.creation import full, triu

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in _ACTIVATIONS:
        raise RangeError(f"activation is 'relu', 'gelu' or a function, not {given!r}")
    return _ACTIVATIONS[given]


def _attended(
    attention: MultiheadAttention,
    x: Tensor,
    source: Tensor,
    mask: Tensor | None,
    padding: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """What x attends to in a source, without the weights."""
    options: dict[str, Any] = {"attn_mask": mask, "key_padding_mask": padding}
    out: Tensor = attention(x, source, source, need_weights=False, is_causal=is_causal, **options)[
        0
    ]
    return out


class _Layer(Module):
    """What encoder and decoder layers share: their options, and the network after attention."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        attends = self._attentions()
        for name in attends:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, **place
            )
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        for number in range(1, len(attends) + 2):
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **place)
            self.add_module(f"norm{number}", norm)
        for number in range(1, len(attends) + 2):
            self.add_module(f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def _attentions(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _residual(self, x: Tensor, number: int, block: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus what a block makes of it, normalized before the block or after the sum."""
        own = self.__dict__
        norm, dropout = own[f"norm{number}"], own[f"dropout{number}"]
        if self.norm_first:
            out: Tensor = x + dropout(block(norm(x)))
        else:
            out = norm(x + dropout(block(x)))
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return out


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a small network."""

    self_attn: MultiheadAttention

    def _attentions(self) -> tuple[str, ...]:
        return ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return _attended(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal)

        return self._residual(self._residual(src, 1, attend), 2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's output, then a small network."""

    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def _attentions(self) -> tuple[str, ...]:
        return ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return _attended(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def look(x: Tensor) -> Tensor:
            return _attended(
                self.multihead_attn,
                x,
                memory,
                memory_mask,
                memory_key_padding_mask,
                memory_is_causal,
            )

        x = self._residual(tgt, 1, attend)
        return self._residual(self._residual(x, 2, look), 3, self._feed_forward)


class TransformerEncoder(Module):
    """Several encoder layers, copies of the one given, one after the other.

    `enable_nested_tensor` and `mask_check` are about PyTorch's fast path, and have no meaning here.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.add_module("norm", norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        norm = self.__dict__["norm"]
        return src if norm is None else norm(src)


class TransformerDecoder(Module):
    """Several decoder layers, copies of the one given, one after the other."""

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.add_module("norm", norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                tgt_is_causal,
                memory_is_causal,
            )
        norm = self.__dict__["norm"]
        return tgt if norm is None else norm(tgt)


class Transformer(Module):
    """An encoder and a decoder: the model of "Attention is all you need", without embeddings."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {
            "dim_feedforward": dim_feedforward,
            "dropout": dropout,
            "activation": activation,
            "layer_norm_eps": layer_norm_eps,
            "batch_first": batch_first,
            "norm_first": norm_first,
            "bias": bias,
            "device": device,
            "dtype": dtype,
        }
        norms = [
            LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            for _ in range(2)
        ]
        first = TransformerEncoderLayer(d_model, nhead, **options)
        self.encoder = TransformerEncoder(first, num_encoder_layers, norms[0])
        second = TransformerDecoderLayer(d_model, nhead, **options)
        self.decoder = TransformerDecoder(second, num_decoder_layers, norms[1])
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        out: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
        )
        return out

    @staticmethod
    def generate_square_subsequent_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A mask to add to scores: -inf for keys that are later than the query."""
        wanted = dtypes.default_float() if dtype is None else dtype
        return triu(full((size, size), -math.inf, dtype=wanted, device=device), k=1)
