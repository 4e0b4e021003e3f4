"""Op calls that run at once, and the steps of their backward passes, as events."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np

from weft.base.dims import has_dims
from weft.base.source import PACKAGE, SourceLocation, is_module_call, module_path
from weft.core.bind import Recorder, bind, recorder
from weft.core.tensor import Tensor, type_of
from weft.inspect.profile.events import Event, MemoryChange
from weft.ir.op import Op

__all__ = ["Eager", "now"]


def now() -> int:
    """The clock that generated code reads, in ns."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class _Noted:
    """What is kept of an op call until the profile ends: all that costs more is done then."""

    __slots__ = ("attrs", "backward", "code", "line", "modules", "op", "start", "stop", "types")

    op: Op
    start: int
    stop: int
    types: tuple[Any, ...]
    attrs: dict[str, Any]
    code: CodeType | None
    line: int
    modules: list[Any]
    backward: str


class Eager(Recorder):
    """Looks on at the op calls of a thread."""

    observes = True

    def __init__(self) -> None:
        self.noted: list[_Noted] = []
        self.memory: list[MemoryChange] = []
        self.thread = threading.get_ident()
        self._alive: dict[int, Any] = {}
        self._rests = False

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, op calls are noted by somebody else."""
        before, self._rests = self._rests, True
        try:
            yield
        finally:
            self._rests = before

    # --- while it runs ------------------------------------------------------------------------

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        start = now()
        out = bind(op, *inputs, **attrs)
        stop = now()
        if not self._rests and recorder() is None:  # else a function is being captured
            outputs = out if isinstance(out, tuple) else (out,)
            note = self._note(start, stop)
            note.op, note.attrs = op, attrs
            note.types = (
                [(x._data.shape, x._data.dtype) for x in inputs],
                [(y._data.shape, y._data.dtype) for y in outputs],
            )
            note.backward = ""
            for y in outputs:
                self._born(y._data, stop)
        return out

    def apply(self, node: Any, g: Any, create: bool, keep: bool, wanted: Any) -> Any:
        """A step of a backward pass."""
        start = now()
        grads = node.apply(g, create, keep, wanted)
        stop = now()
        if node.is_leaf:
            return grads
        note = self._note(start, stop)
        note.backward = node.name()
        for part in grads:
            if part.__class__ is np.ndarray:
                self._born(part, stop)
        return grads

    def _note(self, start: int, stop: int) -> _Noted:
        note = _Noted()
        note.start, note.stop = start, stop
        note.code, note.line, note.modules = None, 0, []
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(PACKAGE):
                if note.code is None:
                    note.code, note.line = code, frame.f_lineno
            elif is_module_call(code):
                note.modules.append(frame.f_locals.get("self"))
            frame = frame.f_back
        self.noted.append(note)
        return note

    def _born(self, array: Any, at: int) -> None:
        if array.__class__ is not np.ndarray or array.base is not None or not array.nbytes:
            return
        key, size = id(array), array.nbytes
        if key in self._alive:
            return
        self.memory.append(MemoryChange(at, size))

        def gone(_ref: Any) -> None:
            self._alive.pop(key, None)
            self.memory.append(MemoryChange(now(), -size))

        self._alive[key] = weakref.ref(array, gone)

    # --- afterwards ---------------------------------------------------------------------------

    def events(self) -> list[Event]:
        self._alive.clear()
        return [self._event(note) for note in self.noted]

    def _event(self, note: _Noted) -> Event:
        modules = [m for i, m in enumerate(note.modules) if not i or note.modules[i - 1] is not m]
        path = module_path([m for m in modules if m is not None])
        role = "backward" if note.backward else ""
        places: tuple[SourceLocation, ...] = ()
        if note.code is not None:
            code = note.code
            places = (SourceLocation(code.co_filename, note.line, code.co_name, path, role),)
        if note.backward:
            return Event(
                note.backward, "backward", note.start, note.stop, self.thread, places=places
            )
        given, results = ([_type(shape, dtype) for shape, dtype in side] for side in note.types)
        made = Event(note.op.name, "op", note.start, note.stop, self.thread, places=places)
        if all(kind is not None and not has_dims(kind.shape) for kind in (*given, *results)):
            cost = note.op.estimate(tuple(given), tuple(results), **note.attrs)
            made.flops, made.bytes = int(cost.flops), int(cost.bytes)
            made.itemsize = max((kind.dtype.itemsize for kind in results), default=4)
        return made


def _type(shape: tuple[int, ...], dtype: Any) -> Any:
    made = Tensor()
    try:
        made._data = np.broadcast_to(np.zeros((), dtype), shape)
        return type_of(made)
    except (TypeError, ValueError):
        return None  # of a layout or device of the user's own
