"""How a product is cut: tiles for registers, blocks for caches, items for threads."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from weft.codegen.machine import Caches, Machine
from weft.codegen.matmul.numbers import Number
from weft.codegen.matmul.product import Product

__all__ = ["FEW", "Blocks", "MatmulPlan", "choose", "computed_once", "even", "up"]

#: Where a tile reads an operand: in place, in a copy of its thread, or in a copy that all threads
#: share.
Read = Literal["place", "own", "shared"]

FEW = 4  # rows: with fewer, loading a vector of b takes longer than multiplying it
ITEM = 200_000  # vector multiplications of an item, roughly
TERMS = 1024  # terms of a tile that a thread copies
MOST_TERMS = 1 << 20  # terms of a block: a run can be cancelled between blocks
#: Nanoseconds, where there are many cores: to multiply vectors, to read a line of 64 bytes that
#: another core has written, to begin an item.
MULTIPLY, MOVE, BEGIN = 0.25, 20.0, 1000.0
#: The least that such an item takes if there could be more of them.
ITEM_NS = 12_000.0
#: If each core has so much to do, copies that all of them share pay again.
LARGE_NS = 600_000.0


@dataclass(frozen=True, slots=True)
class Blocks:
    """How many bytes of which data stay in the caches of a core.

    near      of b, in the first-level cache, in any layout
    panels    of b, which an item reads repeatedly, in the second-level cache
    computed  of a tile of a that a thread computes
    sums      of sums that wait for their next block
    """

    near: int
    panels: int
    computed: int
    sums: int

    @classmethod
    def of(cls, caches: Caches) -> Blocks:
        second = caches.second
        return cls(caches.first * 2 // 3, second // 4, second // 8, second // 8)


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """
    rows, vectors  of a tile
    tiles, panels  of an item: its tiles along the rows and along the columns
    by_rows        whether items that follow one another are of the same rows, not columns: a thread
                   mostly gets neighbouring items, and the next kernel reads its rows
    terms          of a block
    a, b           how the operands are read
    """

    rows: int
    vectors: int
    tiles: int
    panels: int
    terms: int
    a: Read
    b: Read
    by_rows: bool = False


def up(size: int, step: int) -> int:
    """`size` rounded up to a multiple of `step`."""
    return -(-size // step) * step


def even(size: int, most: int) -> int:
    """The size of the fewest, nearly equal parts of at most `most` elements."""
    return -(-size // -(-size // most))


def choose(
    product: Product,
    number: Number,
    machine: Machine,
    sharing: bool,
    made: Container[tuple[int, int]],
) -> MatmulPlan:
    """`sharing`: whether there is scratch memory for copies that threads share.

    `made` has the shapes of tiles that exist already: one of them that is nearly as good as the
    best saves generating another.
    """
    m, n, k = product.m, product.n, product.k
    blocks = Blocks.of(machine.caches)
    lanes = machine.lanes(number.width)
    # Elements that must be widened are copied, unless each is read only once or twice.
    a: Read = "place" if number.is_packed or n <= 2 * lanes else "own"
    most = 14
    if product.a.column == 1 and a == "place":
        most = _together(product.a.row * number.size, machine.caches.way)
    # Terms a page apart conflict in the cache, and each needs its own TLB entry: they are copied,
    # and copies for tiles of few rows are slow.
    far = product.a.column != 1 and math.gcd(product.a.column * number.size, 4096) >= 2048
    rows, vectors = _tile(m, n, lanes, machine, most, () if far else made)
    whole = m * n * k * product.stacks * MULTIPLY / lanes
    if machine.has_many_cores and whole < machine.cores * LARGE_NS:
        return _grid(product, number, machine, sharing, (rows, vectors), far)
    panel = vectors * lanes
    panels, tiles = -(-n // panel), -(-m // rows)

    b: Read = "own"
    if product.b.column == 1 and number.is_packed:
        seldom = m <= 3 * rows or product.b.row * k * number.size <= blocks.near
        b = "place" if panels == 1 or seldom else "own"
    # Tiles of an item. With few rows, reading b takes most of the time.
    count = max(1, ITEM // (max(rows, FEW) * vectors * k))
    line = panel * number.width  # bytes of a term of a panel
    if a == b == "place":
        down, side = even(tiles, min(tiles, count)), panels
        if panels > 1 and count >= tiles:
            down, side = tiles, even(panels, max(1, min(panels, count // tiles)))
        terms = even(k, MOST_TERMS)
        if terms < k:
            side = even(panels, max(1, min(side, blocks.sums // (rows * line * down))))
        return MatmulPlan(rows, vectors, down, side, terms, a, b)

    terms = k if k * line <= blocks.panels else even(k, blocks.panels // line // 2)
    if a == "own" and terms > TERMS:  # its copy must fit in local memory beside that of b
        terms = even(k, TERMS)
    down, side = tiles, max(1, min(panels, count // tiles, blocks.panels // (terms * line)))
    if count < tiles / 2:
        # Threads that use the same panel each copy it, or all read one shared copy.
        if b == "own" and sharing:
            b = "shared"
            down = count
        elif panels * product.stacks < 8:
            down = max(count, -(-128 // rows))
    if far and b == "shared" and panels > 2 and k >= 128:
        a = "shared"
    if terms < k:
        down = min(down, max(1, blocks.sums // (rows * line * side)))
        if b == "own" and sharing and down < tiles:
            b = "shared"
    elif (
        side < panels
        and panels * k * line <= blocks.panels
        and m * k * number.size > machine.caches.second
    ):
        # Panel by panel, a would be read from memory again for each.
        if b == "own" and sharing:
            b = "shared"
        down, side = max(1, down * side // panels), panels
    return MatmulPlan(rows, vectors, even(tiles, min(tiles, down)), even(panels, side), terms, a, b)


def _grid(
    product: Product,
    number: Number,
    machine: Machine,
    sharing: bool,
    tile: tuple[int, int],
    far: bool,
) -> MatmulPlan:
    """The plan for many cores: each has a rectangle of the result, and copies of its own of what it
    reads for that. To write to memory that other cores have read takes longer than to copy it
    again; and the less a core reads, the better: its data are in the caches of others.
    """
    rows, vectors = tile
    lanes = machine.lanes(number.width)
    blocks, k = Blocks.of(machine.caches), product.k
    line = vectors * lanes * number.width  # bytes of a term of a panel
    tiles, panels = -(-product.m // rows), -(-product.n // (vectors * lanes))
    a: Read = "place" if number.is_packed or product.n <= 2 * lanes else "own"
    b: Read = "own"
    if product.b.column == 1 and number.is_packed:
        seldom = product.m <= 3 * rows or product.b.row * k * number.size <= blocks.near
        b = "place" if panels == 1 or seldom else "own"
    if far and panels > 2 and k >= 128:
        a = "shared" if sharing else "own"
    terms = k if k * line <= blocks.panels else even(k, blocks.panels // line // 2)
    if a == "own":
        terms = even(terms, TERMS)
    if a == b == "place":
        terms = even(k, MOST_TERMS)

    each = max(rows, FEW) * vectors * k * MULTIPLY
    moved_a, moved_b = (size * k * number.size / 64 * MOVE for size in (rows, vectors * lanes))
    best = None
    for down in _parts(tiles, machine.cores):
        for side in _parts(panels, machine.cores):
            high, wide = -(-tiles // down), -(-panels // side)
            rounds = -(-down * side * product.stacks // machine.cores)
            time = rounds * (high * wide * each + high * moved_a + wide * moved_b + BEGIN)
            if best is None or time < best[0]:
                best = (time, high, wide)
    assert best is not None
    _, high, wide = best
    if b == "own":
        wide = min(wide, max(1, blocks.panels // (terms * line)))
    # Some cores are slower than others, as their machine does other work: each gets several items.
    # Along the columns that costs nothing if a is read in place: it stays in the core's cache.
    if a != "own":
        wide = -(-wide // max(1, min(wide, int(high * wide * each / ITEM_NS))))
    pieces = max(1, min(high, int(high * wide * each / ITEM_NS)))
    again = 0.0 if b == "place" else wide * moved_b
    while pieces > 1 and (again + BEGIN) * pieces > 0.1 * high * wide * each:
        pieces -= 1
    high = -(-high // pieces)
    if terms < k:
        wide = min(wide, max(1, blocks.sums // (rows * line)))
        high = min(high, max(1, blocks.sums // (rows * line * wide)))
    high, wide = even(tiles, high), even(panels, wide)
    return MatmulPlan(rows, vectors, high, wide, terms, a, b, by_rows=True)


def _parts(count: int, cores: int) -> list[int]:
    """Numbers of parts to try."""
    return [n for n in range(1, min(count, 4 * cores) + 1) if n <= cores or n % (cores // 2) == 0]


def computed_once(product: Product, number: Number, machine: Machine) -> MatmulPlan | None:
    """The plan in which each element of a is copied once, so that it may be computed there. Returns
    None if there is none, or if storing the elements first is faster.

    Either all threads share a copy, or an item has all terms and all panels of b, and they stay in
    the second-level cache. Threads' own copies of terms that are not contiguous are too narrow.
    """
    m, n, k = product.m, product.n, product.k
    plan = choose(product, number, machine, True, ())
    blocks = Blocks.of(machine.caches)
    if plan.a == "shared":
        return plan
    lanes = machine.lanes(number.width)
    rows, vectors = _tile(m, n, lanes, machine, 14, ())
    line = vectors * lanes * number.width  # bytes of a term of a panel
    tiles, panels = -(-m // rows), -(-n // (vectors * lanes))
    fits = panels * k * line <= blocks.panels and rows * k * number.width <= blocks.computed
    if product.a.column != 1 or not fits:
        return None
    down = max(1, ITEM // (max(rows, FEW) * vectors * panels * k))
    b: Read = "shared" if plan.b == "own" and down < tiles else plan.b
    return MatmulPlan(rows, vectors, even(tiles, min(tiles, down)), panels, k, "own", b)


def _together(step: int, way: int) -> int:
    """How many rows, `step` bytes apart, a tile may read and still keep them in the first-level
    cache."""
    return {way: 6, way // 2: 12}.get(math.gcd(step, way), 14)


def _tile(
    m: int, n: int, lanes: int, machine: Machine, most: int, made: Container[tuple[int, int]]
) -> tuple[int, int]:
    """Rows and vectors of the tile that covers the result in the fewest cycles per term."""
    registers, pace = machine.registers, machine.multiply_cycles
    best = None
    for vectors in range(1, 9):
        if vectors > 1 and (vectors - 1) * lanes >= n:
            break
        # Besides the sums: the vectors of b, one of a, and one spare register.
        fit = max(1, (registers - 2 - vectors) // vectors)
        if machine.is_wasm:
            fit = machine.rows_beside(vectors)
        fit = min(m, most, fit)
        for rows in sorted({even(m, fit), *range(min(fit, 6), fit + 1)}):
            count = -(-m // rows) * -(-n // (vectors * lanes))
            cycles = max(rows * vectors * pace, (rows + vectors) / 2, 4.0)
            # With few rows b is read more often, from the second-level cache; with few vectors a
            # is, from the first.
            cost = count * cycles * (1 + 0.3 / rows + 0.1 / vectors)
            if (rows, vectors) in made:
                cost *= 0.97
            if best is None or cost < best[0]:
                best = (cost, rows, vectors)
    assert best is not None
    return best[1], best[2]
