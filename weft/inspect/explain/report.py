"""The report of `weft.explain`: facts that print as text and show as a page."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from weft.inspect.explain.facts import Facts, plain
from weft.inspect.explain.html import fragment_of, page_of
from weft.inspect.explain.style import style_for
from weft.inspect.explain.text import text_of

__all__ = ["Report"]

WIDTH = 110  # of text that does not go to a terminal


@dataclass(frozen=True, repr=False)
class Report(Facts):
    """A report about a function, from `weft.explain`.

    print(report)      text; in colour on a terminal, unless NO_COLOR is set
    report.capture     one part of it, with attributes: report.capture.loops[0].place
    report.as_dict()   plain data for JSON; report["capture"] is one part of it
    report.html()      a page; notebooks show it automatically
    """

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(self)
        return found

    def __getitem__(self, section: str) -> Any:
        if section not in self.__dataclass_fields__:
            raise KeyError(section)
        return plain(getattr(self, section))

    def text(self, *, colour: bool = False, width: int = WIDTH) -> str:
        """The report as text."""
        return text_of(self, style_for(colour), width)

    def html(self) -> str:
        """A page without external resources."""
        return page_of(self)

    def html_fragment(self) -> str:
        """A part of a page: one `<div class="weft-explain">` with its own style."""
        return fragment_of(self)

    def __str__(self) -> str:
        style = style_for(None)
        width = (
            min(shutil.get_terminal_size((WIDTH, 0)).columns, 2 * WIDTH) if style.colour else WIDTH
        )
        return text_of(self, style, max(width, 60))

    def __repr__(self) -> str:
        return f"<explanation of {self.name}: {len(self.programs)} programs; print it>"

    def _repr_html_(self) -> str:
        return self.html_fragment()
