"""Structures that may never come again, as new trees in each call: not recorded at first sight.

A recording costs as much as a hundred eager calls, which pays only if it is used again: not with
another structure in each call. A cheap key tells structures apart. A new one runs as plain Python.
One that comes again is recorded if there was no other, if recordings took less than a quarter of
the time of such calls so far, or when it has come `OFTEN` times. This holds for a function if

- an argument is a tree of objects (one holds others of its own class), from the first call on;
- the last recordings were made because of a structure in the arguments, and none was used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.capture.watch.guards import Guard
from weft.capture.watch.stores import instance_dict
from weft.capture.watch.values import CONTAINERS, is_of_weft
from weft.capture.watch.watch import is_counted, is_module
from weft.core.tensor import Tensor, type_of

#: After so many recordings in a row that no call used again, a new structure is not recorded.
UNUSED = 4
#: A structure that has come so often is recorded in any case.
OFTEN = 8
#: The time for recordings, as a share of the time for calls that ran as plain Python.
SHARE = 0.25
#: A recording takes so many times as long as the call, as far as none was made.
COST = 100.0
#: Structures with more parts than this have no key, and so many keys are kept.
MOST_PARTS, MOST_KEYS = 20_000, 10_000
_PLAIN = frozenset({type(None), bool, str, bytes})
#: Guards that hold for one structure of the arguments.
_KINDS = frozenset({"class", "identity", "length", "size", "keys", "order", "same", "distinct"})


def is_about_structure(guard: Guard) -> bool:
    """Whether a guard fails because an argument is built in another way."""
    origin = guard.origin
    if guard.kind == "distinct":
        return True
    if origin is None or not origin.from_args:
        return False
    missing = guard.kind in ("missing", "present")
    return guard.kind in _KINDS or missing or (guard.kind == "value" and guard.expected is None)


class SecondSight:
    """What one function has seen and not recorded.

    calls       how many calls ran as plain Python because their structure was new
    off         all calls are recorded, for tools
    seconds     how long they took
    recordings  how long recordings of structures that had come before took, each
    """

    def __init__(self) -> None:
        self.calls = 0
        self.off = False
        self.seconds = 0.0
        self.recordings: list[float] = []
        self._keys: dict[Any, int] = {}  # how often each has come
        self._hits: list[int] = []  # replays before each of the last recordings for a structure

    def recorded(self, guard: Guard | None, hits: int) -> None:
        """A recording was made because of a guard, after so many replays in all."""
        if guard is not None and is_about_structure(guard):
            self._hits = [*self._hits[-UNUSED:], hits]

    def waits(self, args: tuple[Any, ...], kwargs: dict[str, Any], tree: bool) -> bool:
        """Whether a call that no recording fits is to run as plain Python. With `tree`, only an
        argument that is a tree of objects counts."""
        if self.off:
            return False
        key = _Key()
        try:
            key.add((args, kwargs))
        except (_TooLarge, RecursionError):
            return False
        if tree and not key.nested:
            return False
        made = tuple(key.parts)
        if len(self._keys) >= MOST_KEYS:
            self._keys.clear()
        count = self._keys[made] = self._keys.get(made, 0) + 1
        stable = len(self._keys) == 1  # no other structure has come so far
        if count > 1 and (stable or count >= OFTEN or self._can_afford()):
            return False
        self.calls += 1
        return True

    def _can_afford(self) -> bool:
        """Whether another recording takes little time beside the calls so far."""
        if self.recordings:
            more = sum(self.recordings) * (1 + 1 / len(self.recordings))
        else:
            more = COST * self.seconds / self.calls
        return more <= SHARE * self.seconds

    def is_unused(self, hits: int) -> bool:
        """Whether the last recordings for structures were never used."""
        return len(self._hits) > UNUSED and hits - self._hits[0] < UNUSED


class _TooLarge(Exception):
    pass


class _Key:
    """The structure of arguments, as a flat list: classes, lengths, names, types of tensors."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.nested = False  # whether an object holds one of its own class
        self._seen: dict[int, int] = {}
        self._inside: dict[type, int] = {}  # classes of the objects around

    def add(self, value: Any) -> None:
        cls = value.__class__
        parts = self.parts
        if len(parts) > MOST_PARTS:
            raise _TooLarge
        if cls in _PLAIN:
            parts += (cls, value)
        elif cls is int or cls is float:
            parts.append(cls)  # another number needs no other recording, most often
        elif isinstance(value, Tensor):
            parts += (cls, type_of(value), value.requires_grad)
        elif isinstance(value, np.ndarray):
            parts += (cls, value.dtype.str, value.shape)
        elif isinstance(value, CONTAINERS):
            self._container(cls, value)
        else:
            self._object(cls, value)

    def _container(self, cls: type, value: Any) -> None:
        self.parts += (cls, len(value))
        if isinstance(value, (set, frozenset)) or is_counted(value):
            self.parts.append(id(value))
        elif isinstance(value, dict):
            for key, part in value.items():
                self.add(key)
                self.add(part)
        else:
            for part in value:
                self.add(part)

    def _object(self, cls: type, value: Any) -> None:
        own = None if _is_whole(value) else instance_dict(value)
        if own is None:
            self.parts += (cls, id(value))
            return
        known = self._seen.setdefault(id(value), len(self._seen))
        if known < len(self._seen) - 1:
            self.parts += (cls, known)
            return
        self.nested |= cls in self._inside
        around = self._inside.get(cls, 0)
        self._inside[cls] = around + 1
        self.parts += (cls, len(own))
        for name, part in own.items():
            self.parts.append(name)
            self.add(part)
        if around:
            self._inside[cls] = around
        else:
            del self._inside[cls]


def _is_whole(value: Any) -> bool:
    """Whether an object counts as one thing: a module, an optimizer, a function, a class."""
    return (
        isinstance(value, (type, Callable))  # type: ignore[arg-type]
        or is_module(value)
        or is_counted(value)
        or is_of_weft(value)
    )
