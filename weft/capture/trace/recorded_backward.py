"""The backward of a call's results, which is recorded before anybody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import FreedError
from weft.base.errors import CaptureError, CaptureGradientError, GradientError
from weft.ir.graph import Node


class NoNumbers(CaptureError):
    """A hook or rule asks for the value of a gradient that arrives after the call."""

    def __init__(self) -> None:
        super().__init__("the gradient of a result has no numbers in a recording")


#: Why a backward cannot go through the history of a result.
BARRED = (FreedError, CaptureGradientError)


def barred(
    roots: Sequence[Any], differentiate: Callable[[Sequence[Any]], Any]
) -> dict[int, GradientError]:
    """The results whose histories no backward can go through, with its error: one inside of the
    function has freed it, or a graph does not hold what it needs."""
    found: dict[int, GradientError] = {}
    for number, root in enumerate(roots):
        try:
            differentiate([root])
        except BARRED as error:
            found[number] = error
    return found


def needed(earlier: Sequence[Node], nodes: Sequence[Node], wanted: Sequence[Any]) -> list[Node]:
    """Of the nodes of earlier attempts, those whose results are used."""
    used = {*wanted, *[value for node in nodes for value in node.inputs]}
    found: list[Node] = []
    for node in reversed(earlier):
        if used.intersection(node.outputs):
            found.append(node)
            used.update(node.inputs)
    return found[::-1]
