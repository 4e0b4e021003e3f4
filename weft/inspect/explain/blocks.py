"""The layout of a report: sections of lines and tables, which `text.py` and `html.py` render."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.base.source import SourceLocation

__all__ = [
    "Bar",
    "Block",
    "Cell",
    "Code",
    "Dim",
    "Line",
    "Name",
    "Place",
    "Row",
    "Section",
    "Table",
]


class Place:
    """A line of the user's code, shown as model.py:12."""

    def __init__(self, where: SourceLocation | None) -> None:
        self.where = where
        self.text = "" if where is None else where.short


class Styled:
    """Text in a style of its own."""

    def __init__(self, text: str) -> None:
        self.text = text


class Code(Styled):
    """Source text."""


class Name(Styled):
    """A path to a value; if it is too long, its middle is omitted."""


class Dim(Styled):
    """Less important text."""


class Bar:
    """A bar that shows a fraction between 0 and 1."""

    def __init__(self, share: float, width: int = 20) -> None:
        self.share = share
        self.width = width


Cell = str | Place | Code | Name | Dim | Bar
Row = Sequence[Cell]


@dataclass
class Line:
    """A sentence."""

    cells: Row


@dataclass
class Table:
    """
    head      names of the columns, or empty
    rows      text shows the first `most`, a page shows all of them
    yielding  the columns that are narrowed first if a line is too long; then the widest one is
    """

    rows: list[Row]
    head: Sequence[str] = ()
    most: int = 40
    yielding: Sequence[int] = ()


Block = Line | Table


@dataclass
class Section:
    """A title, a short summary, and the content."""

    title: str
    brief: str = ""
    blocks: list[Block] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.brief or self.blocks)
