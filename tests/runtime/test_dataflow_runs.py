"""How the dataflow executor runs: order, threads, memory, errors, and what ends a run."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.ir.types import TensorType
from weft.runtime.dataflow import tasks, workers
from weft.runtime.dataflow.options import Dataflow
from weft.runtime.dataflow.program import DataflowProgram

ALL = ("fifo", "pool", "priority", "deterministic")
THREADED = ("pool", "priority")
F32 = TensorType(weft.float32, (4,))


class Log:
    """What the ops of these tests did: (name, value) when they begin, and in which thread."""

    def __init__(self) -> None:
        self.events: list[tuple[str, float]] = []
        self.threads: dict[float, int] = {}
        self.hold: dict[float, threading.Event] = {}
        self.arrays: list[weakref.ref[Any]] = []


log = Log()


@weft.custom_op("dataflow_slow")
def slow(xp: Any, x: Any) -> Any:
    """20 ms without Python's lock."""
    log.threads[float(x.flat[0])] = threading.get_ident()
    log.events.append(("begin", float(x.flat[0])))
    time.sleep(0.02)
    log.events.append(("end", float(x.flat[0])))
    return x + 1


@weft.custom_op("dataflow_failing")
def failing(xp: Any, x: Any) -> Any:
    if float(x.flat[0]) > 2:
        raise ValueError(f"no more than 2, not {float(x.flat[0])}")
    return x + 1


@weft.custom_op("dataflow_noting")
def noting(xp: Any, x: Any) -> Any:
    """Notes how many of the arrays that it made are still alive."""
    log.events.append(("alive", sum(ref() is not None for ref in log.arrays)))
    made = x + 1
    log.arrays.append(weakref.ref(made))
    return made


for _name in (
    "dataflow_slow",
    "dataflow_failing",
    "dataflow_noting",
):
    del OPS[_name]  # tables of all cards are about those of Weft


@pytest.fixture(autouse=True)
def fresh() -> None:
    log.__init__()  # type: ignore[misc]


def most_at_once(call: Any, *args: Any, wanted: int) -> int:
    """How many slow calls run at the same time; on a busy machine another thread may come late, so
    that some runs are tried."""
    most = 0
    for _ in range(20):
        log.__init__()  # type: ignore[misc]
        call(*args)
        running = 0
        for what, _ in log.events:
            running += 1 if what == "begin" else -1
            most = max(most, running)
        if most >= wanted:
            break
    return most


def compiled(function: Any, scheduler: str, threads: int = 2, most: int = 10) -> Any:
    return weft.compile(function, backend=Dataflow(scheduler, threads, most))


# --- order and threads -------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", THREADED)
def test_independent_calls_run_at_the_same_time(scheduler: str) -> None:
    def f(x: Any) -> Any:
        return sum([slow(x + 10 * i) for i in range(6)])

    call = compiled(f, scheduler)
    want = f(weft.ones(4)).tolist()
    assert call(weft.ones(4)).tolist() == want
    assert most_at_once(call, weft.ones(4), wanted=2) == 2  # and never more than the threads
    assert len(set(log.threads.values())) == 2


@pytest.mark.parametrize("scheduler", ["fifo", "deterministic"])
def test_one_thread_is_the_caller(scheduler: str) -> None:
    call = compiled(lambda x: slow(x) + slow(x + 5), scheduler)
    call(weft.ones(4))
    assert set(log.threads.values()) == {threading.get_ident()}


