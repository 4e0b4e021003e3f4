"""The kernels of a loop group on a GPU.

    elementwise     a thread for each element, or several elements
    rows            a block for each row: its threads go over the row once for each stage, and join
                    what they have in shared memory
    columns         a thread for each column and piece of the summed axes; a second kernel adds the
                    pieces in their order
    totals          each block sums a part; a second kernel adds the parts in their order

So sums have the same bits in every run. A group may have rows and columns, or rows and totals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.group_base import GroupBase, Launch
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.rows import KeptRow, LoopedRow, Row
from weft.codegen.elementwise import store
from weft.codegen.index import Index, Ptr, Size, minimum
from weft.codegen.loops.access import Access, Loop
from weft.codegen.loops.point import Point
from weft.codegen.loops.stages import level_before, same_for_row
from weft.codegen.text import Function, Module
from weft.ir.graph import Node, Value
from weft.schedule.groups import Group
from weft.schedule.layouts import LINE

__all__ = ["GroupCode", "Launch", "emit_group"]

#: Elements that a thread of an elementwise kernel computes, where there are many.
PER_THREAD = 4
#: The most neighbours that a thread computes.
LANES = 8
#: Items from which on each thread computes two, in a kernel of few nodes.
TWICE, FEW = 1 << 20, 32
#: Elements of a row that one thread goes over, in a kernel of one block.
SHORT = 64
#: Points that a thread loads before it stores what it computes of them.
BATCH = 4
#: Rows that a thread sums, at least, where columns are cut into pieces.
MANY_ROWS = 8
#: Sums of columns have so many times fewer threads than the GPU runs at the same time.
FEWER = 2
#: Ops that the code of a row in registers may have; else it is a loop.
MOST_CODE = 800


def emit_group(
    module: Module,
    name: str,
    group: Group,
    places: Mapping[Value, int],
    gated: bool = False,
    machine: GpuMachine | None = None,
) -> tuple[list[Launch], int]:
    """The kernels of a loop group in their order, and how many bytes of scratch memory they need:
    it is their last buffer. `gated`: one more is the program's flag, and they do nothing if it is
    set. `machine`: they are parts of a kernel of one block, whose threads run all blocks."""
    made = GroupCode(module, name.replace(".", "_"), group, places, gated, machine)
    if any(node.op.reduction for node in group.nodes):
        made.reducing()
    else:
        made.elementwise()
    return made.launches, made.scratch


class GroupCode(GroupBase):
    # --- elementwise ----------------------------------------------------------------------------

    def lanes(self, loops: Sequence[Loop], most: int) -> int:
        """How many neighbours a thread computes: as many as it can read at once."""
        if self._part_of or not loops or self.module.machine.many > math.prod(self.sizes.values()):
            return 1
        last = loops[-1]
        steps = [access.step(last.axis) for access in self.accesses]
        widths = [one.dtype.itemsize for one in self.accesses if one.step(last.axis)]
        if not widths or any(step not in (0, 1) for step in steps):
            return 1
        most = min(most, LANES, LINE // min(widths))
        return math.gcd(last.size, 1 << max(0, most.bit_length() - 1))

    def elementwise(self) -> None:
        builder = self._builder()
        f = builder.f
        loops = self.loops(self.group.space.order)
        total = math.prod(loop.size for loop in loops)
        threads = self.machine.threads
        lanes = self.lanes(loops, LANES)
        if lanes > 1:
            self._neighbours(builder, loops, total // lanes, lanes)
            return
        each = PER_THREAD if total >= self.machine.many else 1
        blocks = -(-total // (threads * each))
        pointers = self._pointers(builder)
        first = builder.block() * (threads * each) + builder.thread()

        def element(item: Index) -> None:
            point = Point(f, self.group, pointers.__getitem__, self.index(loops, item))
            for value in self.group.outputs:
                self.store(point, value)

        for part in range(each):
            item = first + part * threads
            with f.when(f(f"icmp ult i64 {item}, {total}")):
                element(item)
        self._launch(builder, blocks, threads)

    def _neighbours(
        self, builder: KernelBuilder, loops: Sequence[Loop], count: int, lanes: int
    ) -> None:
        """Each thread computes some neighbours, twice where there are very many: it reads all
        operands before it writes results."""
        f, threads = builder.f, self.machine.threads
        pointers = self._pointers(builder)
        twice = count >= TWICE and count % (2 * threads) == 0 and len(self.group.nodes) <= FEW
        each = 2 if twice else 1
        item = builder.block() * (threads * each) + builder.thread()
        with f.when(f(f"icmp ult i64 {item}, {count}")):
            axis = loops[-1].axis
            points = [
                self.point(
                    f, pointers, self.index(loops, (item + i * threads) * lanes), axis, lanes
                )
                for i in range(each)
            ]
            self.store_all(points, self.group.outputs)
        self._launch(builder, -(-count // (threads * each)), threads)

    def point(
        self,
        f: Function,
        pointers: Mapping[Access, Ptr],
        index: Mapping[int, Size],
        axis: int,
        lanes: int,
    ) -> Point:
        """A point of some neighbours along an axis, which begins at a multiple of their number."""
        along = axis if lanes > 1 else None
        at = pointers.__getitem__
        return Point(f, self.group, at, index, axis=along, lanes=lanes, aligned=LINE)

    def store_all(self, points: Sequence[Point], values: Sequence[Value]) -> None:
        for point in points:
            for value in values:
                point.value(value)
        for point in points:
            for value in values:
                self.store(point, value)

    # --- reductions -----------------------------------------------------------------------------

    def reducing(self) -> None:
        group, order = self.group, self.group.space.order
        whole = group.columns is not None and len(group.columns) == len(order)
        if group.row is not None:
            row = [axis for axis in order if axis in group.row]
        elif whole:
            row = list(order)
        else:
            over = group.columns or ()
            last = max(order.index(axis) for axis in over)
            row = list(order[last + 1 :])
        outer = [axis for axis in order if axis not in row]
        summed = outer if whole else [axis for axis in outer if axis in (group.columns or ())]
        kept = [axis for axis in outer if axis not in summed]
        after = [node for node in self.reductions if node.outputs[0] in group.after]
        if group.row is not None:
            self._rows(row, kept, summed, after, whole)
        elif whole:
            self._totals(after)
        else:
            self._columns(row, kept, summed, after)

    def _pieces(self, kept: int, summed: int, threads: int) -> int:
        """Into how many pieces the summed axes are cut: more, if blocks are small."""
        blocks = self.machine.blocks * max(1, self.machine.threads // threads)
        return max(1, min(summed, -(-blocks // kept)))

    def _totals(self, after: list[Node]) -> None:
        """Threads of all blocks go over the elements; each block leaves one part."""
        loops = self.loops(self.group.space.order)
        total = math.prod(loop.size for loop in loops)
        threads = self.machine.threads
        blocks = max(1, min(self.machine.blocks, -(-total // (4 * threads))))
        builder = self._builder()
        f = builder.f
        pointers = self._pointers(builder)
        first = builder.block() * threads + builder.thread()
        sums = self._begin(builder, after)
        for node in after:
            self._take(node, blocks)
        self._summed(f, pointers, sums, (first, total, blocks * threads), ({}, loops))
        for node, var in sums.items():
            self._whole_or_part(builder, node, var, blocks, threads)
        self._launch(builder, blocks, threads)
        for node in after:
            self._total_of_parts(node, blocks)

    def _summed(
        self,
        f: Function,
        pointers: Mapping[Access, Ptr],
        sums: Mapping[Node, Ptr],
        span: tuple[Size, Size, int],
        where: tuple[Mapping[int, Size], Sequence[Loop]],
        lanes: tuple[int, int] = (0, 1),
    ) -> None:
        """A thread goes over some points, given by start, stop and step of an item: it adds to sums
        and stores results. It loads several points before it stores the first: each load takes
        long. `where`: the index along other axes, and the loops of items; `lanes`: an axis and the
        neighbours along it that a point is."""
        (start, stop, step), (index, loops) = span, where
        stored = [value for value in self.group.outputs if value not in self.group.after]

        def points(items: Sequence[Index]) -> None:
            made = [
                self.point(f, pointers, {**index, **self.index(loops, item)}, *lanes)
                for item in items
            ]
            taken = [[self._taken(point, node) for node in sums] for point in made]
            for point in made:
                for value in stored:
                    point.value(value)
            for point, given in zip(made, taken, strict=True):
                for (node, var), part in zip(sums.items(), given, strict=True):
                    made_of = self.reductions[node].joined(f, var.load(), part, lanes[1])
                    var.store(made_of)
                for value in stored:
                    self.store(point, value)

        batch = BATCH if BATCH * len(self.group.nodes) <= MOST_CODE // 4 else 1
        batch = min(batch, 2) if lanes[1] > 2 else batch
        if self._part_of or batch == 1:
            with f.loop(start, stop, step) as i:
                points([i])
            return
        left = f.var("i64", start)
        with f.loop(start, stop - (batch - 1) * step, batch * step) as i:
            points([i + k * step for k in range(batch)])
            left.store(i + batch * step)
        with f.loop(left.load_index(), stop, step) as i:
            points([i])

    def _columns(
        self, row: list[int], kept: list[int], summed: list[int], after: list[Node]
    ) -> None:
        """A thread for each place of the row and each piece of the summed axes."""
        inner, count = self.count(row), self.count(summed)
        columns = self.count(kept) * inner
        threads = self.machine.threads
        builder = self._builder()
        f = builder.f
        pointers = self._pointers(builder)
        kept_loops, row_loops = self.loops(kept), self.loops(row)
        summed_loops = self.loops(summed)
        lanes = self.lanes(row_loops, LANES) if count >= MANY_ROWS * LANES else 1
        wanted = -(-self.machine.blocks * threads * lanes // (FEWER * columns))
        pieces = max(1, min(count // MANY_ROWS, wanted))
        items = columns // lanes * pieces
        blocks = -(-items // threads)
        share = -(-count // pieces)
        item = builder.block() * threads + builder.thread()
        for node in after:
            self._take(node, columns * pieces)
        with f.when(f(f"icmp ult i64 {item}, {items}")):
            rest, place = item // (inner // lanes), item % (inner // lanes) * lanes
            outer, piece = rest // pieces, rest % pieces
            index = self.index(kept_loops, outer) | self.index(row_loops, place)
            sums = self._begin(builder, after, lanes)
            start = piece * share
            span = start, minimum(start + share, count), 1
            along = row_loops[-1].axis if lanes > 1 else 0
            self._summed(f, pointers, sums, span, (index, summed_loops), (along, lanes))
            for node, var in sums.items():
                dtype = self.reductions[node].dtype
                part = self._part(builder, node) + item * lanes
                store(
                    f, dtype, part, var.load(), lanes, align=math.gcd(LINE, lanes * dtype.itemsize)
                )
        self._launch(builder, blocks, threads)
        for node in after:
            self._column_of_parts(node, kept, row, pieces)

    def _rows(
        self,
        row: list[int],
        kept: list[int],
        summed: list[int],
        after: list[Node],
        whole: bool,
    ) -> None:
        """A block goes over one row, or over the rows of a piece of the summed axes."""
        length = self.count(row)
        if self._part_of and length <= SHORT and (whole or not after):
            self._short_rows(row, kept, summed, after)
            return
        threads = self._threads(-(-length // self.machine.each))
        each = length // threads if length % threads == 0 else 0
        lanes = self.lanes(self.loops(row), each & -each) if each else 1
        large = each // lanes * len(self.group.nodes) > MOST_CODE
        each = each // lanes if each <= self.machine.each and not large else 0
        builder = self._builder()
        f = builder.f
        pointers = self._pointers(builder)
        kept_loops, summed_loops = self.loops(kept), self.loops(summed)
        count = self.count(summed)
        pieces = self._pieces(self.count(kept), count, threads) if after else count
        share = -(-count // pieces)
        blocks = self.count(kept) * pieces
        outer, piece = builder.block() // pieces, builder.block() % pieces
        totals = after if whole else []
        columns = [] if whole else after
        sums = self._begin(builder, totals)
        for node in totals:
            self._take(node, blocks)
        for node in columns:
            self._take(node, blocks * length)
        column_at = {node: self._part(builder, node) + builder.block() * length for node in columns}
        thread = builder.thread()
        own: dict[Node, list[Ptr]] = {}  # sums of columns that a thread keeps
        if each:
            for node in columns:
                own[node] = [self._begin(builder, [node], lanes)[node] for _ in range(each)]
        else:
            for node, at in column_at.items():
                reduction = self.reductions[node]
                with f.loop(thread, length, threads) as column:
                    store(f, reduction.dtype, at + column, reduction.begin(1), 1)
        start = piece * share
        with f.loop(start, minimum(start + share, count)) as i:
            index = self.index(kept_loops, outer) | self.index(summed_loops, i)
            rows: Row
            if each:
                rows = KeptRow(self, builder, row, index, pointers, threads, each, lanes, sums, own)
            else:
                rows = LoopedRow(self, builder, row, index, pointers, threads, sums, column_at)
            self._stages(builder, index, pointers, threads, rows)
        for node, kept_sums in own.items():
            for number, var in enumerate(kept_sums):
                dtype = self.reductions[node].dtype
                place = column_at[node] + (thread + number * threads) * lanes
                store(
                    f, dtype, place, var.load(), lanes, align=math.gcd(LINE, lanes * dtype.itemsize)
                )
        for node, var in sums.items():
            self._whole_or_part(builder, node, var, blocks, threads)
        self._launch(builder, blocks, threads)
        for node in totals:
            self._total_of_parts(node, blocks)
        for node in columns:
            self._column_of_parts(node, kept, row, pieces)

    def _short_rows(
        self, row: list[int], kept: list[int], summed: list[int], totals: list[Node]
    ) -> None:
        """In a block that does everything: each thread goes over rows of its own."""
        threads = self.machine.threads
        builder = self._builder()
        f, pointers = builder.f, self._pointers(builder)
        kept_loops, summed_loops = self.loops(kept), self.loops(summed)
        count = self.count(summed)
        sums = self._begin(builder, totals)
        with f.loop(builder.thread(), self.count(kept) * count, threads) as item:
            index = self.index(kept_loops, item // count)
            index |= self.index(summed_loops, item % count)
            rows = LoopedRow(self, builder, row, index, pointers, 1, sums, {})
            self._stages(builder, index, pointers, 1, rows)
        for node, var in sums.items():
            self._whole_or_part(builder, node, var, 1, threads)
        self._launch(builder, 1, threads)

    def _stages(
        self,
        builder: KernelBuilder,
        outer: Mapping[int, Size],
        pointers: Mapping[Access, Ptr],
        threads: int,
        rows: Row,
    ) -> None:
        """All stages of one row."""
        f, group, found = builder.f, self.group, self.levels
        before = {node: level_before(group, found, node) for node in self.reductions}
        for stage in range(max(found.values(), default=0) + 1):
            reduced = [
                node
                for node in self.reductions
                if before[node] == stage and node.outputs[0] not in group.after
            ]
            over = [
                node
                for node in self.reductions
                if before[node] == stage and node.outputs[0] in group.after
            ]
            here = [v for v in group.outputs if v not in group.after and found[v] == stage]
            stored = [value for value in here if not same_for_row(group, value)]
            once = [value for value in here if same_for_row(group, value)]
            if once:
                first = f(f"icmp eq i64 {builder.thread()}, 0") if threads > 1 else "true"
                with f.when(first):
                    point = Point(f, group, pointers.__getitem__, outer, known=rows.known)
                    for value in once:
                        self.store(point, value)
            if not (reduced or over or stored):
                continue
            parts = self._begin(builder, reduced)
            rows.over(parts, over, stored)
            for node, var in parts.items():
                reduction = self.reductions[node]
                made = self._joined(builder, node, var.load(), threads)
                rows.known[node.outputs[0]] = reduction.finished(f, made)
