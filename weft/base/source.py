"""Where in the user's own code something happened."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Frames of this file's `__call__` are calls of modules. Their code may have been converted, so
#: that the file is all that says it.
_MODULES = os.path.join(PACKAGE, "nn", "module.py")


Line = tuple[str, int, str]  # file, line, function


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One line of the user's code, and what Weft did for it.

    module      the path of the nn.Module that ran: Model.blocks.0
    role        "backward" or "update"; else it is what the line itself computes
    forward     of a backward step: the line of the forward call that it differentiates
    of          and the op of that call
    caller      while a function is captured: the line in it that called the function of this one
    """

    file: str
    line: int
    function: str
    module: str = ""
    role: str = ""
    forward: SourceLocation | None = None
    of: str = ""
    caller: SourceLocation | None = field(default=None, compare=False)

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
    lines: list[Line] = []
    modules: list[Any] = []
    innermost: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    outermost = work.outermost
    while frame is not None and frame is not outermost:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            innermost = innermost or frame
            lines.append((code.co_filename, frame.f_lineno, code.co_name))
        elif code.co_name == "__call__" and is_module_call(code):  # asked here: it is most frames
            module = frame.f_locals.get("self")
            if module is not None and not (modules and modules[-1] is module):
                modules.append(module)
        frame = frame.f_back
    while innermost is None and frame is not None:  # after the captured function: who called it
        if not frame.f_code.co_filename.startswith(PACKAGE):
            innermost = frame
            code = frame.f_code
            lines.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    if innermost is None:
        return None
    first = lines.pop(0)
    found = SourceLocation(
        *first,
        module_path(modules),
        work.role,
        work.forward,
        work.of,
        _callers(tuple(lines), first) if outermost is not None else None,
    )
    if work.noting is not None:
        work.noting(innermost, found)
    return found


_known_callers: dict[Any, SourceLocation | None] = {}


def _callers(lines: tuple[Line, ...], called: Line) -> SourceLocation | None:
    """The lines that called, from the innermost on, as one location whose caller is the next."""
    key = lines, called
    if key in _known_callers:
        return _known_callers[key]
    found: SourceLocation | None = None
    for file, line, function in reversed(lines):
        # The body of a loop is a function of its own while it is captured: one line is enough.
        if found is None or (found.file, found.function) != (file, function):
            found = SourceLocation(file, line, function, caller=found)
    if len(_known_callers) > 10_000:  # code may come and go
        _known_callers.clear()
    while found is not None and (found.file, found.function) == (called[0], called[2]):
        found = found.caller
    _known_callers[key] = found
    return found


class _Work(threading.local):
    """What Weft is doing in this thread: locations that are made meanwhile say it."""

    role = ""
    forward: SourceLocation | None = None
    of = ""
    #: The frame that calls a function to capture it: the lines of callers end there.
    outermost: FrameType | None = None
    #: Is told the frame of each location while a debugger wants the names of what is recorded.
    noting: Callable[[FrameType, SourceLocation], None] | None = None
    #: And of the gradient that arrives at what a forward line made.
    gradient: Callable[[SourceLocation | None, str, Any], None] | None = None


work = _Work()


@contextmanager
def capturing() -> Iterator[None]:
    """Inside, a function is captured: locations know which of its lines called."""
    before, work.outermost = work.outermost, sys._getframe(2)
    try:
        yield
    finally:
        work.outermost = before


@contextmanager
def working(role: str) -> Iterator[None]:
    """Let the locations of what is recorded inside have a role."""
    before = work.role, work.forward, work.of
    work.role, work.forward, work.of = role, None, ""
    try:
        yield
    finally:
        work.role, work.forward, work.of = before


def is_module_call(code: CodeType) -> bool:
    """Whether a frame with this code is a call of an nn.Module."""
    return code.co_name == "__call__" and code.co_filename == _MODULES


def module_path(called: list[Any]) -> str:
    """The path of the first of the modules that were called one by the next: Model.blocks.0.

    They are read from the frames of the calls, so that calls of modules cost nothing more.
    """
    if not called:
        return ""
    outer = called.pop()
    path = type(outer).__name__
    while called:
        inner = called.pop()
        path = f"{path}.{_name_in(outer, inner)}"
        outer = inner
    return path


def _name_in(outer: Any, inner: Any) -> str:
    """What a module is called in another: lists of modules between them are part of the name."""
    waiting = deque([("", outer)])
    while waiting:
        prefix, module = waiting.popleft()
        for name, child in module._modules.items():
            if child is inner:
                return f"{prefix}{name}"
            if child is not None:
                waiting.append((f"{prefix}{name}.", child))
    return type(inner).__name__


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
