"""What ran when and where in one run: for profiles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.ir.graph import Node
from weft.ops.flow import called
from weft.runtime.dataflow.arrays import Env
from weft.runtime.dataflow.failures import iteration_text
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.plan import ExecutionPlan
from weft.runtime.dataflow.run import Activation, Iteration, Run

__all__ = ["Timeline", "TimelineStep"]

#: Of one run, at most so many steps are kept.
MOST = 200_000


def now() -> int:
    """The time in ns, by the clock that profiles use."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@dataclass(eq=False, slots=True)
class TimelineStep:
    """One node in one iteration.

    ready     when its last input came, in ns; `start` and `stop`: when it ran
    cause     the step whose result came last; None at the beginning
    where     "in iteration 3 of while_0"
    """

    node: Node
    device: str
    where: str
    ready: int
    start: int
    stop: int
    thread: int
    cause: TimelineStep | None = None
    is_control: bool = False


@dataclass(slots=True)
class Timeline:
    """The steps of one run, in the order in which they ended.

    left_out   how many further steps are not kept
    """

    steps: list[TimelineStep] = field(default_factory=list)
    start: int = 0
    stop: int = 0
    left_out: int = 0

    def critical_path(self) -> list[TimelineStep]:
        """From the step that ended last back to the first: each made the next one ready."""
        path: list[TimelineStep] = []
        step = max(self.steps, key=lambda step: step.stop, default=None)
        while step is not None:
            path.append(step)
            step = step.cause
        return [step for step in reversed(path) if not step.is_control]

    def busy(self) -> dict[str, float]:
        """For each device the share of the run in which at least one of its nodes ran."""
        whole = max(1, self.stop - self.start)
        found: dict[str, float] = {}
        for device in dict.fromkeys(step.device for step in self.steps if not step.is_control):
            spans = sorted(
                (step.start, step.stop)
                for step in self.steps
                if step.device == device and not step.is_control
            )
            covered = end = 0
            for start, stop in spans:
                covered += max(0, stop - max(start, end))
                end = max(end, stop)
            found[device] = covered / whole
        return found

    def waited(self) -> int:
        """The ns that nodes waited for a thread, though their inputs were there."""
        return sum(step.start - step.ready for step in self.steps if not step.is_control)


class RecordedRun(Run):
    """A run that notes each step."""

    def __init__(self, plan: ExecutionPlan, options: Dataflow, env: Env) -> None:
        super().__init__(plan, options, env)
        self.timeline = Timeline()
        self._cause: TimelineStep | None = None
        self._ready: dict[tuple[int, Iteration], tuple[int, TimelineStep | None]] = {}
        self._ran: dict[tuple[int, Iteration], TimelineStep] = {}

    def start(self, inputs: list[Any], push: Callable[[Activation], None]) -> None:
        def noted(activation: Activation) -> None:
            self._ready[activation] = now(), self._cause
            push(activation)

        self.timeline.start = now()
        super().start(inputs, noted)

    def call(self, node: int, at: Iteration, values: list[Any], env: Env) -> Any:
        start = now()
        try:
            return super().call(node, at, values, env)
        finally:
            task = self.plan.tasks[node]
            self._note(node, at, start, task.device if task is not None else "cpu")

    def finish(self, node: int, at: Iteration, out: Any) -> None:
        self._cause = self._ran.pop((node, at), None)
        super().finish(node, at, out)

    def route(self, node: int, at: Iteration) -> None:
        start = now()
        if node != self.plan.outputs:
            self._note(node, at, start, "cpu", is_control=True)
            self._cause = self._ran.pop((node, at), None)
        super().route(node, at)

    def close(self) -> None:
        super().close()
        self.timeline.stop = now()
        self._ready.clear()
        self._ran.clear()
        self._cause = None

    def _note(
        self, node: int, at: Iteration, start: int, device: str, is_control: bool = False
    ) -> None:
        key = (node, at)
        ready, cause = self._ready.pop(key, (start, None))
        step = TimelineStep(
            called(self.plan.nodes[node]),
            device,
            iteration_text(at),
            ready,
            start,
            now(),
            threading.get_ident(),
            cause,
            is_control,
        )
        self._ran[key] = step
        if len(self.timeline.steps) < MOST:
            self.timeline.steps.append(step)
        else:
            self.timeline.left_out += 1
            step.cause = None  # chains of steps that nobody keeps are freed
