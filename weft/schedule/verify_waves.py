"""The verifier of plans, for steps that run at the same time."""

from __future__ import annotations

import itertools

from weft.ir.graph import Value
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Arena, GraphPlan, Input, Output, Step
from weft.schedule.target import Target
from weft.schedule.verify_group import PlanError

__all__ = ["verify_waves"]

#: A buffer, and the bytes of it that are used: from, to.
Bytes = tuple[str, int, int]


def verify_waves(plan: GraphPlan, target: Target) -> None:
    """No step of a wave writes where another one of it reads or writes, and none may fail."""
    end_before = 0
    for first, end in plan.waves:
        if not end_before <= first < end <= len(plan.steps):
            raise PlanError(f"steps {first} to {end} of @{plan.name} are no wave")
        end_before = end
        wave = plan.steps[first:end]
        for step in wave:
            if target.may_fail(step.group):
                raise PlanError(f"{step.kind} {step.nodes[0].op.name} may fail, beside others")
        used = [(_read(plan, step), _written(plan, step)) for step in wave]
        for (one, (reads, writes)), (other, (also_reads, also_writes)) in itertools.combinations(
            zip(wave, used, strict=True), 2
        ):
            for mine, theirs in ((writes, also_reads + also_writes), (reads, also_writes)):
                for a, b in itertools.product(mine, theirs):
                    if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]:
                        raise PlanError(
                            f"{one.nodes[0].op.name} and {other.nodes[0].op.name} of @{plan.name} "
                            f"run at the same time, and use the same memory of {a[0]}"
                        )


def _read(plan: GraphPlan, step: Step) -> list[Bytes]:
    return [found for value in step.group.reads() for found in _bytes(plan, value)]


def _written(plan: GraphPlan, step: Step) -> list[Bytes]:
    found = [found for value in step.outputs for found in _bytes(plan, value)]
    own = plan.room(step.group)
    if isinstance(own, Arena):
        found.append(("the arena", own.offset, own.offset + step.room))
    for output, given in plan.in_place:
        if plan.results[output] in step.outputs:
            found.append((f"input {given}", 0, size_of_type(plan.results[output].type)))
    return found


def _bytes(plan: GraphPlan, value: Value) -> list[Bytes]:
    size = size_of_type(value.type)
    match plan.place(value):
        case Arena(offset):
            return [("the arena", offset, offset + size)]
        case Input(number):
            return [(f"input {number}", 0, size)]
        case Output(number):
            return [(f"output {number}", 0, size)]
    return []  # a constant, or a result that nobody reads
