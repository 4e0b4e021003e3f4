"""Room for recursion: how deep calls may go while Weft works.

Python's limit is one for all threads of a process, so it is raised by one who counts: the largest
that anybody needs now, and what it was when nobody does any more.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["call_deeply", "deeper"]

#: A stack for recursion in C (Python's own compiler): it is taken page by page, as it is used.
STACK_BYTES = 256 << 20
#: How much deeper than before calls may go there.
DEEP = 100

_T = TypeVar("_T")
_lock = threading.Lock()
_factors: list[int] = []
_before = 0


@contextlib.contextmanager
def deeper(factor: int) -> Iterator[None]:
    """Let calls go so many times as deep as the user's limit says."""
    global _before
    with _lock:
        if not _factors:
            _before = sys.getrecursionlimit()
        _factors.append(factor)
        sys.setrecursionlimit(_before * max(_factors))
    try:
        yield
    finally:
        with _lock:
            _factors.remove(factor)
            sys.setrecursionlimit(_before * max(_factors, default=1))


def call_deeply(function: Callable[[], _T]) -> _T:
    """Call a function whose recursion ends, but may go deep: in a thread with a stack for that."""
    made: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    with deeper(DEEP):
        with _lock:  # the size is that of the next threads, whoever starts them
            size = threading.stack_size(STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(size)
        thread.join()
    if failed:
        raise failed[0]
    return made[0]
