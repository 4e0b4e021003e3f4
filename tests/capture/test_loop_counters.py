"""Loop counters, and what is computed of them, are Python numbers where only a graph knows them.

What is made of them has the dtype and the value that it has eagerly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

MADE: dict[str, Callable[[Any, Any], Any]] = {
    "full": lambda n, x: weft.full((2,), n / 4),
    "full of an int": lambda n, x: weft.full((2,), n),
    "full of a bool": lambda n, x: weft.full((2,), n > 1),
    "full of a complex": lambda n, x: weft.full((2,), n * 1j),
    "full with a dtype": lambda n, x: weft.full((2,), n / 4, dtype=weft.float16),
    "full_like": lambda n, x: weft.full_like(x, n),
    "asarray": lambda n, x: weft.asarray(n / 4),
    "asarray of an int": lambda n, x: weft.asarray(n),
    "asarray of a comparison": lambda n, x: weft.asarray(n == 2),
    "asarray with a dtype": lambda n, x: weft.asarray(n / 4, dtype="float64"),
    "asarray of float(n)": lambda n, x: weft.asarray(float(n)),
    "asarray of min": lambda n, x: weft.asarray(min(n / 4, 2)),
    "asarray of a root": lambda n, x: weft.asarray(n**0.5),
    "asarray of divmod": lambda n, x: weft.asarray(divmod(n, 2)),
    "tensor": lambda n, x: weft.tensor(n / 4),
    "tensor of a list": lambda n, x: weft.tensor([n / 4, 1.0]),
    "tensor of ints": lambda n, x: weft.tensor([n, 2]),
    "tensor of both": lambda n, x: weft.tensor([[n, n + 1], [n / 2, 3]]),
    "tensor of bools": lambda n, x: weft.tensor([n > 1, True]),
    "beside a tensor": lambda n, x: weft.concat([weft.full((1,), n / 4), x]),
    "weak beside float16": lambda n, x: x.astype("float16") * (n / 4),
    "weak beside int8": lambda n, x: x.astype("int8") * n,
    "where": lambda n, x: weft.where(x > 1, n / 4, 0.0),
    "sin": lambda n, x: weft.sin(n / 4),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_dtypes_are_as_eagerly(name: str, backend: str) -> None:
    make = MADE[name]

    def counted(x: Any) -> Any:
        y = make(7, x)
        for n in range(1, 4):
            y = make(n, x)
        return y

    def carried(x: Any) -> Any:
        n = 1
        while n * x[0] < 4:
            n = n + 1
        return make(n, x)

    for function in (counted, carried):
        compiled = weft.compile(function, backend=backend)
        for x in ([1.0, 2.0], [3.0, 0.5], [9.0, 4.0]):
            got, want = compiled(weft.tensor(x)), function(weft.tensor(x))
            assert got.type == want.type
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
        assert len(compiled.recordings) == 1


# --- integers that are too large for a graph -----------------------------------------------------


def powers(n: Any) -> Any:
    a, k = 1, 0
    while k < n:
        a = a * 3
        k = k + 1
    return a


def doubled(n: Any) -> Any:
    a = -1
    for _ in range(n):
        a += a
    return a


def sums_of_powers(n: Any) -> Any:
    k, total = 0, 0
    while k < n:
        k += 1
        total = total + k**12
    return total


def shifted(n: Any) -> Any:
    k, found = 0, 0
    while k < n:
        k += 1
        found = (1 << k) - 1
    return found


def factorial(n: Any) -> Any:
    total = 1
    for k in range(1, n + 1):
        total *= k
    return total


def with_remainders(n: Any) -> Any:
    h, k = 7, 0
    while k < n:
        h = (h * 1103515245 + 12345) % 2**31
        k += 1
    return h


def from_a_float(n: Any) -> Any:
    x, k, whole = 1.0, 0, 0
    while k < n:
        x = x * 10.0
        whole = int(x)
        k += 1
    return whole


def from_the_edge(n: Any) -> Any:
    a, least, k = sys.maxsize, sys.maxsize, 0
    while k < n:
        a = a + 1
        least = min(least, k)
        k += 1
    return a, least


def in_one_branch(n: Any) -> Any:
    """The side that is not taken does not count."""
    a, b, k = 2**40, 0, 0
    while k < n:
        b = a * k if k < 3 else (a + k) * (a - k)
        k += 1
    return b


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize(
    ("program", "fits", "too_large"),
    [
        (powers, (0, 5, 39), (40, 64, 130)),
        (doubled, (3, 62), (64, 70, 130)),
        (sums_of_powers, (4, 20), (40, 200)),
        (shifted, (5, 62), (64, 90)),
        (factorial, (3, 20), (21, 30)),
        (with_remainders, (1, 100), ()),
        (from_a_float, (1, 18), (19, 40)),
        (in_one_branch, (1, 2, 3), (4,)),
        (from_the_edge, (0,), (1, 3)),
    ],
)
def test_an_integer_that_does_not_fit_is_an_error(
    program: Any, fits: tuple[int, ...], too_large: tuple[int, ...], backend: Any
) -> None:
    run = weft.compile(program, backend=backend)
    for _ in range(2):
        for n in fits:
            assert run(weft.tensor(n)) == program(n)
        for n in too_large:
            with pytest.raises(OverflowError, match=f"(?s)too large.* in {program.__name__}: "):
                run(weft.tensor(n))


def counted(x: Any, n: Any) -> Any:
    k = 0
    while k < n:
        k += 1
        x = x + 2 * k
        if x.sum() > 100:
            k = k + 5
    return x, k


def ranged(x: Any, n: Any) -> Any:
    for i in range(n):
        x = x + (2 * i + 1) * x[i % 2]
    return x


def test_counters_are_not_checked() -> None:
    """Steps of small constants, and what is computed of the numbers of a range."""
    checks = []
    for program in (counted, ranged, with_remainders):
        given = (weft.tensor(3),) if program is with_remainders else (weft.ones(2), weft.tensor(3))
        compiled = weft.compile(program, backend="interpret")
        compiled(*given)
        checks.append(str(compiled.graph()).count("fits_int64"))
    # 2 * k, of a counter whose end nobody knows; h * 1103515245 and + 12345
    assert checks == [1, 0, 2]


def test_mapped_integers_fail_only_where_they_take_part() -> None:
    run = weft.compile(weft.vmap(powers), backend="interpret")
    assert run(weft.tensor([3, 39, 0])).tolist() == [27, 3**39, 1]
    with pytest.raises(OverflowError, match="too large"):
        run(weft.tensor([3, 41, 0]))
