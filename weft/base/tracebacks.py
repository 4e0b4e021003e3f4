"""Tracebacks that show the user's own frames. `WEFT_TRACEBACK=full` shows all.

Errors that leave a compiled function are shortened where they leave it; the rest is shortened when
Python prints an error that nobody has caught. Errors that are caught inside of the program keep
their eager frames.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from types import TracebackType
from typing import Any

import numpy as np

from weft.base import config
from weft.base.errors import InternalError, WeftError
from weft.base.source import PACKAGE, is_own

__all__ = ["shorten", "use_short_tracebacks"]

#: Where captured code runs: what is raised there was raised by an operation of the user's.
_CAPTURE = os.path.join(PACKAGE, "capture", "")
_NUMPY = os.path.join(os.path.dirname(os.path.abspath(np.__file__)), "")
#: Errors that say all there is to say: of files, of a missing `forward`, of endless recursion.
_NO_BUGS = (OSError, NotImplementedError, RecursionError)
#: Functions that raise AttributeError for a name that the user asked for (`weft/base/lazy.py`).
_LOOKUPS = ("__getattr__", "load")
NOTE = "This was raised inside of Weft. WEFT_TRACEBACK=full shows all frames."


def shorten(error: BaseException, *, leaving: bool = False) -> None:
    """Keep the user's frames of an error, and what it was raised for only where the user sees it.

    leaving   the error leaves a compiled function: one that looks like a bug of Weft stays as it is
    """
    if config.full_tracebacks():
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        inside = _raised_inside(found)
        if inside and leaving:
            return
        found.__traceback__ = _of_user(found.__traceback__)
        if isinstance(found, WeftError) and not inside:
            _forget_own(found)
        if inside and NOTE not in getattr(found, "__notes__", ()):
            found.add_note(NOTE)
        waiting += [found.__cause__, None if found.__suppress_context__ else found.__context__]


def _forget_own(error: WeftError) -> None:
    """An error says all there is to say: not from which error of NumPy or of Weft it was made."""
    if error.__cause__ is not None and not _raised_by_user(error.__cause__):
        error.__cause__ = None  # and its context stays hidden
    while error.__context__ is not None and not _raised_by_user(error.__context__):
        error.__context__ = error.__context__.__context__


def _raised_by_user(error: BaseException) -> bool:
    file, _ = _innermost(error)
    return not (is_own(file) or file.startswith(_NUMPY)) and not isinstance(error, WeftError)


def _raised_inside(error: BaseException) -> bool:
    """Whether an error looks like a bug of Weft: the user shall be able to report it."""
    if isinstance(error, WeftError):
        return isinstance(error, InternalError)
    if isinstance(error, _NO_BUGS) or not isinstance(error, Exception):
        return False
    file, function = _innermost(error)
    asked = isinstance(error, AttributeError) and function in _LOOKUPS
    return is_own(file) and not file.startswith(_CAPTURE) and not asked


def _innermost(error: BaseException) -> tuple[str, str]:
    """The file and the function that an error was raised in."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if entry is None:
        return "", ""
    return entry.tb_frame.f_code.co_filename, entry.tb_frame.f_code.co_name


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of Weft, and of what Weft calls in Python's own library."""
    kept: list[TracebackType] = []
    hidden = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        hidden = is_own(file) or (hidden and _is_library(file))
        if not hidden:
            kept.append(trace)
        trace = trace.tb_next
    end: TracebackType | None = None
    for entry in reversed(kept):
        end = TracebackType(end, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return end


def _is_library(file: str) -> bool:
    if file == "<string>" or file.startswith(("<frozen ", _NUMPY)):  # dataclasses are <string>
        return True
    return "site-packages" not in file and file.startswith(sysconfig.get_path("stdlib"))


def _print_short(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    shorten(error)
    sys.__excepthook__(kind, error, error.__traceback__)


def _for_notebooks(error: WeftError) -> list[str]:
    """The lines that IPython shows for an error: it asks the error for them."""
    shorten(error)
    return "".join(traceback.format_exception(error)).splitlines()


def use_short_tracebacks() -> None:
    """Let Python print uncaught errors without Weft's frames, unless someone else prints them."""
    setattr(WeftError, "_render_traceback_", _for_notebooks)  # noqa: B010
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_short
