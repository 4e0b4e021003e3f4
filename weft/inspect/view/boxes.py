"""The boxes of a folded drawing: their text, and their position in their fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from weft.inspect.view.drawing import Drawing, Item
from weft.inspect.view.folding import Folding
from weft.inspect.view.layout import Layout, Size, layered
from weft.inspect.view.pieces import ROOT, Key, Pieces

__all__ = ["CHARACTER", "Boxes", "layouts_json", "short"]

CHARACTER = 7.1  # the average width of a character
GRID = 6  # positions on the page are multiples of this, so that columns line up


class Boxes(Pieces):
    """The boxes of a folded drawing, and the pieces of edges between them."""

    def layout(self, fold: int, size: Callable[[Key], Size]) -> Layout:
        """The layout of a fold, given the sizes of its children."""
        edges = list(self.inside[fold])
        ports = dict.fromkeys(end for edge in edges for end in edge if end[0] in ("in", "out"))
        sizes = {key: size(key) for key in self.children[fold]} | dict.fromkeys(ports, (0.0, 0.0))
        return layered(sizes, edges)

    def closed_size(self, key: Key) -> Size:
        """The size of a closed box, from its text; 0 for a hidden constant."""
        kind, number = key
        assert isinstance(number, int)
        if kind == "item" and self.drawing.items[number].hidden:
            return 0.0, 0.0
        title, note = self.text(key)
        width = max(len(title) * CHARACTER, len(note) * CHARACTER * 0.85) + 22
        return max(width, 56.0), 38.0 if note else 26.0

    def text(self, key: Key) -> tuple[str, str]:
        """The title of a box, and the line below it."""
        kind, number = key
        assert isinstance(number, int)
        if kind == "item":
            item = self.drawing.items[number]
            return _title(item), short(
                item.note or (item.outputs[0][1] if item.outputs else ""), 34
            )
        fold, count = self.folds[number], self.counts[number]
        if fold["kind"] == "results":
            return f"▸ {len(self.children[number])} results", ""
        return f"▸ {short(fold['label'])}", f"{count} op{'s' if count != 1 else ''}"


def layouts_json(drawing: Drawing, folding: Folding) -> dict[str, Any]:
    """The layouts for the page, each with all inner folds closed.

    layouts   for the graph itself and each fold: boxes as (key, x, layer), and pieces of edges as
              (number of the start box, number of the end box, x in each layer between)
    paths     the pieces of each edge: fold, number of the piece, fold, number, …
    """
    boxes = Boxes(drawing, folding)
    layouts: list[dict[str, Any]] = []
    numbers: dict[tuple[int, Key, Key], int] = {}
    for fold in range(ROOT, len(folding.folds)):
        layout = boxes.layout(fold, boxes.closed_size)
        place = {key: i for i, key in enumerate(layout.sizes)}
        pieces: list[list[Any]] = []
        for (start, end), bends in layout.bends.items():
            numbers[fold, start, end] = len(pieces)
            pieces.append([place[start], place[end], [_snapped(x) for x in bends]])
        found = [[_name(key), _snapped(layout.x[key]), layout.layer[key]] for key in place]
        layouts.append({"boxes": found, "pieces": pieces})
    paths = [[n for piece in path for n in (piece[0], numbers[piece])] for path in boxes.paths]
    return {"layouts": layouts, "paths": paths}


def _snapped(x: float) -> int:
    return round(x / GRID) * GRID


def _name(key: Key) -> str:
    """The key of a box on the page: i7, f2, or for a port "in f2"."""
    return " ".join(_parts(key))


def _parts(key: Key) -> Iterator[str]:
    kind, at = key
    if isinstance(at, tuple):
        yield kind
        yield from _parts(at)
    else:
        yield f"{kind[0]}{at}"


def _title(item: Item) -> str:
    """The title of an item. Long names of inputs keep their end: opt_param_groups_0_params_8."""
    tail = item.kind == "input" and len(item.title) > 20
    return f"…{item.title[-17:]}" if tail else short(item.title)


def short(text: str, most: int = 28) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
