"""Renders a report as an HTML page, or as a part of one, without network access or scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from weft.inspect.explain.blocks import Bar, Cell, Code, Line, Name, Place, Section, Table
from weft.inspect.explain.facts import Facts
from weft.inspect.explain.sections import sections_of

__all__ = ["fragment_of", "page_of", "sections_html"]

#: Texts up to this length are not wrapped: numbers with their units.
SHORT = 12
#: All rules are below one class, so that they do not affect the surrounding page.
_STYLE = """
.weft-explain{font:14px/1.45 system-ui,sans-serif;color:#1d2330;max-width:1100px}
.weft-explain h1{font-size:22px;margin:8px 0 4px}
.weft-explain p{margin:2px 0}
.weft-explain details{border-top:1px solid #d9dee8;padding:6px 0}
.weft-explain summary{cursor:pointer;font-weight:600}
.weft-explain summary span{font-weight:400;color:#667085}
.weft-explain table{border-collapse:collapse;margin:6px 0 4px 14px;font-size:13px}
.weft-explain th{text-align:left;font-weight:400;color:#667085;padding:1px 12px 1px 0}
.weft-explain td{padding:1px 12px 1px 0;vertical-align:top;white-space:pre-wrap}
.weft-explain code{font:12.5px ui-monospace,monospace;color:#7a4b00}
.weft-explain .place{font:12.5px ui-monospace,monospace;color:#0b6b8a;white-space:nowrap}
.weft-explain .dim{color:#667085}
.weft-explain .bar{display:inline-block;width:120px;height:9px;background:#e7ebf2}
.weft-explain .bar i{display:block;height:9px;background:#3d8b5f}
@media(prefers-color-scheme:dark){
.weft-explain{color:#dde3ee}.weft-explain code{color:#e2b86b}.weft-explain .place{color:#6ec3dd}
.weft-explain details{border-color:#39414f}.weft-explain .bar{background:#2b323e}}
"""


def page_of(facts: Facts) -> str:
    """A whole page."""
    name = escape(facts.name)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: what became '
        "of it</title><style>body{margin:24px}"
        "@media(prefers-color-scheme:dark){body{background:#171b22}}</style></head>\n"
        f"<body>{fragment_of(facts)}</body></html>\n"
    )


def fragment_of(facts: Facts) -> str:
    """A part of a page: one element, with its style."""
    return sections_html(sections_of(facts))


def sections_html(sections: Sequence[Section], more: str = "") -> str:
    """One element with sections, their style, and `more` content."""
    shown = [section for section in sections if section]
    parts = [_section(section, first=i == 0, open_=i < 2) for i, section in enumerate(shown)]
    return f'<div class="weft-explain"><style>{_STYLE}</style>\n{"".join(parts)}{more}</div>'


def _section(section: Section, *, first: bool, open_: bool) -> str:
    blocks = "".join(_block(block) for block in section.blocks)
    if first:
        return f"<h1>{escape(section.title)}</h1>\n{blocks}"
    brief = f" <span>· {escape(section.brief)}</span>" if section.brief else ""
    head = f"<summary>{escape(section.title)}{brief}</summary>"
    return f"<details{' open' if open_ else ''}>{head}\n{blocks}</details>\n"


def _block(block: Line | Table) -> str:
    if isinstance(block, Line):
        return f"<p>{' '.join(_cell(cell) for cell in block.cells)}</p>\n"
    head = ""
    if block.head:
        head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in block.head)}</tr>\n"
    rows = [f"<tr>{''.join(f'<td>{_cell(c)}</td>' for c in row)}</tr>" for row in block.rows]
    return f"<table>{head}{chr(10).join(rows)}</table>\n"


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        text = escape(cell)
        return text if len(cell) > SHORT else text.strip().replace(" ", "&nbsp;")
    if isinstance(cell, Place):
        whole = "" if cell.where is None else f"{cell.where.file}:{cell.where.line}"
        return f'<span class="place" title="{escape(whole)}">{escape(cell.text)}</span>'
    if isinstance(cell, Code):
        return f"<code>{escape(cell.text)}</code>"
    if isinstance(cell, Bar):
        width = f"{min(max(cell.share, 0.0), 1.0):.1%}"
        return f'<span class="bar"><i style="width:{width}"></i></span>'
    if isinstance(cell, Name):
        return escape(cell.text)
    return f'<span class="dim">{escape(cell.text)}</span>'
