"""The state of an interpreted run: the nested graphs that are running, and loop iterations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.base.source import SourceLocation
from weft.ir.graph import Node, Value
from weft.ir.interpret import PreparedGraph, RunObserver

__all__ = ["Frame", "Frames", "line_of", "loops_text"]


@dataclass(slots=True)
class Frame:
    """One graph that is running.

    node        the node that runs now, or ran last
    count       the number of its nodes that have run
    loop        the loop whose body or condition this graph is
    iteration   the iteration of that loop, from 0; -1 outside of loops
    """

    program: PreparedGraph
    slots: list[Any]
    node: Node | None = None
    count: int = 0
    loop: Node | None = None
    iteration: int = -1
    begun: dict[int, int] = field(
        default_factory=dict
    )  # the number of runs of nested graphs of `node`

    def given(self, node: Node) -> list[Any]:
        """The operands of a node."""
        return [self.slots[self.program.place[value]] for value in node.inputs]

    def number(self, value: Value) -> Any:
        """The current content of a value of this graph; None if it is not computed yet."""
        place = self.program.place.get(value)
        return None if place is None or place >= len(self.slots) else self.slots[place]


class Frames(RunObserver):
    """Keeps the frames of one run, the outermost first."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def begin(self, program: PreparedGraph, slots: list[Any]) -> None:
        made = Frame(program, slots)
        if self.frames:
            outer = self.frames[-1]
            assert outer.node is not None
            number = outer.begun.get(id(program), 0)
            outer.begun[id(program)] = number + 1
            made.loop, made.iteration = outer.loop, outer.iteration
            if outer.node.op.loop:
                made.loop, made.iteration = outer.node, _iteration(outer.node, number)
        self.frames.append(made)

    def before(self, node: Node, slots: list[Any]) -> None:
        frame = self.frames[-1]
        frame.node = node
        frame.begun.clear()

    def after(self, node: Node, slots: list[Any]) -> None:
        frame = self.frames[-1]
        frame.count += 1

    def end(self, program: PreparedGraph, slots: list[Any]) -> None:
        self.frames.pop()

    def loops(self) -> list[tuple[Node, int]]:
        """The enclosing loops, outermost first, each with its current iteration."""
        found: list[tuple[Node, int]] = []
        for frame in self.frames:
            if frame.loop is not None and (not found or found[-1][0] is not frame.loop):
                found.append((frame.loop, frame.iteration))
        return found


def _iteration(node: Node, number: int) -> int:
    """The iteration of a loop; a reverse scan counts down."""
    if node.attrs.get("reverse") and isinstance(node.attrs["length"], int):
        return int(node.attrs["length"]) - 1 - number
    return number


def line_of(location: SourceLocation | None) -> SourceLocation | None:
    """The line of a node; for a backward step, the line of the forward call."""
    if location is None:
        return None
    return location.forward or location


def loops_text(loops: list[tuple[Node, int]]) -> str:
    """in iteration 3 of the while at model.py:12"""
    parts = []
    for node, iteration in reversed(loops):
        where = line_of(node.location)
        at = f" at {where.file}:{where.line}" if where else ""
        parts.append(f"in iteration {iteration} of the {node.op.name}{at}")
    return ", ".join(parts)
