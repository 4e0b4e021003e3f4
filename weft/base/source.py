"""Where in the user's own code something happened."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from dataclasses import dataclass
from types import FrameType

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One line of the user's code."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} in {self.function}"
        return f"{where}: {self.text}" if self.text else where


def user_frame() -> FrameType | None:
    """The innermost frame that is not Weft's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def user_location() -> SourceLocation | None:
    """The line of the user's code that is running now, or None when there is none."""
    frame = user_frame()
    if frame is None:
        return None
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points at the user's own line."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    known = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    where = (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, category, *where, module=module, registry=known)
