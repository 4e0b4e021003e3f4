"""Op calls that run although the thread records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from weft.core import bind as binding

__all__ = ["unrecorded"]


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Inside, op calls of this thread run on numbers, whatever records them."""
    active = binding._thread.recorders
    held = active[:]
    active.clear()
    try:
        yield
    finally:
        active[:] = held
