"""Renders a report as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from weft.inspect.explain.blocks import Bar, Cell, Code, Dim, Line, Name, Place, Row, Section, Table
from weft.inspect.explain.facts import Facts
from weft.inspect.explain.sections import sections_of
from weft.inspect.explain.style import Style, bar

__all__ = ["sections_text", "text_of"]

_GAP = "  "


def text_of(facts: Facts, style: Style, width: int) -> str:
    return sections_text(sections_of(facts, all_programs=False), style, width)


def sections_text(sections: Sequence[Section], style: Style, width: int) -> str:
    return "\n\n".join(_section(section, style, width) for section in sections if section)


def _section(section: Section, style: Style, width: int) -> str:
    title = style.head(section.title)
    brief = f"{_GAP}{style.dim('· ' + section.brief)}" if section.brief else ""
    lines = [title + brief]
    for block in section.blocks:
        if isinstance(block, Line):
            lines.append(_GAP + " ".join(_shown(cell, style, width) for cell in block.cells))
        else:
            lines += _table(block, style, width)
    return "\n".join(line.rstrip() for line in lines)


def _table(table: Table, style: Style, width: int) -> list[str]:
    rows: list[Row] = table.rows[: table.most]
    plain = [[_plain(cell) for cell in row] for row in rows]
    heads = [list(table.head)] if table.head else []
    wide = _widths([*plain, *heads], width - len(_GAP), table.yielding)
    lines = []
    if table.head:
        head = _GAP.join(_fitted(name, size) for name, size in zip(table.head, wide, strict=False))
        lines.append(_GAP + style.dim(head.rstrip()))
    for row, texts in zip(rows, plain, strict=True):
        cells = []
        for cell, text, size in zip(row, texts, wide, strict=False):
            fitted = _fitted(text, size, middle=isinstance(cell, Name))
            cells.append(_styled(cell, fitted.rstrip(), style) + fitted[len(fitted.rstrip()) :])
        lines.append(_GAP + _GAP.join(cells))
    left = len(table.rows) - len(rows)
    if left:
        lines.append(_GAP + style.dim(f"… and {left} more; report.as_dict() has all"))
    return lines


def _widths(rows: Sequence[Sequence[str]], width: int, yielding: Sequence[int]) -> list[int]:
    """The widths of columns: what they need, narrowed until the line fits."""
    columns = max((len(row) for row in rows), default=0)
    wide = [max((_size(row[i]) for row in rows if i < len(row)), default=0) for i in range(columns)]
    room = width - len(_GAP) * (columns - 1)
    for column in yielding:
        if column < columns:
            wide[column] = max(min(16, wide[column]), wide[column] - max(0, sum(wide) - room))
    while sum(wide) > room and max(wide) > 16:
        most = wide.index(max(wide))
        wide[most] = max(16, wide[most] - (sum(wide) - room))
    return wide


def _size(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fitted(text: str, size: int, *, middle: bool = False) -> str:
    if _size(text) > size and middle:
        half = (size - 1) // 2
        text = f"{text[:half]}…{text[len(text) - (size - 1 - half) :]}"
    elif _size(text) > size:
        while text and _size(text) > size - 1:
            text = text[:-1]
        text = f"{text}…"
    return text + " " * (size - _size(text))


def _plain(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Bar):
        return bar(cell.share, cell.width)
    return cell.text


def _styled(cell: Cell, text: str, style: Style) -> str:
    if isinstance(cell, Place):
        return style.place(text)
    if isinstance(cell, Code):
        return style.code(text)
    if isinstance(cell, Dim):
        return style.dim(text)
    if isinstance(cell, Bar):
        return style.good(text)
    return text


def _shown(cell: Cell, style: Style, _width: int) -> str:
    return _styled(cell, _plain(cell), style)
