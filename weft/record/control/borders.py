"""Nodes where the histories that a recorded body sees begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.autodiff.node import Barrier, Node, OpNode
from weft.base.errors import CaptureError, GradientError
from weft.base.shapes import Shape
from weft.base.source import SourceLocation, user_location


class Border(Barrier):
    """Where the history of a value begins inside of a nested graph: its input.

    asked   the targets of backward passes that came by: does the history hidden behind it lead to
            one of them?
    place   the line of the last pass that came by
    behind  the histories that it hides: that before the loop and that of the iteration before
    """

    __slots__ = ("asked", "behind", "place")

    message = "a backward inside of a loop body reaches a value from outside of this iteration"
    hint = "cut the history there, x = x.detach(), or call backward after the loop"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.asked: list[Node] = []
        self.behind: list[Node] = []
        self.place: SourceLocation | None = None

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        self.place = user_location()
        raise BorderError(self)


class BorderError(GradientError, CaptureError):
    """A backward pass needs the history that lies behind a border."""

    def __init__(self, border: Border) -> None:
        super().__init__(border.message, op="backward", hint=border.hint)
        self.border = border


class CarriedNode(OpNode):
    """A node of the iteration before, on arrays that the loop carries."""

    __slots__ = ()

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        if create:
            raise CaptureError(
                f"create_graph=True through {self.name()}, which the iteration before computed",
                op="backward",
                hint="compute the loss in the iteration that differentiates it",
            )
        return super().apply(g, create, keep, wanted)