def test_every_node_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing cheap, all bookkeeping is handed between threads."""
    monkeypatch.setattr(tasks, "CHEAP_SECONDS", 0.0)

    def f(x: Any, n: Any) -> Any:
        total = x * 0
        for i in range(n):
            if x.sum() > i:
                total = total + (x * i).sin()
            y = x
            while y.sum() < 20:
                y = y * 2 + i
            total = total + y
        return total

    x, n = weft.tensor([0.5, 1.0, 2.0]), weft.asarray(7)
    want = weft.compile(f, backend="interpret")(x, n)
    for scheduler in THREADED:
        call = compiled(f, scheduler, threads=4, most=3)
        for _ in range(5):
            assert call(x, n).tolist() == want.tolist()


def test_the_long_way_comes_first() -> None:
    """Of ready nodes, "priority" runs that with the longest way to the end."""

    def f(x: Any) -> Any:
        short = [slow(x + 10 * i) for i in range(1, 4)]
        long = slow(slow(slow(x)))
        return sum(short) + long

    call = compiled(f, "priority", threads=1)
    call(weft.ones(4))
    log.__init__()  # type: ignore[misc]
    call(weft.ones(4))
    assert [value for what, value in log.events if what == "begin"][:2] == [1.0, 2.0]
    call = compiled(f, "pool", threads=1)
    call(weft.ones(4))
    log.__init__()  # type: ignore[misc]
    call(weft.ones(4))
    order = [value for what, value in log.events if what == "begin"]
    assert order[-1] == 3.0  # in the order of arrival, the long way is the last to end


def test_iterations_overlap_where_data_allows() -> None:
    def f(n: Any) -> Any:
        total = weft.zeros(4)
        i = weft.asarray(0.0)
        while i < n:
            total = total + slow(weft.zeros(4) + i)
            i = i + 1
        return total

    for most, wanted in ((1, 1), (3, 2)):
        call = compiled(f, "pool", threads=2, most=most)
        assert call(weft.asarray(5.0)).tolist() == [15.0] * 4
        assert most_at_once(call, weft.asarray(5.0), wanted=wanted) == wanted


@pytest.mark.parametrize("scheduler", ALL)
def test_effects_are_in_order_and_at_home(scheduler: str) -> None:
    seen: list[Any] = []

    def note(x: Any) -> None:
        seen.append((float(x.sum()), threading.get_ident()))

    def f(x: Any, n: Any) -> Any:
        weft.py_call(note, None, x)
        for i in range(n):
            y = slow(x + i)
            weft.py_call(note, None, y)
            if y.sum() > 10:
                weft.py_call(note, None, y * 100)
        return x

    call = compiled(f, scheduler)
    for _ in range(2):
        seen.clear()
        call(weft.ones(4), weft.asarray(3))
        me = threading.get_ident()
        assert seen == [(v, me) for v in (4.0, 8.0, 12.0, 1200.0, 16.0, 1600.0)]


def test_a_scheduler_of_ones_own() -> None:
    @weft.register_scheduler("last first")
    def last_first(run: Any, inputs: Any) -> None:
        ready: list[Any] = []
        run.start(inputs, ready.append)
        while ready:
            run.attempt(*ready.pop())

    try:
        call = compiled(lambda x: slow(x) + slow(x + 5), "last first")
        assert call(weft.ones(4)).tolist() == [9.0] * 4
        with pytest.raises(weft.errors.RangeError, match="already a scheduler"):
            weft.register_scheduler("last first")
    finally:
        weft.unregister_scheduler("last first")
    with pytest.raises(weft.errors.RangeError, match="no scheduler 'last first'"):
        compiled(lambda x: x, "last first")
    with pytest.raises(weft.errors.RangeError, match="threads is 0"):
        Dataflow(threads=0)


def test_runs_in_runs_and_in_threads() -> None:
    inner = compiled(lambda x: slow(x) + slow(x + 1), "pool")
    inner(weft.ones(4))

    @weft.custom_op("dataflow_nested")
    def nested(xp: Any, x: Any) -> Any:
        return inner(weft.asarray(x)).numpy(copy=True)

    outer = compiled(lambda x: nested(x) + nested(x * 2), "pool")
    want = [2.0 + 3.0 + 3.0 + 4.0] * 4
    assert outer(weft.ones(4)).tolist() == want
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(outer(weft.ones(4)).tolist()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 3
    OPS.pop("dataflow_nested")


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ALL)
def test_memory_is_given_back_after_the_last_reader(scheduler: str) -> None:
    """Of a chain of 30 arrays, two are alive at most: the one that is read, and the one before,
    which the loop's condition reads."""

    def chain(x: Any) -> Any:
        for _ in range(30):
            x = noting(x)
        return x

    def loop(x: Any) -> Any:
        while x.sum() < 120:
            x = noting(x)
        return x

    for f in (chain, loop):
        call = compiled(f, scheduler)
        call(weft.zeros(4))
        log.__init__()  # type: ignore[misc]
        call(weft.zeros(4))
        assert len(log.events) == 30
        assert max(alive for _, alive in log.events) <= 1


def test_inputs_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("f")
    graph.set_inputs([F32])
    value = graph.inputs[0]
    for _ in range(3):
        value = graph.add(slow.op, value).out  # type: ignore[attr-defined]
    graph.outputs = (value,)
    program = DataflowProgram(graph, Dataflow())
    x = weft.ones(4)
    held = weakref.ref(x._data)
    values = [x._data]
    del x
    program.run(values)
    assert held() is None
    assert values == []


