"""The roles of items in a training step, and the forward ops of backward steps.

Nodes recorded during a backward pass or an optimizer step have a role in their location
(`weft.base.source`). The role of other nodes follows from their place in the graph.
"""

from __future__ import annotations

from collections import defaultdict

from weft.base.source import SourceLocation
from weft.inspect.view.drawing import Drawing, Item

__all__ = ["assign_roles", "pair_up"]

#: The most partners that are listed; a line in a loop may have many.
MOST_PARTNERS = 24


def assign_roles(drawing: Drawing) -> None:
    """Set the role, the path and the partners of each item."""
    items = drawing.items
    users, operands = drawing.users(), drawing.operands()
    for item in items:
        item.path = _path(item)
    # Items that depend on no input belong to their users: constants, the start of a gradient.
    free = [False] * len(items)
    for i, item in enumerate(items):
        free[i] = item.kind in ("op", "constant") and all(free[j] for j in operands[i])
    for i in reversed(range(len(items))):
        if free[i] and users[i] and not items[i].role:
            first = items[min(users[i])]
            if first.kind != "result":
                items[i].role = first.role
                items[i].path = first.path if first.scope == items[i].scope else items[i].path
    for i, item in enumerate(items):  # users of a nested graph's result use the op around it
        head = drawing.scopes[drawing.scopes[item.scope].parent].head if item.scope else None
        if item.kind == "result" and head is not None:
            users[head] += users[i]
    _find_updates(items, users, operands)
    for i, item in enumerate(items):
        if item.kind == "result" and operands[i]:
            item.role = items[operands[i][0]].role
        item.role = item.role or "forward"
    pair_up(items)


def _find_updates(items: list[Item], users: list[list[int]], operands: list[list[int]]) -> None:
    """Find updates written by the user: ops that depend on gradients, and no gradient on them."""
    after = [False] * len(items)
    for i, item in enumerate(items):
        after[i] = item.role == "backward" or any(after[j] for j in operands[i])
    before = [False] * len(items)
    for i in reversed(range(len(items))):
        before[i] = items[i].role == "backward" or any(before[j] for j in users[i])
    for i, item in enumerate(items):
        if after[i] and not before[i] and not item.role and item.kind in ("op", "control"):
            item.role = "update"


def _path(item: Item) -> tuple[str, ...]:
    """The path of the module of an item."""
    if item.module:
        return tuple(item.module.split("."))
    return ()


def pair_up(items: list[Item]) -> None:
    """Set the partners of forward ops and of their backward steps."""
    exact: dict[tuple[SourceLocation, str], list[int]] = defaultdict(list)
    same_line: dict[SourceLocation, list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        where = item.location
        if where is not None and item.role != "backward" and item.kind in ("op", "control"):
            exact[where, item.title].append(i)
            same_line[where].append(i)
    for i, item in enumerate(items):
        where = item.location
        if where is None or where.forward is None or item.kind == "constant":
            continue
        # A pass may have replaced the op that was differentiated.
        found = exact.get((where.forward, where.of)) or same_line.get(where.forward, [])
        for partner in found[:MOST_PARTNERS]:
            item.partners.append(partner)
            if len(items[partner].partners) < MOST_PARTNERS:
                items[partner].partners.append(i)
