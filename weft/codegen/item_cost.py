"""What an item of work costs, where sizes of the run may decide it.

cost = item_cost(2.0, (1.5, axis.length))      # 2 ns, and 1.5 for each element
run = cost.run(f, 3)                           # to poll, if it takes long
return [cost.kernel(name, rows, stops=run is not None)]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dims import has_dims, typical
from weft.codegen.cancel import pollable_run, takes_long
from weft.codegen.index import Ptr
from weft.codegen.kernel import Kernel
from weft.codegen.text import Function

__all__ = ["ItemCost", "item_cost"]


@dataclass(frozen=True, slots=True)
class ItemCost:
    """
    nanoseconds  of an item, for likely sizes
    picoseconds  of an item as an expression of the sizes of the run; 0 if these do not matter
    """

    nanoseconds: float
    picoseconds: int = 0

    @property
    def long(self) -> bool:
        """Whether an item takes long enough to poll, at least in some runs."""
        return takes_long(self._most)

    @property
    def _most(self) -> float:
        return math.inf if has_dims((self.picoseconds,)) else self.nanoseconds

    def run(self, f: Function, place: int | None) -> Ptr | None:
        """The run, if an item must poll it, else None; `place` is its position in `%args`."""
        return pollable_run(f, place, self._most)

    def kernel(self, name: str, items: int, scratch: int = 0, *, stops: bool = False) -> Kernel:
        """The kernel that has so many of these items."""
        work = self.picoseconds * items if has_dims((self.picoseconds,)) else 0
        return Kernel(name, items, self.nanoseconds, scratch, stops, work=work)


def item_cost(base: float, *terms: tuple[float, int]) -> ItemCost:
    """`base` ns, and for each term (ns, count) so many ns for each."""
    nanoseconds = base
    for each, count in terms:
        nanoseconds = nanoseconds + each * typical(count)
    if not has_dims([count for _, count in terms]):
        return ItemCost(nanoseconds)
    picoseconds = round(1000 * base)
    for each, count in terms:
        picoseconds += math.ceil(1000 * each) * count
    return ItemCost(nanoseconds, picoseconds)
