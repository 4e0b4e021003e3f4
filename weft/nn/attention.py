"""MultiheadAttention."""

from __future__ import annotations

from typing import Any

from weft.base.errors import RangeError
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops.creation import empty
from weft.ops.shape import swapaxes

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads, each with its own learned view of queries, keys and values.

    Axes are (length, batch, features), with batch_first (batch, length, features). Boolean masks
    are True where *not* to look.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise RangeError(
                f"{embed_dim} features do not fall into {num_heads} heads", op="MultiheadAttention"
            )
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self._same = self.kdim == embed_dim and self.vdim == embed_dim

        def parameter(wanted: bool, *shape: int) -> Parameter | None:
            return Parameter(empty(shape, dtype=dtype, device=device)) if wanted else None

        separate = not self._same
        self.register_parameter("in_proj_weight", parameter(self._same, 3 * embed_dim, embed_dim))
        self.register_parameter("q_proj_weight", parameter(separate, embed_dim, embed_dim))
        self.register_parameter("k_proj_weight", parameter(separate, embed_dim, self.kdim))
        self.register_parameter("v_proj_weight", parameter(separate, embed_dim, self.vdim))
        self.register_parameter("in_proj_bias", parameter(bias, 3 * embed_dim))
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.register_parameter("bias_k", parameter(add_bias_kv, 1, 1, embed_dim))
        self.register_parameter("bias_v", parameter(add_bias_kv, 1, 1, embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values, as PyTorch does."""
        for weight in (
            self.in_proj_weight,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        ):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for learned in (self.bias_k, self.bias_v):
            if learned is not None:
                init.xavier_normal_(learned)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and how much each query looked at each key (None unless `need_weights`).

        key_padding_mask   (batch, keys): keys that nobody is to look at
        attn_mask          (queries, keys), or (batch * heads, queries, keys)
        """
        turned = self.batch_first and query.ndim == 3
        if turned:
            same, equal = query is key, key is value
            query = swapaxes(query, 0, 1)
            key = query if same else swapaxes(key, 0, 1)
            value = key if equal else swapaxes(value, 0, 1)
        out, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._same,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (swapaxes(out, 0, 1) if turned else out), weights
