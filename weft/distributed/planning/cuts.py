"""Where a chain of units is cut into stages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, combinations, pairwise

from weft.base.errors import DistributedError
from weft.distributed.planning.units import Unit

__all__ = ["all_cuts", "balanced_cuts", "stage_cuts"]


def stage_cuts(
    asked: tuple[int, ...] | str | None, units: Sequence[Unit], times: Sequence[float], parts: int
) -> tuple[int, ...]:
    """The number of the first unit of each of `parts` stages."""
    if asked is None:
        return balanced_cuts(times, parts)
    if asked == "even":
        return _even_cuts(units, parts)
    if isinstance(asked, str):
        raise DistributedError(f"cuts are {asked!r}", op="plan", hint='"even", numbers, or None')
    found = tuple(asked)
    rising = all(a < b for a, b in pairwise(found))
    if len(found) != parts or found[:1] != (0,) or not rising or found[-1] >= len(units):
        raise DistributedError(
            f"cuts are {found} for {parts} stages of {len(units)} units",
            op="plan",
            hint="the number of the first unit of each stage: 0 and then rising",
        )
    return found


def balanced_cuts(times: Sequence[float], parts: int) -> tuple[int, ...]:
    """Cuts for which the slowest stage is as fast as can be; no stage is empty.

    >>> from weft.distributed.planning.cuts import balanced_cuts
    >>> balanced_cuts([1, 1, 1, 3, 1, 1], 3)
    (0, 3, 4)
    """
    return _balanced(tuple(times), parts)


@lru_cache(maxsize=1024)  # what is traded for memory often changes no times
def _balanced(times: tuple[float, ...], parts: int) -> tuple[int, ...]:
    sums = [0.0, *accumulate(times)]
    count = len(times)
    low = max(max(times), sums[-1] / parts)
    high = min(sums[-1], sums[-1] / parts + max(times))

    def cut(most: float) -> list[int] | None:
        """Greedy: each stage takes what it can, but leaves a unit for each later one."""
        found = [0]
        for left in range(parts - 1, 0, -1):
            begin = found[-1]
            end = bisect_right(sums, sums[begin] + most * (1 + 1e-12)) - 1
            found.append(min(max(end, begin + 1), count - left))
        return found if sums[-1] - sums[found[-1]] <= most * (1 + 1e-12) else None

    best = cut(high) or cut(sums[-1])
    assert best is not None
    for _ in range(60):
        middle = (low + high) / 2
        found = cut(middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
        if high - low <= 1e-6 * high:
            break
    return tuple(best)


def all_cuts(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut `count` units into `parts` stages."""
    for inner in combinations(range(1, count), parts - 1):
        yield (0, *inner)


def _even_cuts(units: Sequence[Unit], parts: int) -> tuple[int, ...]:
    """The units of the longest run of one kind, shared evenly; the first and the last stage have
    what stands before and after it as well."""
    runs: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(units) + 1):
        if i == len(units) or units[i].kind != units[start].kind:
            runs.append((i - start, start))
            start = i
    length, begin = max(runs)
    if length % parts:
        raise DistributedError(
            f"{length} equal units do not fall into {parts} stages",
            op="plan",
            hint="choose a pipeline that divides them, or cuts=None",
        )
    size = length // parts
    return (0, *(begin + size * i for i in range(1, parts)))
