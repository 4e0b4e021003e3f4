"""The report that `weft.explain` gives: facts that print, and show as a page."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from weft.inspect.explain.facts import Facts, plain
from weft.inspect.explain.html import fragment_of, page_of
from weft.inspect.explain.style import style_for
from weft.inspect.explain.text import text_of

__all__ = ["Report"]

WIDTH = 110  # of text that is not for a terminal


@dataclass(frozen=True, repr=False)
class Report(Facts):
    """What became of a function. Made by `weft.explain`.

    print(report)      text; in colour on a terminal, unless NO_COLOR is set
    report.capture     one part of it, with attributes: report.capture.loops[0].place
    report.as_dict()   plain data, which JSON can hold; report["capture"] is one part of that
    report.html()      a page of its own; notebooks show it by themselves
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
        """One page that needs nothing else."""
        return page_of(self)

    def html_fragment(self) -> str:
        """The same as a part of a page: one `<div class="weft-explain">` with its own style."""
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
