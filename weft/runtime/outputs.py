"""Arrays for results.

A result that replaces an input is written to the input's array, if only its tensor holds that
array. Of every other result a program keeps the last two that it returned, and reuses one when
nobody else holds it any more: in training, the gradients of the step before last. Creating and
freeing an array and a tensor costs as much as a small kernel, and the system clears each page of a
large array when it is first touched.

Calls in machine code follow the same rule (`weft.runtime.call_code`). This is the rule in Python,
for other calls.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.core.ownership import alone_in_list, proven
from weft.core.tensor import wrap

__all__ = ["KEPT", "Outputs"]

#: The number of arrays that are kept for one result.
KEPT = 2


class Outputs:
    """Arrays of given shapes and dtypes, new or reused."""

    def __init__(
        self,
        kinds: Sequence[tuple[tuple[int, ...], Any]],
        in_place: Mapping[int, int] | None = None,
        *,
        keeps: bool = True,
        reuses: bool | None = None,
    ) -> None:
        """`in_place`: results that may be written to the arrays of inputs, by number. `keeps`:
        whether results are kept. `reuses`: whether arrays are reused at all; None: if a test shows
        that reference counts are reliable."""
        self.kinds = list(kinds)
        places = in_place or {}
        if reuses is None:
            reuses = _counts_are_reliable()
        self._in_place = [*places.items()] if reuses else []
        others = [i for i in range(len(self.kinds)) if i not in places]
        self._kept: list[tuple[int, deque[Any]]] = [
            (i, deque()) for i in others if keeps and reuses
        ]

    def take(self, arrays: list[Any]) -> list[Any]:
        """Arrays for one run with these arrays of inputs; call `give` with them afterwards."""
        made: list[Any] = [None] * len(self.kinds)
        for i, kept in self._kept:
            for _ in range(len(kept)):
                try:  # removed from the kept ones, so that no other thread takes it
                    made[i] = kept.popleft()
                except IndexError:
                    break
                if alone_in_list(made, i):
                    break
                kept.append(made[i])
                made[i] = None
        for i, j in self._in_place:
            # Two references: from `arrays` and from its tensor.
            if alone_in_list(arrays, j, 1) and _is_writeable(arrays[j]):
                made[i] = arrays[j]
        empty = np.empty
        return [empty(*self.kinds[i]) if x is None else x for i, x in enumerate(made)]

    def give(self, made: list[Any]) -> None:
        for i, kept in self._kept:
            kept.append(made[i])
            if len(kept) > KEPT:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    kept.popleft()


def _is_writeable(array: Any) -> bool:
    return array.__class__ is np.ndarray and array.flags.writeable


# --- whether that can be relied on ---------------------------------------------------------------


@functools.cache
def _counts_are_reliable() -> bool:
    """Whether both ways to reuse an array count references correctly."""
    return proven(_written_in_place) and proven(_taken_again)


def _written_in_place(others: int) -> bool:
    tensor = wrap(np.empty(1))
    held = [tensor._data] * others
    arrays = [tensor._data]
    made = Outputs([((1,), np.float64)], {0: 0}, reuses=True).take(arrays)
    del held
    return made[0] is arrays[0]


def _taken_again(others: int) -> bool:
    outputs = Outputs([((1,), np.float64)], reuses=True)
    made = outputs.take([])
    outputs.give(made)
    tensors = [wrap(array) for array in made]
    held = [made[0]] * others
    before = id(made[0])
    del made, tensors
    found = id(outputs.take([])[0]) == before
    del held
    return found
