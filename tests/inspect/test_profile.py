"""Profiles: what ran is noted once, with its line, module and work, in every mode."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import weft
from weft import nn
from weft.compile import BACKENDS as EXECUTABLES
from weft.errors import RangeError
from weft.inspect.profile.events import Event, MemoryChange
from weft.inspect.profile.flame import flame_svg, memory_svg
from weft.inspect.profile.summary import rows_by
from weft.ir.op import OPS
from weft.nn import functional as F
from weft.runtime.executable import _instruments
from weft.runtime.peak import Peak
from weft.runtime.timed import TimedProgram, read_runs

BACKENDS = ["interpret", "native"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(32, 32), nn.Linear(32, 32)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = weft.tanh(block(x))
        return x


def newton(a: Any) -> Any:
    x = a
    while abs(x * x - a).max() > 1e-3:
        x = (x + a / x) / 2
    return x


def profiled(function: Any, *args: Any) -> Any:
    with weft.profile(roofline=False) as p:
        function(*args)
    return p


def test_eager_ops_are_noted_with_line_and_work() -> None:
    x = weft.ones((8, 16))
    with weft.profile(roofline=False) as p:
        y = x @ weft.ones((16, 4))  # the line
        weft.exp(y)
    found = {event.name: event for event in p.events}
    assert {"matmul", "exp"} <= set(found)
    product = found["matmul"]
    assert (product.flops, product.bytes) == (2 * 8 * 16 * 4, 4 * (8 * 16 + 16 * 4 + 8 * 4))
    (place,) = product.places
    assert place.text.endswith("# the line")
    assert p.rows("line")[0].name.startswith("test_profile.py:")
    assert p.peak_memory >= 8 * 4 * 4


def test_eager_backward_and_modules() -> None:
    model = Net()
    with weft.profile(roofline=False) as p:
        model(weft.ones((4, 32))).sum().backward()
    kinds = {event.kind for event in p.events}
    assert kinds == {"op", "backward"}
    names = {row.name for row in p.rows("module")}
    assert {"Net", "Net.blocks.0", "Net.blocks.1"} <= names
    assert {"LinearBackward", "TanhBackward"} <= {event.name for event in p.events}
    assert sum(event.name == "LinearBackward" for event in p.events) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_training_step_gives_the_same_and_says_where_time_goes(backend: str) -> None:
    def trained(profiled: bool) -> tuple[list[Any], Any]:
        weft.manual_seed(0)
        model = Net()
        adam = weft.optim.Adam(model.parameters())

        @weft.compile(backend=backend)
        def step(x: Any, y: Any) -> Any:
            adam.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            adam.step()
            return loss

        x, y = weft.randn((16, 32)), weft.randint(0, 32, (16,))
        step(x, y)
        p = None
        if profiled:
            with weft.profile(roofline=False) as p:
                step(x, y)
                step(x, y)
        else:
            step(x, y)
            step(x, y)
        assert len(step.recordings) <= 2
        return [parameter.numpy().copy() for parameter in model.parameters()], p

    plain, _ = trained(False)
    same, p = trained(True)
    for a, b in zip(plain, same, strict=True):
        np.testing.assert_array_equal(a, b)
    runs = [event for event in p.events if event.kind == "run"]
    assert len(runs) == 2
    work = [event for event in p.events if event.kind in ("kernel", "op")]
    for event in work:
        assert any(run.start <= event.start and event.stop <= run.stop for run in runs), event
    assert sum(row.seconds for row in p.rows()) <= sum(run.seconds for run in runs) * 1.0001
    assert {"Net.blocks.0", "Net.blocks.1"} <= {row.name for row in p.rows("module")}
    products = sum(
        event.flops for event in work if "matmul" in event.name or "linear" in event.name
    )
    assert products >= 2 * 5 * 2 * 16 * 32 * 32  # both layers, forward; and what their backward is
    assert not _instruments


@pytest.mark.parametrize("backend", BACKENDS)
def test_loops_whose_length_the_data_decides(backend: str) -> None:
    f = weft.compile(newton, backend=backend)
    a = weft.asarray([2.0, 3.0, 100.0])
    want = f(a).numpy()
    p = profiled(f, a)
    np.testing.assert_array_equal(f(a).numpy(), want)
    assert any(event.kind == "control" for event in p.events)
    inner = [event for event in p.events if "divide" in event.name]
    assert len(inner) >= 5
    lines = {row.name for row in p.rows("line")}
    assert f"test_profile.py:{newton.__code__.co_firstlineno + 3}" in lines


def test_events_beyond_the_room_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.inspect.profile import programs

    monkeypatch.setattr(programs, "MOST", 5)
    f = weft.compile(newton, backend="native")
    a = weft.asarray([2.0, 3.0, 100.0])
    f(a)
    p = profiled(f, a)
    kernels = [event for event in p.events if event.kind in ("kernel", "control")]
    assert sum(event.count == 1 for event in kernels) <= 5 + 2
    assert sum(event.count for event in kernels) > 10


def test_threads_have_rows_in_the_trace(tmp_path: Path) -> None:
    before = weft.get_num_threads()
    weft.set_num_threads(2)
    try:
        f = weft.compile(lambda x: (x @ x).sum(), backend="native")
        x = weft.ones((512, 512))
        f(x)
        with weft.profile(roofline=False) as p:
            for _ in range(5):
                f(x)
    finally:
        weft.set_num_threads(before)
    path = p.save_trace(tmp_path / "trace.json")
    rows = json.loads(path.read_text())["traceEvents"]
    work = [row for row in rows if row["ph"] == "X"]
    assert {row["tid"] for row in work} >= {0, 1}
    assert all(row["dur"] >= 0 and row["ts"] >= 0 for row in work)
    product = next(row for row in work if "matmul" in row["name"])
    assert product["args"]["flops"] >= 2 * 512**3
    assert product["args"]["lines"][0].startswith("test_profile.py:")
    assert any(row["name"] == "memory" and row["ph"] == "C" for row in rows)


def test_calls_back_into_Python_are_events() -> None:
    f = weft.compile(lambda x: weft.py_call(lambda y: y, weft.spec(3), x * 2) + 1, backend="native")
    x = weft.ones(3)
    f(x)
    p = profiled(f, x)
    assert [event.kind for event in p.events if event.kind == "call"] == ["call"]


def test_memory_comes_and_goes() -> None:
    x = weft.ones(1000)
    with weft.profile(roofline=False) as p:
        y = x + 1
        z = y * 2
        del y, z
    levels = np.cumsum([change.bytes for change in p.memory])
    assert levels[-1] < 100  # numbers that were written down as constants stay
    assert p.peak_memory == levels.max() >= 8000


def test_an_error_inside_closes_it() -> None:
    def fails() -> None:
        weft.exp(weft.ones(3))
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"), weft.profile(roofline=False) as p:
        fails()
    assert [event.name for event in p.events if event.kind == "op"][-1] == "exp"
    assert not _instruments
    with weft.profile(roofline=False) as again:
        pass
    assert again.events == []


def test_compiled_functions_of_other_threads() -> None:
    f = weft.compile(lambda x: weft.tanh(x) * 2, backend="native")
    x = weft.ones(3)
    f(x)
    with weft.profile(roofline=False) as p:
        thread = threading.Thread(target=f, args=(x,))
        thread.start()
        thread.join()
    assert sum(event.kind == "run" for event in p.events) == 1


def test_a_function_that_is_first_called_inside() -> None:
    f = weft.compile(lambda x: weft.tanh(x) * 2, backend="native")
    p = profiled(f, weft.ones(3))
    assert [event.kind for event in p.events if event.kind in ("run", "kernel")] == [
        "run",
        "kernel",
    ]
    assert not any(event.kind == "op" for event in p.events)


def test_rows_add_up() -> None:
    peak = Peak(threads=1, flops32=1e9, flops64=5e8, bytes=1e9, cached=2e9, cache=1 << 20)
    events = [
        Event("matmul", "kernel", 0, 2000, 0, "f", (), 1000, 10),
        Event("matmul", "kernel", 3000, 4000, 0, "f", (), 1000, 10, count=3),
        Event("f", "run", 0, 9000, 0, "f"),
    ]
    (row,) = rows_by(events, "op", peak)
    assert (row.name, row.count, row.flops, row.bytes) == ("matmul", 4, 4000, 40)
    assert row.seconds == pytest.approx(3e-6)
    assert row.least == pytest.approx(4e-6)
    assert row.share == pytest.approx(4 / 3)


def test_texts_and_pages(tmp_path: Path) -> None:
    f = weft.compile(newton, backend="native")
    a = weft.asarray([2.0, 3.0])
    f(a)
    with weft.profile() as p:
        f(a)
    text = str(p)
    assert "Ops and kernels" in text
    assert "while abs(x * x - a)" in text
    assert "of roofline" in text
    data = json.loads(json.dumps(p.as_dict()))
    assert set(data["rows"]) == {"op", "line", "module"}
    page = p.view(tmp_path / "profile.html")
    assert "<svg" in (tmp_path / "profile.html").read_text()
    assert page.data["panels"][0]["title"] == "Profile"
    assert repr(p).startswith("<profile:")
    with pytest.raises(RangeError, match="colour"):
        p.rows("colour")


def test_pictures_of_nothing() -> None:
    assert "<svg" in flame_svg([])
    assert memory_svg([]) == ""
    assert "at most 1 kB" in memory_svg([MemoryChange(0, 1000), MemoryChange(5, -1000)])


@pytest.mark.parametrize("clock", [time.CLOCK_MONOTONIC, time.CLOCK_THREAD_CPUTIME_ID])
def test_kernels_are_noted_by_the_clock_that_is_asked_for(clock: int) -> None:
    graph = weft.make_graph(lambda x: weft.sort(x).sum(), weft.spec((1000,)))
    program = TimedProgram(graph, clock=clock)
    before = time.clock_gettime_ns(clock)
    _, raw, beyond = program.profiled([weft.arange(1000) * 1.0])
    after = time.clock_gettime_ns(clock)
    times = [at for ran in read_runs(raw) for at in (ran.start, ran.stop)]
    assert len(times) >= 4
    assert not beyond
    assert times == sorted(times)
    assert before <= times[0]
    assert times[-1] <= after


def test_kernels_of_a_program_for_several_sizes() -> None:
    executable = EXECUTABLES["native"](weft.make_graph(lambda x: weft.tanh(x) * 2, weft.spec("B")))
    with weft.profile(roofline=False) as p:
        for size in (3, 5, 3):
            (found,) = executable.call([weft.ones(size)])
            np.testing.assert_allclose(found.numpy(), 2 * np.tanh(np.ones(size)), rtol=1e-6)
    assert [event.name for event in p.events if event.kind == "kernel"] == ["tanh multiply"] * 3


@weft.custom_op("profiled_slow")
def slow(xp: Any, x: Any) -> Any:
    time.sleep(0.01)
    return x + 1


del OPS["profiled_slow"]  # tables of all cards are about those of Weft


def test_a_dataflow_run_has_a_timeline(tmp_path: Path) -> None:
    @weft.compile(backend=weft.Dataflow("pool", threads=2))
    def f(x: Any) -> Any:
        long = slow(slow(slow(x)))
        while long.sum() < 20:
            long = slow(long)
        return long + slow(x * 2)

    want = f(weft.ones(4)).tolist()
    with weft.profile(roofline=False) as p:
        assert f(weft.ones(4)).tolist() == want
    (timeline,) = p.timelines
    slows = [step for step in timeline.steps if step.node.op.name == "profiled_slow"]
    assert len(slows) == 5
    assert all(step.ready <= step.start < step.stop for step in slows)
    assert [step.where for step in slows].count("in iteration 0 of while_0") == 1
    path = timeline.critical_path()
    assert [step.node.op.name for step in path].count("profiled_slow") == 4
    assert all(a.stop <= b.start for a, b in itertools.pairwise(path))
    assert 0 < timeline.busy()["cpu"] <= 1
    assert timeline.start <= slows[0].start
    assert timeline.stop >= slows[-1].stop
    events = [event for event in p.events if event.name == "profiled_slow"]
    assert [event.critical for event in events].count(True) == 4
    assert all(event.device == "cpu" for event in events)
    trace = json.loads(p.save_trace(tmp_path / "t.json").read_text())
    found = [e["args"] for e in trace["traceEvents"] if e["name"] == "profiled_slow"]
    assert sum("critical path" in args for args in found) == 4
    assert sum(args.get("iteration") == "in iteration 0 of while_0" for args in found) == 1
    assert all(args["waited us"] >= 0 for args in found)
    assert "on the critical path" in str(p)
    page = p.html_fragment()
    assert page.count('aria-label="timeline"') == 1
    picture = page[page.index('<svg class="timeline"') :]
    drawn = ElementTree.fromstring(picture[: picture.index("</svg>") + 6])
    assert len(drawn.findall("g")) == sum(not step.is_control for step in timeline.steps)
