"""Ctrl-C ends a long native run from inside, and leaves everything usable."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.codegen import cancel
from weft.codegen.machine import host
from weft.codegen.matmul import copies, plan
from weft.codegen.program import CpuEmitter
from weft.codegen.text import Module
from weft.core.bind import bind
from weft.ir.interpret import interpret
from weft.passes.lowering.lower import lowered
from weft.passes.pipeline import optimize
from weft.runtime import native as native_module
from weft.runtime.native import NativeProgram
from weft.schedule import in_place
from weft.schedule.planner import plan_program


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
    for attempt in range(60):
        signal.setitimer(signal.ITIMER_REAL, (0.03, 0.015, 0.06, 0.008, 0.1)[attempt % 5])
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


def _repeated(x: Any, times: int) -> Any:
    """Rows again and again: for much work with little memory."""
    rows, columns = x.shape
    return weft.broadcast_to(x[:, None, :], (rows, times, columns))


def _many_terms(x: Any) -> Any:
    terms = x.shape[0]
    return weft.broadcast_to(x, (6, terms)) @ weft.broadcast_to(x[:, None], (terms, 32))


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
    "a product of many terms": (_many_terms, (1 << 25,)),
    "a few very long sums": (lambda x: _repeated(x, 1 << 28).max(axis=1), (2, 2)),
    "very many short rows sorted": (lambda x: weft.sort(_repeated(x, 1 << 21), axis=2), (1, 9)),
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


def _attend(x: Any) -> Any:
    return F.scaled_dot_product_attention(x[None, None], x[None, None] * 2, x[None, None] + 1)


def _turned_written(x: Any) -> Any:
    target = weft.zeros((10, 10))
    places = (weft.abs(x) * 1e5).astype(weft.int64) % 10
    target[places[:, None], places[:3]] = x[:, None] * x[:3]
    return target


def _rows_written(x: Any) -> Any:
    target = weft.zeros((5, 77))
    target[(x[:3, 0] * 9).astype(weft.int64) % 5] = x[:3]
    return target


def _attended_grad(*given: Any) -> Any:
    def total(q: Any, k: Any, v: Any) -> Any:
        return weft.sum(F.scaled_dot_product_attention(q, k, v) * q)

    return weft.grad(total, argnums=(0, 1, 2))(*given)


LONG_LOOPS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "sort": (lambda x: weft.sort(x, axis=0), (101, 3)),
    "argsort": (lambda x: weft.argsort(x, descending=True), (77,)),
    "sum along rows": (lambda x: weft.cumulative_sum(x, axis=1), (3, 41)),
    "sum along columns": (lambda x: weft.cumulative_sum(x, axis=0), (41, 37)),
    "complex products": (lambda x: weft.cumulative_prod(x + 1j, axis=0), (13, 2)),
    "argmax of rows": (lambda x: weft.argmax(x, axis=1), (3, 133)),
    "argmin of columns": (lambda x: weft.argmin(x, axis=0), (41, 37)),
    "sort of short rows": (lambda x: weft.sort(x, axis=1), (133, 7)),
    "rows of two stages": (lambda x: weft.softmax(x, axis=1), (3, 333)),
    "one row": (lambda x: x / weft.sum(x, axis=1, keepdims=True), (1, 333)),
    "sums of columns": (lambda x: x.sum(axis=0), (61, 5)),
    "sums of wide columns": (lambda x: (x * 2).sum(axis=0), (7, 133)),
    "sums of columns in pieces": (lambda x: x.sum(axis=0), (1 << 13, 5)),
    "sums in the middle": (lambda x: _repeated(x, 19).sum(axis=1), (3, 5)),
    "a total": (lambda x: (x * x).sum(), (67, 131)),
    "a total of turned rows": (lambda x: (x.T * 2).max(), (9, 131)),
    "no sums": (lambda x: x[:, None, None] + weft.cos(x)[None, :, None] + x[:7], (21,)),
    "a dot product": (lambda x: x @ (x + 1), (777,)),
    "dot products": (lambda x: x @ x[0], (5, 777)),
    "a product in place": (lambda x: x.T @ x, (777, 4)),
    "a product of copies": (lambda x: x @ x.T, (50, 777)),
    "a product of shared copies": (lambda x: x.T @ x, (777, 1024)),
    "a product of shared, turned copies": (lambda x: x @ x.T, (600, 777)),
    "a product of halves": (
        lambda x: (x.astype(weft.float16) @ x.T.astype(weft.float16)).astype(weft.float32),
        (40, 177),
    ),
    "a product of what is computed": (lambda x: x @ weft.exp(x[:, :90]), (777, 777)),
    "a product and its total": (lambda x: ((x @ x.T) ** 2).sum(), (70, 333)),
    "attention": (lambda x: _attend(x), (150, 16)),
    "the gradient of attention": (
        lambda x: _attended_grad(x[None, None], x[None, None] * 2, x[None, None] + 1),
        (150, 16),
    ),
    "a gather of rows": (lambda x: x[(x[:, 0] * 9).astype(weft.int64) % 5], (31, 77)),
    "a write of rows": (lambda x: _rows_written(x), (9, 77)),
    "concat": (lambda x: weft.concat([x, x * 2, x], axis=1), (3, 77)),
    "concat of many": (lambda x: weft.concat([x * i for i in range(12)], axis=1), (3, 77)),
    "eye": (lambda x: weft.eye(5, 99) + x, (5, 99)),
    "given back": (lambda x: (x, x * 2), (500,)),
    "writes": (lambda x: _scattered(x), (50,)),
    "writes of one axis of two": (lambda x: _turned_written(x), (50,)),
    "sums of rows": (
        lambda x: weft.grad(lambda t: (t[(x[:, 0] * 100).astype(weft.int64) % 5] * x).sum())(x[:5]),
        (61, 3),
    ),
}


@pytest.mark.parametrize("name", LONG_LOOPS)
def test_loops_that_poll_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    function, shape = LONG_LOOPS[name]
    graph = weft.make_graph(function, weft.spec(shape))
    x = weft.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
    quiet = NativeProgram(graph)
    assert "@cancelled" not in quiet.text
    monkeypatch.setattr(cancel, "ROUNDS", 4)
    monkeypatch.setattr(cancel, "LONG", 0.0)
    monkeypatch.setattr(cancel, "PART", 64)
    monkeypatch.setattr(copies, "COPIED", 64)
    monkeypatch.setattr(plan, "MOST_TERMS", 100)
    program = NativeProgram(graph)
    assert "@cancelled" in program.text
    for got, same, want in zip(program([x]), quiet([x]), interpret(graph, [x], bind), strict=True):
        assert got.numpy().tobytes() == same.numpy().tobytes()
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-3)


G = 1 << 30
#: What is computed of operands of these shapes, more than there is memory for: nothing is run.
HUGE: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "softmax of a row": (lambda x: weft.softmax(x), [(G,)]),
    "layer norm": (lambda x: F.layer_norm(x, (G,)), [(2, G)]),
    "a total": (lambda x: x.sum(), [(G, 64)]),
    "a total of turned rows": (lambda x: (x.T * 2).sum(), [(8, 8 * G)]),
    "sums of columns": (lambda x: x.sum(axis=0), [(64 * G, 4)]),
    "sums of wide columns": (lambda x: weft.var(x, axis=0), [(4, G)]),
    "sums in the middle": (lambda x: x.max(axis=1), [(2, G, 2)]),
    "elementwise": (lambda x, y: x[:, None] + y[None, :, None], [(17, 9), (G,)]),
    "dot products": (lambda x, y: x @ y, [(3, G), (G,)]),
    "a product": (lambda x, y: x @ y, [(4, G), (G, 4)]),
    "a product of copies": (lambda x, y: x @ y.T, [(6, G), (300, G)]),
    "a product of shared copies": (lambda x, y: x.T @ y, [(G, 256), (G, 256)]),
    "a product of wide rows": (lambda x, y: x @ y, [(2, G // 1024), (G // 1024, 1 << 14)]),
    "a product and its total": (lambda x, y: ((x.T @ y) ** 2).sum(), [(G, 16), (G, 16)]),
    "attention": (
        lambda q, k, v: _attended_grad(q, k, v),
        [(1, 1, 1 << 20, 64)] * 3,
    ),
    "sort": (lambda x: weft.sort(x), [(G,)]),
    "sort of short rows": (lambda x: weft.sort(x, axis=1), [(G, 9)]),
    "argmax": (lambda x: weft.argmax(x, axis=0), [(G, 4)]),
    "cumulative sum": (lambda x: weft.cumulative_sum(x), [(G,)]),
    "gather": (lambda x, y: x[y.astype(weft.int64)], [(3, G), (4,)]),
    "scatter": (lambda x, y: _put(x, y), [(3, G), (4,)]),
    "concat": (lambda x, y: weft.concat([x, y], axis=1), [(3, G), (3, G)]),
    "eye": (lambda x: weft.eye(3, G) + x, [(3, 1)]),
    "a convolution": (lambda x, w: _convolved(x, w), [(1, 4, 8192, 8192), (8, 4, 3, 3)]),
    "a deep convolution": (lambda x, w: _convolved(x, w), [(9, 999, 64, 64), (999, 999, 3, 3)]),
    "pooling": (lambda x: F.max_pool2d(x, 3), [(1, 2, 32768, 32768)]),
}


def _put(x: Any, y: Any) -> Any:
    x[y.astype(weft.int64)] = x[:1]
    return x


def _convolved(x: Any, w: Any) -> Any:
    def total(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, padding=1).sum()

    return weft.grad(total, argnums=(0, 1))(x, w)


@pytest.mark.parametrize("name", HUGE)
def test_items_that_take_long_ask(name: str) -> None:
    function, shapes = HUGE[name]
    graph = optimize(weft.make_graph(function, *map(weft.spec, shapes)))
    plan = plan_program(lowered(graph), CpuEmitter(Module(host())))
    kernels = [kernel for step in plan.root.steps for kernel in step.kernels]
    assert kernels
    assert [kernel for kernel in kernels if kernel.cost > 1e8 and not kernel.stops] == []


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
    emitter = CpuEmitter(Module(host()))
    plan = plan_program(optimize(graph), emitter)
    emitter.emit(plan)
    text = emitter.module.text()
    return plan.root.in_place, text.partition("@graph(")[2].partition("\n}")[0]


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
        plan = plan_program(graph, CpuEmitter(Module(host())))
        assert plan.root.in_place == pairs


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
