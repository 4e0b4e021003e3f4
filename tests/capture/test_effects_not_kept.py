"""What no recording can hold happens once in each call: a recording ends before it is done."""

from __future__ import annotations

import datetime
import heapq
import io
import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft

Tensor = weft.Tensor
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be kept as a graph")


class State:
    def __init__(self) -> None:
        self.numbers = [3, 1, 2]
        self.random = random.Random(0)
        self.text = io.StringIO()
        self.iterator = iter(range(1000))
        self.count = itertools.count()
        self.counter: Counter[str] = Counter()

    def shown(self) -> str:
        drawn = random.Random()
        drawn.setstate(self.random.getstate())
        following = next(self.iterator), next(self.count)
        return repr((self.numbers, drawn.random(), self.text.getvalue(), self.counter, following))


CHANGES: dict[str, Callable[[State], Any]] = {
    "shuffle": lambda s: s.random.shuffle(s.numbers),
    "random": lambda s: s.numbers.append(int(s.random.random() * 10)),
    "write": lambda s: s.text.write("x"),
    "next": lambda s: next(s.iterator),
    "count": lambda s: s.numbers.append(next(s.count)),
    "heappush": lambda s: heapq.heappush(s.numbers, 0),
    "counter": lambda s: s.counter.update("ab"),
}


def at_the_top(change: Callable[[], Any], x: Tensor) -> Tensor:
    change()
    return x * 2


def in_a_branch(change: Callable[[], Any], x: Tensor) -> Tensor:
    if x.sum() > 0:
        change()
    return x * 2


def in_a_while(change: Callable[[], Any], x: Tensor) -> Tensor:
    n = weft.zeros((), dtype=weft.int64)
    while n < x.sum():
        n = n + 1
        change()
    return x * 2


def in_a_for(change: Callable[[], Any], x: Tensor) -> Tensor:
    for _ in x:
        change()
    return x * 2


AROUND = [at_the_top, in_a_branch, in_a_while, in_a_for]
#: An iterator that a loop of the graph advances is an error (`next_` in `graph_builtins.py`).
ERRORS = {("next", in_a_while), ("count", in_a_while)}


@pytest.mark.parametrize(
    ("name", "around"), [p for p in itertools.product(CHANGES, AROUND) if p not in ERRORS]
)
def test_changes_of_what_is_not_watched(name: str, around: Callable[..., Tensor]) -> None:
    change = CHANGES[name]
    shown: list[list[str]] = []
    for capture in (lambda f: f, weft.compile):
        state = State()
        call = capture(lambda x, state=state: around(lambda: change(state), x))
        shown.append([])
        for number in (1.0, -1.0, 2.0, 1.0):
            call(weft.tensor([number, 0.0]))
            shown[-1].append(state.shown())
    assert shown[1] == shown[0]


class Result:
    def __init__(self, value: Tensor) -> None:
        self.value = value


@pytest.mark.parametrize("capture", [weft.compile, weft.trace])
@pytest.mark.parametrize("dynamic", ["auto", True])
def test_an_object_as_the_result(capture: Any, dynamic: Any, tmp_path: Path) -> None:
    """Sizes change from call to call: the function is recorded several times in one call."""
    file = tmp_path / "lines"

    def f(x: Tensor) -> Result:
        with file.open("a") as out:
            out.write("line\n")
        return Result(x * 2)

    call = capture(f, dynamic=dynamic)
    for times, size in enumerate((2, 3, 3, 5), 1):
        assert call(weft.ones(size)).value.tolist() == [2.0] * size
        assert len(file.read_text().splitlines()) == times


def test_a_buffer_that_a_loop_fills() -> None:
    def f(x: Tensor) -> Tensor:
        text = io.StringIO()
        n = weft.zeros((), dtype=weft.int64)
        while n < 3:
            n = n + 1
            text.write("a")
            print("b", file=text)
        return x * len(text.getvalue())

    assert weft.compile(f)(weft.ones(1)).tolist() == f(weft.ones(1)).tolist() == [9.0]


def test_a_path_that_python_must_run_is_not_begun(capsys: Any) -> None:
    """What comes before the question has been recorded, and is shown once, also where the path is
    found to be new, is recorded, or cannot be."""

    def f(x: Tensor) -> Tensor:
        print("begins with", x.sum().item())
        assert x.sum() > 0
        if x.sum() > 0:
            print(x[0].item() / x[0].item(), "is positive")
        n = len("-" * int(x.sum()))
        if n > 2:
            datetime.datetime.now()
        return x * n

    compiled = weft.compile(f)
    for number in (1.0, 2.0, 3.0, 4.0, 1.0, 3.0, 5.0, 2.0):
        assert compiled(weft.tensor([number])).tolist() == [number * number]
        assert capsys.readouterr().out == f"begins with {number}\n1.0 is positive\n"


def test_a_call_back_into_python_before_it() -> None:
    calls: list[float] = []

    def doubled(x: Tensor) -> Tensor:
        calls.append(x.sum().item())
        return x * 2

    def f(x: Tensor) -> Tensor:
        y = weft.py_call(doubled, weft.spec(1), x)
        if len("-" * int(y.sum())) > 0:
            datetime.datetime.now()
        return y

    compiled = weft.compile(f)
    for times, number in enumerate((1.0, 2.0, 3.0, 1.0), 1):
        assert compiled(weft.tensor([number])).tolist() == [number * 2]
        assert len(calls) == times


def test_the_user_cannot_catch_the_end_of_a_recording() -> None:
    seen: list[str] = []

    def f(x: Tensor) -> Tensor:
        try:
            seen.append(str(datetime.datetime.now())[:0] + "clock")
        except Exception:
            seen.append("error")
        return x

    compiled = weft.compile(f)
    for _ in range(3):
        compiled(weft.ones(1))
    assert seen == ["clock"] * 3
