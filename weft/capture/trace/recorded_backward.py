"""The backward of a call's results, which is recorded before anybody asks for it.

Results may free parts of each other's history: `conflicts` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft.autodiff.node import FreedError
from weft.autodiff.node import Node as HistoryNode
from weft.base.errors import CaptureError, CaptureGradientError, GradientError
from weft.capture.trace.segments import Conflicts
from weft.ir.graph import Node
from weft.record.control.node import ControlNode


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


def conflicts(roots: Sequence[HistoryNode], ends: Collection[HistoryNode]) -> Conflicts:
    """For each result, those whose backward frees nodes of its history, so that it has none after.

    A result is among its own. Nodes behind a loop or branch do not count for other results: eagerly
    the loop is many nodes, and each result may have its own of them.
    """
    behind = [_freed_by(root, ends) for root in roots]
    found = []
    for i, (mine, own) in enumerate(behind):
        others = [j for j, (theirs, _) in enumerate(behind) if j != i and mine & theirs]
        found.append(frozenset([*others, i] if own else others))
    return tuple(found)


def _freed_by(root: HistoryNode, ends: Collection[HistoryNode]) -> tuple[set[HistoryNode], bool]:
    """The nodes up to loops and branches that a backward frees, and whether it frees any."""
    seen: set[HistoryNode] = set()
    stack = [root]
    frees = False
    while stack:
        node = stack.pop()
        if node in seen or node in ends:
            continue
        if isinstance(node, ControlNode):
            frees = True
            continue
        seen.add(node)
        stack += [edge for edge in node.edges if edge is not None]
    found = {node for node in seen if node.frees()}
    return found, frees or bool(found)
