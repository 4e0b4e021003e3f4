"""The product of no terms: zeros."""

from __future__ import annotations

from weft.codegen.kernel import PARAMS, Kernel, Store
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
    with f.loop("%begin", "%end") as item:
        index: list[str] = []
        for size in reversed(product.shape[1:-1]):
            index.insert(0, f(f"urem i64 {item}, {size}"))
            item = f(f"udiv i64 {item}, {size}")
        index.insert(0, item)
        with f.loop("0", str(whole), str(lanes)) as column:
            store.put(f, "zeroinitializer", lanes, [*index, column])
        if product.n % lanes:
            mask = ones(product.n % lanes, lanes)
            store.put(f, "zeroinitializer", lanes, [*index, str(whole)], mask)
    f.do("ret i32 0")
    return [Kernel(name, product.stacks * product.m, 10 + product.n / 8)]
