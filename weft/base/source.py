"""Locations in the user's code."""

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
from dataclasses import field
from types import CodeType, FrameType
from typing import Any, NamedTuple

from weft.base.dataclass import dataclass

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Calls of nn.Modules are frames of `__call__` in this file. The code object may be a converted
#: copy, so it is recognized by its file name.
_MODULES = os.path.join(PACKAGE, "nn", "module.py")


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """One line of the user's code, and what Weft computed for it.

    module      the path of the nn.Module that ran: Model.blocks.0
    role        "backward" or "update"; empty for what the line itself computes
    forward     for a backward step, the line of the forward call that it differentiates
    of          for a backward step, the op of that forward call
    caller      during capture, the line that called the function of this line
    device      the device that `weft.device` asked for; it says where, not what
    """

    file: str
    line: int
    function: str
    module: str = ""
    role: str = ""
    forward: SourceLocation | None = None
    of: str = ""
    caller: SourceLocation | None = field(default=None, compare=False)
    device: str = ""

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
    while frame is not None and (frame.f_code.co_filename in _own_files or _runs_own_code(frame)):
        frame = frame.f_back
    return frame


def _runs_own_code(frame: FrameType) -> bool:
    """Whether its code is Weft's: of a file, or a method that `dataclass` has made for a class."""
    file = frame.f_code.co_filename
    if file == "<string>":
        return str(frame.f_globals.get("__name__")).startswith("weft.")
    return is_own(file)


def is_own(file: str) -> bool:
    """Whether a file is part of Weft, so that its functions and classes do not change."""
    if file in _own_files:
        return True
    if file.startswith(PACKAGE):
        _own_files.add(file)
        return True
    return False


_own_files: set[str] = set()


def user_location() -> SourceLocation | None:
    """The line of the user's code that is running now; None if there is none."""
    context = _context_of(sys._getframe(1))
    if context.user is None and work.outermost is not None:  # the caller of the captured function
        context = context._replace(user=_first_of_user(work.outermost))
    return None if context.user is None else context.location(context.user.f_lineno)


def raised_location(error: BaseException) -> SourceLocation | None:
    """The line of the user's code that raised an error, for the function that has caught it."""
    context, line = _context_of(sys._getframe(1)), 0
    entry = error.__traceback__
    while entry is not None:
        context = context.entered(entry.tb_frame)
        if context.user is entry.tb_frame:
            line = entry.tb_lineno
        entry = entry.tb_next
    if context.user is None:
        return None
    return context.location(line or context.user.f_lineno)


class _Context(NamedTuple):
    """The context of a running frame.

    user     the innermost frame of the user's code: this frame, or one that led to it
    callers  the line that called that frame; its `caller` is the next one outwards
    module   the innermost nn.Module whose call this is in
    path     the path of that module
    """

    user: FrameType | None = None
    callers: SourceLocation | None = None
    module: Any = None
    path: str = ""

    def location(self, line: int) -> SourceLocation:
        """A line of the function of the user's that runs here."""
        assert self.user is not None
        code, callers = self.user.f_code, self.callers
        file, function = code.co_filename, code.co_name
        while callers is not None and (callers.file, callers.function) == (file, function):
            callers = callers.caller
        about = self.path, work.role, work.forward, work.of
        found = SourceLocation(file, line, function, *about, callers, work.device)
        if work.noting is not None:
            work.noting(self.user, found)
        return found

    def entered(self, frame: FrameType) -> _Context:
        """The context of what `frame` calls, where this is the context of `frame`."""
        code = frame.f_code
        if not _runs_own_code(frame):
            user, callers, module, path = self
            if user is not None and work.outermost is not None:
                callers = _called_from(user, callers)
            return _Context(frame, callers, module, path)
        if is_module_call(code):
            module = frame.f_locals.get("self")
            if module is not None and module is not self.module:
                path = child_path(self.path, self.module, module)
                return _Context(self.user, self.callers, module, path)
        return self


def _called_from(frame: FrameType, callers: SourceLocation | None) -> SourceLocation | None:
    """The line of the user's code that makes a call now, and the lines that called it."""
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    # During capture the body of a loop is a function of its own: list only the innermost line.
    if callers is not None and (callers.file, callers.function) == (file, function):
        callers = callers.caller
    return SourceLocation(file, frame.f_lineno, function, caller=callers)


def _context_of(frame: FrameType | None) -> _Context:
    """The context of what a frame calls.

    During capture this is asked for every op, from deep stacks. The context of a frame does not
    change until it returns, so that of each relevant frame is computed once and kept in
    `work.known`. Generators are the exception: they may be resumed from another frame.
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
    context = known[frame] if frame is not None else _NOTHING
    for inner in reversed(fresh):
        context = context.entered(inner)
        if outermost is not None and not inner.f_code.co_flags & _PAUSES:
            known[inner] = context
    return context


_NOTHING = _Context()
#: Flags of code whose frames may be resumed from different callers.
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _Work(threading.local):
    """What Weft is doing in this thread. New locations record it."""

    role = ""
    forward: SourceLocation | None = None
    of = ""
    #: The device that `weft.device` asked for.
    device = ""
    #: The frame that started the capture: lists of callers end there.
    outermost: FrameType | None = None
    #: Called with the frame of each new location while a debugger collects variable names.
    noting: Callable[[FrameType, SourceLocation], None] | None = None
    #: Called with each gradient that arrives at a result of a forward line.
    gradient: Callable[[SourceLocation | None, str, Any], None] | None = None

    def __init__(self) -> None:
        #: During capture: the contexts of frames that are running, the outermost first.
        self.known: dict[FrameType, _Context] = {}


work = _Work()


@contextmanager
def capturing() -> Iterator[None]:
    """Inside, a function is being captured: locations record the lines that called them."""
    before = work.outermost, work.known, work.device
    work.outermost, work.known, work.device = sys._getframe(2), {}, ""
    try:
        yield
    finally:
        work.outermost, work.known, work.device = before


@contextmanager
def with_role(role: str) -> Iterator[None]:
    """Give a role to all locations that are created inside."""
    before = work.role, work.forward, work.of
    work.role, work.forward, work.of = role, None, ""
    try:
        yield
    finally:
        work.role, work.forward, work.of = before


def is_module_call(code: CodeType) -> bool:
    """Whether this is the code of a call of an nn.Module."""
    return code.co_name == "__call__" and code.co_filename == _MODULES


def child_path(path: str, outer: Any, inner: Any) -> str:
    """The path of a module called inside another one, or on its own: Model.blocks.0."""
    return f"{path}.{_name_in(outer, inner)}" if path else type(inner).__name__


def _name_in(outer: Any, inner: Any) -> str:
    """The name of a module in another one, through lists of modules: blocks.0."""
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
    module = frame.f_globals.get("__name__") or "<unknown>"  # else Python drops the warning
    where = (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, category, *where, module=module, registry=known)
