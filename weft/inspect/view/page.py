"""One self-contained HTML page with data, style and code. It loads nothing."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.autodiff.node import weft_namespace
from weft.base.source import SourceLocation
from weft.inspect.view.boxes import layouts_json
from weft.inspect.view.drawing import Drawing, as_json
from weft.inspect.view.folding import folded_by
from weft.inspect.view.sources import Sources
from weft.inspect.view.svg import svg_of
from weft.ir.op import OPS

__all__ = ["Page", "Panel"]


@dataclass(frozen=True, slots=True)
class Panel:
    """Another tab of the page. `html` is shown as it is."""

    title: str
    html: str


class Page:
    """The result of `weft.view`: drawings, and panels of other tools.

    Notebooks show it automatically. `save` writes it, `html` is its text, `data` its content:

        title       the title of the page
        graphs      each with name, kind, stage, recording and notes; items; edges as (from, to,
                    number of the result); and foldings, each with its name, the folds (kind,
                    label, role, parent), the fold `of` each item, the folds that are open
                    initially, and positions of boxes and edges (`layouts` and `paths`)
        locations   (number of the file, line, function, module)
        start       the location at which the code is shown first: the function
        files       name, path, and parts: (first line, lines)
        docs        descriptions of ops, by name
        panels      title and html
    """

    def __init__(
        self,
        graphs: Sequence[Drawing],
        panels: Sequence[Panel] = (),
        *,
        title: str = "",
        start: SourceLocation | None = None,
    ) -> None:
        self.start = start
        self.graphs = list(graphs)
        self.panels = list(panels)
        self.title = title or (self.graphs[0].name if self.graphs else "weft")

    @cached_property
    def data(self) -> dict[str, Any]:
        """The content of the page, for JSON."""
        sources = Sources()
        for drawing in self.graphs:
            for item in drawing.items:
                sources.add(item.location)
        sources.add(self.start)
        graphs = [_graph_json(drawing, sources) for drawing in self.graphs]
        locations, listed = sources.as_json()
        ops = {i.title for d in self.graphs for i in d.items if i.kind in ("op", "control")}
        return {
            "format": "weft-view",
            "version": 1,
            "title": self.title,
            "graphs": graphs,
            "locations": locations,
            "start": None if self.start is None else sources.numbers[self.start],
            "files": listed,
            "docs": {name: text for name in sorted(ops) if (text := _doc(name))},
            "panels": [{"title": panel.title, "html": panel.html} for panel in self.panels],
        }

    @property
    def html(self) -> str:
        """The text of the page."""
        data = json.dumps(self.data, separators=(",", ":"), ensure_ascii=False)
        # "</script>" in a string would end the element that holds the data.
        for sign in "<\u2028\u2029":
            data = data.replace(sign, f"\\u{ord(sign):04x}")
        parts = {
            "TITLE": html.escape(self.title),
            "STYLE": _asset("view.css"),
            "DATA": data,
            "SCRIPT": _asset("view.js"),
        }
        text = _asset("view.html")
        for name, part in parts.items():
            before, after = text.split(f"<!--{name}-->", 1)
            text = f"{before}{part}{after}"
        return text

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, or only the picture if the name ends in .svg."""
        target = Path(path)
        picture = target.suffix.lower() == ".svg"
        target.write_text(self.svg() if picture else self.html, encoding="utf-8")
        return target

    def svg(self, graph: int = 0) -> str:
        """The picture of one of the graphs, folded as the page is initially."""
        drawing = self.graphs[graph]
        return svg_of(drawing, folded_by(drawing, _folds(drawing)[0]))

    def _repr_html_(self) -> str:
        """For notebooks: an iframe, so that the styles of both pages stay separate."""
        style = "width:100%;height:640px;border:1px solid #8884;border-radius:8px"
        return f'<iframe srcdoc="{html.escape(self.html)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(drawing.kind for drawing in self.graphs))
        items = sum(len(drawing.items) for drawing in self.graphs)
        several = f" in {len(self.graphs)} drawings" if len(self.graphs) > 1 else ""
        return f"<page {self.title}: {kinds}, {items} items{several}>"


def _graph_json(drawing: Drawing, sources: Sources) -> dict[str, Any]:
    return {
        "name": drawing.name,
        "kind": drawing.kind,
        "stage": drawing.stage,
        "recording": drawing.recording,
        "notes": drawing.notes,
        "items": [as_json(item, sources.numbers) for item in drawing.items],
        "edges": [list(edge) for edge in drawing.edges],
        "foldings": [
            folding.as_json() | layouts_json(drawing, folding)
            for folding in (folded_by(drawing, name) for name in _folds(drawing))
        ],
    }


def _folds(drawing: Drawing) -> list[str]:
    """The foldings of a drawing; the first is the default."""
    return ["kernels", "modules"] if any(i.kernel for i in drawing.items) else ["modules"]


def _doc(op: str) -> str:
    """A description of an op in one line, if there is a function with its name."""
    found = getattr(weft_namespace(), op, None) or getattr(weft_namespace().nn.functional, op, None)
    if found is None and op in OPS and OPS[op].nested:
        found = OPS[op].eval
    text = (getattr(found, "__doc__", None) or "").strip()
    return text.split("\n\n")[0].replace("\n", " ").strip()


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
