"""Errors of a run: where they happened, and why a run could not finish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.errors import GraphError, WeftError
from weft.base.frames import through
from weft.ir.graph import Node, Value
from weft.ir.interpret import located
from weft.ir.text import value_names
from weft.ops.flow import called

if TYPE_CHECKING:
    from weft.runtime.dataflow.plan import ExecutionPlan
    from weft.runtime.dataflow.run import Frame, Iteration, Run

#: How many nodes the error of a run that cannot finish names.
MOST_NAMED = 8


def explained_error(
    plan: ExecutionPlan, number: int, at: Iteration, error: BaseException
) -> BaseException:
    """The error of a node, at the user's line, with the frame and iteration named."""
    node = called(plan.nodes[number])
    if isinstance(error, WeftError):
        error = located(error, node)
    if isinstance(error, Exception):
        through(error, node.location)
        where = iteration_text(at)
        if where:
            error.add_note(f"  {where}")
    return error


def check_count(node: Node, out: Any) -> None:
    """Whether a task returned a value for each output."""
    wanted = len(node.outputs)
    given = len(out) if isinstance(out, (tuple, list)) else 1
    if given != wanted:
        raise GraphError(
            f"its task gave {given} value{'s' if given != 1 else ''}, and {wanted} are needed",
            op=called(node).op.name,
        )


def iteration_text(at: Iteration) -> str:
    """in iteration 3 of while_1, in iteration 0 of scan_0"""
    parts = []
    here: Iteration | None = at
    while here is not None and here.frame.plan.index:
        parts.append(f"in iteration {here.number} of {here.frame.plan.name}")
        here = here.frame.around
    return ", ".join(parts)


def _with_line(node: Node) -> str:
    at = node.location
    return called(node).op.name + (f" ({at.short})" if at is not None else "")


def _said(name: str, value: Value) -> str:
    return name if value.node is None else f"{name} of {_with_line(value.node)}"


def cannot_finish(run: Run) -> GraphError:
    """Which nodes wait for what, when nothing is ready and the outputs have not come."""
    plan = run.plan
    names = value_names(plan.graph.values())
    lines: list[str] = []
    for at in _iterations(run.root.frame, run.root):
        for number in at.frame.plan.nodes:
            if number == plan.outputs or not at.waits[plan.own[number]]:
                continue
            node = plan.nodes[number]
            inputs = node.inputs[-(plan.stop[number] - plan.start[number]) :]
            came = at.entries[plan.start[number] : plan.stop[number]]
            missing = [_said(names[v], v) for v, x in zip(inputs, came, strict=False) if x is None]
            if len(missing) < len(inputs):  # others only wait for these
                where = iteration_text(at)
                lines.append(
                    f"  {_with_line(node)} waits for {', '.join(missing)}"
                    + (f", {where}" if where else "")
                )
    if not lines:
        made = [v.node for v in plan.graph.outputs if v.node is not None]
        lines = [f"  the outputs wait for {called(node).op.name}" for node in made]
    shown = lines[:MOST_NAMED]
    if len(lines) > MOST_NAMED:
        shown.append(f"  and {len(lines) - MOST_NAMED} more")
    return GraphError(
        f"graph @{plan.graph.name} cannot finish: nothing is ready to run\n" + "\n".join(shown),
        hint="a scheduler must run every node that it is given, and a task return all its values",
    )


def _iterations(frame: Frame, root: Iteration) -> list[Iteration]:
    """All iterations that are not done."""
    found = []
    waiting = [root]
    while waiting:
        at = waiting.pop()
        found.append(at)
        for inner in at.frames.values():
            waiting += inner.iterations.values()
    return found
