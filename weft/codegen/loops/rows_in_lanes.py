"""Many short rows: each lane has its own row, so that reductions need no work across lanes.

    for each item (as many rows as there are lanes):
        row-major operands are transposed into a small buffer: columns become contiguous
        for each stage: one pass over the columns, each a vector with one element of each row
        results are transposed back

A row of 10 elements would leave 6 of 16 lanes unused, and reducing its lanes takes as long as exp.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.base.dims import has_dims, is_zero, typical
from weft.base.dtypes import float32, float64
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Ptr, Size, minimum
from weft.codegen.kernel import PARAMS, Kernel, each_item
from weft.codegen.loops.access import Access, dtype_of, operand, result_access
from weft.codegen.loops.plan import LoopPlan, most_lanes
from weft.codegen.loops.point import Point
from weft.codegen.loops.reduce import Reduction
from weft.codegen.loops.stages import kept, level_before, levels, same_for_row
from weft.codegen.loops.transpose import transpose_back
from weft.codegen.machine import Machine
from weft.codegen.matmul.numbers import number_of
from weft.codegen.matmul.pack import transpose
from weft.codegen.scalar.masks import first_lanes
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.schedule.groups import Group

__all__ = ["emit_rows_in_lanes", "fits_lanes"]

#: Maximum elements of a row.
LONGEST = 16


def fits_lanes(group: Group, made: LoopPlan, machine: Machine) -> bool:
    """Whether the rows of a group are short and many, and laid out for one row in each lane."""
    if len(made.row) != 1 or len(made.outer) != 1 or made.column_sums or made.totals:
        return False
    if has_dims((made.row_size,)) or not 1 < made.row_size <= LONGEST:
        return False
    if typical(made.outer[0].size) < most_lanes(group, machine):
        return False
    return bool(made.row_sums) and all(
        access.step(made.outer[0].axis) in (0, 1) or _is_row_major(access, made)
        for access in made.accesses
    )


def _is_row_major(access: Access, made: LoopPlan) -> bool:
    """Whether rows are contiguous, of a dtype that can be transposed."""
    apart = access.step(made.outer[0].axis)
    numbers = access.dtype in (float32, float64)
    far = not has_dims((apart,)) and apart >= made.row_size
    return numbers and far and access.step(made.row[0].axis) == 1


def emit_rows_in_lanes(
    module: Module, name: str, group: Group, places: Mapping[Value, int], made: LoopPlan
) -> list[Kernel]:
    """The kernel of a group for which `fits_lanes` holds."""
    return [_RowsInLanes(module, name, group, places, made).kernel()]


class _RowsInLanes:
    def __init__(
        self, module: Module, name: str, group: Group, places: Mapping[Value, int], made: LoopPlan
    ) -> None:
        self.group = group
        self.made = made
        self.name = name
        self.lanes = most_lanes(group, module.machine)
        self.columns, self.rows = made.row[0].size, made.outer[0].size
        self.levels = levels(group)
        self.kept = kept(group, made, self.levels)
        self.reductions = {node: Reduction(node) for node in made.row_sums}
        f = self.f = module.function(name, "i32", PARAMS)
        roots = dict.fromkeys(access.root for access in made.accesses)
        self.pointers = {root: operand(f, places, root) for root in roots}
        self.rooms = {
            access: self._room(memory_type(access.dtype))
            for access in made.accesses
            if access.step(made.outer[0].axis) not in (0, 1)
        }
        self.kept_in = {value: self._room(memory_type(dtype_of(value))) for value in self.kept}
        self.written = {result_access(group, value) for value in group.outputs}

    def _room(self, kind: str) -> Ptr:
        """A buffer for columns: at least as many as a vector has lanes, as `transpose` requires."""
        return self.f.var(kind, count=max(self.columns, self.lanes) * self.lanes, align=64)

    def kernel(self) -> Kernel:
        f, lanes = self.f, self.lanes
        items = -(-self.rows // lanes)
        with each_item(f) as item:
            first = item * lanes
            count: Size = lanes
            mask = None
            if not is_zero(self.rows % lanes):
                count = minimum(self.rows - first, lanes)
                mask = (first_lanes(f, lanes, count), count)
            self._transpose_in(first, count)
            self._stages(first, mask)
            self._transpose_out(first, count)
        f.do("ret i32 0")
        cycles = len(self.made.accesses) + sum(node.op.cycles for node in self.group.nodes)
        return Kernel(self.name, items, self.columns * cycles / self.f.module.machine.ghz)

    # --- turning --------------------------------------------------------------------------------

    def _transpose_in(self, first: Size, count: Size) -> None:
        f = self.f
        for access, room in self.rooms.items():
            if access in self.written:
                continue
            number = number_of(access.dtype)
            assert number is not None
            size = access.dtype.itemsize
            step = access.step(self.made.outer[0].axis) * size
            src = self._start(access).bytes(first * step)
            f.do(
                f"call void @{transpose(f.module, number, self.columns)}(ptr {src}, i64 {step}, "
                f"ptr {room}, i64 {self.lanes * size}, i64 {count}, i64 {self.columns})"
            )

    def _transpose_out(self, first: Size, count: Size) -> None:
        f = self.f
        for access, room in self.rooms.items():
            if access not in self.written:
                continue
            number = number_of(access.dtype)
            assert number is not None
            name = transpose_back(f.module, number, self.columns, self.lanes)
            dst = self._start(access) + first * self.columns
            f.do(f"call void @{name}(ptr {room}, ptr {dst}, i64 {count})")

    def _start(self, access: Access) -> Ptr:
        return self.pointers[access.root] + access.offset

    # --- stages ---------------------------------------------------------------------------------

    def _stages(self, first: Size, mask: tuple[str, Size] | None) -> None:
        f, group, made, lanes = self.f, self.group, self.made, self.lanes
        rows, columns = made.outer[0].axis, made.row[0].axis
        once = Point(f, group, self._start, {rows: first}, axis=rows, lanes=lanes, mask=mask)
        known: dict[Value | Access, str] = {
            access: once.load(access)
            for access in made.accesses
            if access not in self.written and not access.step(columns)
        }
        for stage in range(max(self.levels.values()) + 1):
            for node in group.nodes:  # what is the same for a row, if its inputs are ready
                value = node.outputs[0]
                if same_for_row(group, value) and self.levels[value] == stage:
                    known[value] = once.value(value)
                    if value in group.outputs:
                        once.store(result_access(group, value), known[value])
            for node, found in self._stage(stage, once, known).items():
                once.give(node.outputs[0], found)

    def _stage(
        self, stage: int, once: Point, known: Mapping[Value | Access, str]
    ) -> dict[Node, str]:
        """One pass over the columns; returns the reductions that it completes."""
        f, group, lanes = self.f, self.group, self.lanes
        reduced = {
            node: f.var(reduction.kind(lanes), reduction.begin(lanes))
            for node, reduction in self.reductions.items()
            if level_before(group, self.levels, node) == stage
        }
        stored = [
            value
            for value in group.outputs
            if self.levels[value] == stage and not same_for_row(group, value)
        ]
        keeping = [value for value, at in self.kept.items() if at == stage]
        if not (reduced or stored or keeping):
            return {}
        with f.loop(0, self.columns) as column:
            at = column * lanes
            point = once.moved({self.made.row[0].axis: column})
            for what, name in known.items():
                point.give(what, name)
            for access, room in self.rooms.items():
                if access not in self.written:
                    point.give(access, load(f, access.dtype, room + at, lanes))
            for value, before in self.kept.items():
                if before < stage:
                    point.give(value, load(f, dtype_of(value), self.kept_in[value] + at, lanes))
            for value in keeping:
                self._put(value, self.kept_in[value], at, point.value(value))
            for value in stored:
                access = result_access(group, value)
                if access in self.rooms:
                    self._put(value, self.rooms[access], at, point.value(value))
                else:
                    point.store(access, point.value(value))
            for node, var in reduced.items():
                reduction = self.reductions[node]
                given = point.operand(node, group.operands[node][0])
                given = reduction.taken(f, given, lanes, None)
                var.store(reduction.joined(f, var.load(), given, lanes))
        return {
            node: self.reductions[node].finished(f, var.load(), lanes)
            for node, var in reduced.items()
        }

    def _put(self, value: Value, room: Ptr, at: Size, made: str) -> None:
        store(self.f, dtype_of(value), room + at, made, self.lanes)
