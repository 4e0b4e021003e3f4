"""`weft.explain`, the stages of graphs, the code of kernels: what they say is compared with counts
made here by hand, and with what the functions themselves do."""

from __future__ import annotations

import html.parser
import io
import itertools
import json
import re
import sys
from typing import Any

import numpy as np
import pytest
from explained import BACKENDS, flowing, helper, line_of

import weft
from weft import nn
from weft.inspect.explain.report import Report
from weft.inspect.explain.style import bar, shown_bytes, shown_flops, shown_seconds, sparkline
from weft.schedule.memory import ALIGN


def lines(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["place"]["line"] for row in rows)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        return self.second(weft.relu(self.first(x)))


def training(backend: str | None = None) -> tuple[Any, Any, Any, Any]:
    weft.manual_seed(0)
    model = Counting()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = weft.rand((32, 8)), weft.arange(32) % 3

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return weft.compile(step, backend=backend), model, x, y


# --- how it was captured -------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_control_flow_is_reported_line_by_line(backend: str) -> None:
    found = weft.compile(flowing, backend=backend).explain(weft.ones((4, 4)))["capture"]
    assert lines(found["branches"]) == [line_of(flowing, "if x.sum() > 0")]
    assert found["branches"][0]["sides"].keys() == {"then", "else"}
    kept = {row["place"]["line"]: (row["op"], row["rounds"]) for row in found["loops"]}
    assert kept == {
        line_of(flowing, "for _ in range(3)"): ("scan", 3),
        line_of(flowing, "while x.sum() > 1"): ("while", None),
    }
    unrolled = {row["place"]["line"]: (row["rounds"], row["why"]) for row in found["unrolled"]}
    assert unrolled == {
        line_of(flowing, "for factor"): (2, "it iterates over a Python list"),
        line_of(flowing, "while k < 4"): (4, "its condition is a Python value"),
    }
    decided = {row["place"]["line"]: row["answers"] for row in found["decided"]}
    assert decided == {line_of(flowing, "if flag"): [True]}
    assert "helper" in [row["function"] for row in found["followed"]]
    assert lines(found["python"]) == [line_of(flowing, "py_call")]
    assert "lambda" in found["python"][0]["what"]


def test_a_loop_that_does_not_fit_says_why_it_is_unrolled() -> None:
    def grows(x: Any) -> Any:
        for _ in range(3):
            x = weft.concat([x, x])
        return x

    (row,) = weft.explain(grows, weft.ones(2))["capture"]["unrolled"]
    assert row["rounds"] == 3
    assert row["place"]["line"] == line_of(grows, "for _")
    assert "cannot be one node" in row["why"]


def test_a_loop_asked_to_be_unrolled_says_so() -> None:
    def asked(x: Any) -> Any:
        for _ in weft.unroll(range(5)):
            x = x + 1
        return x

    (row,) = weft.explain(asked, weft.ones(2))["capture"]["unrolled"]
    assert (row["rounds"], row["why"]) == (5, "it is unrolled by weft.unroll")


