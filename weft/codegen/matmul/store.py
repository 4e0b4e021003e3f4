"""The store without an epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import Store, argument
from weft.codegen.matmul.product import Product
from weft.codegen.scalar.forms import compute_kind, memory_type, rounded, store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function

__all__ = ["plain_store"]


def plain_store(product: Product, place: int) -> Store:
    """Writes the result, in C order and the operands' dtype; `place` is its position in `%args`."""
    return _Plain(product, place)


@dataclass(slots=True)
class _Plain:
    product: Product
    place: int
    out: Ptr | None = None

    def begin(self, f: Function) -> None:
        self.out = argument(f, self.place, memory_type(self.product.dtype))

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        dtype = self.product.dtype
        at = index[0]
        for size, i in zip(self.product.shape[1:], index[1:], strict=True):
            at = at * size + i
        if dtype is not self.product.accumulator:
            value = rounded(Vec(f, compute_kind(dtype), lanes, value), dtype).name
        assert self.out is not None
        store(f, dtype, self.out + at, value, lanes, mask)
