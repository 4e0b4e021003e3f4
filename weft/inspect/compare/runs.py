"""Records runs of graphs with their inputs and outputs, and replays them in the interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.inspect.arrays import copy_of
from weft.inspect.frames import Frame, Frames
from weft.ir.graph import Graph, Node
from weft.ir.interpret import PreparedGraph
from weft.ops.effects import silently
from weft.runtime.executable import Executable, instrumented

__all__ = ["Event", "GraphRun", "copied", "recorded_runs", "replayed", "silently"]


@dataclass(frozen=True, slots=True)
class Event:
    """One run of a node; in a loop body, one for each iteration.

    inner   the nested graphs that it ran, in order, each with its inputs
    """

    node: Node
    inputs: list[Any]
    outputs: list[Any]
    loops: list[tuple[Node, int]]
    depth: int
    inner: list[tuple[Graph, list[Any]]]


@dataclass(frozen=True, slots=True)
class GraphRun:
    """A call of an executable."""

    executable: Executable
    inputs: list[Any]
    outputs: list[Any]


def copied(value: Any) -> Any:
    """A copy of a tensor; other values, such as stacks, are returned as they are."""
    data = copy_of(value) if isinstance(value, Tensor) else None
    return value if data is None else wrap(data)


@contextlib.contextmanager
def recorded_runs() -> Iterator[list[GraphRun]]:
    """Record each call of an executable, with copies of its inputs and outputs."""
    runs: list[GraphRun] = []

    def note(executable: Executable, inputs: list[Tensor], proceed: Any) -> list[Tensor]:
        given = [copied(x) for x in inputs]
        found: list[Tensor] = proceed(inputs)
        runs.append(GraphRun(executable, given, [copied(x) for x in found]))
        return found

    with instrumented(note):
        yield runs


class _Events(Frames):
    """Records the results of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.inner: list[list[tuple[Graph, list[Any]]]] = []

    def begin(self, program: PreparedGraph, slots: list[Any]) -> None:
        if self.inner:
            self.inner[-1].append((program.graph, list(slots)))
        super().begin(program, slots)

    def before(self, node: Node, slots: list[Any]) -> None:
        super().before(node, slots)
        self.inner.append([])

    def after(self, node: Node, slots: list[Any]) -> None:
        super().after(node, slots)
        frame: Frame = self.frames[-1]
        outputs = slots[len(slots) - len(node.outputs) :]
        ran = self.inner.pop()
        depth = len(self.frames) - 1
        self.events.append(Event(node, frame.given(node), outputs, self.loops(), depth, ran))


def replayed(graph: Graph, inputs: list[Any]) -> tuple[list[Any], list[Event]]:
    """Interpret a graph without printing; returns its outputs and the results of each node."""
    program = PreparedGraph(graph)
    watch = _Events()
    with silently(), no_grad():
        slots = program.run([copied(x) for x in inputs], bind, watch=watch)
    return [slots[i] for i in program.outputs], watch.events
