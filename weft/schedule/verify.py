"""The verifier of plans: checks what a program will read and write, before it is emitted.

    read      what a step reads was written by an earlier step, or is an input or a constant; for
              what happens inside a group see `weft.schedule.verify_group`
    layout    an emitter gets operands in the layout that it declares
    place     what is alive at the same time does not overlap in the arena: values, the memory of
              kernels, of nested graphs, and of what loops carry
    waves     what runs at the same time neither reads nor overwrites what the others write
    in place  a result that overwrites an input is written after the last read of the input, and
              each element only where it is read

It uses only the plan, and computes everything that it compares independently.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Set

from weft.base.dim_algebra import Dim
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.types import TensorType
from weft.ops.cards import SCAN
from weft.schedule.groups import IN_REGISTERS, Group
from weft.schedule.late import BOX
from weft.schedule.layouts import Layout, suits
from weft.schedule.memory import size_of_type
from weft.schedule.nodes import literal_of
from weft.schedule.plan import GraphPlan, ProgramPlan, Step
from weft.schedule.target import Target
from weft.schedule.verify_group import PlanError, same_elements, verify_group
from weft.schedule.verify_late import verify_late
from weft.schedule.verify_waves import verify_waves
from weft.schedule.views import dense

__all__ = ["PlanError", "verify_plan"]

LINE = 64  # the memory of a loop is laid out in multiples of this many bytes


def verify_plan(
    program: ProgramPlan, target: Target, sizes: Mapping[str, int] | None = None
) -> None:
    """Raise `PlanError` where the plan of a program is wrong for a target.

    `sizes`: if some are those of a run, an example: values for all names in the plan.
    """
    known = sizes or {}
    digests = {literal.digest for literal in program.constants}
    for depth, found in program.root.walk():
        _verify_reads(found)
        for step in found.steps:
            verify_group(step.group)
            _verify_layouts(step.group, target)
            _verify_room(step, known)
            if step.kind == "call" and step.nodes[0] not in program.calls:
                raise PlanError(f"{step.nodes[0].op.name} is called, and has no number")
        _verify_places(found, target, known)
        verify_waves(found, target)
        verify_late(found, target, known)
        _verify_constants(found, digests)
        if depth and found.in_place:
            raise PlanError(f"@{found.name} is nested, and writes where its inputs lie")
        for output, given in found.in_place:
            _verify_in_place(found, target, output, given)


# --- reads ----------------------------------------------------------------------------------------


def _is_constant(value: Value) -> bool:
    return literal_of(value) is not None or (value.node is not None and value.node.op is CONSTANT)


def _verify_reads(plan: GraphPlan) -> None:
    there = set(plan.graph.inputs)
    for place, step in enumerate(plan.steps):
        for node, _, leaf in step.group.leaves():
            if leaf.root not in there and not _is_constant(leaf.root):
                raise PlanError(
                    f"step {place} of @{plan.name}, {step.kind}: {node.op.name} reads {leaf.root} "
                    "before it is written"
                )
        there.update(step.outputs)
    for value, wanted in zip(plan.results, plan.graph.outputs, strict=True):
        if value not in there and not _is_constant(value):
            raise PlanError(f"@{plan.name} gives {value}, which is never written")
        if size_of_type(value.type) != size_of_type(wanted.type):
            raise PlanError(f"@{plan.name} gives {value.type} for {wanted.type}")
    made = {value for step in plan.steps for value in step.outputs}
    for value, place in plan.outputs.items():
        if plan.results[place] is not value or value not in made:
            raise PlanError(f"{value} is to be written as result {place}, which it is not")


def _verify_constants(plan: GraphPlan, digests: Set[str]) -> None:
    """Constants that are read or given back are constants of the program."""
    read = [value for step in plan.steps for value in step.group.reads()]
    for value in (*read, *plan.results):
        literal = plan.constants.get(value)
        if literal is not None and literal.digest not in digests:
            raise PlanError(f"{value} is no constant of the program")


def _verify_layouts(group: Group, target: Target) -> None:
    """Operands of kernels other than loops have the layout that these read."""
    node = group.nodes[0]
    if group.kind == "loop":
        return
    for reader, place, leaf in group.leaves():
        if reader is not node:
            continue
        wanted = target.layout(node, place) if group.kind in _STRIDED else Layout.DENSE
        if not suits(wanted, leaf):
            raise PlanError(
                f"{node.op.name} is handed {leaf.view} of {leaf.root.type} as operand {place}, and "
                f"reads it {wanted.value}"
            )


_STRIDED = (*IN_REGISTERS, "attention_grad", "kernel")


# --- memory ---------------------------------------------------------------------------------------


def _verify_room(step: Step, known: Mapping[str, int]) -> None:
    """A step with nested graphs has memory for them, and for the carries of a loop."""
    if not step.nested:
        return
    node = step.nodes[0]
    body = step.nested[-1].graph
    most = max(_lines(_number(plan.arena, known)) for plan in step.nested)
    room = most + _carried(node, body, known)
    have, parts = _number(step.room, known), _number(step.parts, known)
    if have < room * parts:
        raise PlanError(f"{node.op.name} has {have} bytes, and uses {room} × {parts}")


def _number(size: int, known: Mapping[str, int]) -> int:
    return size.evaluate(known) if isinstance(size, Dim) else size


def _carried(node: Node, body: Graph, known: Mapping[str, int]) -> int:
    """Bytes that a loop needs: a second buffer for each carry, the condition, a slot per result."""
    if not node.op.loop:
        return 0
    first: int = node.attrs["consts"]
    count: int = node.attrs["carries"] if node.op is SCAN else len(body.inputs) - first
    carries = sum(
        max(LINE, _lines(_number(size_of_type(v.type), known)))
        for v in body.inputs[first : first + count]
    )
    return carries + LINE * (1 + len(node.outputs) - count)


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE


def _verify_places(plan: GraphPlan, target: Target, known: Mapping[str, int]) -> None:
    """What is alive at the same step does not overlap, and is aligned."""
    offsets = {key: _number(at, known) for key, at in plan.memory.offsets.items()}
    arena = _number(plan.arena, known)
    last: dict[Value, int] = {}
    for place, step in enumerate(plan.steps):
        for _, _, leaf in step.group.leaves():
            last[leaf.root] = place
    ends: dict[int, list[tuple[int, int, str]]] = {}
    alive: list[tuple[int, int, str]] = []  # sorted by where they begin, without overlaps
    for place, step in enumerate(plan.steps):
        for found, end in _born(plan, place, step, last, offsets, known):
            at = bisect.bisect(alive, found)
            for other in alive[max(0, at - 1) : at + 1]:
                if found[0] < other[1] and other[0] < found[1]:
                    raise PlanError(
                        f"at step {place} of @{plan.name}, {found[2]} at {found[0]} and {other[2]} "
                        f"at {other[0]} overlap"
                    )
            if found[0] % target.alignment:
                raise PlanError(f"{found[2]} at {found[0]} is not aligned to {target.alignment}")
            if found[1] > arena:
                raise PlanError(f"{found[2]} ends at {found[1]} of {arena} bytes")
            alive.insert(at, found)
            ends.setdefault(end, []).append(found)
        for dead in ends.pop(place, ()):
            alive.remove(dead)


def _born(
    plan: GraphPlan,
    place: int,
    step: Step,
    last: Mapping[Value, int],
    offsets: Mapping[Value | Group, int],
    known: Mapping[str, int],
) -> list[tuple[tuple[int, int, str], int]]:
    """What a step writes to the arena: first byte, end, what it is; and its last step."""
    made: list[tuple[tuple[int, int, str], int]] = []
    room = _number(step.room, known)
    if room and plan.late.place(step.group) is None:
        at = offsets[step.group]
        made.append(((at, at + room, f"memory of step {place}"), place))
    for value in step.outputs:
        if value in plan.outputs:
            continue
        if value not in offsets:
            if value in last and plan.late.place(value) is None:
                raise PlanError(f"{value} is read, and lies nowhere")
            continue
        at = offsets[value]
        size = BOX if value in plan.late.popped else size_of_type(value.type)
        end = at + max(1, _number(size, known))
        made.append(((at, end, str(value)), last.get(value, place)))
    return made


# --- results that overwrite inputs ----------------------------------------------------------------


def _verify_in_place(plan: GraphPlan, target: Target, output: int, number: int) -> None:
    value, given = plan.results[output], plan.graph.inputs[number]
    wrong = f"result {output} of @{plan.name} is written where input {number} lies"
    writers = [i for i, step in enumerate(plan.steps) if value in step.outputs]
    if len(writers) != 1 or value.type != given.type:
        raise PlanError(f"{wrong}: they are {value.type} and {given.type}")
    if given in plan.results:
        raise PlanError(f"{wrong}, which is given back as well")
    for step in plan.steps[writers[0] :]:
        if target.may_fail(step.group):
            raise PlanError(f"{wrong}, and {step.kind} {step.nodes[0].op.name} may fail after it")
    for step in plan.steps[writers[0] + 1 :]:
        if any(leaf.root is given for _, _, leaf in step.group.leaves()):
            raise PlanError(f"{wrong}, and {step.kind} {step.nodes[0].op.name} reads it later")
    group = plan.steps[writers[0]].group
    in_loops = group.kind == "loop" or group.kind in IN_REGISTERS
    if not in_loops or group.reduces or value in group.after or value not in group.maps:
        raise PlanError(
            f"{wrong} by {group.kind}, which does not write each element where it reads"
        )
    place = group.maps[value]
    if {axis for part in place for axis in part} != set(group.space.order):
        raise PlanError(f"{wrong} more than once")
    first = None if group.kind == "loop" else group.nodes[0]
    for node, _, leaf in group.leaves():
        if leaf.root is not given:
            continue
        kind = given.type
        assert isinstance(kind, TensorType)
        if node is first or node not in group.places or group.places[node] != place:
            raise PlanError(f"{wrong}, and {node.op.name} reads other elements of it there")
        if not same_elements(leaf.view, dense(kind.shape)):
            raise PlanError(f"{wrong}, and {node.op.name} reads it as {leaf.view}")
