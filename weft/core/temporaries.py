"""Writes to tensors that nobody holds: who asks whether `self` of a write is such a temporary.

A method that writes compares `getrefcount(self)` with what it is for a temporary, which is found by
trying, as it differs between versions of Python. Where a name that holds the tensor makes no
difference (Python 3.14 counts no references of local names to the stack; without the GIL counts
mean less) nothing is a temporary. The instruction that runs says the rest: an assignment to an
item, or a call whose result is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from opcode import opmap
from types import FrameType
from typing import Any

from weft.base.lost_writes import text_at, warn_lost_write
from weft.base.source import is_own
from weft.core.ownership import is_known

__all__ = ["ITEM_OF_TEMPORARY", "METHOD_OF_TEMPORARY", "lost_item", "lost_method"]

#: Calls are tried so often: the interpreter replaces code that runs often by faster code.
_TRIES = 40
#: No count is as low.
_NEVER = -1

_CACHE, _POP_TOP = opmap["CACHE"], opmap["POP_TOP"]
_STORES = {opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap}


class _Probe:
    """Counts the references to itself as a method of Tensor sees them."""

    def __setitem__(self, key: int, seen: list[int]) -> None:
        seen.append(sys.getrefcount(self))

    def write_(self, seen: list[int]) -> None:
        seen.append(sys.getrefcount(self))


def _item_of_temporary(seen: list[int]) -> None:
    _Probe()[0] = seen


def _item_of_name(seen: list[int]) -> None:
    probe = _Probe()
    probe[0] = seen


def _method_of_temporary(seen: list[int]) -> None:
    _Probe().write_(seen)


def _method_of_name(seen: list[int]) -> None:
    probe = _Probe()
    probe.write_(seen)


def _found(temporary: Callable[[list[int]], None], named: Callable[[list[int]], None]) -> int:
    """The count of a temporary, if it tells one from a tensor that a name holds."""
    if not is_known():
        return _NEVER
    alone: list[int] = []
    held: list[int] = []
    for _ in range(_TRIES):
        temporary(alone)
        named(held)
    return alone[0] if len(set(alone)) == 1 and max(alone) < min(held) else _NEVER


#: What `sys.getrefcount(self)` says at most in `__setitem__` of a temporary, and in a method.
ITEM_OF_TEMPORARY = _found(_item_of_temporary, _item_of_name)
METHOD_OF_TEMPORARY = _found(_method_of_temporary, _method_of_name)


def lost_item() -> None:
    """`__setitem__`, which calls this, has a temporary: warn if it serves `temporary[key] = v`."""
    frame = sys._getframe(2)
    if _instruction(frame, 0) in _STORES and not is_own(frame.f_code.co_filename):
        warn_lost_write(text_at(frame))


def lost_method() -> None:
    """A method that writes, which calls this, has a temporary: warn if its result is dropped."""
    frame = sys._getframe(2)
    if _instruction(frame, 1) == _POP_TOP and not is_own(frame.f_code.co_filename):
        warn_lost_write(text_at(frame))


def _instruction(frame: FrameType, after: int) -> int:
    """The instruction that a frame runs, or one after it."""
    code: Any = frame.f_code.co_code
    at = frame.f_lasti + 2 * after
    while after and at < len(code) and code[at] == _CACHE:
        at += 2
    return int(code[at]) if at < len(code) else _NEVER
