"""Whether results of a loop require gradients depends on the number of its iterations, and on which
of them take a branch: as eagerly, also where the number is symbolic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft

Row = Callable[[Any, Any, Any], Any]
ROWS: dict[str, Row] = {}


def row(function: Row) -> Row:
    ROWS[function.__name__] = function
    return function


@row
def swapped(x: Any, v: Any, n: Any) -> Any:
    for _ in range(n):
        x, v = v, x
    return x, v


@row
def three_in_turn(x: Any, v: Any, n: Any) -> Any:
    y = x * 2
    for _ in range(n):
        x, y, v = v, x, y
    return x, y, v


@row
def through_others(x: Any, v: Any, n: Any) -> Any:
    y = z = x * 1.0
    for i in range(n):
        x, y, z = y, z, v * i
    return x, y, z


@row
def every_other(x: Any, v: Any, n: Any) -> Any:
    for _ in range(1, n, 2):
        x, v = v * 2, x
    return x, v


@row
def a_remainder(x: Any, v: Any, n: Any) -> Any:
    for _ in range(n % 4):
        x, v = v * 2, x
    return x, v


@row
def from_the_end(x: Any, v: Any, n: Any) -> Any:
    for i in reversed(range(n)):
        x, v = v * i, x
    return x, v


@row
def less_than_three(x: Any, v: Any, n: Any) -> Any:
    for _ in range(n - 3):
        x = x * v
    return x


@row
def in_a_loop(x: Any, v: Any, n: Any) -> Any:
    for _ in range(3):
        for _ in range(n):
            x, v = v * 0.5, x
    return x, v


@row
def a_branch_on_the_counter(x: Any, v: Any, n: Any) -> Any:
    for i in range(n):
        if i == 4:
            x = v * 2
    return x


@row
def a_branch_that_is_not_taken(x: Any, v: Any, n: Any) -> Any:
    for i in range(n):
        if i > 100:
            x = v * 2
    return x


@row
def a_branch_at_last(x: Any, v: Any, n: Any) -> Any:
    for i in range(n):
        if i >= 5:
            x = x.detach() + i
        elif i > 1:
            x = x * v
    return x


@row
def a_counter_of_its_own(x: Any, v: Any, n: Any) -> Any:
    c = 0
    for _ in range(n):
        c += 2
        if c > 7:
            x = x * v
    return x


@row
def even_or_odd(x: Any, v: Any, n: Any) -> Any:
    for i in range(n):
        x = v * 2 if i % 2 else x.detach() * 3
    return x


@row
def rows(x: Any, v: Any, n: Any) -> Any:
    for r in weft.ones((n, 2)):
        x, v = v * r.sum(), x
    return x, v


@row
def zipped(x: Any, v: Any, n: Any) -> Any:
    for i, r in zip(range(n + 2), weft.ones((n,)), strict=False):
        x, v = v * r + i, x
    return x, v


@row
def scanned(x: Any, v: Any, n: Any) -> Any:
    return weft.scan(lambda c, r: ((c[1] * r, c[0]), r), (x, v), weft.ones((n,)))[0]


@row
def while_a_number(x: Any, v: Any, n: Any) -> Any:
    while n > 0:
        x, v = v, x
        n -= 1
    return x, v


@row
def a_branch_on_the_number(x: Any, v: Any, n: Any) -> Any:
    return x * v if n > 4 else x


@row
def names_of_the_body(x: Any, v: Any, n: Any) -> Any:
    i, y = 7, None
    for i in range(n):
        y = v * i
    return (x, i) if y is None else (y, i)


ORDERS = {"up": (2, 0, 1, 3, 4, 5, 6, 7, 40, 41, 8, 3), "down": (41, 40, 7, 6, 3, 2, 1, 0, 5, 41)}


def called(function: Row, n: int) -> Any:
    x = weft.tensor(1.5)
    v = weft.tensor(0.5, requires_grad=True)
    found = weft.tree_flatten(function(x, v, n))[0]
    learning = [y.requires_grad if isinstance(y, weft.Tensor) else None for y in found]
    total = sum(y for y, on in zip(found, learning, strict=True) if on)
    if isinstance(total, weft.Tensor):
        total.backward()
    values = [float(y) for y in found]
    return learning, values, None if v.grad is None else v.grad.item()


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("name", list(ROWS))
def test_it_is_as_eagerly(name: str, order: str, backend: str) -> None:
    compiled = weft.compile(ROWS[name], backend=backend)
    for n in ORDERS[order]:
        learning, values, grad = called(ROWS[name], n)
        got = called(compiled, n)
        assert got[0] == learning, n
        assert got[1] == pytest.approx(values, rel=1e-5), n
        assert got[2] == (None if grad is None else pytest.approx(grad, rel=1e-5)), n


#: How many recordings there are at most: those of one length, and the symbolic ones.
RECORDINGS = {"swapped": 5, "three_in_turn": 6, "through_others": 5, "less_than_three": 5}
RECORDINGS |= {
    "a_branch_on_the_counter": 6,
    "a_branch_that_is_not_taken": 5,
    "rows": 5,
    "even_or_odd": 6,
}


@pytest.mark.parametrize("name", list(RECORDINGS))
def test_few_recordings_are_enough(name: str) -> None:
    compiled = weft.compile(ROWS[name])
    for n in (*ORDERS["up"], *range(10, 30)):
        called(compiled, n)
    assert len(compiled.recordings) <= RECORDINGS[name]
