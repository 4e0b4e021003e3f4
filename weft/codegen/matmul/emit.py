"""The kernels of a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.base.dims import is_zero
from weft.codegen.kernel import Kernel, Store
from weft.codegen.machine import Machine
from weft.codegen.matmul.blocked import NOTHING, blocked
from weft.codegen.matmul.dots import by_dots, dots
from weft.codegen.matmul.empty import empty
from weft.codegen.matmul.numbers import number_of
from weft.codegen.matmul.plan import choose, computed_once
from weft.codegen.matmul.product import Product
from weft.codegen.matmul.sized import variants
from weft.codegen.matmul.source import Source
from weft.codegen.matmul.tile import Tiles
from weft.codegen.matmul.transpose import transposed_product, transposed_store
from weft.codegen.text import Module

__all__ = ["emit", "packs_once"]


def emit(
    module: Module,
    name: str,
    product: Product,
    a: int,
    b: int,
    store: Store,
    scratch: int | None = None,
    prologues: Mapping[int, Source] = NOTHING,
    *,
    ops: int = 1,
    run: int | None = None,
    alone: bool = False,
) -> list[Kernel] | None:
    """The kernels that compute a product, run one after the other.

    `a`, `b`, `scratch` and `run` are positions in `%args`. Scratch memory passes data from one
    kernel to the next; without it large products are slower. Without the run, long items cannot be
    cancelled. `ops` is the estimated number of ops that the store needs for each element.

    `alone`: whether one kernel computes the product for all sizes of a run, the last one.

    `prologues` compute the elements of a (0) or b (1) while they are packed, see `packs_once`: such
    operands are never stored.

    Returns None if there is no kernel: for complex numbers, or for operands in which neither rows
    nor columns are contiguous (a copy is).
    """
    number = number_of(product.dtype)
    product = product.settled()
    if number is None or 1 not in (product.a.row, product.a.column):
        return None
    if 1 not in (product.b.row, product.b.column):
        return None
    if is_zero(product.m * product.n * product.stacks):
        return []
    if is_zero(product.k):
        return empty(module, name, product, store)
    if product.n == 1 and product.m != 1:
        store = transposed_store(product, store)
        product, a, b = transposed_product(product), b, a
    lie_along = product.a.column == product.b.row == 1
    if lie_along and not prologues and by_dots(product, number, module.machine):
        return dots(module, name, product, number, (a, b, run), store)
    places = (a, b, scratch, run)
    if product.varies:
        made: list[Kernel] = []
        sharing = scratch is not None
        tiles = Tiles(module, number, across=product.a.column != 1)
        found = variants(product, number, module.machine, module.sizes, sharing, alone, tiles)
        for place, variant in enumerate(found):
            part = f"{name}.{place}" if place else name
            made += blocked(
                module, part, product, number, variant.plan, places, store, prologues, ops=ops,
                variant=variant,
            )  # fmt: skip
        return made
    known = Tiles(module, number, across=product.a.column != 1)
    plan = choose(product, number, module.machine, scratch is not None, known)
    if 0 in prologues:
        once = computed_once(product, number, module.machine)
        assert once is not None
        plan = once
    if 1 in prologues and plan.b == "place":
        plan = replace(plan, b="own")
    return blocked(module, name, product, number, plan, places, store, prologues, ops=ops)


def packs_once(product: Product, machine: Machine, side: int = 1) -> bool:
    """Whether a product with scratch memory makes exactly one copy of its right operand or, if
    `side` is 0, can make one of its left operand without being slower."""
    number = number_of(product.dtype)
    product = product.settled()
    if number is None or product.varies or not product.k or min(product.m, product.n) < 2:
        return False
    if side == 0:
        again = product.stacks > 1 and not all(product.a.batch)
        lies = 1 in (product.b.row, product.b.column)  # else it is copied first
        return lies and not again and computed_once(product, number, machine) is not None
    plan = choose(product, number, machine, True, ())
    tiles = -(-product.m // plan.rows)
    copies = -(-tiles // plan.tiles)  # by items along the rows
    if not all(product.b.batch):
        copies *= product.stacks
    return plan.b == "shared" or (plan.b == "own" and copies == 1)
