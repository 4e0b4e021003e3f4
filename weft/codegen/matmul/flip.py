"""A product of one column as the product of one row that it is when turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.codegen.index import Size
from weft.codegen.kernel import Store
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.scalar.forms import compute_type
from weft.codegen.text import Function

__all__ = ["flipped", "flipped_store"]


def flipped(product: Product) -> Product:
    """The turned product: the right operand, turned, times the left one, turned."""
    return replace(product, m=product.n, n=product.m, a=_turned(product.b), b=_turned(product.a))


def _turned(operand: Operand) -> Operand:
    return replace(operand, row=operand.column, column=operand.row)


def flipped_store(product: Product, store: Store) -> Store:
    """For elements of the turned product: along its rows they are rows of the product itself."""
    return _Flipped(product, store)


@dataclass(slots=True)
class _Flipped:
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
        # Masks here are constants that hold for the first lanes.
        count = lanes if mask is None else mask.count("i1 1")
        with f.loop(0, count) as lane:
            self.store.put(f, (room + lane).load(), 1, [*batch, column + lane, row])
