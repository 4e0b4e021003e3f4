"""The store that only writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.codegen.kernel import Store, argument
from weft.codegen.matmul.product import Product
from weft.codegen.scalar.forms import compute_kind, memory_type, rounded, store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function

__all__ = ["plain_store"]


def plain_store(product: Product, place: int) -> Store:
    """Writes the result, in C order and of the operands' dtype, to a place of `%args`."""
    return _Plain(product, place)


@dataclass(slots=True)
class _Plain:
    product: Product
    place: int
    out: str = ""

    def begin(self, f: Function) -> None:
        self.out = argument(f, self.place)

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[str], mask: str | None = None
    ) -> None:
        dtype = self.product.dtype
        at = index[0]
        for size, i in zip(self.product.shape[1:], index[1:], strict=True):
            at = f(f"add i64 {f(f'mul i64 {at}, {size}')}, {i}")
        address = f(f"getelementptr {memory_type(dtype)}, ptr {self.out}, i64 {at}")
        if dtype is not self.product.accumulator:
            value = rounded(Vec(f, compute_kind(dtype), lanes, value), dtype).name
        store(f, dtype, address, value, lanes, mask)
