"""Pauses Python's cyclic garbage collector during work that creates many lasting objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]

#: Importing this name pauses the collector until the importing module drops it. `import weft`
#: creates so many objects that collections would take a fifth of its time. If the import fails, its
#: module goes away, and the pause with it.
while_importing: object


@contextmanager
def gc_paused() -> Iterator[None]:
    """Turn the cyclic garbage collector off inside.

    Capturing and compiling create many objects, and nearly all of them stay alive. Collections in
    between would scan them, and everything else in the process, and free almost nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Pause:
    """The collector is off while this object lives, unless it was off before."""

    __slots__ = ("resumes",)

    def __init__(self) -> None:
        self.resumes = gc.isenabled()
        gc.disable()

    def __del__(self) -> None:
        if not self.resumes:
            return
        if not gc.get_freeze_count():  # the new objects count as old ones, without a collection
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def __getattr__(name: str) -> object:
    if name == "while_importing":
        return _Pause()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
