"""Profiles eager op calls and their backward steps."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy import ndarray

from weft.base.dims import has_dims
from weft.base.source import PACKAGE, SourceLocation, child_path, is_module_call
from weft.core.bind import Recorder, bind, recorder
from weft.core.tensor import Tensor, type_of
from weft.inspect.profile.events import Event, MemoryChange
from weft.ir.op import Op

__all__ = ["Eager", "now"]


def now() -> int:
    """The time in ns, by the clock that generated code uses."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


#: What is stored for an op call; everything else is computed when the profile ends. The op or the
#: name of a backward step, start, stop, attributes, (shape, dtype) of inputs and of outputs, the
#: user's code and line, the enclosing modules.
_Noted = tuple[Any, int, int, Any, Any, Any, CodeType | None, int, tuple[Any, ...]]

_clock, _MONOTONIC = time.clock_gettime_ns, time.CLOCK_MONOTONIC
#: The kinds of frames: the user's code, calls of modules, other code of Weft.
_USERS, _MODULE, _OTHER = range(3)


class _Kinds:
    """The kind of a code object, by its id: hashing a code object is slow. The object is kept."""

    def __init__(self) -> None:
        self.by_id: dict[int, int] = {}
        self._kept: list[CodeType] = []

    def find(self, code: CodeType) -> int:
        kind = _OTHER if code.co_filename.startswith(PACKAGE) else _USERS
        self.by_id[id(code)] = found = _MODULE if is_module_call(code) else kind
        self._kept.append(code)
        return found


class Eager(Recorder):
    """Records the op calls of a thread."""

    observes = True

    def __init__(self) -> None:
        self.noted: list[_Noted] = []
        self.changes: list[tuple[int, int]] = []  # memory changes: time and bytes
        self._kinds = _Kinds()
        self.thread = threading.get_ident()
        self._alive: dict[int, Any] = {}
        self._rests = False

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, op calls are not recorded here."""
        before, self._rests = self._rests, True
        try:
            yield
        finally:
            self._rests = before

    # --- while it runs ------------------------------------------------------------------------

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        start = _clock(_MONOTONIC)
        out = bind(op, *inputs, **attrs)
        stop = _clock(_MONOTONIC)
        if not self._rests and recorder() is None:  # otherwise a function is being captured
            outputs = out if out.__class__ is tuple else (out,)
            given = [(x._data.shape, x._data.dtype) for x in inputs]
            made = [(y._data.shape, y._data.dtype) for y in outputs]
            self.noted.append((op, start, stop, attrs, given, made, *self._around(2)))
            for y in outputs:
                self._born(y._data, stop)
        return out

    def apply(self, node: Any, g: Any, create: bool, keep: bool, wanted: Any) -> Any:
        """Record a step of a backward pass."""
        start = _clock(_MONOTONIC)
        grads = node.apply(g, create, keep, wanted)
        stop = _clock(_MONOTONIC)
        if node.is_leaf:
            return grads
        self.noted.append((node.name(), start, stop, None, None, None, *self._around(2)))
        for part in grads:
            self._born(part, stop)
        return grads

    def _around(self, depth: int) -> tuple[CodeType | None, int, tuple[Any, ...]]:
        """The innermost line of the user's code, and the modules that are running."""
        found: CodeType | None = None
        line = 0
        modules: tuple[Any, ...] = ()
        known = self._kinds.by_id
        frame: FrameType | None = sys._getframe(depth)
        while frame is not None:
            code = frame.f_code
            kind = known.get(id(code))
            if kind is None:
                kind = self._kinds.find(code)
            if kind == _USERS:
                if found is None:
                    found, line = code, frame.f_lineno
            elif kind == _MODULE:
                modules += (frame.f_locals.get("self"),)
            frame = frame.f_back
        return found, line, modules

    def _born(self, array: Any, at: int) -> None:
        if array.__class__ is not ndarray or array.base is not None:
            return
        key, alive = id(array), self._alive
        if key in alive:
            return
        size = array.nbytes
        self.changes.append((at, size))
        alive[key] = weakref.ref(array, functools.partial(self._gone, key, size))

    def _gone(self, key: int, size: int, _ref: Any) -> None:
        self._alive.pop(key, None)
        self.changes.append((_clock(_MONOTONIC), -size))

    # --- afterwards ---------------------------------------------------------------------------

    def events(self) -> list[Event]:
        self._alive.clear()
        return [self._event(note) for note in self.noted]

    @property
    def memory(self) -> list[MemoryChange]:
        return [MemoryChange(*change) for change in self.changes]

    def _event(self, note: _Noted) -> Event:
        what, start, stop, attrs, inputs, outputs, code, line, around = note
        path, outer = "", None
        for module in reversed(around):
            if module is not None and module is not outer:
                path, outer = child_path(path, outer, module), module
        backward = isinstance(what, str)
        places: tuple[SourceLocation, ...] = ()
        if code is not None:
            role = "backward" if backward else ""
            places = (SourceLocation(code.co_filename, line, code.co_name, path, role),)
        if isinstance(what, str):
            return Event(what, "backward", start, stop, self.thread, places=places)
        made = Event(what.name, "op", start, stop, self.thread, places=places)
        given, results = ([_type(*kind) for kind in side] for side in (inputs, outputs))
        if all(kind is not None and not has_dims(kind.shape) for kind in (*given, *results)):
            cost = what.estimate(tuple(given), tuple(results), **attrs)
            made.flops, made.bytes = int(cost.flops), int(cost.bytes)
            made.itemsize = max((kind.dtype.itemsize for kind in results), default=4)
        return made


def _type(shape: tuple[int, ...], dtype: Any) -> Any:
    made = Tensor()
    try:
        made._data = np.broadcast_to(np.zeros((), dtype), shape)
        return type_of(made)
    except (TypeError, ValueError):
        return None  # it has a layout or device of the user's own