def test_nothing_of_a_run_stays() -> None:
    def f(x: Any) -> Any:
        while x.sum() < 100:
            x = x * 2
        return x

    call = compiled(f, "pool")
    call(weft.ones(4))
    gc.collect()
    made = call(weft.ones(4))
    held = weakref.ref(made._data)
    del made
    assert held() is None


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ALL)
def test_an_error_in_a_loop_names_line_frame_and_iteration(scheduler: str) -> None:
    def f(x: Any) -> Any:
        while x.sum() < 100:
            x = failing(x)  # here
        return x

    call = compiled(f, scheduler)
    with pytest.raises(ValueError, match="no more than 2, not 3") as raised:
        call(weft.zeros(4))
    assert "in iteration 3 of while_0" in "".join(raised.value.__notes__)
    lines = []
    trace = raised.value.__traceback__
    while trace is not None:
        lines.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    assert (__file__, f.__code__.co_firstlineno + 2) in lines
    assert call(weft.zeros(4) + 50).tolist() == [50.0] * 4  # usable afterwards


@pytest.mark.parametrize("scheduler", ALL)
def test_of_several_errors_the_first_in_the_program(scheduler: str) -> None:
    def f(x: Any, i: Any) -> Any:
        late = slow(slow(x))
        assert late.sum() < 0, "the first"
        y = x[i]  # ready at once, and out of range
        return y + late

    call = compiled(f, scheduler)
    with pytest.raises(AssertionError, match="the first"):
        call(weft.ones(4), weft.asarray(7))


@pytest.mark.parametrize("scheduler", ALL)
def test_an_error_stops_what_comes_after(scheduler: str) -> None:
    def f(x: Any) -> Any:
        y = failing(x)
        for i in range(20):
            y = y + slow(x + i)
        return y

    call = compiled(f, scheduler)
    with pytest.raises(ValueError, match="no more than 2"):
        call(weft.zeros(4) + 3)
    time.sleep(0.05)
    assert len([1 for what, _ in log.events if what == "begin"]) <= 3


def test_weft_errors_have_the_line() -> None:
    def f(x: Any, i: Any) -> Any:
        total = x * 0
        for k in range(3):
            total = total + x[i + k]
        return total

    compile_ = compiled(f, "fifo")
    assert compile_(weft.ones(4), weft.asarray(1)).tolist() == [3.0] * 4
    with pytest.raises(weft.errors.IndexError) as raised:
        compile_(weft.ones(4), weft.asarray(2))
    assert raised.value.location.line == f.__code__.co_firstlineno + 3


def test_what_cannot_finish_says_what_waits_for_what() -> None:
    @weft.register_scheduler("lossy")
    def lossy(run: Any, inputs: Any) -> None:
        ready: list[Any] = []
        run.start(inputs, ready.append)
        while ready:
            node, at = ready.pop()
            if run.plan.nodes[node : node + 1] and run.plan.nodes[node].op.name == "sin":
                continue  # lost
            run.attempt(node, at)

    try:
        call = compiled(lambda x: x.cos() + x.sin() * 2, "lossy")
        with pytest.raises(weft.errors.GraphError, match="cannot finish") as raised:
            call(weft.ones(4))
        line = f"{Path(__file__).name}:{call.function.__code__.co_firstlineno}"
        assert f"multiply ({line}) waits for %1 of sin ({line})" in str(raised.value)
    finally:
        weft.unregister_scheduler("lossy")


def test_a_task_that_returns_too_little() -> None:
    graph = Graph("f")
    graph.set_inputs([TensorType(weft.float32, (4, 4))])
    node = graph.add(OPS["qr"], graph.inputs[0], mode="reduced")
    graph.outputs = node.outputs
    program = DataflowProgram(graph, Dataflow())
    number = graph.nodes.index(node)
    program.plan.tasks[number] = tasks.Task(lambda values, env: (values[0],))
    with pytest.raises(weft.errors.GraphError, match="gave 1 value, and 2 are needed"):
        program([weft.ones(4, 4)])


# --- Ctrl-C ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ALL)
def test_ctrl_c_ends_a_run(scheduler: str) -> None:
    def f(x: Any) -> Any:
        while x.sum() >= 0:
            x = slow(x) * 0
        return x

    call = compiled(f, scheduler)

    def interrupt() -> None:
        while not log.events:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call(weft.zeros(4))
    helper.join()
    assert time.monotonic() - begin < 20
    time.sleep(0.06)
    count = len(log.events)
    time.sleep(0.06)
    assert len(log.events) == count  # no thread goes on
    assert call(weft.zeros(4) - 1).tolist() == [-1.0] * 4


