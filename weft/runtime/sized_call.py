"""A builtin function that finds the call for the sizes of its inputs, made of machine code.

    calls = sized_calls(inputs=2, sized=[(0, 2)], missed=dispatch, latest=(ctypes.c_int64 * 1)())
    calls.call(inputs)                      # dispatch(inputs): nothing is kept yet
    calls.keep([3, 4], call, number=7)      # `call` is for inputs whose first is a (3, 4)
    calls.call(inputs)                      # call(inputs), if it is; then latest[0] is 7

A lookup in Python takes half a microsecond, as long as a small program.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.runtime.native_call import builtin
from weft.runtime.output_routing import Call
from weft.runtime.sized_call_code import SIZED_CALL, SIZED_FIELDS, SLOTS, hashed, slot_words

__all__ = ["SizedCalls", "sized_calls"]


def sized_calls(
    inputs: int, sized: Sequence[tuple[int, int]], missed: Call, latest: Any
) -> SizedCalls | None:
    """The table of calls of a function of so many inputs; None if it is not possible here.

    `sized`: the inputs whose sizes decide, each with its number of axes. `missed`: what is called
    if there is no call for their sizes. `latest`: a ctypes array for the number of the last call
    that was found."""
    words = slot_words(sum(axes for _, axes in sized))
    table = (ctypes.c_int64 * len(SIZED_FIELDS))()
    call = builtin(SIZED_CALL, table)
    return None if call is None else SizedCalls(call, table, inputs, sized, words, missed, latest)


class SizedCalls:
    """
    call   the function
    """

    def __init__(
        self,
        call: Call,
        table: Any,
        inputs: int,
        sized: Sequence[tuple[int, int]],
        words: int,
        missed: Call,
        latest: Any,
    ) -> None:
        self.call = call
        self._words = words
        self._slots = (ctypes.c_int64 * (words * SLOTS))()
        self._kept: list[Call | None] = [None] * SLOTS
        self._lock = threading.Lock()
        rows = (ctypes.c_int64 * (2 * len(sized)))(*[word for row in sized for word in row])
        starts = map(ctypes.addressof, (rows, self._slots, latest))
        at_rows, at_slots, at_latest = starts
        table[:] = [
            *(inputs, len(sized), at_rows, words, at_slots),
            *(id(Tensor), id(np.ndarray), id(missed), at_latest),
        ]
        # They live as long as the function.
        table.kept = [rows, self._slots, self._kept, missed, latest]

    def keep(self, sizes: Sequence[int], call: Call, number: int) -> None:
        """Keep a call for these sizes, unless their slot is taken."""
        slot = hashed(sizes)
        at = slot * self._words
        with self._lock:
            if self._kept[slot] is not None:
                return
            self._kept[slot] = call
            self._slots[at + 1 : at + self._words] = [number, *sizes]
            self._slots[at] = id(call)  # last: from now on it may be called

    def forget(self, call: Call) -> None:
        with self._lock:
            for slot, kept in enumerate(self._kept):
                if kept is call:
                    self._slots[slot * self._words] = 0  # first: from now on it is not called
                    self._kept[slot] = None
