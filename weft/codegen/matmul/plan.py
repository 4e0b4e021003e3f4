"""How a product is cut: tiles for the registers, blocks for the caches, items for the threads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from weft.codegen.matmul.numbers import Number
from weft.codegen.matmul.product import Product
from weft.codegen.target import Target

__all__ = ["Plan", "choose", "up"]

#: Where a tile reads an operand: where it lies, in a copy made by its thread, or in one that all
#: threads share.
Read = Literal["place", "own", "shared"]

TERMS = 384  # summed before the next block: what a tile reads stays in the first cache
ITEM = 200_000  # about how many multiplications of vectors make an item
PANELS = 128 << 10  # bytes of b that an item reads per block: they stay in the second cache
SUMS = 128 << 10  # bytes of sums that wait for their next block


@dataclass(frozen=True, slots=True)
class Plan:
    """rows, vectors  of a tile
    tiles, panels  of an item: how many tiles it has below each other and side by side
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


def up(size: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `size`."""
    return -(-size // step) * step


def even(size: int, most: int) -> int:
    """The size of parts, as few as there can be, that are at most so long and nearly equal."""
    return -(-size // -(-size // most))


def choose(product: Product, number: Number, target: Target, sharing: bool) -> Plan:
    """`sharing`: whether there is memory for copies that threads share."""
    m, n, k = product.m, product.n, product.k
    lanes = target.lanes(number.width)
    along = product.a.column == 1
    step = (product.a.row if along else product.a.column) * number.size
    crowd = _crowd(step) if along else 99
    wide = target.vector_bytes == 64 or not target.triple.startswith(("x86", "i686"))
    pace = 1.0 if target.vector_bytes > 32 else 0.5
    rows, vectors = _tile(m, n, lanes, 32 if wide else 16, pace, 14)
    panel = vectors * lanes
    panels, tiles = -(-n // panel), -(-m // rows)

    a: Read = "place"
    if not number.is_packed:
        a = "own" if n > 2 * lanes else "place"
    if a == "place" and rows > crowd:
        if n <= 2 * panel:
            rows = even(m, crowd)
            tiles = -(-m // rows)
        else:
            a = "own"
    straight = product.b.column == 1 and number.is_packed
    b: Read = "own"
    if straight and (panels == 1 or n % panel == 0) and (m <= 3 * rows or panels == 1):
        b = "place"

    terms = k if a == b == "place" or k <= TERMS else even(k, TERMS)
    per_tile = rows * vectors * k
    if b == "own":
        most_panels = max(1, PANELS // (terms * panel * number.width))
        most_tiles = tiles
        if terms < k:
            most_tiles = max(1, SUMS // (rows * panel * number.width * min(panels, most_panels)))
            most_tiles = min(tiles, most_tiles)
    else:
        most_panels = panels
        most_tiles = tiles
        if terms < k:
            most_tiles = max(1, min(tiles, SUMS // (rows * panel * number.width)))
            most_panels = max(1, SUMS // (rows * panel * number.width * most_tiles))
    most_panels = max(1, min(panels, most_panels, max(1, ITEM // (per_tile * min(most_tiles, tiles)))))
    if b != "own" or terms < k:
        most_tiles = max(1, min(most_tiles, ITEM // (per_tile * most_panels)))
    if sharing and b == "own" and most_tiles < tiles / 2:
        b = "shared"
    return Plan(rows, vectors, even(tiles, most_tiles), even(panels, most_panels), terms, a, b)


def _crowd(step: int) -> int:
    """How many rows so many bytes apart fit into the first cache (32 KiB, 8 ways) together."""
    apart = math.gcd(step, 4096)
    return 6 if apart == 4096 else 12 if apart == 2048 else 99


def _tile(m: int, n: int, lanes: int, registers: int, pace: float, most: int) -> tuple[int, int]:
    """Rows and vectors of the tile that covers the result in the fewest cycles per term."""
    best = None
    for vectors in range(1, 9):
        if vectors > 1 and (vectors - 1) * lanes >= n:
            break
        # Beside the sums stand the vectors of b and one of a, and one is left to move things.
        rows = even(m, min(most, max(1, (registers - 2 - vectors) // vectors)))
        if vectors > 4 and rows > 3:
            continue
        count = -(-m // rows) * -(-n // (vectors * lanes))
        cycles = max(rows * vectors * pace, (rows + vectors) / 2, 4.0) + 0.05 * (rows + vectors)
        cost = count * cycles
        if best is None or cost < best[0]:
            best = (cost, rows, vectors)
    assert best is not None
    return best[1], best[2]
