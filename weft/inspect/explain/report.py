"""The report that `weft.explain` gives: plain data, which prints, and shows as a page."""

from __future__ import annotations

import copy
import shutil
from typing import Any

from weft.inspect.explain.html import fragment_of, page_of
from weft.inspect.explain.style import style_for
from weft.inspect.explain.text import text_of

__all__ = ["Report"]

WIDTH = 110  # of text that is not for a terminal


class Report:
    """What became of a function. Made by `weft.explain`.

    print(report)      text; in colour on a terminal, unless NO_COLOR is set
    report.as_dict()   plain data, which JSON can hold
    report.html()      a page of its own; notebooks show it by themselves
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def as_dict(self) -> dict[str, Any]:
        return copy.deepcopy(self._data)

    def __getitem__(self, section: str) -> Any:
        return self._data[section]

    def text(self, *, colour: bool = False, width: int = WIDTH) -> str:
        """The report as text."""
        return text_of(self._data, style_for(colour), width)

    def html(self) -> str:
        """One page that needs nothing else."""
        return page_of(self._data)

    def html_fragment(self) -> str:
        """The same as a part of a page: one `<div class="weft-explain">` with its own style."""
        return fragment_of(self._data)

    def __str__(self) -> str:
        style = style_for(None)
        width = (
            min(shutil.get_terminal_size((WIDTH, 0)).columns, 2 * WIDTH) if style.colour else WIDTH
        )
        return text_of(self._data, style, max(width, 60))

    def __repr__(self) -> str:
        programs = self._data["programs"]
        return f"<explanation of {self._data['name']}: {len(programs)} programs; print it>"

    def _repr_html_(self) -> str:
        return self.html_fragment()
