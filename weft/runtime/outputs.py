"""Fresh arrays for results.

Large arrays are dear to ask the system for: each page of them is cleared when it is first touched.
So a program keeps those it gave out last, and gives one out again when nobody else holds it any
more: in training, the gradients of the step before last. Python's count of references tells, as
every view and every tensor holds its array.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Outputs"]

#: From how many bytes on an array is kept, and how many of them for one result.
LARGE = 1 << 16
MOST = 2

_count = sys.getrefcount
#: Where counts are not exact (a Python without the global lock), nothing is given out twice.
_EXACT = getattr(sys, "_is_gil_enabled", lambda: True)()


class Outputs:
    """Arrays of given shapes and dtypes, made anew or taken from those that are free again."""

    def __init__(
        self, kinds: Sequence[tuple[tuple[int, ...], Any]], others: Sequence[int] = ()
    ) -> None:
        """`others`: results that the caller finds arrays for."""
        self.kinds = list(kinds)
        self._others = frozenset(others)
        sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds]
        self._kept: list[tuple[int, deque[Any]]] = [
            (i, deque())
            for i, size in enumerate(sizes)
            if size >= LARGE and _EXACT and i not in others
        ]

    @property
    def keeps(self) -> bool:
        """Whether some arrays are large enough to be kept."""
        return bool(self._kept)

    def take(self) -> list[Any]:
        """Arrays for one run; `give` them back to be looked at again."""
        made: list[Any] = [None] * len(self.kinds)
        for i, kept in self._kept:
            made[i] = _free(kept)
        for i, (shape, dtype) in enumerate(self.kinds):
            if made[i] is None and i not in self._others:
                made[i] = np.empty(shape, dtype)
        return made

    def give(self, made: list[Any]) -> None:
        for i, kept in self._kept:
            kept.append(made[i])
            if len(kept) > MOST:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    kept.popleft()


def _free(kept: deque[Any]) -> Any:
    """An array that nobody else holds, taken out, so that no other thread sees it; or None."""
    for _ in range(len(kept)):
        try:
            array = kept.popleft()
        except IndexError:
            return None
        if _count(array) == 2:  # this name, and the argument of the count
            return array
        kept.append(array)
    return None
