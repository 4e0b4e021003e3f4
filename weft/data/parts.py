"""Which samples of each batch one of several ranks gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import RangeError

__all__ = ["UNEVEN", "Part", "all_the_same", "part_of"]

#: What to do with a batch that the ranks do not divide: repeat its first samples, or leave out its
#: last ones.
UNEVEN = ("pad", "drop")


def all_the_same(_number: int) -> None:
    """The check of a part that has no other ranks to ask."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of `count` equal parts of each batch; `weft.distributed.part()` is that of this rank.

    check  called with a number that must be the same on all ranks: it raises an error if it is not

    >>> loader = weft.data.DataLoader(weft.arange(8), batch_size=4, part=weft.data.Part(1, 2))
    >>> [batch.tolist() for batch in loader]
    [[2, 3], [6, 7]]
    """

    place: int
    count: int
    check: Callable[[int], None] = all_the_same

    def __post_init__(self) -> None:
        if not 0 <= self.place < self.count:
            raise RangeError(f"there is no part {self.place} of {self.count}", op="Part")


def part_of(numbers: Any, part: Part, uneven: str | None) -> Any:
    """The numbers of a batch that belong to a part, perhaps none: a slice, a list, an array."""
    is_slice = isinstance(numbers, slice)
    size = numbers.stop - numbers.start if is_slice else len(numbers)
    each, rest = divmod(size, part.count)
    if rest and uneven is None:
        raise RangeError(
            f"a batch of {size} samples cannot be cut into {part.count} equal parts",
            op="DataLoader",
            hint='uneven="pad" repeats its first samples, uneven="drop" leaves out the last ones; '
            "drop_last=True leaves out a smaller last batch",
        )
    if rest and uneven == "pad":
        each += 1
        chosen = np.arange(part.place * each, (part.place + 1) * each) % size
        return chosen + numbers.start if is_slice else _taken(numbers, chosen)
    begin = part.place * each
    if is_slice:
        return slice(numbers.start + begin, numbers.start + begin + each)
    return numbers[begin : begin + each]


def _taken(numbers: Any, chosen: Any) -> Any:
    if isinstance(numbers, np.ndarray):
        return numbers[chosen]
    return [numbers[int(number)] for number in chosen]
