"""Parts of a CUDA graph that run at the same time: what each waits for, and their lanes."""

from __future__ import annotations

import itertools
import random

import pytest

from weft.runtime.cuda.branches import Part, lanes, waits

A, B, C = (0, 64), (64, 64), (128, 8)

#: Parts, and what each of them waits for.
CASES: dict[str, tuple[list[Part], list[list[int]]]] = {
    "reads of what was written": (
        [Part((), (A,)), Part((A,), (B,)), Part((A,), (C,))],
        [[], [0], [0]],
    ),
    "a write of what was read": (
        [Part((A,), (B,)), Part((A,), (C,)), Part((), (A,))],
        [[], [], [0, 1]],
    ),
    "a write of what was written": ([Part((), (A,)), Part((), (A,))], [[], [0]]),
    "memory in part": (
        [Part((), ((0, 16),)), Part((), ((32, 16),)), Part(((8, 25),), ())],
        [[], [], [0, 1]],
    ),
    "neighbours": ([Part((), (A,)), Part((), (B,)), Part((B,), (C,))], [[], [], [1]]),
    "in place": ([Part((A,), (A,)), Part((A,), (A,)), Part((A,), ())], [[], [0], [1]]),
    "no more than needed": ([Part((), (A,)), Part((A,), (B,)), Part((A, B), (C,))], [[], [0], [1]]),
    "alone": (
        [Part((), (A,)), Part((), (B,)), Part(alone=True), Part((A,), ()), Part((), (C,))],
        [[], [], [0, 1], [2], [2]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_waits(name: str) -> None:
    parts, expected = CASES[name]
    assert waits(parts) == expected


def reached(direct: list[list[int]]) -> list[set[int]]:
    """All parts that one runs behind."""
    found: list[set[int]] = []
    for needed in direct:
        found.append({*needed, *(far for one in needed for far in found[one])})
    return found


def some_parts(rng: random.Random) -> list[Part]:
    def ranges(most: int) -> list[tuple[int, int]]:
        return [(rng.randrange(40), rng.randrange(1, 9)) for _ in range(rng.randrange(most))]

    return [Part(ranges(3), ranges(2), rng.random() < 0.05) for _ in range(rng.randrange(1, 25))]


def overlap(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> bool:
    return any(x < v + n and v < x + m for x, m in a for v, n in b)


@pytest.mark.parametrize("seed", range(60))
def test_any_parts(seed: int) -> None:
    """Whoever touches what another one writes runs behind it, and lanes keep to that."""
    parts = some_parts(random.Random(seed))
    direct = waits(parts)
    behind = reached(direct)
    for i, j in itertools.combinations(range(len(parts)), 2):
        a, b = parts[i], parts[j]
        clash = overlap(a.writes, [*b.reads, *b.writes]) or overlap(a.reads, b.writes)
        if a.alone or b.alone or clash:
            assert i in behind[j]
    rows = lanes(direct)
    last: dict[int, int] = {}
    in_lanes: list[list[int]] = []
    for number, (lane, others) in enumerate(rows):
        in_lanes.append([*([last[lane]] if lane in last else []), *others])
        last[lane] = number
    for needed, given in zip(behind, reached(in_lanes), strict=True):
        assert needed <= given


def test_lanes_of_two_branches() -> None:
    """One part goes on in its lane; the other one waits in a new lane."""
    assert lanes([[], [0], [0], [1, 2]]) == [(0, []), (0, []), (1, [0]), (1, [1])]
