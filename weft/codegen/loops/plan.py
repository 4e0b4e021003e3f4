"""How the loops of a group run: which are outer, which form a row, what an item of work is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.base.dim_algebra import dim_max
from weft.base.dims import ceil_div, has_dims, typical
from weft.base.dtypes import NARROW_FLOATS
from weft.codegen.cancel import loop_to_poll
from weft.codegen.loops.access import Access, Loop, access_of, coalesced, dtype_of, result_access
from weft.codegen.machine import Machine
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.schedule.groups import Group, Leaf

__all__ = ["LoopPlan", "plan"]

#: Elements of a row that one item computes, if rows are cut.
BLOCK = 8192
#: Sums over columns of fewer elements are not cut; else the number of pieces.
ONE_PIECE = 1 << 15
PIECES = 32
#: Items are indices of the outer loops: as many loops as give at least this many.
ENOUGH = 16


@dataclass(frozen=True)
class LoopPlan:
    """
    outer    loops around a row whose results are separate
    summed   loops around a row that columns are summed over
    row      loops of a row; lanes run along the last one
    row_sums, column_sums, totals    the reductions, by where they go
    prefix   how many of the outer loops are counted by items
    blocks   how many pieces the last loop of a row is cut into
    pieces   how many pieces the summed loops are cut into
    """

    accesses: list[Access]
    outer: list[Loop]
    summed: list[Loop]
    row: list[Loop]
    row_sums: list[Node]
    column_sums: list[Node]
    totals: list[Node]
    prefix: int
    blocks: int
    pieces: int
    lanes: int

    @property
    def items(self) -> int:
        counted = math.prod(loop.size for loop in self.outer[: self.prefix])
        return counted * self.blocks * self.pieces

    @property
    def share(self) -> int:
        """How many iterations of the merged summed loops a piece has."""
        return -(-math.prod(loop.size for loop in self.summed) // self.pieces)

    @property
    def row_size(self) -> int:
        return math.prod(loop.size for loop in self.row)

    @property
    def elements(self) -> int:
        loops = (*self.outer, *self.summed, *self.row)
        return math.prod(loop.size for loop in loops)


def reductions(group: Group) -> list[Node]:
    return [node for node in group.nodes if node.op.reduction]


def all_accesses(group: Group) -> list[Access]:
    found: dict[Access, None] = {}
    for node in group.nodes if group.kind == "loop" else group.nodes[1:]:
        for operand in group.operands[node]:
            if isinstance(operand, Leaf):
                found[access_of(group, operand, group.places[node])] = None
    for value in group.written:
        found[result_access(group, value)] = None
    return list(found)


def plan(group: Group, module: Module) -> LoopPlan:
    machine: Machine = module.machine
    order = group.space.order
    row, columns = group.row, group.columns
    accesses = all_accesses(group)
    total = columns is not None and len(columns) == len(order)
    over = () if columns is None or total else columns
    if row is not None:
        rows = [axis for axis in order if axis in row]
    elif over:
        last = max(order.index(axis) for axis in over)
        rows = order[last + 1 :]
    else:
        rows = []
    outer = [axis for axis in order if axis not in over and axis not in rows]
    sizes = group.space.sizes
    outer_loops = coalesced(outer, sizes, accesses)
    row_loops = coalesced(rows, sizes, accesses)
    if not row_loops and row is None:  # elementwise: the innermost loop is the row
        row_loops = [outer_loops.pop()] if outer_loops else []
    found = reductions(group)
    summed = coalesced([axis for axis in order if axis in over], sizes, accesses)
    column_sums = [node for node in found if node.outputs[0] in group.after and not total]
    count = math.prod(loop.size for loop in outer_loops)
    blocks = pieces = 1
    if row is None and not over and row_loops:
        length = row_loops[-1].size
        if has_dims((length,)) or length >= 2 * BLOCK:
            blocks = ceil_div(length, BLOCK)
    if summed and count == 1:
        elements = math.prod(loop.size for loop in (*summed, *row_loops))
        count = math.prod(loop.size for loop in summed)
        if has_dims((elements,)):
            pieces = module.sizes.let(
                f"min({PIECES}, {count}) if {elements} > {ONE_PIECE} else 1", high=PIECES
            )
        elif elements > ONE_PIECE:
            pieces = min(PIECES, count)
    prefix, counted = 0, 1
    enough = machine.parts(ENOUGH) if machine.has_many_cores else ENOUGH
    while prefix < len(outer_loops) and typical(counted) < enough:
        counted *= outer_loops[prefix].size
        prefix += 1
    return LoopPlan(
        accesses,
        outer_loops,
        summed,
        row_loops,
        [node for node in found if node.outputs[0] not in group.after],
        column_sums,
        [node for node in found if node.outputs[0] in group.after and total],
        prefix,
        blocks,
        pieces,
        _lanes(group, row_loops, machine),
    )


def _lanes(group: Group, row: list[Loop], machine: Machine) -> int:
    lanes = most_lanes(group, machine)
    length = row[-1].size if row else 1
    if has_dims((length,)):
        return lanes
    least = 1
    while least < length:
        least *= 2
    return min(lanes, least)


def most_lanes(group: Group, machine: Machine) -> int:
    """The number of lanes for the narrowest elements that a group computes with."""
    sizes = []
    for node in group.nodes:
        for value in (*node.inputs, *node.outputs):
            dtype = dtype_of(value)
            if dtype.kind == "float":
                sizes.append(4 if dtype in NARROW_FLOATS else dtype.itemsize)
    if not sizes:
        sizes = [max(1, *(dtype_of(v).itemsize for n in group.nodes for v in n.outputs), 1)]
    return machine.lanes(max(2, min(sizes)))


def axis_to_poll(made: LoopPlan, cost: float, written_out: bool) -> tuple[int, float]:
    """The axis whose loop polls for cancellation in an item of `cost` ns, and the ns of one of its
    iterations. An unrolled row is not a loop."""
    loops = made.outer[made.prefix :]
    counts = [(loop.axis, loop.size) for loop in loops]
    if made.pieces != 1:
        counts.append((made.summed[0].axis, made.share))
    else:
        counts += [(loop.axis, loop.size) for loop in made.summed]
    counts += [(loop.axis, loop.size) for loop in made.row[:-1]]
    if not written_out:
        counts += [(loop.axis, dim_max(1, loop.size // made.lanes)) for loop in made.row[-1:]]
    place, each = loop_to_poll([typical(count) for _, count in counts], cost)
    return (counts[place][0] if counts else -1), each


def cost_of(group: Group, made: LoopPlan, machine: Machine) -> float:
    """The estimated nanoseconds of one item."""
    cycles = machine.access_cycles * len(made.accesses)
    cycles += sum(node.op.cycles for node in group.nodes)
    vectors = -(-typical(made.elements) // made.lanes) if made.lanes else 1
    return vectors * cycles / machine.ghz / max(1, typical(made.items))


def work_of(group: Group, made: LoopPlan, machine: Machine) -> int:
    """The estimated picoseconds of all items, if sizes of the run decide; else 0."""
    if not has_dims((made.elements,)):
        return 0
    cycles = machine.access_cycles * len(made.accesses) + sum(
        node.op.cycles for node in group.nodes
    )
    each = max(1, round(1000 * cycles / machine.ghz))
    return ceil_div(made.elements, made.lanes) * each