@pytest.mark.parametrize("scheduler", THREADED)
def test_ctrl_c_while_only_others_work(scheduler: str) -> None:
    """The caller waits for another thread, in which a long call runs."""
    go_on = threading.Event()

    @weft.custom_op("dataflow_held")
    def held(xp: Any, x: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            log.events.append(("begin", 0.0))
            go_on.wait(30)
        else:  # until the other call runs
            deadline = time.monotonic() + 10
            while not log.events and time.monotonic() < deadline:
                time.sleep(0.005)
        return x

    def interrupt() -> None:
        while not log.events:
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    call = weft.compile(
        lambda x: held(x) + held(x * 2), capture="trace", backend=Dataflow(scheduler, threads=2)
    )
    helper = threading.Thread(target=interrupt)
    go_on.set()
    call(weft.ones(4))
    log.__init__()  # type: ignore[misc]
    go_on.clear()
    helper.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call(weft.ones(4))
    assert time.monotonic() - begin < 15  # not after the 30 s of the other thread
    helper.join()
    go_on.set()
    assert call(weft.ones(4)).tolist() == [3.0] * 4
    OPS.pop("dataflow_held")


def test_threads_end_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_SECONDS", 0.05)
    done = threading.Event()
    seen: list[threading.Thread] = []

    def job() -> None:
        seen.append(threading.current_thread())
        done.set()

    workers._idle.clear()
    workers.start_job(job)
    assert done.wait(5)
    seen[0].join(5)
    assert not seen[0].is_alive()


# --- collectives -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ALL)
def test_ranks_meet_in_the_order_of_the_program(scheduler: str) -> None:
    """Which collective is ready first depends on the rank: one has a loop before the first."""

    def f(x: Any) -> Any:
        y = x
        if distributed.rank():
            while y.sum() < 60:
                y = slow(y) * 2
        first = distributed.all_reduce(y)
        second = distributed.all_gather(x * 10)
        return first.sum() - second

    def on_rank() -> Any:
        x = weft.ones(4) * (1 + distributed.rank())
        return f(x).tolist(), compiled(f, scheduler)(x).tolist()

    for want, got in distributed.run_virtual(2, on_rank):
        assert got == want


BRANCH = """graph @f(%x: f32[], %p: bool[]) {
  %a: f32[], %b: f32[] = flow.switch[of='i'] %x, %p
  %y: f32[] = exp %a
  %z: f32[] = sin %b
  %r: f32[] = flow.merge[of='i'] %y, %z
  return %r
}"""


@pytest.mark.parametrize("backend", ["dataflow", "native", "interpret", "split"])
def test_graphs_made_by_hand_are_compiled(backend: str) -> None:
    """In primitives, too: the executor runs these, the others what is lifted of them."""
    compiled = weft.compile(weft.Graph.parse(BRANCH), backend=backend)
    yes, no = weft.tensor(True), weft.tensor(False)
    for _ in range(2):
        assert float(compiled(weft.tensor(2.0), yes)) == pytest.approx(np.exp(2.0), rel=1e-6)
        assert float(compiled(weft.tensor(2.0), no)) == pytest.approx(np.sin(2.0), rel=1e-6)
    x = weft.tensor(2.0, requires_grad=True)
    compiled(x, no).backward()
    assert float(x.grad) == pytest.approx(np.cos(2.0), rel=1e-6)
    with pytest.raises(weft.errors.CaptureError, match="takes 2 tensors, not 1"):
        compiled(x)
    outer = weft.compile(lambda x: compiled(x, yes) * 2)
    assert float(outer(weft.tensor(1.0))) == pytest.approx(2 * np.e, rel=1e-6)


def test_schedulers_of_weft_stay_known() -> None:
    with pytest.raises(weft.errors.RangeError, match="Weft's own"):
        weft.unregister_scheduler("fifo")
    with pytest.raises(weft.errors.RangeError, match="unregister_scheduler: there is no"):
        weft.unregister_scheduler("zzz")
    with pytest.raises(weft.errors.DTypeError, match="no name"):
        weft.register_scheduler(3)  # type: ignore[arg-type]
    with pytest.raises(weft.errors.RangeError) as caught:
        weft.Dataflow("pool", threads=0)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
