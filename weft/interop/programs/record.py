"""One recording of a function for a program: its graph, its state, and what is written to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from weft.base.dim_algebra import replaced
from weft.base.dims import dims_in
from weft.base.errors import CaptureError
from weft.base.gc_pause import gc_paused
from weft.base.source import SourceLocation
from weft.capture.trace.captured import Captured
from weft.capture.trace.inspectable import Policy
from weft.capture.trace.recorder import TraceRecorder
from weft.capture.trace.segments import Ending, array_tensor
from weft.capture.trace.sizes import SizePlan
from weft.capture.watch.origin import Origin
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Trait
from weft.ir.text import graph_text

__all__ = ["PinnedSize", "Recorded", "recorded_run", "refuse"]

Args = tuple[tuple[Any, ...], dict[str, Any]]


def refuse(why: str, hint: str = "", location: SourceLocation | None = None) -> NoReturn:
    error = CaptureError(why, op="export", hint=hint)
    error.location = location or error.location
    raise error


class PinnedSize(CaptureError):
    """The function holds only for one number of a named size: perhaps as it compared the size with
    the number of the example by chance."""


@dataclass
class SpecPlan(SizePlan):
    """The symbolic shapes of the example tensors, by their ids."""

    call: Args = ((), {})
    table: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def shape_of(self, origin: Origin, facts: Any, in_module: bool) -> tuple[int, ...] | None:
        found = origin.evaluate(*self.call) if origin.from_args else None
        shape = self.table.get(id(found))
        if shape is None:
            return None
        shape = tuple([replaced(size, self.relations) for size in shape])
        return shape if any(True for _ in dims_in(shape)) else None

    def related(self, asked: Any) -> SpecPlan | None:
        made = super().related(asked)
        if made is None:
            return None
        known = made.shapes, made.hints, False, made.relations, made.asked_at
        return SpecPlan(*known, call=self.call, table=self.table)


class ProgramRecorder(TraceRecorder):
    """Records on examples, whose values mean nothing."""

    #: Gradients may be asked for that this run does not see.
    marks_all = True

    def _ask(self, value: Value, kind: str) -> Any:
        refuse(
            f"Python asks a tensor for its value ({kind}), and a program has no Python that could "
            "go on with it",
            "use tensor operations; a program holds if, while and for on tensors, and slices and "
            "masks whose sizes depend on values",
        )

    def decide(self, condition: Tensor) -> bool:
        refuse(
            "whether a tensor gets a gradient depends on values: it takes part only on one way "
            "through an `if` or a loop",
            "let it take part on all ways, times 0 where it does not count",
        )


@dataclass
class Recorded:
    """A run as one segment.

    places  the origin of each place of the signature, and the live object there
    """

    recorder: TraceRecorder
    ending: Ending
    objects: list[Any]
    undo: Callable[[], None]

    @property
    def inputs(self) -> list[Any]:
        return self.recorder.segments[0].inputs

    @property
    def nodes(self) -> list[Node]:
        return self.recorder.segments[0].nodes


def _never(*_: Any) -> Any:
    raise AssertionError("a recording for a program is not run")


def recorded_run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: Mapping[int, tuple[int, ...]],
    sizes: Mapping[str, int],
) -> Recorded:
    """Record one run on examples. `shapes`: the symbolic shapes of some of them, by id."""
    captured: Captured[..., Any] = Captured(function, _never, Policy(dynamic=False))
    if not captured._has_source():
        refuse("the function has no source", "define it in a file")
    plan: SpecPlan | None = None
    if shapes:
        plan = SpecPlan({}, dict(sizes), call=(args, kwargs), table=dict(shapes))
    captured.make_recorder = lambda args, kwargs: ProgramRecorder(args, kwargs, records=True)
    captured._defers_calls = False
    while True:
        with gc_paused():
            recorder, ending, trouble = captured._run_recorded(args, kwargs, False, plan)
        try:
            again = None if plan is None or recorder.sizes is None else _again(recorder)
        except CaptureError:
            recorder.watch.undo_first_calls()
            raise
        if again is None:
            break
        plan = again  # type: ignore[assignment]
    try:
        return _checked(recorder, ending, trouble, args, kwargs)
    except BaseException:
        recorder.watch.undo_first_calls()
        raise


def _again(recorder: TraceRecorder) -> SizePlan | None:
    """The plan for another recording, if the code has found out that sizes depend on others."""
    sizes = recorder.sizes
    assert sizes is not None
    asked = sizes.asked
    if not asked.relations and recorder.holds_together() and not sizes.trouble:
        return None
    found = sizes.plan.related(asked)
    if found is None:
        refuse(f"its sizes cannot stay open: {sizes.trouble or 'types do not follow'}")
    for name, value in found.relations.items():
        if not any(True for _ in dims_in((value,))):
            why = found.asked_at.get(name, "")
            raise PinnedSize(
                f"the size {name} can only be {value}: {why}",
                op="export",
                hint=f"give the number in the spec: {value} in the place of {name!r}",
            )
    return found


def _checked(
    recorder: TraceRecorder,
    ending: Ending | None,
    trouble: Sequence[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Recorded:
    if trouble:
        refuse(f"the function cannot be held as a graph: {trouble[0]}")
    assert ending is not None
    assert len(recorder.segments) == 1
    check_nodes(recorder.segments[0].nodes)
    objects = [origin.evaluate(args, kwargs) for origin in ending.origins]
    return Recorded(recorder, ending, objects, recorder.watch.undo_first_calls)


def check_nodes(nodes: Sequence[Node]) -> None:
    """Refuse calls into Python, and what has no text."""
    for node in nodes:
        if Trait.PYTHON in node.op.traits:
            called = node.attrs.get("function") or node.attrs.get("call")
            name = getattr(getattr(called, "function", called), "__qualname__", repr(called))
            said = node.op.says.format(name=name) if node.op.says else f"calls {name}"
            refuse(
                f"the function {said}, which only this process can do",
                "leave it out of the function; use tensor operations in its place",
                node.location,
            )
        for graph in node.graphs:
            check_nodes(graph.nodes)
        alone = Graph("part")
        alone.nodes = [Node(node.op, (), node.attrs, [v.type for v in node.outputs])]
        if "opaque(" in graph_text(alone, locations=False, history=False):
            refuse(
                f"{node.op.name} has an attribute that cannot be written down",
                "",
                node.location,
            )


def as_state(obj: Any, name: str) -> Tensor:
    """The value at a place outside, as a tensor of the program's state."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, (np.ndarray, bool, int, float, complex)):
        return array_tensor(np.asarray(obj))
    refuse(
        f"{name} is a {type(obj).__name__}: the result holds it, and a program holds tensors only"
    )
