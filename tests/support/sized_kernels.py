"""Functions whose graphs have symbolic sizes: attention, and what has kernels of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.nn.functional as F
from tests.support.sized import SizedCase

__all__ = ["ATTENTION", "KERNEL_CASES"]

_attend = F.scaled_dot_product_attention


def _causal(q: Any, k: Any, v: Any) -> Any:
    return _attend(q, k, v, is_causal=True)


def _gradients(f: Callable[..., Any], count: int = 3) -> Callable[..., Any]:
    """The gradients of the first few arguments."""

    def made(*given: Any) -> Any:
        def loss(*some: Any) -> Any:
            return (f(*some, *given[count:]) * 0.5).square().sum()

        return weft.grad(loss, argnums=tuple(range(count)))(*given[:count])

    return made


def _as(dtype: Any) -> Callable[..., Any]:
    return lambda *given: _attend(*(weft.astype(x, dtype) for x in given))


def _split_heads(x: Any) -> Any:
    """Heads out of the features: (batch, length, 4·8) to (batch, 4, length, 8), as a view."""
    return weft.permute_dims(x.reshape((x.shape[0], x.shape[1], 4, 8)), (0, 2, 1, 3))


def _self_attention(x: Any) -> Any:
    q = _split_heads(x)
    made = weft.permute_dims(_causal(q, q, q), (0, 2, 1, 3))
    return made.reshape((x.shape[0], x.shape[1], 32))


_SELF = [("B", 2, "T", 16)] * 3
_LONG = [(2, "B", 16)] * 3
_CROSS = [("T", 16), ("B", 16), ("B", 24)]
ATTENTION = {
    "attention": SizedCase(_attend, _SELF),
    "long attention": SizedCase(_attend, _LONG),
    "many keys": SizedCase(_attend, _CROSS),
    "many queries": SizedCase(_attend, [("B", 16), ("T", 16), ("T", 24)]),
    "a query": SizedCase(_attend, [(2, 1, 16), (2, "B", 16), (2, "B", 16)]),
    "some keys": SizedCase(_attend, [("B", 16), (40, 16), (40, 16)]),
    "causal attention": SizedCase(_causal, _LONG),
    "bfloat16 attention": SizedCase(_as(weft.bfloat16), _SELF, rtol=2e-2),
    "float16 attention": SizedCase(_as(weft.float16), _LONG, rtol=4e-3),
    "a mask of bools": SizedCase(
        lambda q, k, v, m: _attend(q, k, v, attn_mask=m > -1), [*_CROSS, ("T", "B")]
    ),
    "a mask to add": SizedCase(
        lambda q, k, v, m: _attend(q, k, v, attn_mask=m), [*_SELF, ("B", 1, 1, "T")]
    ),
    "heads of attention": SizedCase(_self_attention, [("B", "T", 32)]),
    "gradients of attention": SizedCase(_gradients(_attend), _SELF, rtol=1e-4),
    "gradients of long attention": SizedCase(_gradients(_attend), _LONG, rtol=2e-4),
    "gradients of many keys": SizedCase(_gradients(_attend), _CROSS, rtol=2e-4),
    "gradients of some keys": SizedCase(
        _gradients(_attend), [("B", 16), (400, 16), (400, 16)], rtol=2e-4
    ),
    "gradients of causal attention": SizedCase(_gradients(_causal), _LONG, rtol=2e-4),
    "gradients of heads": SizedCase(_gradients(_self_attention, 1), [("B", "T", 32)], rtol=3e-4),
    "gradients of a mask of bools": SizedCase(
        _gradients(lambda q, k, v, m: _attend(q, k, v, attn_mask=m > -1)),
        [*_CROSS, ("T", "B")],
        rtol=2e-4,
    ),
    "gradients with a mask to add": SizedCase(
        _gradients(lambda q, k, v, m: _attend(q, k, v, attn_mask=m)),
        [*_SELF, ("B", 1, 1, "T")],
        rtol=2e-4,
    ),
}
KERNEL_CASES = {**ATTENTION}
