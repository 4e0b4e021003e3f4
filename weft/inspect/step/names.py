"""Records which values of a graph the user's variables hold.

For each node, the recorder asks for the user's line (`user_location`). While a debugger is active,
this module gets the frame, too, and reads the variables of the running functions, as any Python
debugger does. A value of the graph that a variable holds gets a unique name. Graphs are copied,
split and optimized afterwards; a value that survives keeps its name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from weft.base.source import PACKAGE, SourceLocation, work
from weft.capture.from_source.held import Maybe
from weft.capture.trace.recorder import TraceRecorder
from weft.capture.watch.origin import MISSING
from weft.core.number import Number
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor
from weft.inspect.frames import Frame
from weft.ir.graph import Graph, Value

__all__ = ["Held", "Names", "Note", "Ref", "Scope"]

#: The depth to which containers are read, and the most entries of a container.
DEPTH, MOST_ENTRIES = 4, 200
#: The number of stack frames whose variables are recorded, from the innermost.
MOST_SCOPES = 12
#: The folder of the standard library.
_PYTHON = os.path.dirname(os.__file__) + os.sep


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """A reference to a value of the recorded graph, by its name.

    location    the location of its node; None for inputs
    index       the number of the result of that node
    """

    name: str
    location: SourceLocation | None
    index: int
    is_number: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A concrete tensor in a variable; it may be an input of the graph."""

    tensor: Tensor
    recorder: TraceRecorder | None

    def ref(self, names: Names) -> Ref | None:
        """The input of the graph for this tensor."""
        if self.recorder is None:
            return None
        found = self.recorder._lifted.get(id(self.tensor))
        return None if found is None else names.ref(found[1], "")


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables of one running function: plain objects, `Ref`s and `Held`s."""

    function: str
    file: str
    line: int
    globals: dict[str, Any]
    variables: dict[str, Any]
    frame: int = 0  # id of its frame, which is kept alive while ids are compared


@dataclass(frozen=True, slots=True)
class Note:
    """The functions that were running, innermost first, and the writes so far.

    written     tensors from outside whose value or gradient is now a value of the graph
    """

    scopes: tuple[Scope, ...]
    written: list[tuple[Tensor, Any, Any]] = field(default_factory=list)


class Names:
    """The variable names of one recording."""

    def __init__(self, outside: FrameType | None) -> None:
        self._outside = outside  # who called the recorded function
        self.callers = _callers(outside)
        self._notes: dict[int, tuple[SourceLocation, Note]] = {}
        self._refs: dict[Value, Ref] = {}
        self._taken: dict[str, int] = {}
        self._frames: dict[int, FrameType] = {}  # all frames, by id
        self._final: dict[int, Scope] = {}  # their variables at the end
        self._first: FrameType | None = None
        self._recorder: TraceRecorder | None = None
        self.variables: dict[int, str] = {}  # by id of the location of their value
        self._arrivals: list[tuple[SourceLocation, str, Ref]] = []
        self._gradients: dict[tuple[int, int], list[Ref]] = {}
        self._latest: SourceLocation | None = None
        self.last: Note | None = None  # the state at the end
        self.finished: list[Frame] = []  # graphs of this call that have finished

    # --- while recording ----------------------------------------------------------------------

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Record variable names in this thread."""
        before = work.noting, work.gradient
        work.noting, work.gradient = self._note, self._note_gradient
        try:
            yield
        finally:
            work.noting, work.gradient = before

    def begin(self, recorder: TraceRecorder) -> TraceRecorder:
        """Start of a recording: give its inputs unique names."""
        self._recorder = recorder
        plain = recorder._input

        def named(kind: Any, origin: Any, numbers: Tensor) -> Value:
            value = plain(kind, origin, numbers)
            number = self._taken[value.name] = self._taken.get(value.name, -1) + 1
            value.name += f".{number}" if number else ""
            return value

        restore = recorder.restore

        def ended() -> None:
            self._end()  # before tensors from outside get their old values back
            restore()

        recorder._input = named  # type: ignore[method-assign]
        recorder.restore = ended  # type: ignore[method-assign]
        return recorder

    def _end(self) -> None:
        """End of a recording: read the final variables from the frames."""
        for key, frame in self._frames.items():
            self._final[key] = self._scope(frame)
        if self._first is not None:
            self.last = Note((self._final[id(self._first)],), self._written())
        self._frames.clear()
        self._first = self._outside = None

    def _note(self, frame: FrameType, location: SourceLocation) -> None:
        frames = list(itertools.islice(self._user_frames(frame), MOST_SCOPES))
        if not frames:
            return
        if self._first is None:
            self._first = list(self._user_frames(frame))[-1]
            self._frames[id(self._first)] = self._first
        self._frames.update((id(each), each) for each in frames)
        scopes = tuple([self._scope(each) for each in frames])
        self._notes[id(location)] = (location, Note(scopes, self._written()))
        self._latest = location

    def _note_gradient(self, forward: SourceLocation | None, op: str, g: Any) -> None:
        if forward is None:
            return
        for index, part in enumerate(g if isinstance(g, tuple) else (g,)):
            data = part._data if isinstance(part, Tensor) else part
            if data.__class__ is SymbolicArray:
                name = f"gradient.{self.variables.get(id(forward), 'value')}"
                found = self._gradients.setdefault((id(forward), index), [])
                found.append(self.ref(data.value, name))
                self._arrivals.append((forward, op, found[-1]))

    def _user_frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        while frame is not None and frame is not self._outside:
            if self._is_user(frame):
                yield frame
            frame = frame.f_back

    @staticmethod
    def _is_user(frame: FrameType) -> bool:
        """Whether a frame is the user's; frames made for tracebacks are known by their module."""
        if frame.f_code.co_filename.startswith(PACKAGE):
            return False
        return not str(frame.f_globals.get("__name__", "")).startswith("weft.")

    def _scope(self, frame: FrameType) -> Scope:
        code = frame.f_code
        found: dict[str, Any] = {}
        for name, value in frame.f_locals.items():
            if name.startswith(("__weft", "@", ".")) or value.__class__ is ModuleType:
                continue
            read = self._read(value, name, 0)
            if read is not MISSING:
                found[name] = read
        line = frame.f_lineno or code.co_firstlineno
        return Scope(code.co_name, code.co_filename, line, frame.f_globals, found, id(frame))

    def _read(self, value: Any, name: str, depth: int) -> Any:
        """A snapshot of the value of a variable: containers may change later."""
        if isinstance(value, Maybe):
            return value.value if value.value is MISSING else self._read(value.value, name, depth)
        if isinstance(value, Tensor):
            data = value._data
            if data.__class__ is not SymbolicArray:
                return Held(value, self._recorder)
            return self.ref(data.value, name, isinstance(value, Number))
        if depth < DEPTH and value.__class__ in (list, tuple, dict) and len(value) < MOST_ENTRIES:
            if value.__class__ is dict:
                pairs = value.items()
                return {k: self._read(v, f"{name}.{k}", depth + 1) for k, v in pairs}
            parts = [self._read(v, f"{name}.{i}", depth + 1) for i, v in enumerate(value)]
            return parts if value.__class__ is list else tuple(parts)
        return value

    def _written(self) -> list[tuple[Tensor, Any, Any]]:
        if self._recorder is None:
            return []
        found: list[tuple[Tensor, Any, Any]] = []
        for entry in self._recorder.written.values():
            tensor = entry.tensor
            grad = getattr(tensor, "_grad", None)
            now = self._read(tensor, "state", DEPTH)
            found.append((tensor, now, self._read(grad, "gradient", DEPTH)))
        return found

    # --- afterwards ---------------------------------------------------------------------------

    def ref(self, value: Value, name: str, is_number: bool = False) -> Ref:
        """A reference to a value, which gets a unique name."""
        known = self._refs.get(value)
        if known is not None:
            return known
        made = value.node
        if not value.name:  # inputs from outside have a name
            word = "".join(c if c.isalnum() or c in "_." else "_" for c in name) or "value"
            number = self._taken[f"{word}."] = self._taken.get(f"{word}.", -1) + 1
            value.name = f"{word}.{number}"
        location = None if made is None else made.location
        found = self._refs[value] = Ref(value.name, location, value.index, is_number)
        if location is not None and made is not None and len(made.outputs) == 1 and name:
            self.variables.setdefault(id(location), name)
        return found

    def at(self, location: SourceLocation | None) -> Note | None:
        """The notes made when a node was recorded."""
        found = self._notes.get(id(location))
        return None if found is None else found[1]

    def ends_with(self, graph: Graph) -> bool:
        """Whether a graph contains the last recorded node, with which the function ends."""
        found = {id(node.location) for part in graph.walk() for node in part.nodes}
        return id(self._latest) in found or found.isdisjoint(self._notes)

    def in_the_end(self, scope: Scope) -> Scope:
        """The variables of a function at its end."""
        return self._final.get(scope.frame, scope)

    def gradients_of(self, ref: Ref) -> list[Ref]:
        """The gradients of a value, one for each recorded backward."""
        return self.gradients_at(ref.location, ref.index)

    def all_gradients(self) -> list[tuple[SourceLocation, str, Ref]]:
        """All gradients in order, each as (forward line, op, gradient)."""
        return self._arrivals

    def gradients_at(self, forward: SourceLocation | None, index: int = 0) -> list[Ref]:
        """The gradients of the results of the node at a location."""
        return self._gradients.get((id(forward), index), [])


def _callers(frame: FrameType | None) -> list[SourceLocation]:
    """The user's lines of the call stack, outermost first."""
    found: list[SourceLocation] = []
    while frame is not None:
        code = frame.f_code
        if os.path.isfile(code.co_filename) and not code.co_filename.startswith((PACKAGE, _PYTHON)):
            found.append(SourceLocation(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return found[::-1]


def caller() -> FrameType | None:
    """The innermost frame outside of Weft."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame
