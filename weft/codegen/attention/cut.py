"""Tile sizes of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base import dtypes
from weft.base.dims import has_dims
from weft.codegen.attention.spec import Attention
from weft.codegen.cancel import pollable_run
from weft.codegen.index import Ptr
from weft.codegen.machine import Machine
from weft.codegen.matmul.numbers import Number, number_of
from weft.codegen.matmul.plan import even
from weft.codegen.text import Function, Module

__all__ = ["Rows", "number_if_supported", "pollable", "work_of"]

_WIDEST = 1024  # maximum columns of an operand: larger ones do not fit in local memory


def number_if_supported(spec: Attention) -> Number | None:
    """The element type to compute with, or None if there is no kernel."""
    number = number_of(spec.dtype)
    if number is None or spec.dtype.kind != "float":
        return None
    if max(spec.features, spec.values) > _WIDEST or spec.features == 0 or spec.keys == 0:
        return None
    if any(operand.column != 1 for operand in (spec.q, spec.k)) and spec.features > 1:
        return None
    if spec.v.column != 1 and spec.values > 1:
        return None
    if spec.mask is not None:
        if spec.mask.column not in (0, 1) or spec.mask_dtype is None:
            return None
        if spec.mask_dtype not in (dtypes.bool, spec.dtype, number.dtype):
            return None
    return number


@dataclass(frozen=True, slots=True)
class Rows:
    """How the queries of a matrix are cut: into chunks, and these into tiles.

    chunk, chunks  queries of a chunk, number of chunks
    rows, tiles    queries of a tile, tiles of a chunk; the last one overlaps the one before it
    counts         what `rows` may be in a run
    largest        the most queries of a chunk
    room           rows of a buffer that has all tiles of a chunk
    """

    chunk: int
    chunks: int
    rows: int
    tiles: int
    counts: tuple[int, ...]
    largest: int
    room: int

    @property
    def most(self) -> int:
        return self.counts[-1]

    @classmethod
    def of(cls, module: Module, queries: int, most: int) -> Rows:
        """For chunks of at most this many queries."""
        if not has_dims((queries,)):
            chunk = even(queries, most)
            rows = tile_rows(chunk, module.machine)
            tiles = -(-chunk // rows)
            return cls(chunk, -(-queries // chunk), rows, tiles, (rows,), chunk, tiles * rows)
        let = module.sizes.let
        chunk = let(f"-(-({queries}) // -(-({queries}) // {most}))", high=most)
        chunks = let(f"-(-({queries}) // {chunk})")
        counts = tuple(count for count in _counts(module.machine) if count <= most)
        best = f"min([(-(-{chunk} // r) * (r + 1), r) for r in {counts} if r <= {chunk}])[1]"
        rows = let(best, high=counts[-1])
        tiles = let(f"-(-{chunk} // {rows})", high=most)
        return cls(chunk, chunks, rows, tiles, counts, most, most + counts[-1] - 1)


def _counts(machine: Machine) -> tuple[int, ...]:
    """The numbers of rows of tiles, of which each number of queries finds one that suits it."""
    return (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14) if machine.registers == 32 else (1, 2, 3, 4, 6)


def tile_rows(rows: int, machine: Machine) -> int:
    """The number of rows of a tile of two vectors that wastes little work."""
    wide = machine.registers == 32
    most = min(rows, 14 if wide else 6)
    tried = range(min(most, 5 if wide else 3), most + 1)
    return min((-(-rows // r) * r * (1 + 0.3 / r), r) for r in tried)[1]


def pollable(f: Function, run: int | None, keys: int, cost: float) -> Ptr | None:
    """The run, if an item must poll it: it takes so many ns (`cost`), or as long as some run has
    keys."""
    return pollable_run(f, run, math.inf if has_dims((keys,)) else cost)


def work_of(items: int, spec: Attention, each: float) -> int:
    """The picoseconds of all items, if sizes of the run decide; else 0. `each`: ns of a score."""
    pairs = spec.stacks * spec.queries * spec.keys
    if not has_dims((pairs,)):
        return 0
    return 50_000 * items + max(1, round(1000 * each)) * pairs
