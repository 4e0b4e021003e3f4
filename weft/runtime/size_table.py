"""The sizes of a run: what generated code reads of them, and where values then lie.

A program whose graph has symbolic sizes comes with a recipe (`recipe`): the expressions that its
code reads (`weft.codegen.sizes`), and the buffers of its graphs with their sizes and lifetimes. For
each set of sizes, `SizeTable.filled` evaluates the expressions and plans the memory, with the same
`planned` as for sizes that are known: so memory use is that of a program made for these sizes. It
takes some microseconds for a small program, and needs no code generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.schedule.memory import Buffers, planned

__all__ = ["FilledTable", "SizeTable", "recipe"]

#: What an expression may call.
_FUNCTIONS = {"max": max, "min": min, "next": next, "range": range, "__builtins__": {}}


def recipe(
    read: Iterable[int],
    named: Mapping[str, str],
    buffers: Iterable[Buffers],
    arena: int,
    filled: Iterable[Any],
) -> dict[str, Any]:
    """The recipe as plain data: `read` are the expressions that code reads, `named` those that
    others refer to, `arena` is the size of the memory, and `filled` are the sizes that must be at
    least 1."""
    return {
        "named": dict(named),
        "read": [str(size) for size in read],
        "buffers": [
            [found.peak, found.alignment, [[n, str(s), b, d] for n, s, b, d in found.rows]]
            for found in buffers
        ],
        "arena": str(arena),
        "filled": [str(size) for size in filled],
    }


@dataclass(frozen=True, slots=True)
class FilledTable:
    """The table for one set of sizes, and the bytes of its arena."""

    table: np.ndarray[Any, Any]
    arena: int


class SizeTable:
    """A recipe, ready to be evaluated."""

    def __init__(self, recipe: Mapping[str, Any]) -> None:
        self._graphs = [
            (
                peak,
                alignment,
                [row[0] for row in rows],
                _tuple_of(row[1] for row in rows),
                {row[0]: row[2] for row in rows},
                {row[0]: row[3] for row in rows},
            )
            for peak, alignment, rows in recipe["buffers"]
        ]
        self._named = [(name, _code(text)) for name, text in recipe["named"].items()]
        self._read = _tuple_of(recipe["read"])
        self._arena = _code(recipe["arena"])
        self._filled = _code(" and ".join(f"{text} > 0" for text in recipe["filled"]) or "True")

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether no tensor of the graph is empty for these sizes."""
        if any(size < 1 for size in sizes.values()):
            return False
        try:
            return bool(eval(self._filled, self._values(sizes)))
        except ZeroDivisionError:  # a size that others are divided by is 0
            return False

    def filled(self, sizes: Mapping[str, int]) -> FilledTable:
        """The table for these sizes."""
        known = self.known(sizes)
        return FilledTable(np.array(eval(self._read, known), np.int64), eval(self._arena, known))

    def known(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The values of all names that expressions use."""
        known = self._values(sizes)
        for peak, alignment, names, code, born, dies in self._graphs:
            made = planned(dict(zip(names, eval(code, known), strict=True)), born, dies, alignment)
            known |= made.offsets
            known[peak] = made.peak
        return known

    def _values(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The values of names that do not depend on places in memory."""
        known: dict[str, Any] = {**_FUNCTIONS, **sizes}
        for name, code in self._named:
            known[name] = eval(code, known)
        return known


def _tuple_of(texts: Iterable[str]) -> CodeType:
    return _code(f"({''.join(f'{text}, ' for text in texts)})")


def _code(text: str) -> CodeType:
    return compile(text, "<sizes>", "eval")


def filled_sizes(shapes: Iterable[Iterable[int]]) -> list[Dim]:
    """The sizes in some shapes that bounds do not say to be at least 1."""
    found = {size: None for shape in shapes for size in shape if isinstance(size, Dim)}
    return [size for size in found if (size.bounds[0] or 0) < 1]
