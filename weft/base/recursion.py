"""A higher recursion limit while Weft works.

Python has one limit for all threads of a process. So users of a higher limit are counted: the limit
is the largest that any of them needs, and is restored when the last one is done.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["call_deeply", "raised_limit"]

#: The stack size for recursion in C (Python's compiler). Pages are allocated as they are used.
STACK_BYTES = 256 << 20
#: The factor by which the recursion limit is raised in that thread.
DEEP = 100

_T = TypeVar("_T")
_lock = threading.Lock()
_factors: list[int] = []
_before = 0


@contextlib.contextmanager
def raised_limit(factor: int) -> Iterator[None]:
    """Raise the recursion limit to this multiple of the user's limit."""
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
    """Call a function that may recurse deeply, in a thread with a large stack."""
    made: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    with raised_limit(DEEP):
        with _lock:  # the setting holds for all threads that are started next
            size = threading.stack_size(STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(size)
        thread.join()
    if failed:
        raise failed[0]
    return made[0]