def test_traced_functions_report_their_questions() -> None:
    def chooses(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else -x

    traced = weft.trace(chooses)
    traced(weft.ones(3))
    report = weft.explain(traced, -weft.ones(3))
    (question,) = report["capture"]["questions"]
    assert question["what"] == "bool"
    assert sorted(question["answers"]) == ["False", "True"]
    assert report["recordings"][0]["reason"] == "the first call"
    assert "bool of a tensor" in report["recordings"][1]["reason"]
    assert report["capture_by"] == "trace"


def test_recordings_are_counted_one_at_a_time() -> None:
    def f(x: Any, long: bool) -> Any:
        y = weft.sin(x)
        return weft.exp(weft.cos(y)) if long else y

    compiled = weft.compile(f)
    for long in (False, True, True):
        compiled(weft.ones(3), long)
    report = compiled.explain()
    assert [program["recording"] for program in report["programs"]] == [0, 1]
    text = str(report)
    assert "recording 0: 1 ops recorded" in text
    assert "recording 1: 3 ops recorded" in text
    assert "of recording 1, program 1 (f)" in text
    again = str(compiled.explain(weft.ones(3), False))
    assert "recording 0: 1 ops recorded" in again
    assert "recording 1: 3 ops recorded" not in again  # this call did not run it


def test_a_backward_is_part_of_its_recording() -> None:
    compiled = weft.compile(lambda x: (weft.sin(x) * x).sum())
    for size in (3, 4, 4):
        x = weft.ones(size)
        x.requires_grad = True
        compiled(x)
    y = compiled(x)
    y.backward()
    assert [program["recording"] for program in compiled.explain()["programs"]] == [0, 1, 1]


def test_recompiles_and_their_causes() -> None:
    compiled = weft.compile(lambda x, k: x * k)
    compiled(weft.ones(3), 2)
    compiled(weft.ones(4), 2)
    compiled(weft.ones(4), 5)
    compiled(weft.ones(4), 5)
    report = compiled.explain()
    reasons = [row["reason"] for row in report["recordings"]]
    assert reasons[0] == "the first call"
    assert reasons[1].startswith("x was ")
    assert reasons[2].startswith("k was ")
    assert report["calls"]["hits"] == 1
    assert any("type(k) is int" in guard["holds"] for guard in report["guards"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_of_a_training_step(backend: str) -> None:
    step, model, x, y = training(backend)
    step(x, y)
    report = step.explain(x, y)
    written = {row["what"]: row["written"] for row in report["state"]["written"]}
    weights = [f"model.{name}" for name, _ in model.named_parameters()]
    assert all(written[name] == ["value", "gradient"] for name in weights)
    moments = [name for name in written if "momentum" in name]
    assert len(moments) == len(weights)
    rates = [r["what"] for r in report["state"]["read"] if not r["argument"]]
    assert any('["lr"]' in name for name in rates)
    if backend == "native":
        names = {row["name"] for row in report["programs"][-1]["in_place"]}
        assert len(names) == 2 * len(weights)


# --- a report does what a call does, and no more -------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_report_calls_the_function_once(backend: str) -> None:
    calls: list[float] = []
    step, model, x, y = training(backend)
    other, twin, _, _ = training(backend)
    for _ in range(2):
        step(x, y)
        other(x, y)
    step.explain(x, y)
    other(x, y)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert np.array_equal(mine.numpy(), theirs.numpy())

    def counts(x: Any) -> Any:
        calls.append(1.0)
        return x + 1

    weft.explain(counts, weft.ones(2))
    assert calls == [1.0]


def test_without_arguments_nothing_is_run() -> None:
    seen: list[int] = []

    def notes(x: Any) -> Any:
        seen.append(0)
        return x * 2

    compiled = weft.compile(notes)
    compiled(weft.ones(2))
    before = compiled.cache_info()
    report = compiled.explain()
    assert seen == [0]
    assert compiled.cache_info() == before
    assert report["programs"][0]["measured"] is None


def test_what_has_never_run_is_a_clear_error() -> None:
    compiled = weft.compile(lambda x: x)
    with pytest.raises((weft.errors.CaptureError, TypeError)):
        compiled.explain()
    with pytest.raises(weft.errors.CaptureError, match="has not been called"):
        compiled.kernels()


def test_modules_and_plain_functions() -> None:
    report = weft.explain(Counting(), weft.ones((2, 8)))
    assert report["place"]["text"].startswith("def forward")
    assert {row["what"] for row in report["state"]["read"] if not row["argument"]} == {
        "self.first.weight",
        "self.first.bias",
        "self.second.weight",
        "self.second.bias",
    }
    assert weft.explain(helper, weft.ones(3))["name"] == "helper"


# --- figures -------------------------------------------------------------------------------------


def scanned(x: Any) -> Any:
    return weft.scan(lambda c, _: (c * 2 + 1, None), x, None, length=100)[0]


def chosen(x: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda a: a @ a, lambda a: a + 1, x)


def looping(x: Any) -> Any:
    while x.sum() > 1:
        x = x / 3
    return x


#: function, shapes of arguments, flops and bytes by hand: (2·m·k·n; what is read and written once)
WORK = [
    (lambda a, b: a @ b, [(32, 64), (64, 16)], 2 * 32 * 64 * 16, 4 * (32 * 64 + 64 * 16 + 32 * 16)),
    (
        lambda a, b, c: weft.relu(a @ b + c),
        [(32, 64), (64, 16), (16,)],
        2 * 32 * 64 * 16 + 2 * 32 * 16,
        4 * (32 * 64 + 64 * 16 + 16 + 32 * 16),
    ),
    (lambda a: weft.exp(a) * a + a, [(100, 10)], 3 * 1000, 2 * 4000),
    (lambda a: a.sum(axis=1), [(100, 10)], 1000, 4 * (1000 + 100)),
    (lambda a, b: a + b, [(100, 10), (10,)], 1000, 4 * (1000 + 10 + 1000)),
    (scanned, [(1000,)], 100 * 2 * 1000, None),
    (chosen, [(16, 16)], 2 * 16**3 + 16 * 16 + 1, None),
    (looping, [(50,)], 50 + 1 + 50, None),
]


@pytest.mark.parametrize("case", range(len(WORK)))
def test_flops_and_bytes_as_counted_by_hand(case: int) -> None:
    function, shapes, flops, moved = WORK[case]
    args = [weft.ones(shape) * 0.01 for shape in shapes]
    report = weft.explain(weft.compile(function, backend="native"), *args)
    work = report["programs"][-1]["work"]
    assert work["flops"] == flops
    if moved is not None:
        assert work["bytes"] == moved
    assert work["open"] is (function is looping)
    assert work["roofline"] > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_measured_times_and_shares_go_together(backend: str) -> None:
    compiled = weft.compile(lambda a: a @ a, backend=backend)
    report = compiled.explain(weft.ones((64, 64)))
    (program,) = report["programs"]
    assert program["measured"] > 0
    work, machine = program["work"], report["machine"]
    assert work["share"] == pytest.approx(work["roofline"] / program["measured"])
    least = max(work["flops"] / machine["flops32"], work["bytes"] / machine["cached"])
    assert work["roofline"] == pytest.approx(least)
    assert machine["flops32"] > 1e8
    assert machine["bytes"] > 1e7


def test_what_prints_is_not_run_again_to_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    def prints(x: Any) -> Any:
        weft.print("seen", x.sum())
        return x + 1

    report = weft.explain(weft.compile(prints, backend="native"), weft.ones(2))
    assert capsys.readouterr().out.count("seen") == 1
    assert report["programs"][0]["measured"] is None


@pytest.mark.parametrize("which", ["step", "flow"])
def test_the_memory_plan_holds_together(which: str) -> None:
    if which == "step":
        compiled, _, x, y = training("native")
        report = compiled.explain(x, y)
    else:
        report = weft.compile(flowing, backend="native").explain(weft.ones((4, 4)))
    memory = report["programs"][-1]["memory"]
    values = memory["values"]

    def room(size: int) -> int:
        return max(ALIGN, -(-size // ALIGN) * ALIGN)

    assert max(row["offset"] + room(row["bytes"]) for row in values) == memory["peak"]
    steps = len(memory["timeline"])
    alive = [[row for row in values if row["first"] <= s <= row["last"]] for s in range(steps)]
    assert [sum(room(row["bytes"]) for row in rows) for rows in alive] == memory["timeline"]
    assert memory["lower_bound"] == max(memory["timeline"])
    for rows in alive:  # nothing lies on top of anything else
        ends = sorted((row["offset"], row["offset"] + row["bytes"]) for row in rows)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    at = memory["timeline"].index(max(memory["timeline"]))
    assert memory["at"] == at
    assert sum(row["bytes"] for row in memory["alive"]) == sum(row["bytes"] for row in alive[at])


@pytest.mark.parametrize("backend", BACKENDS)
def test_passes_follow_each_other(backend: str) -> None:
    compiled = weft.compile(lambda x: (x * 1 + x / 4) - (x / 4) * 0.5, backend=backend)
    program = compiled.explain(weft.ones(3))["programs"][0]
    rows = program["passes"]
    assert rows[0]["before"] == program["captured"]
    assert rows[-1]["after"] == program["optimized"]
    assert all(a["after"] == b["before"] for a, b in itertools.pairwise(rows))
    assert {"cse", "algebra", "strength"} <= {row["name"] for row in rows}
    assert all(row["note"] and row["seconds"] >= 0 for row in rows)


def test_stages_of_compile_time_add_up() -> None:
    compiled = weft.compile(lambda x: weft.tanh(x) @ x, backend="native")
    report = compiled.explain(weft.ones((8, 8)))
    stages = report["compile"]
    assert stages["record"] > 0
    assert stages["load"] > 0
    assert all(seconds >= 0 for seconds in stages.values())
    whole = report["recordings"][0]["seconds"]
    assert sum(stages.values()) <= whole * 1.05 + 0.01 or len(compiled.programs) > 1


def test_recomputation_is_that_of_the_splits() -> None:
    weights = weft.tensor(np.full((16, 16), 0.1, np.float32), requires_grad=True)

    def deep(x: Any) -> Any:
        for _ in weft.unroll(range(4)):
            x = weft.exp(weft.tanh(x @ weights))
        return x

    compiled = weft.compile(deep, memory_budget=0.8)
    report = compiled.explain(weft.ones((16, 16)))
    (row,) = report["recomputation"]
    (split,) = compiled.splits()
    assert (row["saved"], row["again"]) == (len(split.saved), len(split.recomputed))
    assert row["peak"] == split.peak
    assert row["budget"] == 0.8
    assert lines(row["lines"]) == [line_of(deep, "x @ weights")]


# --- reasons -------------------------------------------------------------------------------------


#: function, what a kernel other than the first says
REASONS = [
    (lambda a: weft.relu(a @ a).sum(axis=1), "tiles"),
    (lambda a: weft.sort(a, axis=0) + 1, "code of its own"),
    (lambda a: (a * 2).sum(axis=0) * 3 + 1, "only after those loops"),
    (lambda a: weft.real(weft.fft.fft(a)), "Python is called"),
]


@pytest.mark.parametrize("case", range(len(REASONS)))
def test_reasons_of_the_fusion(case: int) -> None:
    function, expected = REASONS[case]
    compiled = weft.compile(function, backend="native")
    report = compiled.explain(weft.rand((64, 64)) + 0.1)
    kernels = report["programs"][-1]["kernels"]
    said = [row["why"] for kernel in kernels for row in kernel["why"]]
    assert any(expected in why for why in said), said
    ops = [node.op.name for kernel in compiled.kernels() for node in kernel.nodes]
    assert [row["op"] for kernel in kernels for row in kernel["why"]] == ops


def test_one_kernel_needs_no_reasons_but_its_own() -> None:
    report = weft.compile(lambda a: weft.exp(weft.tanh(a)) * 2, backend="native").explain(
        weft.ones(100)
    )
    (kernel,) = report["programs"][0]["kernels"]
    assert kernel["ops"] == ["tanh", "exp", "multiply"]
    assert [row["joined"] for row in kernel["why"]] == [False, True, True]


# --- as text, as a dict, as a page ---------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> Report:
    return weft.compile(flowing, backend="native").explain(weft.ones((4, 4)))


def test_text_has_the_summary_first(report: Report) -> None:
    text = str(report)
    first = text.partition("\n\n")[0]
    assert first.startswith("flowing\n")
    assert "ops recorded" in first
    assert "of memory while it runs" in first
    for title in ("Captured", "Guards", "State", "Passes", "Kernels", "Fused", "Memory"):
        assert re.search(f"^{title}", text, re.MULTILINE), title
    assert "Time to compile" in text
    assert f"explained.py:{line_of(flowing, 'if x.sum() > 0')}" in text
    assert "while x.sum() > 1:" in text
    assert max(map(len, report.text(width=90).splitlines())) <= 200
    assert "\x1b[" not in text


def test_colour_is_for_terminals(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = str(report)
    assert "\x1b[1m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in str(report)
    monkeypatch.undo()
    plain = re.sub(r"\x1b\[\d*m", "", report.text(colour=True))
    assert plain == report.text(colour=False)


def test_the_report_is_typed(report: Report) -> None:
    (branch,) = report.capture.branches
    assert branch.place is not None
    assert branch.place.text == "if x.sum() > 0:"
    assert report.programs[0].kernels[0].flops == report["programs"][0]["kernels"][0]["flops"]
    with pytest.raises(KeyError):
        report["text"]


def test_the_dict_is_json_and_ones_own(report: Report) -> None:
    data = report.as_dict()
    assert json.loads(json.dumps(data)).keys() == data.keys()
    data["programs"].clear()
    assert report["programs"]


class Page(html.parser.HTMLParser):
    VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_is_well_formed_and_alone(report: Report, whole: bool) -> None:
    text = report.html() if whole else report._repr_html_()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.links == []
    assert "http" not in text
    assert "<script" not in text
    assert text.startswith("<!doctype html>") is whole
    assert "if x.sum() > 0:" in " ".join(page.texts)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (shown_bytes(0), "0 B"),
        (shown_bytes(999), "999 B"),
        (shown_bytes(1536), "1.54 kB"),
        (shown_bytes(2_000_000), "2 MB"),
        (shown_flops(2_621_440), "2.62 Mflop"),
        (shown_seconds(0.00125), "1.25 ms"),
        (shown_seconds(2.5e-7), "250 ns"),
        (shown_seconds(None), "–"),
        (bar(0.5, 4), "██  "),
        (bar(0.0, 3), "   "),
        (bar(1e-9, 3), "▏  "),
        (bar(7.0, 3), "███"),
        (sparkline([0, 1, 2]), "▁▅█"),
        (sparkline([]), ""),
    ],
)
def test_numbers_and_bars(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_the_dataflow_executor_is_named() -> None:
    @weft.compile(backend="dataflow")
    def f(x: Any) -> Any:
        return weft.sin(x) + 1

    f(weft.ones(3))
    text = str(weft.explain(f))
    assert "run by the dataflow executor" in text
    assert "node by node" in text
