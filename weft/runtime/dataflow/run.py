"""One run of a plan: frames, iterations, and what becomes ready when a node has run.

Nothing here decides what runs next: schedulers do (`weft.runtime.dataflow.schedulers`). They take
from what is ready, call `step`, and stop when nothing is ready and nothing runs. With several
threads, only the thread that holds the run's lock may call `step`; while a dear node runs, the
scheduler lets go of it (`begin`, `finish`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.runtime.dataflow.arrays import Env
from weft.runtime.dataflow.failures import check_count, explained_error
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.plan import (
    BRANCH,
    ENTER,
    ENTER_FIXED,
    EXIT,
    LOOP_SWITCH,
    NEXT,
    OP,
    ExecutionPlan,
    FramePlan,
    Readers,
)

__all__ = ["Activation", "Frame", "Iteration", "Run"]


class Iteration:
    """One iteration of a frame.

    entries   the values that have come, by entry
    waits     how many inputs each node still waits for, by its number in the frame
    busy      nodes that are ready or run, and frames of loops in it that are not done
    key       where it stands in the program: compares as the interpreter would run
    """

    __slots__ = ("busy", "dead", "entries", "frame", "frames", "key", "number", "waits")

    def __init__(self, frame: Frame, number: int) -> None:
        plan = frame.plan
        self.frame = frame
        self.number = number
        self.entries: list[Any] = plan.blank.copy()
        self.waits = plan.waits.copy()
        self.busy = 0
        self.frames: dict[int, Frame] = {}
        self.dead: set[int] | None = None  # frames that no live value will enter
        self.key: tuple[int, ...] = (*frame.key, number) if plan.index else ()


class Frame:
    """One frame of a loop, begun by an iteration of the frame around it."""

    __slots__ = ("around", "entered", "fixed", "iterations", "key", "oldest", "plan", "waiting")

    def __init__(self, plan: FramePlan, around: Iteration | None) -> None:
        self.plan = plan
        self.around = around
        self.key = (*around.key, plan.first) if around is not None else ()
        self.entered = 0
        self.fixed: list[tuple[Readers, Any]] = []  # what all iterations get
        self.iterations: dict[int, Iteration] = {}
        self.oldest = 0
        self.waiting: list[tuple[Readers, Any]] = []  # for an iteration that may not begin yet


@dataclass(frozen=True, slots=True)
class Failure:
    """What a node raised, and where that node stands in the program."""

    key: tuple[int, ...]
    error: BaseException


def _nobody(_ready: Activation) -> None:
    raise AssertionError("the run has not begun")


#: A node that is ready, and the iteration in which it is.
Activation = tuple[int, Iteration]


class Run:
    """The state of one run.

    results   the outputs, when they have come
    failure   the error to raise: of all nodes that failed, the first in the program
    """

    def __init__(self, plan: ExecutionPlan, options: Dataflow, env: Env) -> None:
        self.plan = plan
        self.options = options
        self.most = options.parallel_iterations
        self.env = env
        self.push: Callable[[Activation], None] = _nobody
        self.results: list[Any] | None = None
        self.failure: Failure | None = None
        self.root = Iteration(Frame(plan.frames[0], None), 0)

    def start(self, inputs: list[Any], push: Callable[[Activation], None]) -> None:
        """Hand over the inputs; the list is emptied. `push` takes nodes that become ready."""
        plan, root = self.plan, self.root
        self.push = push
        for node in plan.sources:
            self.push((node, root))
            root.busy += 1
        if not plan.graph.outputs:
            self.results = []
        given = inputs.copy()
        inputs.clear()
        given.reverse()
        for readers in plan.inputs:
            self.deliver(readers, given.pop(), root)

    # --- one step -----------------------------------------------------------------------------

    def take(self, node: int, at: Iteration) -> list[Any]:
        """The inputs of a node that is ready; nobody else holds them any more."""
        plan = self.plan
        start, stop = plan.start[node], plan.stop[node]
        entries = at.entries
        values = entries[start:stop]
        for entry in range(start, stop):
            entries[entry] = None
        return values

    def step(self, node: int, at: Iteration, env: Env) -> None:
        """Run a node, and hand on its results."""
        if self.plan.kind[node] == OP:
            self.finish(node, at, self.call(node, at, self.take(node, at), env))
        else:
            self.route(node, at)

    def call(self, node: int, at: Iteration, values: list[Any], env: Env) -> Any:
        """What a task returns for these values."""
        task = self.plan.tasks[node]
        assert task is not None
        return task.call(values, env)

    def attempt(self, node: int, at: Iteration, env: Env | None = None) -> None:
        """`step`, with errors noted; nothing, if an error makes the node useless."""
        if self.failure is not None and not self.wanted(node, at):
            return
        try:
            self.step(node, at, env or self.env)
        except Exception as error:
            self.fail(node, at, error)

    def finish(self, node: int, at: Iteration, out: Any) -> None:
        """Hand on what a node returned."""
        readers = self.plan.readers[node]
        if len(readers) == 1:
            self.deliver(readers[0], out, at)
        else:
            check_count(self.plan.nodes[node], out)
            for each, value in zip(readers, out, strict=True):
                self.deliver(each, value, at)
        self.done(at)

    def deliver(self, readers: Readers, value: Any, at: Iteration) -> None:
        """Put a live value where it is read."""
        entries, waits, own, push = at.entries, at.waits, self.plan.own, self.push
        for entry, node in readers:
            entries[entry] = value
            place = own[node]
            left = waits[place] - 1
            waits[place] = left
            if not left:
                at.busy += 1
                push((node, at))

    def done(self, at: Iteration) -> None:
        at.busy -= 1
        if not at.busy and at.frame.plan.index:
            self._advance(at.frame)

    def route(self, node: int, at: Iteration) -> None:
        """A node of control flow."""
        plan = self.plan
        kind = plan.kind[node]
        values = self.take(node, at)
        readers = plan.readers[node]
        if kind == LOOP_SWITCH:
            value, predicate = values
            self.deliver(readers[0 if predicate else 1], value, at)
        elif kind == BRANCH:
            value, predicate = values
            sides = plan.sides[node]
            live = min(max(int(predicate), 0), sides - 1) if sides else int(not predicate)
            self.deliver(readers[live], value, at)
            for side, heirs in enumerate(plan.heirs[node]):
                if side != live:
                    self.kill(heirs, at)
        elif kind == NEXT:
            self._next(at, readers[0], values[0])
        elif kind == EXIT:
            around = at.frame.around
            assert around is not None
            self.deliver(readers[0], values[0], around)
        elif kind in (ENTER, ENTER_FIXED):
            self._enter(at, plan.into[node], readers[0], values[0], kind == ENTER_FIXED)
        else:
            self.results = values
        self.done(at)

    def close(self) -> None:
        """Let go of the scheduler, which holds the run."""
        self.push = _nobody

    # --- errors -------------------------------------------------------------------------------

    def fail(self, node: int, at: Iteration, error: BaseException) -> None:
        """Note what a node raised. Of several errors, the one that an interpreter would meet first
        counts: what stands before it in the program still runs, what stands after does not."""
        key = (*at.key, node)
        if self.failure is None or key < self.failure.key:
            self.failure = Failure(key, explained_error(self.plan, node, at, error))

    def stop(self, error: BaseException) -> None:
        """End the run for what is no error of a node: Ctrl-C in another thread."""
        self.failure = Failure((), error)

    def wanted(self, node: int, at: Iteration) -> bool:
        """Whether a node may still run after a failure."""
        return self.failure is None or (*at.key, node) < self.failure.key

    # --- frames -------------------------------------------------------------------------------

    def _enter(self, at: Iteration, index: int, readers: Readers, value: Any, fixed: bool) -> None:
        frame = at.frames.get(index)
        if frame is None:
            frame = at.frames[index] = Frame(self.plan.frames[index], at)
            frame.iterations[0] = Iteration(frame, 0)
            at.busy += 1
        frame.entered += 1
        if fixed:
            frame.fixed.append((readers, value))
            for iteration in frame.iterations.values():
                self.deliver(readers, value, iteration)
        else:
            self.deliver(readers, value, frame.iterations[0])
        if not frame.iterations[frame.oldest].busy:
            self._advance(frame)

    def _next(self, at: Iteration, readers: Readers, value: Any) -> None:
        """Give a value to the next iteration, or keep it until that may begin."""
        frame, number = at.frame, at.number + 1
        following = frame.iterations.get(number)
        if following is None:
            if number - frame.oldest >= self.most:
                frame.waiting.append((readers, value))
                return
            following = self._begin(frame, number)
        self.deliver(readers, value, following)

    def _begin(self, frame: Frame, number: int) -> Iteration:
        made = frame.iterations[number] = Iteration(frame, number)
        for readers, value in frame.fixed:
            self.deliver(readers, value, made)
        return made

    def _advance(self, frame: Frame) -> None:
        """End the oldest iterations that are done; then others may begin, or the loop is done."""
        if frame.entered < frame.plan.enters:
            return
        iterations = frame.iterations
        while True:
            oldest = iterations.get(frame.oldest)
            if oldest is None or oldest.busy:
                break
            del iterations[frame.oldest]
            frame.oldest += 1
            if frame.waiting:
                waiting, frame.waiting = frame.waiting, []
                following = self._begin(frame, frame.oldest + self.most - 1)
                for readers, value in waiting:
                    self.deliver(readers, value, following)
        if not iterations:
            around = frame.around
            assert around is not None
            del around.frames[frame.plan.index]
            self.done(around)

    # --- dead values --------------------------------------------------------------------------

    def kill(self, heirs: Readers, at: Iteration) -> None:
        """Tell those who read a value that it is dead; what has only dead inputs is dead, too."""
        plan, waits = self.plan, at.waits
        waiting = [heirs]
        while waiting:
            for _entry, node in waiting.pop():
                place = plan.own[node]
                waits[place] -= 1
                kind = plan.kind[node]
                if kind in (ENTER, ENTER_FIXED):  # a dead loop has no frame, only dead exits
                    at.dead = at.dead or set()
                    index = plan.into[node]
                    if index not in at.dead:
                        at.dead.add(index)
                        for out in plan.frames[index].exits:
                            waiting += plan.heirs[out]
                elif not waits[place]:
                    waiting += plan.heirs[node]
