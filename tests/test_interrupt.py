"""Ctrl-C ends a long native run from inside, and leaves everything usable."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.codegen import cumulative, stop
from weft.codegen.indexing import write
from weft.codegen.program import Program
from weft.codegen.sorting import extremes, sort
from weft.codegen.target import host
from weft.codegen.text import Module
from weft.core.bind import bind
from weft.ir.interpret import interpret
from weft.passes.pipeline import optimize
from weft.runtime import native as native_module
from weft.runtime.native import NativeProgram
from weft.schedule import in_place


class Stopped(Exception):
    """What the handler of these tests raises."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A handler that raises; the list says which runs it ended from inside."""
    ended: list[str] = []
    raise_interrupt = native_module.raise_interrupt

    def noted() -> None:
        ended.append("inside")
        raise_interrupt()

    def handler(*_args: object) -> None:
        raise Stopped

    monkeypatch.setattr(native_module, "raise_interrupt", noted)
    before = signal.signal(signal.SIGALRM, handler)
    threads = weft.get_num_threads()
    yield ended
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    weft.set_num_threads(threads)


def _stopped(run: Callable[[], Any], asked: list[str]) -> None:
    """Run until it was ended from inside: on a busy machine the signal may come before it begins,
    or after it."""
    for _ in range(10):
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with pytest.raises(Stopped):  # noqa: PT012
            run()
            threading.Event().wait(5)
        if asked:
            return
    pytest.fail("no signal ended it from inside")


def _chain(x: Any) -> Any:
    for _ in range(60):
        x = weft.cumulative_sum(x, axis=0)
    return x


def _scattered(x: Any) -> Any:
    target = weft.zeros(10)
    places = (weft.abs(x) * 1e5).astype(weft.int64) % 10
    for _ in range(4):
        target[places] = x + target[0]
    return target


#: What is computed, and of which shape: some tenths of a second, mostly in one item of work.
RUNS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "one row sorted": (lambda x: weft.sort(x), (1 << 23,)),
    "rows sorted": (lambda x: weft.argsort(x, axis=1), (3, 1 << 21)),
    "columns sorted": (lambda x: weft.sort(x, axis=0), (1 << 22, 2)),
    "writes in order": (_scattered, (1 << 24,)),
    "kernels of one item": (_chain, (1 << 22,)),
    "a product": (lambda x: x @ x @ x @ x, (2048, 2048)),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_without_loops_ends(name: str, threads: int, asked: list[str]) -> None:
    weft.set_num_threads(threads)
    function, shape = RUNS[name]
    program = NativeProgram(weft.make_graph(function, weft.spec(shape)))
    x = np.random.default_rng(0).standard_normal(shape, np.float32) / 1000
    inputs = [weft.asarray(x)]
    _stopped(lambda: program.call(inputs), asked)
    part = x.ravel()[:9]
    small = weft.compile(lambda y: weft.sort(y * 2), backend="native")
    np.testing.assert_array_equal(small(weft.asarray(part)).numpy(), np.sort(part * 2))


def test_a_long_row_that_nobody_stops_is_sorted() -> None:
    x = np.random.default_rng(0).standard_normal(1 << 22, np.float32)
    program = NativeProgram(weft.make_graph(lambda x: weft.sort(x), weft.spec(x.shape)))
    np.testing.assert_array_equal(program.call([weft.asarray(x)])[0].numpy(), np.sort(x))


LONG_LOOPS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "sort": (lambda x: weft.sort(x, axis=0), (101, 3)),
    "argsort": (lambda x: weft.argsort(x, descending=True), (77,)),
    "sum along rows": (lambda x: weft.cumulative_sum(x, axis=1), (3, 41)),
    "sum along columns": (lambda x: weft.cumulative_sum(x, axis=0), (41, 37)),
    "complex products": (lambda x: weft.cumulative_prod(x + 1j, axis=0), (13, 2)),
    "argmax of rows": (lambda x: weft.argmax(x, axis=1), (3, 133)),
    "argmin of columns": (lambda x: weft.argmin(x, axis=0), (41, 37)),
    "writes": (lambda x: _scattered(x), (50,)),
    "sums of rows": (
        lambda x: weft.grad(lambda t: (t[(x[:, 0] * 100).astype(weft.int64) % 5] * x).sum())(x[:5]),
        (61, 3),
    ),
}


