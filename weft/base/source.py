"""Where in the user's own code something happened."""

from __future__ import annotations

import inspect
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
from typing import Any, NamedTuple

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Frames of this file's `__call__` are calls of modules. Their code may have been converted, so
#: that the file is all that says it.
_MODULES = os.path.join(PACKAGE, "nn", "module.py")


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

    @property
    def short(self) -> str:
        """model.py:12; of a line in no file, such as <stdin>, the whole name."""
        name = self.file if self.file.startswith("<") else os.path.basename(self.file)
        return f"{name}:{self.line}"

    @property
    def origin(self) -> SourceLocation:
        """The forward line of a backward step; else the line itself."""
        return self.forward or self

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} in {self.function}"
        return f"{where}: {self.text}" if self.text else where


def user_frame() -> FrameType | None:
    """The innermost frame that is not Weft's own."""
    return _first_of_user(sys._getframe(1))


def _first_of_user(frame: FrameType | None) -> FrameType | None:
    while frame is not None and (
        frame.f_code.co_filename in _own_files or is_own(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame


def is_own(file: str) -> bool:
    """Whether a file is Weft's own: its functions and classes do not change under it."""
    if file in _own_files:
        return True
    if file.startswith(PACKAGE):
        _own_files.add(file)
        return True
    return False


_own_files: set[str] = set()


def user_location() -> SourceLocation | None:
    """The line of the user's code that is running now, or None when there is none."""
    frame, callers, _, path = _around(sys._getframe(1))
    if frame is None and work.outermost is not None:  # who called the captured function
        frame = _first_of_user(work.outermost)
    if frame is None:
        return None
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    while callers is not None and (callers.file, callers.function) == (file, function):
        callers = callers.caller
    found = SourceLocation(
        file, frame.f_lineno, function, path, work.role, work.forward, work.of, callers
    )
    if work.noting is not None:
        work.noting(frame, found)
    return found


class _Around(NamedTuple):
    """What is around a frame that runs.

    user     the innermost frame of the user's code, from that one on outwards
    callers  the lines that called that frame, the innermost first; each caller's is the next
    module   the innermost nn.Module whose call it is in, and
    path     its path
    """

    user: FrameType | None = None
    callers: SourceLocation | None = None
    module: Any = None
    path: str = ""

    def inside(self, frame: FrameType) -> _Around:
        """What is around that which a frame calls, where this is around the frame."""
        code = frame.f_code
        if not is_own(code.co_filename):
            user, callers, module, path = self
            if user is not None and work.outermost is not None:
                callers = _called_from(user, callers)
            return _Around(frame, callers, module, path)
        if is_module_call(code):
            module = frame.f_locals.get("self")
            if module is not None and module is not self.module:
                path = longer_path(self.path, self.module, module)
                return _Around(self.user, self.callers, module, path)
        return self


def _called_from(frame: FrameType, callers: SourceLocation | None) -> SourceLocation | None:
    """The line of the user's code that calls now, and those that called it."""
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    # The body of a loop is a function of its own while it is captured: one line is enough.
    if callers is not None and (callers.file, callers.function) == (file, function):
        return callers
    return SourceLocation(file, frame.f_lineno, function, caller=callers)


def _around(frame: FrameType | None) -> _Around:
    """What is around that which a frame calls.

    While a function is captured its locations are asked for again and again, from deep inside. A
    call that has not come back is where it was, and so are all those outside it: of the frames
    that count, which are few, each is looked at once. Not so generators, which pause.
    """
    outermost, known, own = work.outermost, work.known, _own_files
    fresh: list[FrameType] = []
    while frame is not None and frame is not outermost:
        code = frame.f_code
        if code.co_filename not in own or code.co_name == "__call__":
            if frame in known:
                break
            fresh.append(frame)
        frame = frame.f_back
    else:
        frame = None
    while known and next(reversed(known)) is not frame:
        known.popitem()
    around = known[frame] if frame is not None else _NOTHING
    for inner in reversed(fresh):
        around = around.inside(inner)
        if outermost is not None and not inner.f_code.co_flags & _PAUSES:
            known[inner] = around
    return around


_NOTHING = _Around()
#: Of code whose frames may be inside of first one frame and then another.
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


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

    def __init__(self) -> None:
        #: While a function is captured: the frames that run in it, the outermost first.
        self.known: dict[FrameType, _Around] = {}


work = _Work()


@contextmanager
def capturing() -> Iterator[None]:
    """Inside, a function is captured: locations know which of its lines called."""
    before = work.outermost, work.known
    work.outermost, work.known = sys._getframe(2), {}
    try:
        yield
    finally:
        work.outermost, work.known = before


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


def longer_path(path: str, outer: Any, inner: Any) -> str:
    """The path of a module that is called by another, or by none: Model.blocks.0."""
    return f"{path}.{_name_in(outer, inner)}" if path else type(inner).__name__


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
    module = frame.f_globals.get("__name__") or "<unknown>"  # Python drops a warning of no module
    where = (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, category, *where, module=module, registry=known)
