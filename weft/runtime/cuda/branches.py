"""Which parts of a run may run at the same time: those that do not need each other's memory.

A part waits for those before it that wrote what it reads or writes, or read what it writes. Places
in memory that are used again for other values count like values, so any order that keeps to the
waits gives the same results.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["LANES", "Part", "lanes", "waits"]

#: Streams that a graph is captured from.
LANES = 4

#: An address and a number of bytes.
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """What a part reads and writes; or it runs `alone`, behind and before all others."""

    reads: Sequence[Range] = ()
    writes: Sequence[Range] = ()
    alone: bool = False


def waits(parts: Sequence[Part]) -> list[list[int]]:
    """For each part, the numbers of those it waits for, without those that these wait for."""
    ranges = [one for part in parts for one in (*part.reads, *part.writes)]
    edges = sorted({at for start, size in ranges for at in (start, start + size)})

    def pieces(given: Sequence[Range]) -> Iterator[int]:
        for start, size in given:
            yield from range(*(bisect.bisect_left(edges, at) for at in (start, start + size)))

    # Of each piece of memory between two edges.
    writer = [-1] * len(edges)
    readers: list[list[int]] = [[] for _ in edges]
    before: list[int] = []  # the bits of all parts that one waits for, however far back
    found = []
    wall = -1  # the last part that ran alone
    for number, part in enumerate(parts):
        direct = {wall, *(range(wall + 1, number) if part.alone else ())}
        for piece in pieces(part.reads):
            direct.add(writer[piece])
        for piece in pieces(part.writes):
            direct.update(readers[piece])
            direct.add(writer[piece])
        for piece in pieces(part.reads):
            readers[piece].append(number)
        for piece in pieces(part.writes):
            writer[piece], readers[piece] = number, []
        kept, known = [], 0
        for one in sorted(direct - {-1}, reverse=True):
            if not known >> one & 1:
                kept.append(one)
            known |= before[one] | 1 << one
        before.append(known)
        found.append(kept[::-1])
        wall = number if part.alone else wall
    return found


def lanes(after: Sequence[Sequence[int]], count: int = LANES) -> list[tuple[int, list[int]]]:
    """For each part its lane, and the parts of other lanes that it waits for: those of a lane run
    one by one."""
    last = [-1] * count
    before: list[int] = []
    found = []
    for number, needed in enumerate(after):
        known = 0
        for one in needed:
            known |= before[one] | 1 << one
        # Best behind a part that it waits for anyway, else on a lane that is done or new.
        free = [lane for lane in range(count) if last[lane] < 0 or known >> last[lane] & 1]
        lane = max(free, key=lambda lane: last[lane]) if free else last.index(min(last))
        behind = last[lane]
        done = before[behind] | 1 << behind if behind >= 0 else 0
        others = [one for one in needed if not done >> one & 1]
        last[lane] = number
        before.append(known | done)
        found.append((lane, others))
    return found
