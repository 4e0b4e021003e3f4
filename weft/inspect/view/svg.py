"""Renders a drawing as SVG, without a browser."""

from __future__ import annotations

import itertools
from html import escape

from weft.inspect.view.boxes import CHARACTER, Boxes, short
from weft.inspect.view.drawing import Drawing
from weft.inspect.view.folding import Folding
from weft.inspect.view.layout import Layout, Point, Size
from weft.inspect.view.pieces import ROOT, Key, Piece

__all__ = ["svg_of"]

HEAD, PAD = 24.0, 14.0

#: The colours of the page, see assets/view.css.
STYLE = """
svg { background: #fbfbfa; font: 12px ui-sans-serif, system-ui, sans-serif; }
.box { stroke-width: 1.2; } .pill { stroke-width: 1; } text { fill: #1d2330; text-anchor: middle; }
.note { fill: #6a7283; font-size: 10px; } .label { text-anchor: start; font-weight: 600; }
.forward { fill: #dcebff; stroke: #3b7ddd; } .backward { fill: #ffe3cf; stroke: #d9731a; }
.update { fill: #d8f3df; stroke: #2b9a55; } .input, .leaf { fill: #fff; stroke: #8b93a5; }
.constant { fill: #f1f1ee; stroke: #b5b5ad; } .cluster { fill-opacity: .16; stroke-opacity: .55; }
.edge { fill: none; stroke: #8b93a5; stroke-width: 1.2; } .head { fill: #8b93a5; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171e; } text { fill: #e8ebf2; } .note { fill: #99a2b5; }
  .forward { fill: #1d3557; stroke: #6ba6ff; } .backward { fill: #54301a; stroke: #ffa35c; }
  .update { fill: #1c4a2e; stroke: #63d08b; } .input, .leaf { fill: #222733; stroke: #8b93a5; }
  .constant { fill: #262a33; stroke: #5d6474; }
}
"""


def svg_of(drawing: Drawing, folding: Folding) -> str:
    """The picture, with the folds open that are open initially."""
    return _Picture(drawing, folding).text()


Box = tuple[float, float, float, float]  # left, top, width, height


