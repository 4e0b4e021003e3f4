"""A drawing as an SVG picture, without a browser."""

from __future__ import annotations

import itertools
from html import escape

from weft.inspect.view.drawing import Drawing, Item
from weft.inspect.view.folding import Folding
from weft.inspect.view.layout import Layout, Point, Size, layered
from weft.inspect.view.pieces import ROOT, Key, Link, Seen

__all__ = ["svg_of"]

CHARACTER, HEAD, PAD = 7.1, 24.0, 14.0

#: The same colours as those of the page, see assets/view.css.
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
    """The picture, with the folds open that the folding says are open at first."""
    return _Picture(drawing, folding).text()


Box = tuple[float, float, float, float]  # left, top, width, height


class _Picture:
    def __init__(self, drawing: Drawing, folding: Folding) -> None:
        self.drawing = drawing
        self.look = Seen(drawing, folding)
        self.folds = folding.folds
        self.layouts: dict[int, Layout] = {}
        self.origins: dict[int, Point] = {}  # of what is in a fold, in the whole
        self.boxes: dict[Key, Box] = {}

    # --- where it stands ----------------------------------------------------------------------

    def _measure(self, key: Key) -> Size:
        kind, number = key
        assert isinstance(number, int)
        if kind == "item":
            item = self.drawing.items[number]
            return _text_size(_title(item), _short(_note(item), 34))
        if not self.look.is_open(key):
            return _text_size(*self._fold_text(number))
        inner = self._arrange(number)
        label = len(_short(self.folds[number]["label"], 60)) * CHARACTER + 2 * PAD
        return max(inner[0] + 2 * PAD, label), inner[1] + HEAD + 2 * PAD

    def _arrange(self, fold: int) -> Size:
        """Lay out what is in a fold, after the folds in it."""
        keys = self.look.children[fold]
        edges = list(self.look.pieces[fold])
        ports = dict.fromkeys(end for edge in edges for end in edge if end[0] in ("in", "out"))
        sizes = {key: self._measure(key) for key in keys} | dict.fromkeys(ports, (0.0, 0.0))
        self.layouts[fold] = layout = layered(sizes, edges)
        return layout.size

    def _settle(self, fold: int, left: float, top: float) -> None:
        """Give boxes their places in the whole, from the outermost fold inwards."""
        layout = self.layouts[fold]
        self.origins[fold] = left, top
        for key in self.look.children[fold]:
            (x, y), (width, height) = layout.centers[key], layout.sizes[key]
            self.boxes[key] = box = left + x - width / 2, top + y - height / 2, width, height
            if self.look.is_open(key):
                number = key[1]
                assert isinstance(number, int)
                inner = self.layouts[number].size[0]
                self._settle(number, box[0] + (width - inner) / 2, box[1] + HEAD + PAD)

    def _fold_text(self, number: int) -> tuple[str, str]:
        fold, count = self.folds[number], self.look.counts[number]
        if fold["kind"] == "results":
            return f"▸ {len(self.look.children[number])} results", ""
        return f"▸ {_short(fold['label'])}", f"{count} op{'s' if count != 1 else ''}"

    # --- drawing it ---------------------------------------------------------------------------

    def text(self) -> str:
        width, height = self._arrange(ROOT)
        self._settle(ROOT, PAD, PAD)
        clusters: list[str] = []
        boxes: list[str] = []
        for key, box in self.boxes.items():
            (clusters if self.look.is_open(key) else boxes).append(self._shape(key, box))
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
                *map(self._edge, self.look.links),
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
            if self.look.is_open(key):
                return (
                    f'<rect class="box cluster {role}" x="{x:.1f}" y="{y:.1f}" rx="10" '
                    f'width="{width:.1f}" height="{height:.1f}"/>'
                    f'<text class="label" x="{x + PAD:.1f}" y="{y + 19:.1f}">'
                    f"{escape(_short(fold['label'], 60))}</text>"
                )
            title, note = self._fold_text(number)
            style, round_ = f"box {role}", 6.0
        else:
            item = self.drawing.items[number]
            title, note = _title(item), _note(item)
            plain = item.kind in ("op", "control", "result")
            style = f"box {item.role}" if plain else f"pill {item.kind}"
            round_ = 6.0 if item.kind in ("op", "control") else height / 2
        lines = [
            f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{round_:.1f}"/>',
            f'<text x="{middle:.1f}" y="{y + height / 2 + (-2 if note else 4):.1f}">'
            f"{escape(title)}</text>",
        ]
        if note:
            lines.append(
                f'<text class="note" x="{middle:.1f}" y="{y + height / 2 + 12:.1f}">'
                f"{escape(_short(note, 34))}</text>"
            )
        return "".join(lines)

    def _edge(self, link: Link) -> str:
        """An edge piece by piece; where pieces meet, at the port, the border is crossed."""
        found: list[Point] = []
        for fold, start, end in link.way:
            left, top = self.origins[fold]
            layout = self.layouts[fold]
            if start[0] == "in":
                found.append((left + layout.centers[start][0], self.boxes["fold", fold][1]))
            elif not self.look.is_open(start):
                x, y, width, height = self.boxes[start]
                found.append((x + width / 2, y + height))
            bends = layout.bends[start, end]
            # At an open fold, the edge goes on at a port, wherever that is.
            bends = bends[1 if self.look.is_open(start) else 0 :]
            bends = bends[: -1 if self.look.is_open(end) else None]
            found += [(left + x, top + y) for x, y in bends]
            if end[0] == "out":
                _, y, _, height = self.boxes["fold", fold]
                found.append((left + layout.centers[end][0], y + height))
            elif not self.look.is_open(end):
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


def _title(item: Item) -> str:
    """Of long names of inputs the end says more: opt_param_groups_0_params_8."""
    tail = item.kind == "input" and len(item.title) > 20
    return f"…{item.title[-17:]}" if tail else _short(item.title)


def _note(item: Item) -> str:
    """What stands below the title: what is special, else the type."""
    return item.note or (item.outputs[0][1] if item.outputs else "")


def _text_size(title: str, note: str) -> Size:
    width = max(len(title) * CHARACTER, len(note) * CHARACTER * 0.85) + 22
    return max(width, 56.0), 38.0 if note else 26.0


def _short(text: str, most: int = 28) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
