"""Which part of a training step an item belongs to, and which forward op a backward step is of.

What was recorded while gradients passed back, or while an optimizer made its step, says so in its
location (`weft.base.source`). What has no such stamp is told by its place in the graph.
"""

from __future__ import annotations

from collections import defaultdict

from weft.base.source import SourceLocation
from weft.inspect.view.drawing import Drawing, Item

__all__ = ["give_roles", "pair_up"]

#: More partners than these are not listed: a line that a loop ran through many times.
MOST_PARTNERS = 24


def give_roles(drawing: Drawing) -> None:
    """Give each item its role, its path and its partners."""
    items = drawing.items
    users, operands = drawing.users(), drawing.operands()
    for item in items:
        item.path = _path(item)
    # What depends on no input belongs to what uses it: constants, ones, the start of a gradient.
    free = [False] * len(items)
    for i, item in enumerate(items):
        free[i] = item.kind in ("op", "constant") and all(free[j] for j in operands[i])
    for i in reversed(range(len(items))):
        if free[i] and users[i] and not items[i].role:
            first = items[min(users[i])]
            if first.kind != "result":
                items[i].role = first.role
                items[i].path = first.path if first.scope == items[i].scope else items[i].path
    for i, item in enumerate(items):  # who uses what a nested graph gives uses the op around it
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
    """What comes of gradients, and no gradient comes of: an update that the user wrote out."""
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
    """What an item belongs to: its module, or the function that was running."""
    if item.module:
        return tuple(item.module.split("."))
    return ()


def pair_up(items: list[Item]) -> None:
    """Let forward ops and the backward steps derived from them know each other."""
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
        # A pass may have put another op in the place of the one that was differentiated.
        found = exact.get((where.forward, where.of)) or same_line.get(where.forward, [])
        for partner in found[:MOST_PARTNERS]:
            item.partners.append(partner)
            if len(items[partner].partners) < MOST_PARTNERS:
                items[partner].partners.append(i)