class _Picture:
    def __init__(self, drawing: Drawing, folding: Folding) -> None:
        self.drawing = drawing
        self.open = {ROOT, *folding.open}
        self.folds = folding.folds
        self.source = Boxes(drawing, folding)
        self.layouts: dict[int, Layout] = {}
        self.origins: dict[int, Point] = {}  # of the content of a fold, in the whole picture
        self.boxes: dict[Key, Box] = {}

    # --- where it stands ----------------------------------------------------------------------

    def _is_open(self, key: Key) -> bool:
        return key[0] == "fold" and key[1] in self.open

    def _measure(self, key: Key) -> Size:
        if not self._is_open(key):
            return self.source.closed_size(key)
        number = key[1]
        assert isinstance(number, int)
        inner = self._arrange(number)
        label = len(short(self.folds[number]["label"], 60)) * CHARACTER + 2 * PAD
        return max(inner[0] + 2 * PAD, label), inner[1] + HEAD + 2 * PAD

    def _arrange(self, fold: int) -> Size:
        """Lay out the content of a fold, after the open folds in it."""
        self.layouts[fold] = layout = self.source.layout(fold, self._measure)
        return layout.size

    def _settle(self, fold: int, left: float, top: float) -> None:
        """Compute the positions of boxes in the whole picture, from the outermost fold inwards."""
        layout = self.layouts[fold]
        self.origins[fold] = left, top
        for key in self.source.children[fold]:
            (x, y), (width, height) = layout.center(key), layout.sizes[key]
            if not width:
                continue
            self.boxes[key] = box = left + x - width / 2, top + y - height / 2, width, height
            if self._is_open(key):
                number = key[1]
                assert isinstance(number, int)
                inner = self.layouts[number].size[0]
                self._settle(number, box[0] + (width - inner) / 2, box[1] + HEAD + PAD)

    # --- drawing it ---------------------------------------------------------------------------

    def text(self) -> str:
        width, height = self._arrange(ROOT)
        self._settle(ROOT, PAD, PAD)
        clusters: list[str] = []
        boxes: list[str] = []
        for key, box in self.boxes.items():
            (clusters if self._is_open(key) else boxes).append(self._shape(key, box))
        wide, high = round(width + 2 * PAD), round(height + 2 * PAD)
        title = escape(f"{self.drawing.name}, {self.drawing.kind}")
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
                f'width="{wide}" height="{high}" role="img">',
                f"<title>{title}</title><style>{STYLE}</style>",
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                'markerHeight="7" orient="auto"><path class="head" d="M0 1 7 4 0 7z"/></marker>'
                "</defs>",
                *clusters,
                *map(self._edge, self._edges()),
                *boxes,
                "</svg>\n",
            ]
        )

    def _shape(self, key: Key, box: Box) -> str:
        kind, number = key
        assert isinstance(number, int)
        x, y, width, height = box
        middle = x + width / 2
        if kind == "fold":
            fold = self.folds[number]
            role = fold["role"] or "forward"
            if self._is_open(key):
                return (
                    f'<rect class="box cluster {role}" x="{x:.1f}" y="{y:.1f}" rx="10" '
                    f'width="{width:.1f}" height="{height:.1f}"/>'
                    f'<text class="label" x="{x + PAD:.1f}" y="{y + 19:.1f}">'
                    f"{escape(short(fold['label'], 60))}</text>"
                )
            style, round_ = f"box {role}", 6.0
        else:
            item = self.drawing.items[number]
            plain = item.kind in ("op", "control", "result")
            style = f"box {item.role}" if plain else f"pill {item.kind}"
            round_ = 6.0 if item.kind in ("op", "control") else height / 2
        title, note = self.source.text(key)
        lines = [
            f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{round_:.1f}"/>',
            f'<text x="{middle:.1f}" y="{y + height / 2 + (-2 if note else 4):.1f}">'
            f"{escape(title)}</text>",
        ]
        if note:
            lines.append(
                f'<text class="note" x="{middle:.1f}" y="{y + height / 2 + 12:.1f}">'
                f"{escape(note)}</text>"
            )
        return "".join(lines)

    def _edges(self) -> list[tuple[Piece, ...]]:
        """The visible parts of edges: their pieces in open folds, without duplicates."""
        items = self.drawing.items
        found: dict[tuple[Piece, ...], None] = {}
        for (start, end, _), path in zip(self.drawing.edges, self.source.paths, strict=True):
            seen = tuple(piece for piece in path if piece[0] in self.origins)
            if seen and not (items[start].hidden or items[end].hidden):
                found[seen] = None
        return list(found)

    def _edge(self, path: tuple[Piece, ...]) -> str:
        """Draw an edge piece by piece. Pieces meet at ports, where the edge crosses a border."""
        found: list[Point] = []
        for fold, start, end in path:
            left, top = self.origins[fold]
            layout = self.layouts[fold]
            if start[0] == "in":
                found.append((left + layout.x[start], self.boxes["fold", fold][1]))
            elif not self._is_open(start):
                x, y, width, height = self.boxes[start]
                found.append((x + width / 2, y + height))
            points = layout.points(start, end)
            # At an open fold, the edge continues at a port.
            points = points[1 if self._is_open(start) else 0 :]
            points = points[: -1 if self._is_open(end) else None]
            found += [(left + x, top + y) for x, y in points]
            if end[0] == "out":
                _, y, _, height = self.boxes["fold", fold]
                found.append((left + layout.x[end], y + height))
            elif not self._is_open(end):
                x, y, width, _ = self.boxes[end]
                found.append((x + width / 2, y))
        return f'<path class="edge" marker-end="url(#head)" d="{_curve(found)}"/>'


def _curve(points: list[Point]) -> str:
    points = [p for p, before in zip(points, [None, *points], strict=False) if p != before]
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        half = (y0 + y1) / 2
        if abs(x0 - x1) < 0.05:
            parts.append(f"L{x1:.1f} {y1:.1f}")
            continue
        parts.append(f"C{x0:.1f} {half:.1f} {x1:.1f} {half:.1f} {x1:.1f} {y1:.1f}")
    return "".join(parts)
