"""A product with one column, computed as its transpose: a product with one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.codegen.index import Size
from weft.codegen.kernel import Store
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.scalar.forms import compute_type
from weft.codegen.scalar.masks import enabled
from weft.codegen.text import Function

__all__ = ["transposed_product", "transposed_store"]


def transposed_product(product: Product) -> Product:
    """The transposed product: bᵀ aᵀ."""
    return replace(
        product, m=product.n, n=product.m, a=_transposed(product.b), b=_transposed(product.a)
    )


def _transposed(operand: Operand) -> Operand:
    return replace(operand, row=operand.column, column=operand.row)


def transposed_store(product: Product, store: Store) -> Store:
    """A store for elements of the transposed product."""
    return _TransposedStore(product, store)


@dataclass(slots=True)
class _TransposedStore:
    product: Product
    store: Store

    def begin(self, f: Function) -> None:
        self.store.begin(f)

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        *batch, row, column = index
        if lanes == 1:
            self.store.put(f, value, 1, [*batch, column, row])
            return
        dtype = self.product.accumulator
        kind, whole = compute_type(dtype, 1), compute_type(dtype, lanes)
        room = f.var(whole, value).of(kind)
        # Masks enable the first lanes.
        count: Size = lanes
        if mask is not None:
            count = mask.count("i1 1") if mask.startswith("<") else enabled(f, mask, lanes)
        with f.loop(0, count) as lane:
            self.store.put(f, (room + lane).load(), 1, [*batch, column + lane, row])
