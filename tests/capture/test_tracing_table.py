"""Each row of the table in docs/tracing.md: Weft's tracing gives what plain Python gives."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracing.md"
PROGRAMS: dict[str, Callable[[Callable[..., Any]], Any]] = {}


def program(name: str) -> Callable[[Any], Any]:
    """A program of the table: given a way to wrap functions, it runs and says what came out."""

    def register(function: Any) -> Any:
        PROGRAMS[name] = function
        return function

    return register


@program("branch on a value")
def _(wrap: Any) -> Any:
    f = wrap(lambda x: x * 2 if x.sum() > 0 else -x)
    return [f(weft.tensor([s * 1.0, s * 2.0])) for s in (1, -1, 1, -1)]


@program("loop until a value")
def _(wrap: Any) -> Any:
    @wrap
    def halvings(x: Any) -> Any:
        n = 0
        while x > 1:
            x = x / 2
            n += 1
        return x * n

    return [halvings(weft.tensor(v)) for v in (8.0, 64.0, 0.5, 8.0)]


@program("closure variable changed")
def _(wrap: Any) -> Any:
    scale = 2.0

    @wrap
    def f(x: Any) -> Any:
        return x * scale

    out = [f(weft.ones(1))]
    scale = 3.0
    return [*out, f(weft.ones(1))]


class Scaled:
    def __init__(self) -> None:
        self.scale = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.scale


@program("attribute changed")
def _(wrap: Any) -> Any:
    scaled = Scaled()
    f = wrap(scaled)
    out = [f(weft.ones(1))]
    scaled.scale = 3.0
    return [*out, f(weft.ones(1))]


TERMS = [1.0, 2.0]


@program("global list grown")
def _(wrap: Any) -> Any:
    TERMS[:] = [1.0, 2.0]

    @wrap
    def f(x: Any) -> Any:
        for term in TERMS:
            x = x + term
        return x

    out = [f(weft.zeros(1))]
    TERMS.append(10.0)
    return [*out, f(weft.zeros(1))]


@program("list argument of another length")
def _(wrap: Any) -> Any:
    @wrap
    def total(xs: Any) -> Any:
        out = xs[0]
        for x in xs[1:]:
            out = out + x
        return out

    parts = [weft.tensor([float(i)]) for i in range(4)]
    return [total(parts[:n]) for n in (2, 3, 1, 4, 2)]


@program("`model.eval()` after tracing")
def _(wrap: Any) -> Any:
    weft.manual_seed(0)
    model = weft.nn.Dropout(0.5)
    f = wrap(model)
    out = [f(weft.ones(8)), f(weft.ones(8))]
    model.eval()
    out += [f(weft.ones(8))]
    model.train()
    return [*out, f(weft.ones(8))]


@program("`.item()` in the computation")
def _(wrap: Any) -> Any:
    f = wrap(lambda x: x * x.sum().item())
    return [f(weft.tensor([v])) for v in (2.0, 3.0, 2.0)]


@program("`int(x)` as a shape")
def _(wrap: Any) -> Any:
    f = wrap(lambda x, n: x.expand(int(n)).sum())
    return [f(weft.ones(1), weft.asarray(n)) for n in (3, 5, 3)]


@program("tensor as an index of a list")
def _(wrap: Any) -> Any:
    f = wrap(lambda x, i: [1.0, 2.0][i] * x)
    return [f(weft.ones(2), weft.asarray(i)) for i in (1, 0, 1)]


@program("selection by a mask")
def _(wrap: Any) -> Any:
    f = wrap(lambda x: x[x > 0].sum())
    return [f(weft.tensor(v)) for v in ([1.0, -1.0], [1.0, 2.0], [-1.0, -2.0], [-3.0, 4.0])]


@program("Python's `random.random()`")
def _(wrap: Any) -> Any:
    random.seed(1)
    f = wrap(lambda x: x * random.random())
    return [f(weft.ones(1)) for _ in range(3)]


@program("in-place write to an argument")
def _(wrap: Any) -> Any:
    @wrap
    def f(x: Any) -> Any:
        x += 1
        x[0] = 5.0
        return x * 2

    x, y = weft.ones(2), weft.zeros(2)
    return [f(x), x, f(y), y, f(x), x]


@program("side effect: counting calls")
def _(wrap: Any) -> Any:
    calls = [0]

    @wrap
    def f(x: Any) -> Any:
        calls[0] += 1
        return x + 1

    for _ in range(3):
        f(weft.ones(1))
    return calls


@program("printing a value")
def _(wrap: Any) -> Any:
    @wrap
    def f(x: Any) -> Any:
        print("sum:", x.sum())
        return x

    return [f(weft.tensor([v])) for v in (1.0, 2.0, 3.0)]


def plain(value: Any) -> Any:
    if isinstance(value, weft.Tensor):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced_is_plain_python(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    want = plain(PROGRAMS[name](lambda function: function))
    printed = capsys.readouterr().out
    got = plain(PROGRAMS[name](weft.trace))
    assert got == want
    assert capsys.readouterr().out == printed


def test_the_page_lists_these_programs() -> None:
    rows = re.findall(r"^\| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    assert [name for name in PROGRAMS if name not in rows] == []
    table = rows[rows.index("program") + 2 :]
    assert [row for row in table if row not in PROGRAMS] == []


def test_arrays_are_inputs() -> None:
    f = weft.trace(lambda x: x + ARRAY)
    x = weft.zeros(2)
    assert f(x).tolist() == [1, 2]
    ARRAY[0] = 5
    assert f(x).tolist() == [5, 2]
    ARRAY[0] = 1
    assert len(f.recordings) == 1


ARRAY = np.array([1.0, 2.0], dtype=np.float32)
