"""The kernels of all rooms, by the card they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.codegen import conv, cumulative, indexing, pool, random, sorting

__all__ = ["KERNELS", "MAY_FAIL", "PRODUCTS"]

#: (module, name, node, store) -> kernels: what can be followed by elementwise ops in registers.
PRODUCTS: dict[str, Callable[..., Any] | None] = {
    "matmul": None,  # it reads strided operands, see `weft.codegen.products`
    **{name: emit for name, emit in conv.EMITTERS.items() if name in ("conv", "conv_bias")},
}
#: (module, name, node) -> kernels.
KERNELS: dict[str, Callable[..., Any]] = {
    **{name: emit for name, emit in conv.EMITTERS.items() if name not in PRODUCTS},
    **pool.EMITTERS,
    **indexing.EMITTERS,
    **random.EMITTERS,
    **sorting.EMITTERS,
    **cumulative.EMITTERS,
}
#: Those that look at indices, and fail where one is out of range.
MAY_FAIL = frozenset(indexing.EMITTERS) - {"concat", "full", "arange", "eye"}
