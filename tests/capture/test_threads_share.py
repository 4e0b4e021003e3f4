"""Threads that share one compiled function: no update is lost, also while it is first recorded."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft

THREADS, CALLS = 6, 40
MODES: dict[str, dict[str, Any]] = {
    "traced": {"capture": "trace", "backend": "interpret"},
    "interpreted": {"backend": "interpret"},
    "native": {"backend": "native"},
}


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[], Any]) -> None:
    barrier = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run() -> None:
        barrier.wait()
        try:
            for _ in range(CALLS):
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def total_of_tensor(state: Any, x: Any) -> Any:
    state.total += x
    return x * 2


def counter_of_python(state: Any, x: Any) -> Any:
    state.count += 1
    return x * 2


def list_of_python(state: Any, x: Any) -> Any:
    state.seen.append(x.sum())
    return x * 2


def with_question(state: Any, x: Any) -> Any:
    """A trace asks for the value, and has two segments."""
    if x.sum() > 0:
        state.total += x
    return x * 2


def gradient_inside(state: Any, x: Any) -> Any:
    (state.weight * x).sum().backward()
    return x * 2


def result_with_history(state: Any, x: Any) -> Any:
    state.total += x
    return state.weight * x


FUNCTIONS: dict[Callable[..., Any], Callable[[Any], float]] = {
    total_of_tensor: lambda state: float(state.total[0]),
    counter_of_python: lambda state: state.count,
    list_of_python: lambda state: len(state.seen),
    with_question: lambda state: float(state.total[0]),
    gradient_inside: lambda state: float(state.weight.grad[0]),
    result_with_history: lambda state: float(state.total[0]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_update_is_lost(function: Callable[..., Any], mode: str) -> None:
    state = SimpleNamespace(total=weft.zeros(3), count=0, seen=[], weight=weft.ones(3))
    state.weight.requires_grad_()
    compiled = weft.compile(lambda x: function(state, x), **MODES[mode])
    x = weft.ones(3)
    in_threads(lambda: compiled(x))
    assert FUNCTIONS[function](state) == THREADS * CALLS


@pytest.mark.parametrize("mode", MODES)
def test_no_random_number_comes_twice(mode: str) -> None:
    compiled = weft.compile(lambda: weft.rand(2), **MODES[mode])
    seen: list[Any] = []
    in_threads(lambda: seen.append(compiled().tolist()))
    assert len(np.unique(np.asarray(seen))) == 2 * THREADS * CALLS


def test_calls_that_read_while_another_path_is_recorded() -> None:
    total = weft.zeros(3)

    def function(x: Any) -> Any:
        if x.ndim == 1:
            return (x * total).sum()
        total[...] = total + x.sum()
        return x * 2

    compiled = weft.compile(function, backend="native")
    numbers = iter(range(THREADS * CALLS))

    def work() -> None:
        number = next(numbers)
        compiled(weft.ones((1,) * (1 + number % 7)))

    in_threads(work)
    written = sum(number % 7 > 0 for number in range(THREADS * CALLS))
    assert total.tolist() == [written] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_is_inside() -> None:
    """The child need not wait for a thread that it does not have."""
    inside, go_on = threading.Event(), threading.Event()
    total = weft.zeros(3)

    def wait(x: Any) -> Any:
        inside.set()
        assert go_on.wait(20)
        return x

    def function(x: Any, waits: bool) -> Any:
        total[...] = total + x
        return weft.py_call(wait, weft.spec(3), x) if waits else x * 2

    compiled = weft.compile(function, backend="interpret")
    x = weft.ones(3)
    compiled(x, False)
    thread = threading.Thread(target=compiled, args=(x, True))
    thread.start()
    assert inside.wait(20)
    child = os.fork()
    if child == 0:
        compiled(x, False)
        os._exit(0)
    try:
        for _ in range(200):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            threading.Event().wait(0.05)
        assert done, "the child waits"
        assert status == 0
    finally:
        if not done:
            os.kill(child, 9)
            os.waitpid(child, 0)
        go_on.set()
        thread.join()
