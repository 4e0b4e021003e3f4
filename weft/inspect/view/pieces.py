"""Cuts the edges of a folded drawing where they cross the borders of folds.

Each fold has its own layout, so an edge is cut where it crosses a border. There the fold has a
port: one for each box outside that edges lead to. The pieces do not depend on which folds are open:
a closed fold hides the pieces inside it.
"""

from __future__ import annotations

from collections import defaultdict

from weft.inspect.view.drawing import Drawing, Item
from weft.inspect.view.folding import Folding

__all__ = ["ROOT", "Key", "Piece", "Pieces"]

#: ("item", number), ("fold", number), or a port: ("in", key beside the fold), ("out", …).
Key = tuple[str, object]
#: A piece of an edge: the fold that contains it, its start and its end.
Piece = tuple[int, Key, Key]
#: The graph itself, around all folds.
ROOT = -1


def is_drawn(item: Item) -> bool:
    """Whether an item has a place in the layout; hidden constants have one, too."""
    return item.kind == "constant" or not item.hidden


class Pieces:
    """
    children   the children of each fold, in order
    counts     the number of ops in each fold
    paths      the pieces of each edge, from start to end; empty for edges that are not drawn
    inside     the pieces in each fold
    """

    def __init__(self, drawing: Drawing, folding: Folding) -> None:
        self.drawing = drawing
        self.folds = folding.folds
        self.of = folding.of
        self._around = [[ROOT]]  # for children of the root, then for those of each fold
        for number, fold in enumerate(self.folds):
            self._around.append([number, *self._around[fold["parent"] + 1]])
        self.children: dict[int, list[Key]] = defaultdict(list)
        self.counts = [0] * len(self.folds)
        self._collect()
        self.paths = self._paths()
        self.inside: dict[int, dict[tuple[Key, Key], None]] = defaultdict(dict)
        for path in self.paths:
            for at, start, end in path:
                self.inside[at][start, end] = None

    def around(self, item: int) -> list[int]:
        """The folds that contain an item, from the innermost to the graph itself."""
        return self._around[self.of[item] + 1]

    def _collect(self) -> None:
        """Sort boxes by their first op, which is a topological order."""
        first: dict[Key, tuple[bool, int]] = {}
        for number, item in enumerate(self.drawing.items):
            place = item.kind in ("input", "constant", "leaf"), number
            if is_drawn(item):
                first["item", number] = (False, number)
            for fold in self.around(number)[:-1]:
                key: Key = ("fold", fold)
                first[key] = min(first.get(key, place), place)
                self.counts[fold] += item.kind in ("op", "control")
        for key in sorted(first, key=lambda key: first[key][1]):
            kind, at = key
            assert isinstance(at, int)
            parent = self.of[at] if kind == "item" else self.folds[at]["parent"]
            self.children[parent].append(key)

    def _paths(self) -> list[list[Piece]]:
        items = self.drawing.items
        users = self.drawing.users()
        found: list[list[Piece]] = []
        for start, end, _ in self.drawing.edges:
            drawn = is_drawn(items[start]) and is_drawn(items[end])
            # An input is drawn at its first use; edges to all uses would cross everything.
            if drawn and items[start].kind in ("input", "leaf"):
                first = min(users[start])
                drawn = end == first or items[end].role == items[first].role
            found.append(self._cut(start, end) if drawn else [])
        return found

    def _cut(self, start: int, end: int) -> list[Piece]:
        up, down = self.around(start), self.around(end)
        shared = next(fold for fold in up if fold in down)
        outward, inward = up[: up.index(shared)], down[: down.index(shared)][::-1]
        inside: Key = ("item", start)
        target: Key = ("item", end)
        first: Key = ("fold", outward[-1]) if outward else inside
        last: Key = ("fold", inward[0]) if inward else target
        path: list[Piece] = []
        for fold in outward:
            path.append((fold, inside, ("out", last)))
            inside = ("fold", fold)
        path.append((shared, first, last))
        targets: list[Key] = [*(("fold", fold) for fold in inward[1:]), target]
        for fold, inner in zip(inward, targets, strict=False):
            path.append((fold, ("in", first), inner))
        return path
