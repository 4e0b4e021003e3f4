"""Work during which Python's garbage collector rests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]


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
