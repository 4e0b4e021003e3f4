"""Effects of a graph are done once in each call, however often its beginning is computed; and paths
that one thread records while others run."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.capture.trace.segments import Question, Segment
from weft.ops.effects import done

Tensor = weft.Tensor
CALLS = (1.0, 2.0, 2.0, 3.0, 1.0, 2.0)  # three numbers; Python must know how long a text is


def prints(x: Tensor) -> Any:
    if x.sum() > 0:
        print("positive", x.sum())
    return x * len("-" * int(x.sum()))


def prints_in_a_loop(x: Tensor) -> Any:
    n = weft.zeros((), dtype=weft.int64)
    while n < 2:
        print(f"round {n}: {x[0]:.1f}", sep="|")
        n = n + 1
    return x * len("-" * int(x.sum()))


def checks(x: Tensor) -> Any:
    assert x.sum() < 100, f"too large: {x.sum()}"
    return x * len("-" * int(x.sum()))


def may_raise(x: Tensor) -> Any:
    if x.sum() < 0:
        raise ValueError("negative")
    return x * len("-" * int(x.sum()))


class Tripled(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 3


def function_of_ones_own(x: Tensor) -> Any:
    return Tripled.apply(x) * len("-" * int(x.sum()))


EFFECTS = [prints, prints_in_a_loop, checks, may_raise, function_of_ones_own]


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("function", EFFECTS, ids=lambda f: f.__name__)
def test_before_a_question(function: Callable[..., Any], backend: str, capsys: Any) -> None:
    """What comes before is shared by all answers, and done once in each call."""
    compiled = weft.compile(function, backend=backend)
    for number in CALLS:
        shown, found = [], []
        for call in (function, compiled):
            x = weft.tensor([number, 0.0], requires_grad=function is function_of_ones_own)
            found.append(call(x).tolist())
            shown.append(capsys.readouterr().out)
        assert found[1] == found[0]
        assert shown[1] == shown[0]
    assert compiled.cache_info().recordings == len(set(CALLS))


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_a_call_back_into_python_is_one(backend: str) -> None:
    calls = []

    def doubled(x: Tensor) -> Tensor:
        calls.append(x.tolist())
        return x * 2

    def f(x: Tensor) -> Any:
        y = weft.py_call(doubled, weft.spec(2), x)
        return y * len("-" * int(x.sum()))

    compiled = weft.compile(f, backend=backend)
    for number in CALLS:
        calls.clear()
        assert (
            compiled(weft.tensor([number, 1.0])).tolist() == f(weft.tensor([number, 1.0])).tolist()
        )
        assert calls == [[number, 1.0]] * 2  # compiled, and eagerly


WRITTEN: list[float] = []


def writes_in_python(x: Tensor) -> Any:
    y = weft.py_call(lambda v: WRITTEN.append(v.sum().item()) or v * 2, weft.spec(2), x)
    return y * len("-" * int(x.sum()))


def test_what_a_call_back_into_python_writes_is_written_once() -> None:
    compiled = weft.compile(writes_in_python, backend="interpret")
    WRITTEN.clear()
    for number in CALLS:
        compiled(weft.tensor([number, 0.0]))
    assert list(CALLS) == WRITTEN


FACTOR = 2


def reads_in_python_and_here(x: Tensor) -> Any:
    y = weft.py_call(lambda v: v * FACTOR, weft.spec(2), x)
    n = len("-" * int(x.sum()))
    return y * n * FACTOR


def test_what_a_call_back_into_python_reads_is_guarded_where_the_graph_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = weft.compile(reads_in_python_and_here, backend="interpret")
    x = weft.tensor([1.0, 1.0])
    for factor in (2, 3, 2):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert compiled(x).tolist() == reads_in_python_and_here(x).tolist()


def test_what_one_thread_records_does_not_silence_others() -> None:
    """While a recording computes what Python asks for, checks of other threads are done."""

    def f(x: Tensor) -> Any:
        assert x.sum() < 10
        return x * 2

    compiled = weft.compile(f, backend="interpret")
    compiled(weft.ones(2))
    failed = []

    def run() -> None:
        try:
            compiled(weft.ones(20))
            compiled(weft.full(2, 20.0))
        except AssertionError as error:
            failed.append(error)

    done.waiting = True
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        done.waiting = False
    assert len(failed) == 1


# --- threads -------------------------------------------------------------------------------------


def later_use(x: Tensor) -> Any:
    y = x * 3
    n = len("-" * int(x.sum()))
    return x + 1 if n == 1 else y * n


def test_a_path_is_whole_when_others_can_find_it() -> None:
    compiled = weft.compile(later_use, backend="interpret")
    seen = []

    class Roots(list[Segment]):
        def append(self, segment: Segment) -> None:
            seen.append(len(segment.exports))
            super().append(segment)

    compiled._roots = Roots()
    compiled(weft.tensor([2.0, 0.0]))
    assert seen == [2]  # what Python asked for, and y


def test_a_path_recorded_while_another_thread_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It finds a way on that uses more of what it has run than it has kept."""
    compiled = weft.compile(later_use, backend="interpret")
    compiled(weft.tensor([1.0, 0.0]))
    answer = Question.answer
    started = []

    def slow(self: Question, tensor: Tensor) -> Any:
        if not started:
            started.append(True)
            thread = threading.Thread(target=compiled, args=(weft.tensor([2.0, 0.0]),))
            thread.start()
            thread.join()
        return answer(self, tensor)

    monkeypatch.setattr(Question, "answer", slow)
    assert compiled(weft.tensor([2.0, 0.0])).tolist() == [12.0, 0.0]
    assert started
    assert compiled.cache_info().recordings == 2


