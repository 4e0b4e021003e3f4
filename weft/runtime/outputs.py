"""Arrays for results.

Large arrays are dear to ask the system for: each page of them is cleared when it is first touched.
So a program keeps those it gave out last, and gives one out again when nobody else holds it any
more: in training, the gradients of the step before last. And a result that takes the place of an
input is written where the input lies, where only its tensor holds that array.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.core.ownership import alone_in_list, proven
from weft.core.tensor import wrap

__all__ = ["Outputs"]

#: From how many bytes on an array is kept, and how many of them for one result.
LARGE = 1 << 16
MOST = 2


class Outputs:
    """Arrays of given shapes and dtypes, made anew or taken from those that are free."""

    def __init__(
        self,
        kinds: Sequence[tuple[tuple[int, ...], Any]],
        in_place: Mapping[int, int] | None = None,
        *,
        large: int = LARGE,
        reuses: bool | None = None,
    ) -> None:
        """`in_place`: results that may be written where inputs lie, by their numbers. `reuses`:
        whether arrays are used again at all; None: where that can be relied on."""
        self.kinds = list(kinds)
        places = in_place or {}
        if reuses is None:
            reuses = _relied_on()
        self._in_place = [*places.items()] if reuses else []
        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in kinds]
        self._kept: list[tuple[int, deque[Any]]] = [
            (i, deque())
            for i, size in enumerate(sizes)
            if size >= large and i not in places and reuses
        ]

    @property
    def reuses(self) -> bool:
        """Whether there are arrays that may be used again."""
        return bool(self._kept or self._in_place)

    @property
    def keeps(self) -> bool:
        """Whether some arrays are large enough to be kept."""
        return bool(self._kept)

    def take(self, arrays: list[Any]) -> list[Any]:
        """Arrays for one run, whose inputs have these `arrays`; `give` them back afterwards."""
        made: list[Any] = [None] * len(self.kinds)
        for i, kept in self._kept:
            _take_free(kept, made, i)
        for i, j in self._in_place:
            # It is in `arrays`, and its tensor has it.
            if alone_in_list(arrays, j, 1) and _is_writeable(arrays[j]):
                made[i] = arrays[j]
        for i, (shape, dtype) in enumerate(self.kinds):
            if made[i] is None:
                made[i] = np.empty(shape, dtype)
        return made

    def give(self, made: list[Any]) -> None:
        for i, kept in self._kept:
            kept.append(made[i])
            if len(kept) > MOST:
                with contextlib.suppress(IndexError):  # another thread took the last one
                    kept.popleft()


def _is_writeable(array: Any) -> bool:
    return array.__class__ is np.ndarray and array.flags.writeable


def _take_free(kept: deque[Any], made: list[Any], i: int) -> None:
    """Put an array that nobody else holds in its place, taken out of those that are kept, so that
    no other thread sees it."""
    for _ in range(len(kept)):
        try:
            made[i] = kept.popleft()
        except IndexError:
            return
        if alone_in_list(made, i):
            return
        kept.append(made[i])
        made[i] = None


# --- whether that can be relied on ---------------------------------------------------------------


@functools.cache
def _relied_on() -> bool:
    """Whether both ways to take an array tell right who holds it."""
    return proven(_written_in_place) and proven(_taken_again)


def _written_in_place(others: int) -> bool:
    tensor = wrap(np.empty(1))
    held = [tensor._data] * others
    arrays = [tensor._data]
    made = Outputs([((1,), np.float64)], {0: 0}, reuses=True).take(arrays)
    del held
    return made[0] is arrays[0]


def _taken_again(others: int) -> bool:
    outputs = Outputs([((1,), np.float64)], large=0, reuses=True)
    made = outputs.take([])
    outputs.give(made)
    tensors = [wrap(array) for array in made]
    held = [made[0]] * others
    before = id(made[0])
    del made, tensors
    found = id(outputs.take([])[0]) == before
    del held
    return found
