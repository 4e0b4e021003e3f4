"""Sums over columns during a pass over the rows: in registers, or in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from weft.base.dims import has_dims, typical
from weft.codegen.elementwise import load, store
from weft.codegen.index import Ptr, Size
from weft.codegen.loops.access import Access, result_access
from weft.codegen.loops.pieces import fill
from weft.codegen.loops.plan import LoopPlan
from weft.codegen.loops.reduce import Reduction
from weft.codegen.scalar.masks import mask_literal
from weft.codegen.text import Function
from weft.ir.graph import Node
from weft.schedule.groups import Group

__all__ = ["Columns", "in_registers"]

#: Maximum vectors of sums in registers, and maximum nodes unrolled for them.
HELD = 4
WRITTEN_OUT = 24


def in_registers(group: Group, made: LoopPlan) -> bool:
    """Whether rows are so short that they are unrolled, with all their sums in registers.

    Sums in memory make each row wait until those of the previous row are stored.
    """
    if not made.column_sums or made.blocks != 1 or len(made.row) > 1:
        return False
    if has_dims((made.row_size,)):
        return False
    vectors = -(-made.row_size // made.lanes)
    return vectors * len(made.column_sums) <= HELD and vectors * len(group.nodes) <= WRITTEN_OUT


def _is_one_block(steps: Sequence[tuple[int, int]]) -> bool:
    """Whether loops with these steps and sizes cover a contiguous block."""
    expected = 1
    for step, size in sorted(steps, key=lambda pair: typical(pair[0])):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


class Columns:
    """The column sums of one item; `places` are the addresses of each node's sums; `run` is set if
    the item takes long."""

    def __init__(
        self,
        f: Function,
        group: Group,
        made: LoopPlan,
        reductions: Mapping[Node, Reduction],
        places: Mapping[Node, Ptr],
        run: Ptr | None,
    ) -> None:
        self.f = f
        self.run = run
        self.made = made
        self.reductions = reductions
        self.access: dict[Node, Access] = {
            node: result_access(group, node.outputs[0]) for node in made.column_sums
        }
        self.places = places
        self.held = in_registers(group, made)
        self._cells: dict[Node, list[Ptr]] = {}

    def begin(self) -> None:
        f, lanes = self.f, self.made.lanes
        for node, place in self.places.items():
            reduction = self.reductions[node]
            if self.held:
                vectors = -(-self.made.row_size // lanes)
                start = reduction.begin(lanes)
                self._cells[node] = [f.var(reduction.kind(lanes), start) for _ in range(vectors)]
                continue
            steps = [(self.access[node].step(loop.axis), loop.size) for loop in self.made.row]
            if _is_one_block(steps):
                fill(f, reduction, place, math.prod(size for _, size in steps), self.run)
            else:
                self._fill_apart(reduction, place, steps)

    def _fill_apart(
        self, reduction: Reduction, place: Ptr, steps: Sequence[tuple[int, int]]
    ) -> None:
        """Initialize sums that are not contiguous: the result has its axes in another order."""
        f = self.f
        with ExitStack() as inside:
            for step, size in steps:
                place = place + inside.enter_context(f.loop(0, size)) * step
            store(f, reduction.dtype, place, reduction.begin(1), 1)

    def add(
        self, node: Node, given: str, index: Mapping[int, Size], position: Size, mask: str | None
    ) -> None:
        """Add a vector of a row, which begins at `position`, under a mask."""
        f, lanes, reduction = self.f, self.made.lanes, self.reductions[node]
        given = reduction.taken(f, given, lanes, None)
        # If one thread has all rows, this is the final result.
        given = reduction.without_negative_zero(f, given, lanes)
        if self.held:
            assert isinstance(position, int)
            cell = self._cells[node][position // lanes]
            cell.store(reduction.joined(f, cell.load(), given, lanes))
            return
        place = self.places[node]
        for axis, step in self.access[node].steps:
            if axis in index:
                place = place + index[axis] * step
        before = load(f, reduction.dtype, place, lanes, mask)
        store(f, reduction.dtype, place, reduction.joined(f, before, given, lanes), lanes, mask)

    def end(self) -> None:
        """Store the sums that are in registers."""
        f, lanes = self.f, self.made.lanes
        for node, cells in self._cells.items():
            reduction = self.reductions[node]
            for number, cell in enumerate(cells):
                first = number * lanes
                place = self.places[node] + first
                count = min(lanes, self.made.row_size - first)
                mask = mask_literal(lanes, count) if count < lanes else None
                store(f, reduction.dtype, place, cell.load(), lanes, mask)
