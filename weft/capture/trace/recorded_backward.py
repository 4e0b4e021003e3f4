"""The backward of a call's results, which is recorded before anybody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import FreedError
from weft.base.errors import CaptureError
from weft.ir.graph import Node


class NoNumbers(CaptureError):
    """A hook or rule asks for the value of a gradient that arrives after the call."""

    def __init__(self) -> None:
        super().__init__("the gradient of a result has no numbers in a recording")


def is_freed(root: Any, differentiate: Callable[[Sequence[Any]], Any]) -> bool:
    """Whether a backward inside of the function has freed the history of a result."""
    try:
        differentiate([root])
    except FreedError:
        return True
    return False


def needed(earlier: Sequence[Node], nodes: Sequence[Node], wanted: Sequence[Any]) -> list[Node]:
    """Of the nodes of earlier attempts, those whose results are used."""
    used = {*wanted, *[value for node in nodes for value in node.inputs]}
    found: list[Node] = []
    for node in reversed(earlier):
        if used.intersection(node.outputs):
            found.append(node)
            used.update(node.inputs)
    return found[::-1]
