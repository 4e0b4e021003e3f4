"""All kernel emitters, by card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.codegen import conv, cumulative, indexing, pool, random, sorting
from weft.codegen.linalg import table as linalg
from weft.schedule.layouts import Layout

__all__ = ["KERNELS", "LAYOUTS", "PRODUCTS"]

#: (module, name, node, store) -> kernels: they support fused epilogues.
PRODUCTS: dict[str, Callable[..., Any] | None] = {
    "matmul": None,  # see `weft.codegen.products`
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
    **linalg.EMITTERS,
}
#: Emitters that read operands with strides and an offset, and the layout that each operand needs at
#: least. All others get dense operands.
LAYOUTS: dict[str, Sequence[Layout]] = {
    "matmul": (Layout.MATRIX, Layout.MATRIX),
    # q, k, v, mask
    "attention": (Layout.ROWS,) * 4,
    # q, k, v, result, gradient, sums, mask
    "attention_grad": (*[Layout.ROWS] * 5, Layout.DENSE, Layout.ROWS),
}