LOG = logging.getLogger("weft.test.effects")


def logs_in_a_branch(x: Tensor) -> Any:
    if x.sum() > 1:
        LOG.info("above by %.1f (%s)", x.sum() - 1, {"n": 2})
    else:
        LOG.info("not %r", [1, "one"])
    return x * 2


def logs_in_a_loop(x: Tensor) -> Any:
    n = weft.zeros((), dtype=weft.int64)
    while n < x.sum():
        print("round", n)
        LOG.info(f"round {n}")
        warnings.warn(f"slow: {x[0].item()}", stacklevel=1)
        n = n + 1
    LOG.info("%(rounds)s rounds", {"rounds": n})
    return x * 2


def logs_in_a_map(x: Tensor) -> Any:
    def row(r: Tensor) -> Tensor:
        LOG.info("once")
        print("once")
        return r * 2

    return weft.vmap(row)(x)


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize(
    "function", [logs_in_a_branch, logs_in_a_loop, logs_in_a_map], ids=lambda f: f.__name__
)
def test_logs_and_warnings_of_branches_and_loops(
    function: Callable[..., Any], backend: str, capsys: Any
) -> None:
    """What each run of the graph reaches is logged by it, in order with what it prints."""
    compiled = weft.compile(function, backend=backend)
    shown: list[list[str]] = []
    handler = logging.StreamHandler()  # not our own class, which would be Python's to call
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.handlers, LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)
    for number in CALLS:
        for call in (function, compiled):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                handler.stream = sys.stdout
                warnings.showwarning = lambda text, *_: print(text)
                call(weft.tensor([number, 0.0]))
            shown.append(capsys.readouterr().out.splitlines())
        assert shown[-1] == shown[-2]
        assert shown[-1]
    assert compiled.cache_info().recordings == 1


def test_an_answer_that_the_program_rounds_in_another_way(capsys: Any) -> None:
    """A recording computes op by op, and may be told 3.2 where the program finds 3.1999998."""

    @weft.compile
    def f(x: Any, v: Any) -> str:
        w = v * 0.5
        for i in range(2):
            w[i] += 0.1
        print(f"{x}")
        return f"{w.sum()}"

    for i in range(5):
        found = f(weft.tensor(1.5), weft.ones(3) * i)
        assert float(found) == pytest.approx(1.5 * i + 0.2, rel=1e-5)
        assert capsys.readouterr().out == "1.5\n"


HELD = weft.zeros(2)


def prints_before_it_writes(x: Tensor) -> Any:
    a = x * 1.0
    print(a, {"held": HELD})
    with weft.no_grad():
        a *= 0.5
        HELD.copy_(HELD + 1)
    print(a, [HELD])
    a[0] = 9.0
    print(a)
    return a


@pytest.mark.parametrize("capture", ["trace", "source"])
def test_what_is_printed_is_the_value_of_then(capture: Any, capsys: Any) -> None:
    """Also of tensors that the rest of the call writes to."""
    shown = []
    for call in (prints_before_it_writes, weft.compile(prints_before_it_writes, capture=capture)):
        HELD.copy_(weft.zeros(2))
        for number in CALLS:
            call(weft.tensor([number, 0.0]))
        shown.append(capsys.readouterr().out)
    assert shown[1] == shown[0]
