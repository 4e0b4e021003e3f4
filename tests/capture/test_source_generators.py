"""Builtins that go through an iterator, in compiled code: they give what they give eagerly.

An iterator can be gone through once: who looks at the elements first must hand them on.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import weft

USES: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: max(float(v) for v in x),
    "min of item": lambda x: min(v.item() for v in x),
    "max of tensors": lambda x: max(v * 2 for v in x),
    "max of Python numbers": lambda x: max(i for i in range(3)) + x,
    "max of one": lambda x: max(float(v) for v in x[:1]),
    "max with a key": lambda x: max((float(v) for v in x), key=lambda v: -v),
    "max with a default": lambda x: max((float(v) for v in x[:0]), default=7.0),
    "min of map": lambda x: min(map(float, x)),
    "max of filter": lambda x: max(filter(None, map(float, x))),
    "max of a list's iterator": lambda x: max(iter([float(v) for v in x])),
    "max of zip": lambda x: max(zip([1, 2], "ab", strict=True))[0] + x,
    "sorted": lambda x: sorted(float(v) for v in x),
    "sorted backwards": lambda x: sorted((v.item() for v in x), reverse=True),
    "list": lambda x: list(float(v) for v in x),  # noqa: C400
    "tuple": lambda x: tuple(float(v) for v in x),
    "set": lambda x: sorted(set(float(v) for v in x)),  # noqa: C401
    "frozenset": lambda x: sorted(frozenset(float(v) for v in x)),
    "dict": lambda x: dict((i, float(v)) for i, v in enumerate(x)),  # noqa: C402
    "sum": lambda x: sum(float(v) for v in x),
    "any": lambda x: any(float(v) > 2 for v in x),
    "all": lambda x: all(v > 2 for v in x),
    "zip": lambda x: [a + b for a, b in zip((v for v in x), (float(v) for v in x), strict=True)],
    "enumerate": lambda x: [i * v for i, v in enumerate(float(v) for v in x)],
    "map": lambda x: list(map(lambda v: v + 1, (float(v) for v in x))),  # noqa: C417
    "filter": lambda x: list(filter(lambda v: v > 1, (float(v) for v in x))),
    "reduce": lambda x: functools.reduce(lambda a, b: a * b, (float(v) for v in x)),
    "accumulate": lambda x: list(itertools.accumulate(float(v) for v in x)),
    "chain": lambda x: list(itertools.chain((float(v) for v in x), (v.item() for v in x))),
    "join": lambda x: ",".join(str(float(v)) for v in x),
    "stack": lambda x: weft.stack([v * 2 for v in (u for u in x)]),
    "unpacked": lambda x: max(*(float(v) for v in x)),
    "in": lambda x: 3.0 in (float(v) for v in x),
    "next": lambda x: next(float(v) for v in x),
}


def _numbers(value: Any) -> Any:
    return value.tolist() if isinstance(value, weft.Tensor) else value


@pytest.mark.parametrize("name", USES)
def test_generator(name: str) -> None:
    function = USES[name]
    compiled = weft.compile(function)
    for data in ([1.0, 3.0, 2.0], [5.0, 4.0, -6.0]):
        x = weft.tensor(data)
        want, got = function(x), compiled(x)
        if isinstance(want, list | tuple):
            assert [*map(_numbers, want)] == [*map(_numbers, got)]
        else:
            assert _numbers(want) == _numbers(got)


def test_sets_in_any_order() -> None:
    """The order of a set of numbers is Python's own: another recording asks of others."""

    def ordered(x: weft.Tensor) -> list[float]:
        return sorted(set(float(v) for v in x))  # noqa: C401

    kept = []
    for count in range(30):
        compiled = weft.compile(ordered)
        for data in ([1.0, 3.0, 2.0], [5.0, 4.0, -6.0]):
            assert [*map(float, compiled(weft.tensor(data)))] == sorted(data)
        kept.append([object() for _ in range(count % 7)])  # so that addresses differ
