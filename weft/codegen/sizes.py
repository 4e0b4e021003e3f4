"""Sizes that each run tells: what generated code reads of them, and the memory that they decide.

A graph may have sizes that are not known when its code is generated: Dims, expressions over the
names in the shapes of its inputs (`weft.base.dims`). Code reads them from a table of i64, which
Python fills once for each set of sizes: `RunSizes.slot` gives an expression its place there. All
that depends on sizes is such an expression: strides, numbers of items, of bytes, of blocks; and the
places in the arena, which the planner names (`at_3`), and which the memory plan for these sizes
tells (`weft.schedule.memory`).

Of the sizes of a run, code may rely on this: no tensor of the graph is empty. Calls in which one is
are interpreted (`weft.runtime.sized`). So each size is at least 1.
"""

from __future__ import annotations

import re

from weft.base.dim_algebra import Dim
from weft.base.dims import dim

__all__ = ["CALLED", "GENERATED", "RunSizes"]

_NAME = re.compile(r"[A-Za-z_]\w*")
#: What expressions may call.
CALLED = ("max", "min", "next", "range")
#: How the names begin that the planner and `let` make, and variables of expressions.
GENERATED = ("at_", "arena_", "let_")


class RunSizes:
    """The expressions that the code of a program reads, by their place in the table.

    named   the names that `let` made, each with its expression
    needed  sizes that must be at least 1: other runs are interpreted
    late    the names of sizes that depend on data: the run itself tells them
            (`weft.codegen.late_sizes`)
    """

    def __init__(self) -> None:
        self._slots: dict[Dim, int] = {}
        self.named: dict[str, str] = {}
        self.needed: list[int] = []
        self.late: set[str] = set()

    def is_late(self, size: int) -> bool:
        """Whether a size depends on data, so that it changes during a run."""
        return isinstance(size, Dim) and bool(self.late_names(size))

    def late_names(self, size: Dim) -> set[str]:
        """The names in a size that the run tells; those behind names that `let` made, too."""
        found: set[str] = set()
        for name in size.names:
            if name in self.late:
                found.add(name)
            elif name in self.named:
                found |= self.late_in(self.named[name])
        return found

    def late_in(self, text: str) -> set[str]:
        """The names in the text of an expression that the run tells."""
        found: set[str] = set()
        for name in set(_NAME.findall(text)) if self.late else ():
            if name in self.late:
                found.add(name)
            elif name in self.named:
                found |= self.late_in(self.named[name])
        return found

    def need(self, size: int) -> None:
        """Have runs interpreted in which this is less than 1: their code would not be right."""
        self.needed.append(size)

    def slot(self, size: Dim) -> int:
        """The place of a size in the table; it gets one when it is first asked for."""
        return self._slots.setdefault(size, len(self._slots))

    def place_of(self, name: str) -> int:
        """The place of the number of a name."""
        return self.slot(dim(name))

    def let(self, text: str, low: int = 1, high: int | None = None) -> Dim:
        """A name for the value of a Python expression over sizes, which is from `low` to `high`.

        It may ask what no Dim can (`f"8 if {n} > 64 else 1"`), and other sizes that use the name
        stay short. Equal expressions have one name.
        """
        for name, known in self.named.items():
            if known == text:
                return dim(name, min=low, max=high)
        name = f"let_{len(self.named)}"
        self.named[name] = text
        return dim(name, min=low, max=high)

    @property
    def expressions(self) -> list[Dim]:
        return list(self._slots)

    def __bool__(self) -> bool:
        return bool(self._slots)
