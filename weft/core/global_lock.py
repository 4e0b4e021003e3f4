"""A lock for work that only one thread may do at a time."""

from __future__ import annotations

from weft.base.locks import process_lock

_lock = process_lock()


class Turn:
    """A `with` block that no other thread is in at the same time; one thread may nest them."""

    __slots__ = ()

    def __enter__(self) -> None:
        _lock.acquire()

    def __exit__(self, *_error: object) -> None:
        _lock.release()


def turn() -> Turn:
    """A new one: a recorder takes it for an object of the run's own, and lets it be."""
    return Turn()
