"""A product without terms: zeros."""

from __future__ import annotations

from weft.codegen.index import unravel
from weft.codegen.kernel import PARAMS, Kernel, Store, each_item
from weft.codegen.matmul.numbers import ones
from weft.codegen.matmul.product import Product
from weft.codegen.text import Module

__all__ = ["empty"]


def empty(module: Module, name: str, product: Product, store: Store) -> list[Kernel]:
    """One item for each row."""
    f = module.function(name, "i32", PARAMS)
    store.begin(f)
    lanes = module.machine.lanes(product.accumulator.itemsize)
    whole = product.n // lanes * lanes
    with each_item(f) as item:
        index = unravel(item, product.shape[:-1])
        with f.loop(0, whole, lanes) as column:
            store.put(f, "zeroinitializer", lanes, [*index, column])
        if product.n % lanes:
            mask = ones(product.n % lanes, lanes)
            store.put(f, "zeroinitializer", lanes, [*index, whole], mask)
    f.do("ret i32 0")
    return [Kernel(name, product.stacks * product.m, 10 + product.n / 8)]
