"""The kernel of a loop group.

    for each item (outer indices, a piece of the summed loops, a block of the row):
        load what is the same for the whole row
        for each stage: one pass over the row; its reductions are inputs of the next stage
    then, if columns or totals were summed in pieces, a second kernel adds the pieces in order

Stages read the row again, which is in the cache by then; costly values are kept in a small buffer
from one stage to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from weft.base.dims import has_dims
from weft.codegen.cancel import cancellable_loop, pollable_run
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Index, Ptr, Size, divide, minimum, unravel
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.loops.access import Access, Loop, access_of, dtype_of, operand, result_access
from weft.codegen.loops.columns import Columns, in_registers
from weft.codegen.loops.pieces import combine_columns, combine_totals
from weft.codegen.loops.plan import BLOCK, LoopPlan, axis_to_poll, cost_of, plan, work_of
from weft.codegen.loops.point import Point
from weft.codegen.loops.reduce import Reduction, across
from weft.codegen.loops.rows_in_lanes import emit_rows_in_lanes, fits_lanes
from weft.codegen.loops.stages import SHORT, kept, level_before, levels, same_for_row
from weft.codegen.scalar.masks import first_lanes
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.schedule.groups import Group, Leaf

__all__ = ["emit_loops"]


def emit_loops(
    module: Module, name: str, group: Group, places: Mapping[Value, int]
) -> list[Kernel]:
    """The kernels of a loop group; `places` are the positions of buffers in `%args`."""
    made = plan(group, module)
    if fits_lanes(group, made, module.machine):
        return emit_rows_in_lanes(module, name, group, places, made)
    varies = has_dims((made.row_size,)) and not (made.totals or made.column_sums)
    if varies and kept(group, made, levels(group), short=True):
        return _by_length(module, name, group, places, made)
    return _Loops(module, name, group, places, made).kernels()


def _by_length(
    module: Module, name: str, group: Group, places: Mapping[Value, int], made: LoopPlan
) -> list[Kernel]:
    """A kernel for rows that are short enough to keep values of, and one for longer ones: in each
    run one of them has no items."""
    found: list[Kernel] = []
    for short, label, sign in ((True, name, "<="), (False, f"{name}.long", ">")):
        for kernel in _Loops(module, label, group, places, made, short=short).kernels():
            text = f"{kernel.items} if {made.row_size} {sign} {SHORT} else 0"
            found.append(replace(kernel, items=module.sizes.let(text, low=0)))
    return found


class _Loops:
    def __init__(
        self,
        module: Module,
        name: str,
        group: Group,
        places: Mapping[Value, int],
        made: LoopPlan,
        *,
        short: bool = False,
    ) -> None:
        """`short`: whether rows whose length the run tells have at most `SHORT` elements."""
        self.module = module
        self.name = name
        self.group = group
        self.places = places
        self.plan = made
        self.levels = levels(group)
        self.reductions = {node: Reduction(node) for node in group.nodes if node.op.reduction}
        self.f = module.function(name, "i32", PARAMS)
        self.pointers: dict[Value, Ptr] = {}
        self.kept = kept(group, self.plan, self.levels, short=short)
        # Where elements of a row are kept: with room for whole vectors, if rows have any length.
        self.padded = short
        self.most = SHORT + made.lanes if short else made.row_size
        # The run, if items take long; the axis of the loop that polls it; ns of one iteration.
        self.cost = cost_of(group, made, module.machine)
        self.run = pollable_run(self.f, len(places) + 1, self.cost)
        self.slow, self.round = axis_to_poll(made, self.cost, in_registers(group, made))
        # Sums in pieces: the offset of each in scratch memory, in bytes.
        self.scratch_at: dict[Node, int] = {}
        self.scratch = 0

    # --- the kernel -----------------------------------------------------------------------------

    def kernels(self) -> list[Kernel]:
        f, made = self.f, self.plan
        for root in dict.fromkeys(access.root for access in made.accesses):
            self.pointers[root] = operand(f, self.places, root)
        self._lay_out_scratch()
        base = argument(f, len(self.places)) if self.scratch_at else None
        with each_item(f) as item:
            self._item(item, base)
        f.do("ret i32 0")
        stops = self.run is not None
        work = work_of(self.group, made, self.module.machine)
        kernels = [Kernel(self.name, made.items, self.cost, self.scratch, stops, work=work)]
        if self.scratch_at:
            kernels += self._second()
        return kernels

    def _lay_out_scratch(self) -> None:
        for node in self.plan.totals:
            reduction = self.reductions[node]
            self.scratch_at[node] = self.scratch
            self.scratch += _rounded(self.plan.items * _bytes(reduction))
        for node in self.plan.column_sums:
            reduction = self.reductions[node]
            if self.plan.pieces == 1 and reduction.dtype is reduction.result:
                continue  # summed in the result's buffer
            self.scratch_at[node] = self.scratch
            parts = self.plan.pieces * math.prod(_shape(node.outputs[0]))
            self.scratch += _rounded(parts * _bytes(reduction))

    def _second(self) -> list[Kernel]:
        kernels: list[Kernel] = []
        for node, at in self.scratch_at.items():
            name = f"{self.name}.sum{len(kernels)}"
            reduction = self.reductions[node]
            out, room = self.places[node.outputs[0]], len(self.places)
            if node in self.plan.totals:
                kernel = combine_totals(
                    self.module, name, reduction, out, room, at, self.plan.items, room + 1
                )
            else:
                size = math.prod(_shape(node.outputs[0]))
                kernel = combine_columns(
                    self.module, name, reduction, out, room, at, self.plan.pieces, size
                )
            kernels.append(kernel)
        return kernels

    def _item(self, item: Index, scratch: Ptr | None) -> None:
        f, made = self.f, self.plan
        index: dict[int, Size] = {}
        rest, block = divide(item, made.blocks)
        piece: Size = 0
        if made.pieces != 1:
            piece, rest = rest, 0
        counted = made.outer[: made.prefix]
        found = unravel(rest, [loop.size for loop in counted])
        index |= {loop.axis: i for loop, i in zip(counted, found, strict=True)}
        totals = {
            node: f.var(
                self.reductions[node].kind(made.lanes), self.reductions[node].begin(made.lanes)
            )
            for node in made.totals
        }
        with ExitStack() as inside:
            for loop in made.outer[made.prefix :]:
                index[loop.axis] = inside.enter_context(self._loop(loop.axis, 0, loop.size))
            places = {
                node: self._column_place(node, index, piece, scratch) for node in made.column_sums
            }
            columns = Columns(f, self.group, made, self.reductions, places, self.run)
            columns.begin()
            with ExitStack() as summing:
                self._summed_loops(summing, index, piece)
                self._row(index, block, columns, totals)
            columns.end()
        for node, var in totals.items():
            reduction = self.reductions[node]
            whole = across(f, reduction, var.load(), made.lanes)
            store(f, reduction.dtype, self._part(node, scratch) + item, whole, 1)

    def _part(self, node: Node, scratch: Ptr | None) -> Ptr:
        """The address of a sum's parts in scratch memory."""
        assert scratch is not None
        return scratch.bytes(self.scratch_at[node]).of(memory_type(self.reductions[node].dtype))

    def _column_place(
        self, node: Node, index: Mapping[int, Size], piece: Size, scratch: Ptr | None
    ) -> Ptr:
        """The address of a sum over columns."""
        access = result_access(self.group, node.outputs[0])
        if node in self.scratch_at:
            place = self._part(node, scratch) + piece * math.prod(_shape(node.outputs[0]))
        else:
            place = self.pointers[access.root]
        return self._moved(place, access, index)

    def _moved(self, place: Ptr, access: Access, index: Mapping[int, Size]) -> Ptr:
        for axis, step in access.steps:
            if axis in index:
                place = place + index[axis] * step
        return place

    def _summed_loops(self, inside: ExitStack, index: dict[int, Size], piece: Size) -> None:
        made = self.plan
        if not made.summed:
            return
        if made.pieces == 1:
            for loop in made.summed:
                index[loop.axis] = inside.enter_context(self._loop(loop.axis, 0, loop.size))
            return
        count = math.prod(loop.size for loop in made.summed)
        start = piece * made.share
        stop = minimum(start + made.share, count)
        rest = inside.enter_context(self._loop(made.summed[0].axis, start, stop))
        found = unravel(rest, [loop.size for loop in made.summed])
        index |= {loop.axis: i for loop, i in zip(made.summed, found, strict=True)}

    def _loop(
        self, axis: int, start: Size, stop: Size, step: int = 1
    ) -> AbstractContextManager[Index]:
        """A loop of an item; one of them polls the run, if items take long."""
        run = self.run if axis == self.slow else None
        return cancellable_loop(self.f, run, start, stop, step, each=self.round)

    # --- a row ----------------------------------------------------------------------------------

    def _row(
        self,
        outer: Mapping[int, Size],
        block: Size,
        sums: Columns,
        totals: Mapping[Node, Ptr],
    ) -> None:
        f, made, group = self.f, self.plan, self.group
        starts: dict[Access, Ptr] = {}
        for access in made.accesses:
            start = self.pointers[access.root] + access.offset
            starts[access] = self._moved(start, access, outer)
        inner = {loop.axis for loop in made.row}
        read = {
            access_of(group, op, group.places[node])
            for node in group.nodes
            for op in group.operands[node]
            if isinstance(op, Leaf)
        }
        scalars = {
            access: load(f, access.dtype, starts[access], 1)
            for access in made.accesses
            if access in read and not any(axis in inner for axis, _ in access.steps)
        }
        once = Point(f, group, starts.__getitem__, {}, scalars=scalars)
        known: dict[Value, str] = {}
        kept: dict[Value, Ptr] = {}
        for stage in range(max(self.levels.values(), default=0) + 1):
            for node in group.nodes:  # what is the same for the row, if its inputs are ready
                value = node.outputs[0]
                ready = same_for_row(group, value) and self.levels[value] == stage
                if ready and value not in known:
                    known[value] = once.value(value)
                    if value in group.outputs:
                        access = result_access(group, value)
                        store(f, access.dtype, starts[access], known[value], 1)
            found = self._stage(stage, block, starts, scalars, known, kept, sums, totals)
            for node, number in found.items():
                value = node.outputs[0]
                known[value] = number
                once.give(value, number)
                if value in group.outputs:
                    access = result_access(group, value)
                    store(f, access.dtype, starts[access], number, 1)

    def _stage(
        self,
        stage: int,
        block: Size,
        starts: Mapping[Access, Ptr],
        scalars: Mapping[Access, str],
        known: Mapping[Value, str],
        kept: dict[Value, Ptr],
        sums: Columns,
        totals: Mapping[Node, Ptr],
    ) -> dict[Node, str]:
        """One pass over the row; returns the reductions that it completes."""
        f, made, group, levels = self.f, self.plan, self.group, self.levels
        before = {node: level_before(group, levels, node) for node in self.reductions}
        reduced = [node for node in made.row_sums if before[node] == stage]
        columns = [node for node in made.column_sums if before[node] == stage]
        whole = [node for node in made.totals if before[node] == stage]
        stored = [
            value
            for value in group.outputs
            if value not in group.after
            and levels[value] == stage
            and not same_for_row(group, value)
        ]
        keeping = [value for value, at in self.kept.items() if at == stage]
        if not (reduced or columns or whole or stored or keeping):
            return {}
        for value in keeping:
            kind = memory_type(dtype_of(value))
            kept[value] = f.var(kind, count=self.most, align=64)
        lanes = made.lanes
        vars_ = {
            node: f.var(self.reductions[node].kind(lanes), self.reductions[node].begin(lanes))
            for node in reduced
        }
        saved = {
            value: self._reader(value, room)
            for value, room in kept.items()
            if self.kept[value] < stage
        }

        def work(index: Mapping[int, Size], position: Size, count: Size) -> None:
            mask = None if count == lanes else (first_lanes(f, lanes, count), count)
            axis = made.row[-1].axis if made.row else None
            point = Point(
                f,
                group,
                starts.__getitem__,
                index,
                axis=axis,
                lanes=lanes,
                mask=mask,
                known=known,
                scalars=scalars,
                saved={value: read(position) for value, read in saved.items()},
            )
            bits = mask[0] if mask else None
            for value in keeping:
                place = kept[value] + position
                store(
                    f,
                    dtype_of(value),
                    place,
                    point.value(value),
                    lanes,
                    bits if lanes > 1 and not self.padded else None,
                )
            # Read everything before writing anything: a result may alias an operand.
            made_here = [point.value(value) for value in stored]
            for value, name in zip(stored, made_here, strict=True):
                point.store(result_access(group, value), name)
            for node in (*reduced, *whole):
                f.here(node.location)
                reduction = self.reductions[node]
                given = point.operand(node, group.operands[node][0])
                given = reduction.taken(f, given, lanes, bits if lanes > 1 else None)
                var = vars_[node] if node in vars_ else totals[node]
                var.store(reduction.joined(f, var.load(), given, lanes))
            for node in columns:
                f.here(node.location)
                given = point.operand(node, group.operands[node][0])
                sums.add(node, given, index, position, bits if lanes > 1 else None)

        self._run(work, block)
        found: dict[Node, str] = {}
        for node in reduced:
            f.here(node.location)
            reduction = self.reductions[node]
            number = across(f, reduction, vars_[node].load(), lanes)
            found[node] = reduction.finished(f, number)
        return found

    def _reader(self, value: Value, room: Ptr) -> Callable[[Size], Callable[[Point], str]]:
        dtype = dtype_of(value)

        def at(position: Size) -> Callable[[Point], str]:
            def read(point: Point) -> str:
                place = room + position
                masked = point.mask and point.lanes > 1 and not self.padded
                bits = point.mask[0] if point.mask and masked else None
                return load(point.f, dtype, place, point.lanes, bits)

            return read

        return at

    def _run(self, work: Callable[[Mapping[int, Size], Size, Size], None], block: Size) -> None:
        """Call `work` for each vector of the row: with indices, the position, and the number of
        valid lanes."""
        f, made = self.f, self.plan
        if not made.row:
            work({}, 0, 1)
            return
        last = made.row[-1]
        whole, left = divmod(last.size, made.lanes)
        whole *= made.lanes
        if has_dims((last.size,)):
            self._run_sized(work, block, last, whole)
            return
        with self._outer_rows() as (index, before):
            start = block * BLOCK
            stop = minimum(start + BLOCK, whole) if made.blocks > 1 else whole
            if in_registers(self.group, made):
                for first in range(0, whole, made.lanes):
                    work({last.axis: first}, first, made.lanes)
            elif whole:
                with self._loop(last.axis, start, stop, made.lanes) as i:
                    work({**index, last.axis: i}, before + i, made.lanes)
            if left:
                with ExitStack() as only_last:
                    if made.blocks > 1:
                        is_last = f(f"icmp eq i64 {block}, {made.blocks - 1}")
                        only_last.enter_context(f.when(is_last))
                    work({**index, last.axis: whole}, before + whole, left)

    def _run_sized(
        self,
        work: Callable[[Mapping[int, Size], Size, Size], None],
        block: Size,
        last: Loop,
        whole: int,
    ) -> None:
        """`_run`, where only the run knows the length of the row."""
        f, made = self.f, self.plan
        with self._outer_rows() as (index, before):
            start: Size = 0
            stop: Size = whole
            if made.blocks != 1:
                start = block * BLOCK
                stop = minimum(start + BLOCK, whole)
            with self._loop(last.axis, start, stop, made.lanes) as i:
                work({**index, last.axis: i}, before + i, made.lanes)
            left = f.size(last.size - whole)
            if isinstance(left, int) and left == 0:
                return
            some = f(f"icmp sgt i64 {left}, 0")  # also of a number: in rows of 8*n + 1, say
            if made.blocks != 1:
                is_last = f(f"icmp eq i64 {block}, {f.size(made.blocks - 1)}")
                some = f(f"and i1 {some}, {is_last}")
            with f.when(some):
                work({**index, last.axis: f.size(whole)}, before + f.size(whole), left)

    @contextmanager
    def _outer_rows(self) -> Iterator[tuple[dict[int, Size], Size]]:
        made = self.plan
        index: dict[int, Size] = {}
        before: Size = 0
        with ExitStack() as inside:
            for place, loop in enumerate(made.row[:-1]):
                i = inside.enter_context(self._loop(loop.axis, 0, loop.size))
                index[loop.axis] = i
                size = math.prod(inner.size for inner in made.row[place + 1 :])
                before = before + i * size
            yield index, before


def _shape(value: Value) -> tuple[int, ...]:
    return value.type.shape  # type: ignore[union-attr]


def _bytes(reduction: Reduction) -> int:
    return reduction.dtype.itemsize


def _rounded(size: int) -> int:
    return -(-size // 64) * 64
