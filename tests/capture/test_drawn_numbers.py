"""Clocks and random numbers of Python: each call gets its own, and the state of `random` changes as
eagerly."""

# ruff: noqa: NPY002 (the generators of old code are the point here)
from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.capture.drawn_numbers import CLOCKS, DRAWING, draws_of
from weft.capture.trace.captured import CaptureWarning


def _branch(x: Any) -> Any:
    if random.random() < 0.5:
        return x * 2
    return x - 1


def _while(x: Any) -> Any:
    n = 0
    while random.random() < 0.7:
        x = x * 2
        n += 1
    return x, n


def _loop(x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = x * random.uniform(0.5, 1.0)
    return x


def _after_a_question(x: Any) -> Any:
    r = random.random()
    if (x * r).sum() > 1:
        return r, np.random.randint(3)
    return r, "none"


def _slice(x: Any) -> Any:
    return x[: random.randint(1, 3)].sum(), x[random.randrange(3)]


def _two_generators(x: Any) -> Any:
    return np.random.rand() + random.random(), np.random.normal(1.0, 2.0), random.gauss(0, 1)


def _gradient(x: Any) -> Any:
    return weft.grad(lambda x: (x * x * random.random()).sum())(x)


class _Kept:
    last = 0.0
    seen: list[float]


def _stored(x: Any) -> Any:
    _Kept.last = random.random() * 2 + 1
    _Kept.seen.append(_Kept.last)
    return x * _Kept.last, list(_Kept.seen)


KEPT: dict[str, Callable[[Any], Any]] = {
    "a factor": lambda x: x * random.random(),
    "a result": lambda x: (random.randint(1, 6), random.triangular(), random.expovariate(2.0)),
    "arithmetic": lambda x: (x * (1 - random.random()) ** 2).sum() + int(random.random() * 10),
    "of a number of the graph": lambda x: random.uniform(0, x.sum().item()),
    "a branch": _branch,
    "a while loop": _while,
    "a loop": _loop,
    "a list": lambda x: [random.random() for _ in range(3)],
    "a question in between": _after_a_question,
    "a slice": _slice,
    "two generators": _two_generators,
    "a gradient": _gradient,
    "an attribute": _stored,
}


def _plain(value: Any) -> Any:
    if isinstance(value, (weft.Tensor, np.ndarray)):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _runs(function: Callable[[Any], Any]) -> Any:
    random.seed(3)
    np.random.seed(4)
    _Kept.seen = []
    made = [_plain(function(weft.ones(3) * (i + 1))) for i in range(8)]
    return made, random.random(), np.random.rand()


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("wrap", [weft.compile, weft.trace], ids=["compile", "trace"])
def test_numbers_and_state_are_those_of_python(name: str, wrap: Any) -> None:
    function = KEPT[name]
    with warnings.catch_warnings():
        if wrap is weft.trace:  # it unrolls loops, whose length is another one each time
            warnings.simplefilter("ignore", CaptureWarning)
        compiled = wrap(function)
        assert _runs(compiled) == _runs(function)
    if wrap is weft.compile and name != "an attribute":  # the list that grows is a guard at first
        assert len(compiled.recordings) <= 2
        assert all("not kept" not in one.outcome for one in compiled.recordings)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "a size": lambda x: weft.zeros(random.randint(1, 5)).shape[0],
    "a text": lambda x: f"{random.random():.3f}",
    "no number": lambda x: (random.random(), random.choice(["a", "b"])),
    "an array": lambda x: (random.random(), np.random.rand(3).tolist()),
    "too large": lambda x: (random.random(), random.randrange(1 << 70)),
    "after a question": lambda x: (random.random(), str(x.sum() > 2) and random.choice([1, 2])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_python_draws_once(name: str) -> None:
    function = REFUSED[name]
    compiled = weft.compile(function)
    with pytest.warns(CaptureWarning, match="runs as plain Python"):
        assert _runs(compiled) == _runs(function)


def test_a_question_before_what_is_refused_draws_once() -> None:
    def f(x: Any) -> Any:
        r, s = random.random(), np.random.rand()
        if (x * r + s).sum() > 0.1:  # runs the graph up to here
            return r, s, random.choice(["a", "b"])
        return r, s, "c"

    with pytest.warns(CaptureWarning, match="runs as plain Python"):
        assert _runs(weft.trace(f)) == _runs(f)


def test_all_functions_are_called() -> None:
    """Each function of the table as Python calls it, with the fewest and the most arguments."""
    x = weft.ones(1)
    for function in [*CLOCKS, *(f for name in DRAWING for f in draws_of(name))]:
        if function.__name__.endswith("_ns") or function.__module__ == "time":
            compiled = weft.compile(lambda x, f=function: f())
            before, made, after = function(), [compiled(x) for _ in range(3)], function()
            assert before <= made[0] <= made[1] <= made[2] <= after
            assert type(made[0]) is type(before)
            continue
        for args in ((), (0.5,), (5,), (1, 7), (0.5, 1.5), (1, 9, 2)):
            try:
                function(*args)
            except (TypeError, ValueError, DeprecationWarning):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CaptureWarning)
                compiled = weft.compile(lambda x, f=function, a=args: f(*a))
                assert _runs(compiled) == _runs(lambda x: function(*args)), function  # noqa: B023


def test_a_clock_is_read_in_order() -> None:
    """What is computed between two readings takes the time between them."""

    def slow(x: Any) -> Any:
        time.sleep(0.02)
        return x.numpy()

    def f(x: Any) -> Any:
        start = time.perf_counter()
        y = weft.py_call(slow, weft.spec((3,)), x * 2)
        middle = time.perf_counter()
        z = (x * 3).sum()
        end = time.perf_counter()
        w = weft.py_call(slow, weft.spec((3,)), x * 4)
        last = time.monotonic()
        return y.sum() + z + w.sum(), middle - start, end - middle, last

    compiled = weft.compile(f)
    for _ in range(3):
        before = time.monotonic()
        _, first, second, last = compiled(weft.ones(3))
        assert first >= 0.02
        assert 0 <= second < 0.02
        assert before + 0.04 <= last <= time.monotonic()
    assert len(compiled.recordings) == 1


def test_a_clock_waits_for_products_before_it() -> None:
    """Not only calls of Python are in order: so are kernels whose results nobody needs before."""
    x, w = weft.randn(300, 300), weft.randn(300, 300)

    def f(x: Any, w: Any) -> Any:
        start = time.perf_counter()
        y = x
        for _ in range(12):
            y = weft.tanh(y @ w)
        middle = time.perf_counter()
        return y, x + 1, middle - start, time.perf_counter() - middle

    compiled = weft.compile(f)
    shares = []
    for _ in range(5):
        _, _, long, short = compiled(x, w)
        shares.append(short / long)
    assert min(shares) < 0.2


def test_a_training_step_with_a_timer_is_one_recording() -> None:
    model = weft.nn.Linear(4, 2)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)
    log: list[float] = []

    @weft.compile
    def step(x: Any) -> Any:
        start = time.perf_counter()
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.append(time.perf_counter() - start)
        return loss.item()

    losses = [step(weft.ones(5, 4)) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert len(log) == 4
    assert all(0 < taken < 60 for taken in log)
    assert len(step.recordings) == 1
