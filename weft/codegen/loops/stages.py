"""What the stages of a row share: values that are the same for all of it, and values kept for
later."""

from __future__ import annotations

from collections.abc import Mapping

from weft.base.dims import has_dims
from weft.codegen.loops.plan import LoopPlan
from weft.ir.graph import Node, Value
from weft.schedule.groups import Group

__all__ = ["SHORT", "kept", "level_before", "levels", "same_for_row"]

#: Maximum elements of a row that are kept between stages, and the minimum cost to do so.
KEEP = 16384
COSTLY = 6.0
#: The same where only the run knows how many they are: what fits on the stack.
SHORT = 960


def levels(group: Group) -> dict[Value, int]:
    """The stage of each value: how many reductions over the row must complete before it."""
    found: dict[Value, int] = {}
    for node in group.nodes:
        before = [found.get(op, 0) for op in group.operands[node] if isinstance(op, Value)]
        level = max(before, default=0)
        value = node.outputs[0]
        found[value] = level + (node.op.reduction and value not in group.after)
    return found


def level_before(group: Group, levels: Mapping[Value, int], node: Node) -> int:
    """The stage in which a reduction reads its operand."""
    operand = group.operands[node][0]
    return levels[operand] if isinstance(operand, Value) else 0


def same_for_row(group: Group, value: Value) -> bool:
    """Whether a value is the same for the whole row."""
    if not group.row or value in group.after:
        return False
    return not any(axis in group.row for part in group.maps[value] for axis in part)


def kept(
    group: Group, made: LoopPlan, levels: Mapping[Value, int], *, short: bool = False
) -> dict[Value, int]:
    """Costly values of one stage that a later one uses, with their stage. `short`: whether rows
    whose length the run tells are short enough."""
    if not made.row_sums:
        return {}
    if not short and (has_dims((made.row_size,)) or made.row_size > KEEP):
        return {}
    cost: dict[Value, float] = {}
    found: dict[Value, int] = {}
    for node in group.nodes:
        value = node.outputs[0]
        level = levels[value]
        uses = [op for op in group.operands[node] if isinstance(op, Value)]
        reduces = node.op.reduction and value not in group.after
        where = level - 1 if reduces else level
        for operand in uses:
            late = levels[operand] < where and not same_for_row(group, value)
            costly = cost.get(operand, 0) >= COSTLY
            if late and costly and not same_for_row(group, operand):
                found[operand] = levels[operand]
        inner = [op for op in uses if levels[op] == level and not same_for_row(group, op)]
        cost[value] = node.op.cycles + sum(cost[op] for op in inner)
    return found
