"""Memory planning: one arena for a run, whose memory is reused once a value is dead."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from weft.base.dim_algebra import Dim
from weft.base.dims import dim
from weft.ir.types import TensorType, Type

__all__ = ["ALIGN", "ArenaPlan", "Buffers", "named_places", "planned", "size_of_type"]

ALIGN = 64
Key = TypeVar("Key")


def size_of_type(kind: Type) -> int:
    """Bytes of a value. A stack is an address; a token has no data, but takes the same room."""
    return kind.nbytes if isinstance(kind, TensorType) else 8


@dataclass
class ArenaPlan(Generic[Key]):
    """
    offsets       of the buffers, in bytes
    peak          how large the arena is
    lower_bound   no arena can be smaller: the most bytes that are in use at one step
    sizes, born, dies   of each buffer: bytes, first step, last step
    alignment     offsets are multiples of this
    """

    offsets: dict[Key, int] = field(default_factory=dict)
    peak: int = 0
    lower_bound: int = 0
    sizes: Mapping[Key, int] = field(default_factory=dict)
    born: Mapping[Key, int] = field(default_factory=dict)
    dies: Mapping[Key, int] = field(default_factory=dict)
    alignment: int = ALIGN

    def alive(self, step: int) -> list[Key]:
        """The buffers that are in use at a step, the largest first."""
        here = [key for key in self.sizes if self.born[key] <= step <= self.dies[key]]
        return sorted(here, key=lambda key: -self.sizes[key])

    def taken(self, size: int) -> int:
        """How many bytes a buffer takes, up to where the next may begin."""
        return max(self.alignment, -(-size // self.alignment) * self.alignment)

    def timeline(self, steps: int) -> list[int]:
        """How many bytes are in use at each of the first `steps` steps."""
        change = [0] * (steps + 1)
        for key, size in self.sizes.items():
            change[self.born[key]] += self.taken(size)
            change[self.dies[key] + 1] -= self.taken(size)
        return list(itertools.accumulate(change))[:steps]


def planned(
    sizes: Mapping[Key, int],
    born: Mapping[Key, int],
    dies: Mapping[Key, int],
    alignment: int = ALIGN,
) -> ArenaPlan[Key]:
    """Offsets for buffers that are in use from step `born` to step `dies`, both included.

    In order of birth, each buffer takes the smallest gap that it fits into (best fit). Gaps are
    sorted by offset, and merged with their neighbours when buffers die.
    """
    made: ArenaPlan[Key] = ArenaPlan(sizes=sizes, born=born, dies=dies, alignment=alignment)
    taken = {key: made.taken(size) for key, size in sizes.items()}
    ending: dict[int, list[Key]] = {}
    free: list[tuple[int, int]] = []  # offset, size; sorted, never touching
    live = most = 0
    last = -1
    for key in sorted(sizes, key=lambda k: (born[k], -sizes[k])):
        begin = born[key]
        for step in range(last, begin) if last >= 0 else ():
            for dead in ending.pop(step, ()):
                live -= taken[dead]
                _give_back(free, made.offsets[dead], taken[dead])
        last = begin  # they come in this order
        size = taken[key]
        live += size
        if live > most:
            most = live
        made.offsets[key] = _take(free, size, made)
        ending.setdefault(dies[key], []).append(key)
    made.lower_bound = most
    return made


# --- sizes that are known at run time -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Buffers:
    """The buffers of one graph, to be placed once their sizes are known.

    peak       the name of the arena's size
    alignment  offsets are multiples of this
    rows       of each buffer: the name of its offset, its size, first step, last step
    """

    peak: str
    alignment: int
    rows: tuple[tuple[str, int, int, int], ...]

    def placed(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The values of all its names, for the sizes of a run."""
        number = {
            name: size.evaluate(sizes) if isinstance(size, Dim) else size
            for name, size, _, _ in self.rows
        }
        born = {name: first for name, _, first, _ in self.rows}
        dies = {name: last for name, _, _, last in self.rows}
        made = planned(number, born, dies, self.alignment)
        return {**made.offsets, self.peak: made.peak}


def named_places(
    sizes: Mapping[Key, int],
    born: Mapping[Key, int],
    dies: Mapping[Key, int],
    alignment: int,
    number: int,
) -> tuple[ArenaPlan[Any], Buffers]:
    """A plan whose offsets and peak are names, and the recipe for their values in each run.
    `number` makes the names unique in a program."""
    peak = f"arena_{number}"
    rows: list[tuple[str, int, int, int]] = []
    made: ArenaPlan[Any] = ArenaPlan(sizes=sizes, born=born, dies=dies, alignment=alignment)
    for place, (key, size) in enumerate(sizes.items()):
        name = f"at_{number}_{place}"
        made.offsets[key] = dim(name)
        rows.append((name, size, born[key], dies[key]))
    made.peak = made.lower_bound = dim(peak)
    return made, Buffers(peak, alignment, tuple(rows))


# --- gaps -----------------------------------------------------------------------------------------


def _take(free: list[tuple[int, int]], size: int, made: ArenaPlan[Key]) -> int:
    best = -1
    for place, (_, room) in enumerate(free):
        if room >= size and (best < 0 or room < free[best][1]):
            best = place
            if room == size:
                break
    if best >= 0:
        offset, room = free[best]
        if room == size:
            del free[best]
        else:
            free[best] = (offset + size, room - size)
        return offset
    grows = bool(free) and sum(free[-1]) == made.peak  # the last gap reaches the end
    offset = free.pop()[0] if grows else made.peak
    made.peak = offset + size
    return offset


def _give_back(free: list[tuple[int, int]], offset: int, size: int) -> None:
    at = bisect.bisect(free, (offset, 0))
    if at < len(free) and free[at][0] == offset + size:
        size += free.pop(at)[1]
    if at and free[at - 1][0] + free[at - 1][1] == offset:
        offset, before = free.pop(at - 1)
        size += before
        at -= 1
    free.insert(at, (offset, size))
