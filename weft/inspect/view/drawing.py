"""The drawing of a graph of any kind: items, edges and scopes.

An item is one box or pill: an op, an input, a result, a constant. Scopes are the nested graphs of
control flow: each op of control flow is a scope, with one scope in it for each of its graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from weft.base.source import SourceLocation

__all__ = ["ROLES", "Drawing", "Item", "Scope"]

ROLES = ("forward", "backward", "update")


@dataclass(eq=False)
class Item:
    """
    kind      "op", "control" (the head of a scope), "input", "result", "constant" or "leaf"
    note      the text below the title: attributes, operands that are numbers
    outputs   for each result: its name, its type, and its bytes if they are known
    path      the modules that contain it, outermost first
    hidden    not drawn: a constant number, which the note of its users shows (the page can draw
              it), or the head of control flow without edges
    argument  whether it is an input that the caller of the function gives
    """

    kind: str
    title: str
    scope: int = 0
    role: str = ""
    note: str = ""
    outputs: list[tuple[str, str, int | None]] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    flops: int | None = None
    moved: int | None = None
    location: SourceLocation | None = None
    path: tuple[str, ...] = ()
    partners: list[int] = field(default_factory=list)
    kernel: str = ""
    hidden: bool = False
    argument: bool = False
    more: dict[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module that it belongs to; for a backward step, that of the forward call."""
        where = self.location
        if where is None:
            return ""
        return where.forward.module if where.forward is not None else where.module


@dataclass(frozen=True, slots=True)
class Scope:
    """An op of control flow (`head` is its item), or one of its graphs."""

    label: str
    parent: int
    head: int | None = None


@dataclass(eq=False)
class Drawing:
    """
    stage       "captured", "optimized", "scheduled", or "" if there is only one
    recording   the name of the recording, if a function has several
    scopes      the first is the graph itself
    edges       (from, to, number of the result), by the numbers of the items
    """

    name: str
    kind: str = "graph"
    stage: str = ""
    recording: str = ""
    notes: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, item: Item) -> int:
        """Add an item; returns its number."""
        self.items.append(item)
        return len(self.items) - 1

    def scope(self, label: str, parent: int, head: int | None = None) -> int:
        """Add a scope; returns its number."""
        self.scopes.append(Scope(label, parent, head))
        return len(self.scopes) - 1

    def users(self) -> list[list[int]]:
        """The users of each item."""
        found: list[list[int]] = [[] for _ in self.items]
        for start, end, _ in self.edges:
            found[start].append(end)
        return found

    def operands(self) -> list[list[int]]:
        """The operands of each item."""
        found: list[list[int]] = [[] for _ in self.items]
        for start, end, _ in self.edges:
            found[end].append(start)
        return found

    def enclosing(self, scope: int) -> Iterator[int]:
        """A scope and the enclosing ones, up to the graph itself."""
        while scope >= 0:
            yield scope
            scope = self.scopes[scope].parent


def as_json(item: Item, locations: dict[SourceLocation, int]) -> dict[str, Any]:
    """An item as data for the page, without empty fields."""
    where = item.location
    found: dict[str, Any] = {
        "kind": item.kind,
        "title": item.title,
        "role": item.role,
        "note": item.note,
        "outputs": [{"name": n, "type": t, "bytes": b} for n, t, b in item.outputs],
        "attrs": item.attrs,
        "flops": item.flops,
        "moved": item.moved,
        "at": None if where is None else locations[where],
        "forward": None if where is None or where.forward is None else locations[where.forward],
        "of": "" if where is None else where.of,
        "partners": item.partners,
        "kernel": item.kernel,
        "hidden": item.hidden,
        "more": item.more,
    }
    said = {key: value for key, value in found.items() if value is not None and value is not False}
    return {key: value for key, value in said.items() if value not in ("", [], {})}
