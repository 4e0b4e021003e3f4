"""Which results of a call free something of each other when they go backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.autodiff.node import Node as HistoryNode
from weft.capture.trace.segments import Conflicts
from weft.record.control.node import ControlNode


def conflicts(roots: Sequence[HistoryNode], ends: Collection[HistoryNode]) -> Conflicts:
    """For each result, those after whose backward it has none: they share something that is freed.

    A result is among its own. What is behind a loop or branch does not count for others: eagerly
    this is many nodes, and each result may have its own of them.
    """
    behind = [_freed_by(root, ends) for root in roots]
    found = []
    for i, (mine, own) in enumerate(behind):
        others = [j for j, (theirs, _) in enumerate(behind) if j != i and mine & theirs]
        found.append(frozenset([*others, i] if own else others))
    return tuple(found)


def _freed_by(root: HistoryNode, ends: Collection[HistoryNode]) -> tuple[set[HistoryNode], bool]:
    """The nodes up to loops and branches that a backward frees; whether it frees any at all."""
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