@pytest.mark.parametrize("name", LONG_LOOPS)
def test_loops_that_ask_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    monkeypatch.setattr(stop, "ROUNDS", 4)
    for module in (sort, cumulative, extremes, write):
        monkeypatch.setattr(module, "LONG", 0.0)
    function, shape = LONG_LOOPS[name]
    graph = weft.make_graph(function, weft.spec(shape))
    x = weft.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
    program = NativeProgram(graph)
    assert "@asked" in program.text
    (want,) = interpret(graph, [x], bind)
    np.testing.assert_allclose(program([x])[0].numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_in_other_threads_a_long_row_is_not_stopped(asked: list[str]) -> None:
    """The signal is the main thread's: it is raised there, and the other run goes on."""
    x = np.random.default_rng(0).standard_normal(1 << 22, np.float32)
    program = NativeProgram(weft.make_graph(lambda x: weft.sort(x), weft.spec(x.shape)))
    found: list[Any] = []
    done = threading.Event()

    def work() -> None:
        found.extend(program.call([weft.asarray(x)]))
        done.set()

    threading.Thread(target=work).start()
    with pytest.raises(Stopped):  # noqa: PT012
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        threading.Event().wait(5)
    assert done.wait(20)
    np.testing.assert_array_equal(found[0].numpy(), np.sort(x))
    assert asked == []


# --- inputs that are updated where they lie -------------------------------------------------------


def _step(w: Any, x: Any) -> tuple[Any, Any]:
    loss = (x @ w).sum()
    return w - 0.5 * weft.sum(x, axis=0, keepdims=True).T, loss


def _code(size: int) -> tuple[list[tuple[int, int]], str]:
    """Which outputs may be written where inputs lie, and the code of the graph."""
    graph = weft.make_graph(_step, weft.spec((size, size)), weft.spec((size, size)))
    module = Module(host())
    code = Program(module).graph(optimize(graph), "graph")
    return code.in_place, module.text().partition("@graph(")[2].partition("\n}")[0]


def test_nothing_ends_a_run_after_the_first_write_to_an_input() -> None:
    pairs, text = _code(1024)
    assert pairs == [(0, 0)]
    stops = ["ptr null)" not in line for line in text.splitlines() if " call i32 %" in line]
    assert stops == sorted(stops, reverse=True)  # those that may end come first
    assert not stops[-1]
    assert any(stops)


def test_what_takes_long_after_a_write_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a user who asks for the end would wait for all of that."""

    def late(w: Any, x: Any) -> tuple[Any, Any]:
        new = w - 0.5
        return new, (x @ x) @ new

    graph = weft.make_graph(late, weft.spec((64, 64)), weft.spec((64, 64)))
    for patience, pairs in ((in_place.PATIENCE, [(0, 0)]), (100.0, [])):
        monkeypatch.setattr(in_place, "PATIENCE", patience)
        assert Program(Module(host())).graph(graph, "graph").in_place == pairs


def test_a_step_that_was_stopped_has_written_nothing(asked: list[str]) -> None:
    w = weft.asarray(np.ones((1024, 1024), np.float32))

    @weft.compile(backend="native")
    def step(x: Any) -> Any:
        nonlocal w
        y = x
        for _ in range(8):
            y = (y @ x) * 0.001
        w -= y
        return y.sum()

    x = weft.asarray(np.full((1024, 1024), 0.5, np.float32))
    loss = step(x)
    change = 1 - w.numpy()
    before = w.numpy()

    def attempt() -> None:
        nonlocal before
        before = w.numpy().copy()
        step(x)

    _stopped(attempt, asked)
    np.testing.assert_array_equal(w.numpy(), before)
    assert float(step(x)) == float(loss)
    np.testing.assert_allclose(w.numpy(), before - change, rtol=1e-6)
