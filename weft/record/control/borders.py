"""History nodes at which the histories inside of a recorded body begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.autodiff.node import Barrier, Node, OpNode
from weft.base.errors import CaptureError, GradientError
from weft.base.shapes import Shape
from weft.base.source import SourceLocation, user_location


class Border(Barrier):
    """The history of an input of a nested graph; what lies behind it is hidden.

    asked   targets of the backward passes that reached it; the hidden history may lead to them
    place   the source line of the last such pass
    behind  the hidden histories: the one before the loop, the one of the previous iteration
    """

    __slots__ = ("asked", "behind", "place")

    message = "a backward inside of a loop body reaches a value from outside of this iteration"
    hint = "cut its history, x = x.detach(), or call backward after the loop"

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
    """A history node of the previous iteration, on arrays that the loop carries."""

    __slots__ = ()

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        if create:
            raise CaptureError(
                f"create_graph=True through {self.name()}, which the previous iteration computed",
                op="backward",
                hint="compute the loss in the iteration that differentiates it",
            )
        return super().apply(g, create, keep, wanted)
