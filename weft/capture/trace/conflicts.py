"""Which results of a call free parts of each other's history in a backward pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.autodiff.node import Node as HistoryNode
from weft.capture.trace.segments import Conflicts
from weft.record.control.node import ControlNode


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
