"""Attention over sequences that many ranks share."""

from __future__ import annotations

import math

from weft.core.bind import bind
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor
from weft.ops.ring_attention import RING_ATTENTION

__all__ = ["ring_attention"]


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query @ key.mT * scale) @ value, with (..., length, features) each, as
    `nn.functional.scaled_dot_product_attention`; keys and values go round in a ring.

    Where a mesh axis cuts the length, each rank sees one block of keys and values after the other,
    so that none has all of them or more scores than those of one block; nor has the backward.

    >>> from weft import distributed, nn
    >>> def attend(x):
    ...     part = distributed.split(x, None, "ranks")
    ...     return distributed.full(distributed.ring_attention(part, part, part, is_causal=True))
    >>> x = weft.randn(2, 6, 4)
    >>> ours, _ = distributed.run_virtual(2, attend, x)
    >>> theirs = nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    >>> bool(weft.allclose(ours, theirs, atol=1e-5))
    True
    """
    given = [as_tensor(x, "ring_attention") for x in (query, key, value)]
    factor = 1 / math.sqrt(given[0].shape[-1]) if scale is None else float(scale)
    out: Tensor = bind(RING_ATTENTION, *given, causal=bool(is_causal), scale=factor)[0]
    return out
