"""The verifier of what has sizes that the run itself tells (`weft.schedule.late`).

told      what needs a size runs after the step that tells it
chunks    a chunk is allocated when its sizes are told and before it is used; buffers that are
          alive at the same time do not overlap in it
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from weft.base.dim_algebra import Dim
from weft.ir.graph import Value
from weft.schedule.late import late_names_of, mentions, pops_boxes
from weft.schedule.memory import size_of_type
from weft.schedule.plan import GraphPlan
from weft.schedule.target import Target
from weft.schedule.verify_group import PlanError

__all__ = ["verify_late"]


def verify_late(plan: GraphPlan, target: Target, known: Mapping[str, int]) -> None:
    """Raise `PlanError` where late sizes or their memory are wrong. `known`: example sizes."""
    if not target.late:
        return
    late, told = plan.late, {name for name, step in plan.late.told.items() if step < 0}
    born: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for place, step in enumerate(plan.steps):
        told |= set(step.tells)
        pops = step.kind == "stack" and pops_boxes(step.nodes[0], target.late)  # it needs no size
        for value in step.outputs:
            if value in late.popped and not pops:
                raise PlanError(f"{value} of @{plan.name} is no box, and is taken for one")
        for node in () if pops else step.group.in_order():
            missing = mentions(node, target.late) - told
            if missing:
                raise PlanError(f"step {place} of @{plan.name} needs {min(missing)} too early")
        for key in (step.group, *step.outputs):
            born[key] = last[key] = place
        for _, _, leaf in step.group.leaves():
            last[leaf.root] = place
    for value, step_of in late.results.items():
        if step_of < late.after(late_names_of(value.type, target.late)):
            raise PlanError(f"{value} is allocated before its size is told")
    for chunk in late.chunks:
        spans: list[tuple[Any, int, int]] = []
        for key, offset in chunk.offsets.items():
            size = size_of_type(key.type) if isinstance(key, Value) else plan.steps[born[key]].room
            if late.after(target.late_in(size)) > chunk.step:
                raise PlanError(f"{key} is allocated before its size is told")
            if born[key] < chunk.step:
                raise PlanError(f"{key} is written before its memory is allocated")
            at = _number(offset, known)
            end = at + _number(size, known)
            if at % target.alignment or end > _number(chunk.size, known):
                raise PlanError(f"{key} lies at {at} of {_number(chunk.size, known)} bytes")
            spans.append((key, at, end))
        for (one, a, b), (two, c, d) in combinations(spans, 2):
            together = born[one] <= last[two] and born[two] <= last[one]
            if together and a < d and c < b:
                raise PlanError(f"{one} at {a} and {two} at {c} overlap in @{plan.name}")


def _number(size: int, known: Mapping[str, int]) -> int:
    return size.evaluate(known) if isinstance(size, Dim) else size
