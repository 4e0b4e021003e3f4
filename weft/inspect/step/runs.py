"""Runs one graph for a stepper, which decides before and after each node whether to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.source import SourceLocation
from weft.inspect.frames import Frames, line_of
from weft.inspect.step.names import Names
from weft.inspect.step.place import Place
from weft.ir.graph import Node
from weft.ir.interpret import PreparedGraph
from weft.ir.literal import CONSTANT
from weft.ops.cards import FENCE, FIRST_TOKEN, STOP_GRADIENT

if TYPE_CHECKING:
    from weft.inspect.step.stepper import Stepper

__all__ = ["Run", "line_key"]

#: Nodes that compute nothing: the run does not stop at them.
SILENT = (CONSTANT, FIRST_TOKEN, STOP_GRADIENT, FENCE)


def line_key(location: SourceLocation | None) -> tuple[str, int, str] | None:
    """A key for the user's line of a node; for backward steps, the forward line."""
    about = line_of(location)
    if location is None or about is None:
        return None
    return about.file, about.line, location.role


class Run(Frames):
    """Watches one run of a graph for a stepper."""

    def __init__(self, stepper: Stepper, names: Names, is_last: bool) -> None:
        super().__init__()
        self.is_last = is_last  # whether the function ends with this graph
        self.stepper = stepper
        self.names = names
        self.line: tuple[str, int, str] | None = None  # of the previous node
        self.entered = True  # whether a graph has started since

    def place(self, node: Node | None, is_after: bool = False) -> Place:
        captured = self.stepper.stage == "captured"
        return Place(self.names, list(self.frames), self.loops(), node, is_after, captured)

    def begin(self, program: PreparedGraph, slots: list[Any]) -> None:
        super().begin(program, slots)
        self.entered = True

    def before(self, node: Node, slots: list[Any]) -> None:
        super().before(node, slots)
        if node.op in SILENT:
            return
        line = line_key(node.location)
        arrives = line is not None and (self.entered or line != self.line)
        if line is not None:
            self.line, self.entered = line, False
        if self.stepper.stops_before(self, node, arrives):
            self.stepper.stop(self.place(node))

    def after(self, node: Node, slots: list[Any]) -> None:
        super().after(node, slots)
        if self.stepper.stops_after(self, node, slots[len(slots) - len(node.outputs) :]):
            self.stepper.stop(self.place(node, is_after=True))

    def end(self, program: PreparedGraph, slots: list[Any]) -> None:
        if len(self.frames) == 1 and self.is_last and self.stepper.stops_at_end():
            self.stepper.stop(self.place(None))
        if len(self.frames) == 1:
            self.names.finished.append(self.frames[0])
        super().end(program, slots)

    def failed(self, node: Node, error: Exception) -> None:
        self.stepper.failed(self.place(node), error)
