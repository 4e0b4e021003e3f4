"""Whether anything else holds a buffer: the one place that reads Python's reference counts.

A buffer that anything else can see is never written. Every view and every tensor holds its array,
so the reference count of an array tells whether it is free. What else `sys.getrefcount` counts
(such as its own argument) differs between versions of Python, and between a name, an attribute and
an item. So the counts are calibrated with arrays that have 0, 1 and 2 other holders. If the three
answers do not differ by one, no buffer ever counts as free: results get new arrays, which is
slower, and right.

Code that reuses a buffer because of such an answer first tests its whole path with 0, 1 and 2 other
holders: see `proven`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["NEWEST_KNOWN", "alone_in_list", "alone_in_tensor", "counts", "is_known", "proven"]

#: The newest Python whose counts and layouts of objects are known.
NEWEST_KNOWN = (3, 14)
#: How often each answer is tested: the interpreter specializes code that runs often.
_TRIES = 40
_MOST_OTHERS = 2
#: A count that never means "no other holder".
_NEVER = -1

_count: Callable[[Any], int] = sys.getrefcount
_in_slot = _in_list = _NEVER


def is_known() -> bool:
    """Whether this is a Python whose counts and layouts of objects are known: CPython with its
    global lock, up to `NEWEST_KNOWN`."""
    return (
        sys.implementation.name == "cpython"
        and getattr(sys, "_is_gil_enabled", lambda: True)()
        and sys.version_info[:2] <= NEWEST_KNOWN
    )


def alone_in_tensor(tensor: Any) -> bool:
    """Whether only a tensor holds its array."""
    return _count(tensor._data) == _in_slot


def alone_in_list(items: list[Any], place: int, others: int = 0) -> bool:
    """Whether only one place of a list, and `others` known holders, hold an object."""
    return _in_list != _NEVER and _count(items[place]) == _in_list + others


def counts() -> bool:
    """Whether counts can be relied on at all."""
    return _in_slot != _NEVER and _in_list != _NEVER


def proven(alone: Callable[[int], bool]) -> bool:
    """Whether a path can be relied on: `alone(n)` runs it with `n` other holders of a buffer, and
    returns whether the path reused that."""
    return counts() and [alone(n) for n in range(_MOST_OTHERS + 1)] == [True, False, False]


class _Slot:
    """As a tensor holds its array."""

    __slots__ = ("_data",)
    _data: object


def calibrate(count: Callable[[Any], int] = sys.getrefcount) -> None:
    """Find the value of `count` for an object that only a slot, or only a list, holds."""
    global _count, _in_slot, _in_list
    _count = count
    if not is_known():
        _in_slot = _in_list = _NEVER
        return
    _in_slot = _found(_of_slot)
    _in_list = _found(_of_list)


def _found(ask: Callable[[int], int]) -> int:
    alone = ask(0)
    answers = [ask(others) - others for others in range(_MOST_OTHERS + 1) for _ in range(_TRIES)]
    return alone if all(answer == alone for answer in answers) else _NEVER


def _of_slot(others: int) -> int:
    slot = _Slot()
    slot._data = object()
    held = [slot._data] * others
    found = _count(slot._data)
    del held
    return found


def _of_list(others: int) -> int:
    items = [object()]
    held = [items[0]] * others
    found = _count(items[0])
    del held
    return found


calibrate()
