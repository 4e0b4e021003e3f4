"""What is seen of a folded drawing, and how its edges cross the borders of open folds.

Each open fold is laid out by itself, so an edge is cut where it crosses a border. There the fold
has a port, one for each box beside the fold that edges lead to. assets/view.js does the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from weft.inspect.view.drawing import Drawing
from weft.inspect.view.folding import Folding

__all__ = ["Key", "Link", "Seen"]

#: ("item", number), ("fold", number), or a port: ("in", key beside the fold), ("out", …).
Key = tuple[str, object]
#: The graph itself, around all folds.
ROOT = -1


@dataclass(eq=False)
class Link:
    """An edge as it is seen; `way` has its pieces: the fold they lie in, from where, to where."""

    start: Key
    end: Key
    way: list[tuple[int, Key, Key]] = field(default_factory=list)


class Seen:
    """
    children   what lies in each fold, in order
    counts     the ops in each fold
    links      the edges between what is seen
    pieces     the pieces of edges that lie in each fold
    """

    def __init__(self, drawing: Drawing, folding: Folding) -> None:
        self.drawing = drawing
        self.folds = folding.folds
        self.of = folding.of
        self.open = set(folding.open)
        self.children: dict[int, list[Key]] = defaultdict(list)
        self.counts = [0] * len(self.folds)
        self._collect()
        self.links = self._links()
        self.pieces: dict[int, dict[tuple[Key, Key], None]] = defaultdict(dict)
        for link in self.links:
            self._cut(link)

    def is_open(self, key: Key) -> bool:
        """Whether what is in a box is seen."""
        return key[0] == "fold" and key[1] in self.open

    def parent(self, key: Key) -> int:
        """The fold around a box."""
        kind, number = key
        assert isinstance(number, int)
        parent: int = self.of[number] if kind == "item" else self.folds[number]["parent"]
        return parent

    def _around(self, key: Key) -> list[int]:
        """The folds around a box, from the innermost to the graph itself."""
        found = [self.parent(key)]
        while found[-1] != ROOT:
            found.append(self.parent(("fold", found[-1])))
        return found

    def _collect(self) -> None:
        """Boxes in the order of their first op: that is an order in which they can run."""
        first: dict[Key, tuple[bool, int]] = {}
        for number, item in enumerate(self.drawing.items):
            place = item.kind in ("input", "constant", "leaf"), number
            if not item.hidden:
                first["item", number] = (False, number)
            for fold in self._around(("item", number))[:-1]:
                key: Key = ("fold", fold)
                first[key] = min(first.get(key, place), place)
                self.counts[fold] += item.kind in ("op", "control")
        for key in sorted(first, key=lambda key: first[key][1]):
            self.children[self.parent(key)].append(key)

    def seen(self, item: int) -> Key:
        """What is seen of an item: itself, or the outermost closed fold around it."""
        found: Key = ("item", item)
        for fold in self._around(found)[:-1]:
            if fold not in self.open:
                found = ("fold", fold)
        return found

    def _links(self) -> list[Link]:
        items = self.drawing.items
        users = self.drawing.users()
        found: dict[tuple[Key, Key], Link] = {}
        for start, end, _ in self.drawing.edges:
            if items[start].hidden or items[end].hidden:
                continue
            # An input is drawn where it is first used: lines to all uses would cross everything.
            if items[start].kind in ("input", "leaf"):
                home = min(users[start])
                if end != home and items[end].role != items[home].role:
                    continue
            ends = self.seen(start), self.seen(end)
            if ends[0] != ends[1]:
                found.setdefault(ends, Link(*ends))
        return list(found.values())

    def _cut(self, link: Link) -> None:
        up, down = self._around(link.start), self._around(link.end)
        shared = next(fold for fold in up if fold in down)
        outward, inward = up[: up.index(shared)], down[: down.index(shared)][::-1]
        first: Key = ("fold", outward[-1]) if outward else link.start
        last: Key = ("fold", inward[0]) if inward else link.end
        inside = link.start
        for fold in outward:
            link.way.append((fold, inside, ("out", last)))
            inside = ("fold", fold)
        link.way.append((shared, first, last))
        targets: list[Key] = [*(("fold", fold) for fold in inward[1:]), link.end]
        for fold, target in zip(inward, targets, strict=False):
            link.way.append((fold, ("in", first), target))
        for fold, begin, end in link.way:
            self.pieces[fold][begin, end] = None
