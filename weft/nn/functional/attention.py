"""Attention: each query looks at all keys, and takes the mean of their values by likeness."""

from __future__ import annotations

import math

from weft.base import dtypes
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.core.autocast import autocasts
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.nn.functional.dropout import dropout
from weft.nn.functional.linear import linear
from weft.ops.activations import softmax
from weft.ops.creation import arange, zeros
from weft.ops.elementwise import logical_not
from weft.ops.index import repeat
from weft.ops.reduce import all, mean
from weft.ops.select import where
from weft.ops.shape import broadcast_to, concat, permute_dims, reshape, squeeze

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


def causal_mask(queries: int, keys: int, like: Tensor) -> Tensor:
    """True where a query may look: at keys no later than itself."""
    rows = arange(queries, device=like.device)[:, None]
    return rows >= arange(keys, device=like.device)


def _weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """How much of each value every query takes: positive numbers that add up to 1."""
    if query.ndim < 2 or query.shape[-1:] != key.shape[-1:]:
        raise ShapeError(
            f"queries of shape {query.shape} cannot be compared with keys of shape {key.shape}",
            op="scaled_dot_product_attention",
            operands=[type_of(query), type_of(key)],
            hint="axes are (…, length, features), with equally many features",
        )
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.mT
    if is_causal:
        if attn_mask is not None:
            raise RangeError("give attn_mask or is_causal, not both", op="attention")
        mask = causal_mask(query.shape[-2], key.shape[-2], query)
        weights = softmax(where(mask, scores, -math.inf), axis=-1)
    elif attn_mask is None:
        weights = softmax(scores, axis=-1)
    else:
        if attn_mask.dtype is dtypes.bool:
            scores = where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask
        # A query that may look nowhere takes nothing, instead of NaN.
        nothing = all(scores.detach() == -math.inf, axis=-1, keepdims=True)
        weights = where(nothing, 0, softmax(where(nothing, 0, scores), axis=-1))
    return dropout(weights, dropout_p) if dropout_p else weights


@autocasts("lower")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.mT * scale) @ value, with (…, length, features) each.

    A boolean mask is True where a query may look; any other is added to the scores. With
    `enable_gqa` groups of query heads (axis -3) share a head of keys and values.
    """
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = repeat(key, groups, axis=-3), repeat(value, groups, axis=-3)
    return _weights(query, key, attn_mask, dropout_p, is_causal, scale) @ value


# --- many heads --------------------------------------------------------------------------------


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as numbers to add to scores. In modules, True says where not to look."""
    if mask.dtype is dtypes.bool:
        zero = zeros((), dtype=like.dtype, device=like.device)
        return where(mask, -math.inf, zero)
    if mask.dtype.kind != "float":
        raise DTypeError(
            f"a mask is of bools or floats, not {mask.dtype.name}", op="multi_head_attention"
        )
    return cast(mask, like.dtype)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(length, batch, features) as (batch, heads, length, features of a head)."""
    length, batch, features = x.shape
    return permute_dims(reshape(x, (length, batch, heads, features // heads)), (1, 2, 0, 3))


def _projected(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    in_proj_weight: Tensor | None,
    separate: tuple[Tensor | None, Tensor | None, Tensor | None],
    in_proj_bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    size = query.shape[-1]
    cuts = [slice(i * size, (i + 1) * size) for i in range(3)]
    if in_proj_weight is not None and query is key and key is value:
        whole = linear(query, in_proj_weight, in_proj_bias)  # one product instead of three
        q, k, v = (whole[..., cut] for cut in cuts)
        return q, k, v
    weights = separate if in_proj_weight is None else tuple(in_proj_weight[cut] for cut in cuts)
    biases = [None if in_proj_bias is None else in_proj_bias[cut] for cut in cuts]
    q, k, v = (
        linear(x, weight, bias)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
        if weight is not None
    )
    return q, k, v


@autocasts("lower")
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads with learned projections; axes are (length, batch, features).

    Boolean masks are True where *not* to look, as in PyTorch's modules.
    """
    batched = query.ndim == 3
    if not batched:  # (length, features): a batch of one
        same = query is key and key is value
        query = query[:, None]
        key = query if same else key[:, None]
        value = query if same else value[:, None]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    length, batch, size = query.shape
    if size != embed_dim_to_check:
        raise ShapeError(
            f"the queries have {size} features, not embed_dim={embed_dim_to_check}",
            op="multi_head_attention",
            operands=[type_of(query)],
        )
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    whole = None if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected(query, key, value, whole, separate, in_proj_bias)
    mask = None if attn_mask is None else _added(attn_mask, q)
    if mask is None and is_causal:
        mask = _added(logical_not(causal_mask(length, k.shape[0], q)), q)
    if mask is not None and mask.ndim == 3:  # one for each head of each sample
        mask = reshape(mask, (batch, num_heads, *mask.shape[1:]))
    extra = 0
    if bias_k is not None and bias_v is not None:  # a key and a value that are learned
        k = concat([k, broadcast_to(bias_k, (1, batch, k.shape[-1]))], axis=0)
        v = concat([v, broadcast_to(bias_v, (1, batch, v.shape[-1]))], axis=0)
        extra += 1
    if add_zero_attn:  # a key and a value of zeros
        k = concat([k, zeros((1, *k.shape[1:]), dtype=k.dtype, device=k.device)], axis=0)
        v = concat([v, zeros((1, *v.shape[1:]), dtype=v.dtype, device=v.device)], axis=0)
        extra += 1
    mask = _widened(mask, extra)
    if key_padding_mask is not None:
        padding = _widened(_added(key_padding_mask, q), extra)
        assert padding is not None
        padding = padding[:, None, None, :]
        mask = padding if mask is None else mask + padding
    weights = _weights(
        _heads(q, num_heads),
        _heads(k, num_heads),
        mask,
        dropout_p if training else 0.0,
        False,
        None,
    )
    mixed = permute_dims(weights @ _heads(v, num_heads), (2, 0, 1, 3))
    out = linear(reshape(mixed, (length, batch, size)), out_proj_weight, out_proj_bias)
    shown: Tensor | None = None
    if need_weights:
        shown = mean(weights, axis=1) if average_attn_weights else weights
    if not batched:
        return squeeze(out, 1), None if shown is None else squeeze(shown, 0)
    return out, shown


def _widened(mask: Tensor | None, extra: int) -> Tensor | None:
    """The mask with room for keys that are always seen."""
    if mask is None or not extra:
        return mask
    more = zeros((*mask.shape[:-1], extra), dtype=mask.dtype, device=mask.device)
    return concat([mask, more], axis=-1)
