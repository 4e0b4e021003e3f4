"""Intercepts calls of compiled functions for the debugger.

A call is recorded again, with the names of the user's variables, by a separate traced function. The
compiled function itself is not changed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from weft.capture.trace.captured import Captured
from weft.compile import BACKENDS
from weft.core.bind import recorder
from weft.inspect.step.names import Names, caller
from weft.runtime.executable import Executable

__all__ = ["intercepted", "names_of"]

_plain_call = Captured.__call__
_lock = threading.Lock()
_wanted: list[Callable[[Captured[..., Any]], bool]] = []
_names: WeakKeyDictionary[Executable, Names] = WeakKeyDictionary()


def names_of(executable: Executable) -> Names | None:
    """The variable names recorded with the graph of an executable; None if they were not."""
    return _names.get(executable)


@contextlib.contextmanager
def intercepted(wanted: Callable[[Captured[..., Any]], bool]) -> Iterator[None]:
    """Record calls of `wanted` functions with variable names."""
    with _lock:
        _wanted.append(wanted)
        Captured.__call__ = _call  # type: ignore[method-assign]
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(wanted)
            if not _wanted:
                Captured.__call__ = _plain_call  # type: ignore[method-assign]


def _call(self: Captured[..., Any], *args: Any, **kwargs: Any) -> Any:
    if recorder() is not None or not any(asks(self) for asks in _wanted):
        return _plain_call(self, *args, **kwargs)
    names = Names(caller())
    with names.noting():
        return _plain_call(_beside(self, names), *args, **kwargs)


def _beside(function: Captured[..., Any], names: Names) -> Captured[..., Any]:
    """A traced function that records the same function again."""

    def prepare(graph: Any, *delivery: Any) -> Executable:
        made = BACKENDS["interpret"](graph, *delivery)
        _names[made] = names
        return made

    made = function.alike(prepare=prepare)
    make = made.make_recorder
    made.make_recorder = lambda *given: names.begin(make(*given))
    return made
