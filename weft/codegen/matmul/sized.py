"""How a product is cut whose sizes each run tells.

Tiles are cut as for likely sizes. What follows from their number is worked out in each run: items,
blocks of terms, bytes of copies. A product of few rows has a kernel of its own where the right
operand is read in place, and tiles of as many rows as suit it; of two kernels, one has no items.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from weft.base.dims import has_dims, typical
from weft.codegen.machine import Machine
from weft.codegen.matmul.numbers import Number
from weft.codegen.matmul.plan import TERMS, Blocks, MatmulPlan, choose
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.sizes import RunSizes

__all__ = ["Variant", "likely", "row_counts", "variants"]

#: Rows of the tiles for products that have fewer rows than a tile: as many of them as there are.
FEWER = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
#: A stride that no cache minds.
_STRIDE = 1009


@dataclass(frozen=True, slots=True)
class Variant:
    """A plan, the condition under which it is used ("" for all sizes), and the rows that tiles may
    have."""

    plan: MatmulPlan
    condition: str
    rows: tuple[int, ...]


def row_counts(most: int) -> tuple[int, ...]:
    """The numbers of rows of tiles of at most so many."""
    return (*[rows for rows in FEWER if rows < most], most)


def likely(product: Product) -> Product:
    """The product of typical sizes."""

    def operand(given: Operand) -> Operand:
        return Operand(
            tuple(_step(step) for step in given.batch), _step(given.row), _step(given.column)
        )

    return replace(
        product,
        m=typical(product.m),
        n=typical(product.n),
        k=typical(product.k),
        batch=tuple(typical(size) for size in product.batch),
        a=operand(product.a),
        b=operand(product.b),
    )


def _step(step: int) -> int:
    return _STRIDE if has_dims((step,)) else step


def variants(
    product: Product,
    number: Number,
    machine: Machine,
    sizes: RunSizes,
    sharing: bool,
    alone: bool,
    made: Container[tuple[int, int]],
) -> list[Variant]:
    """The plans of a product; for each set of sizes one of them is used. With `alone` there is one
    for all. `made`: the tiles that exist already (see `choose`)."""
    usual = likely(product)
    plan = choose(usual, number, machine, sharing, made)
    if has_dims((product.n,)) and plan.b == "place":
        plan = replace(plan, b="own", panels=1)  # in place, the last vector of a row needs a mask
    if plan.a == "shared" and has_dims((product.m,)):
        plan = replace(plan, a="own")
    plan = replace(plan, terms=_terms(product, number, machine, plan, sizes))
    if has_dims((plan.terms,)):
        plan = _with_room(plan, number, machine)
    if not has_dims((product.m,)):
        return [Variant(plan, "", (plan.rows,))]
    most = plan.rows
    m = product.m
    in_place = number.is_packed and product.b.column == 1 and not has_dims((product.n,))
    if alone or plan.b == "place" or not in_place:
        counts = row_counts(most)
        return [
            Variant(replace(plan, rows=_rows(m, counts, plan.vectors, machine, sizes)), "", counts)
        ]
    few = 3 * most
    small = choose(replace(usual, m=2 * most), number, machine, sharing, made)
    counts = row_counts(small.rows)
    small = replace(
        small, a=plan.a, b="place", rows=_rows(m, counts, small.vectors, machine, sizes)
    )
    small = replace(small, tiles=-(-few // counts[0]))
    small = replace(small, terms=_terms(product, number, machine, small, sizes))
    if has_dims((small.terms,)):
        small = _with_room(replace(small, tiles=max(1, 3 * most // 4)), number, machine)
    return [
        Variant(small, f"{m} <= {few}", counts),
        Variant(plan, f"{m} > {few}", (most,)),
    ]


def _rows(m: int, counts: tuple[int, ...], vectors: int, machine: Machine, sizes: RunSizes) -> int:
    """The rows of a tile: those that cover m rows in the fewest cycles (see `choose`), at most
    m."""
    costs = {}
    for rows in counts:
        cycles = max(rows * vectors * machine.multiply_cycles, (rows + vectors) / 2, 4.0)
        costs[rows] = round(cycles * (1 + 0.3 / rows + 0.1 / vectors), 2)
    pairs = tuple(costs.items())
    # Names of sizes do not begin like these.
    each = f"(-(-({m}) // let_rows) * let_cost, -let_rows)"
    best = f"min([{each} for let_rows, let_cost in {pairs} if let_rows <= max({m}, 1)])[1]"
    return sizes.let(f"{counts[-1]} if {m} > {16 * counts[-1]} else -{best}", high=counts[-1])


def _terms(
    product: Product, number: Number, machine: Machine, plan: MatmulPlan, sizes: RunSizes
) -> int:
    """The terms of a block, as `choose` has it."""
    k = product.k
    if not has_dims((k,)):
        return plan.terms if plan.terms < k else k
    if plan.a == plan.b == "place":
        return k
    line = plan.vectors * machine.lanes(number.width) * number.width
    room = Blocks.of(machine.caches).panels
    most = max(1, room // line)
    if plan.a == "own":
        most = min(most, TERMS)
    part = max(1, most // 2) if plan.a != "own" else most
    return sizes.let(f"{k} if {k} <= {most} else -(-{k} // -(-{k} // {part}))", high=most)


def _with_room(plan: MatmulPlan, number: Number, machine: Machine) -> MatmulPlan:
    """A plan of several blocks: the sums of an item wait in the cache for the next one."""
    blocks = Blocks.of(machine.caches)
    line = plan.vectors * machine.lanes(number.width) * number.width
    each = plan.rows.bounds[1] if has_dims((plan.rows,)) else plan.rows  # type: ignore[attr-defined]
    tiles = min(plan.tiles, max(1, blocks.sums // (each * line)))
    panels = min(plan.panels, max(1, blocks.sums // (each * line * tiles)))
    return replace(plan, tiles=tiles, panels=panels)
