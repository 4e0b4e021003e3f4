"""A size that each call of a library chooses, up to a largest one.

Code reads what depends on the size from a table (`weft.codegen.sizes`), which in this process is
filled for the sizes of a call. A library brings the tables of all its sizes: one row for each
number from the least one on, with the places in the arena that the memory plan has for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.dim_algebra import replaced
from weft.base.errors import GraphError, ShapeError
from weft.interop.library.program import LibraryProgram
from weft.runtime.size_table import SizeTable

__all__ = ["Rows", "rows_of"]

#: Bytes that all rows may take.
MOST = 16 << 20


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of each version of the code.

    stride   numbers in a row: elements of the arguments and results, bytes of the outputs of the
             graph, and from `first` on what code reads
    tables   for each version, the bytes of its rows
    arena    the largest arena of all
    """

    first: int
    stride: int
    tables: tuple[bytes, ...]
    arena: int


def rows_of(program: LibraryProgram, recipes: Sequence[Mapping[str, Any] | None]) -> Rows:
    """The rows of a program whose versions have these recipes (`weft.runtime.size_table`)."""
    size = program.run_size
    assert size is not None
    kinds = [slot.type for slot in (*program.arguments, *program.results)]
    outputs = [value.tensor_type for value in program.graph.outputs]
    said = [*[kind.size for kind in kinds], *[kind.nbytes for kind in outputs]]
    tables = [SizeTable(recipe) for recipe in recipes if recipe is not None]
    count = size.most - size.least + 1
    stride = len(said) + max(len(recipe["read"]) for recipe in recipes if recipe is not None)
    if stride * count * 8 * len(recipes) > MOST:
        raise GraphError(
            f"tables for {count} sizes take {stride * count * 8 * len(recipes)} bytes, more than "
            f"{MOST}",
            op="build_library",
            hint="a smaller largest size",
        )
    found: list[list[list[int]]] = [[] for _ in recipes]
    arena = 0
    for number in range(size.least, size.most + 1):
        sizes = {size.name: number}
        counts = [replaced(one, sizes) for one in said]
        for rows, table in zip(found, tables, strict=True):
            if not table.fits(sizes):
                raise ShapeError(
                    f"with {size.name} = {number}, a tensor of {program.name} is empty, or an "
                    "index is out of range",
                    op="build_library",
                    hint=f"give {size.name} a number: sizes={{{size.name!r}: …}}",
                )
            filled = table.filled(sizes)
            arena = max(arena, filled.arena)
            rows.append([*counts, *filled.table.tolist()])
    padded = [[row + [0] * (stride - len(row)) for row in rows] for rows in found]
    made = tuple(np.array(rows, "<i8").tobytes() for rows in padded)
    return Rows(len(said), stride, made, arena)
