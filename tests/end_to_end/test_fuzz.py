"""The fuzzer: fixed seeds in all modes, and that it finds and reduces what is wrong."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest
from fuzzing import graphs, programs
from fuzzing.case import Argument, Case
from fuzzing.check import Result, check
from fuzzing.choices import Choices
from fuzzing.pool import Worker
from fuzzing.reduce import reduced
from fuzzing.report import TEST_HEAD, as_test
from fuzzing.rounding import Noise, explained

import weft
from weft.codegen.sorting import extremes


@pytest.mark.parametrize("seed", range(100))
def test_graphs(seed: int) -> None:
    result = check(graphs.write(seed))
    assert result.state in ("same", "refused", "undecided"), result.text


@pytest.mark.parametrize("seed", range(60))
def test_programs(seed: int) -> None:
    result = check(programs.write(seed))
    assert result.state in ("same", "refused", "invalid", "undecided"), result.text


@pytest.mark.parametrize("write", [graphs.write, programs.write])
def test_cases_are_repeatable_and_pass_between_processes(write: Any) -> None:
    for seed in range(50):
        case = write(seed)
        assert case == write(seed)
        assert Case.from_json(case.to_json()) == case
        ast.parse(case.source)


@pytest.mark.parametrize("seed", range(12))
def test_programs_with_effects(seed: int) -> None:
    result = check(programs.write_effects(seed))
    assert result.state in ("same", "refused", "invalid", "undecided"), result.text


def test_effects_that_are_lost_or_done_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = ("s.log.append(n)", "print(x.item())", "return x * 2")
    case = Case("effect", 1, body, (Argument("x", ()), Argument("n", None)), effects=True)
    assert check(case).state == "same"
    right = weft.compile
    for times in (0, 2):

        def wrong(function: Any, times: int = times, **how: Any) -> Any:
            compiled = right(function, **how)

            def call(x: Any, n: Any) -> Any:
                for _ in range(times):
                    compiled(x, n)
                return x * 2

            return call

        monkeypatch.setattr(weft, "compile", wrong)
        assert check(case).state == "found"


def test_most_cases_run() -> None:
    """What is written is valid: it runs eagerly, but for programs that are meant to raise."""
    for write in (graphs.write, programs.write):
        failed = 0
        for seed in range(100):
            case = write(seed).but(transform="none")
            space: dict[str, Any] = {}
            exec(case.source, space)
            try:
                space["entry"](*case.values(0))
            except (AssertionError, IndexError, UnboundLocalError, ValueError):
                failed += 1
        assert failed <= 12


def _case(*body: str, shape: tuple[int, ...] = (4, 3)) -> Case:
    return Case("graph", 1, body, (Argument("x", shape), Argument("y", shape)), calls=(1, 2))


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _case("t0 = weft.tanh(x) * y", "return (t0.sum(axis=0),)")
    assert check(case).state == "same"
    right = weft.compile

    def wrong(function: Any, **how: Any) -> Any:
        compiled = right(function, **how)
        return lambda *args: tuple(out * (1 + 1e-9) for out in compiled(*args))

    monkeypatch.setattr(weft, "compile", wrong)
    assert check(case).kind == "native: value"


def test_rounding_is_told_from_faults() -> None:
    """A sum that cancels may be off by what rounding does to its terms, and by no more."""
    rng = np.random.default_rng(0)
    terms = rng.standard_normal(1000).astype(np.float32)
    terms[-1] = -terms[:-1].sum(dtype=np.float64)
    want = np.asarray(terms.sum(dtype=np.float32))

    def again(seed: int | None, _: Choices) -> list[Any]:
        if seed is None:
            return [want]
        noise = np.random.default_rng(seed).uniform(-2, 2, 1000) * 2**-23
        return [np.asarray((terms * (1 + noise)).sum(), np.float32)]

    other_order = np.asarray(np.cumsum(terms[::-1])[-1])
    assert explained([want], [other_order], again) == -1
    assert explained([want], [want + np.float32(1e-3)], again) == 0


@pytest.mark.parametrize(
    "centered",
    [
        "F.group_norm(weft.sigmoid(t * 0 + 1)[None, None], 1, eps=0.1)",  # several results
        "(t - t.mean()) / weft.sqrt(t.var() + 1e-3)",
        "(t - t.sum() / 10000) * 30",
    ],
)
def test_long_sums_that_are_subtracted(monkeypatch: pytest.MonkeyPatch, centered: str) -> None:
    """Of equal numbers only the rounding of their sum is left. A wrong term is still found."""
    body = ("t = weft.broadcast_to(weft.sigmoid(x), (100, 100))", f"return ({centered},)")
    arguments = (Argument("x", (1, 1), "float64"),)
    case = Case("graph", 1, body, arguments, calls=(671, *range(5)))
    result = check(case)
    assert result.state == "same", result.text
    right = weft.compile

    def wrong(function: Any, **how: Any) -> Any:
        compiled = right(function, **how)
        return lambda *args: tuple(out + 1e-9 for out in compiled(*args))

    monkeypatch.setattr(weft, "compile", wrong)
    assert check(case).kind == "native: value"


def _case_of_equal_rows(*body: str) -> Case:
    """All rows of the attention are equal but for rounding."""
    rows = "rows = F.scaled_dot_product_attention(weft.broadcast_to(q, (5, 2)), k, v)"
    arguments = (Argument("q", (1,)), Argument("k", (8, 2)), Argument("v", (8, 8)))
    return Case("graph", 1, (rows, *body), arguments, calls=(360,))


@pytest.mark.parametrize(
    "chosen",
    [
        "weft.argmax(rows, axis=0)",
        "weft.argsort(rows, axis=0, descending=True)",
        "v[weft.argmax(rows, axis=0)].sum()",
        "rows == rows[:1]",
        "weft.floor(rows / rows[1])",
        "(weft.argmin(rows, axis=0) > 0).any()",
        "weft.grad(lambda v: (F.max_pool1d(v.T[None], 5) * weft.cos(v[:1].T)).sum())(rows)",
    ],
)
def test_choices_that_rounding_decides_are_not_judged(chosen: str) -> None:
    """Eager and native rows round differently, and so what is chosen among them may differ."""
    result = check(_case_of_equal_rows(f"return ({chosen},)"))
    assert result.state in ("same", "undecided"), result.text


def test_a_choice_by_rounding_is_undecided() -> None:
    case = _case_of_equal_rows(
        "return (weft.any((weft.argmax(rows, axis=0) > 0) & (v[2] < 1)),)"
    ).but(calls=tuple(range(360, 372)))
    assert check(case).state == "undecided"


def test_functions_that_are_called_have_branches() -> None:
    """Which side of a branch has a history is known to nobody before the run."""
    arguments = (Argument("v", (1,), "float64", grad=False), Argument("q", (1,), "float64"))
    case = Case(
        "program", 489, ("v = chosen(v, q * 1)", "return (v,)"), arguments, calls=(489, 1, 2)
    )
    assert check(case).state == "same"


def _off_by_one(side: Any, key: Any) -> None:
    best, now = side.get(side.best), side.get(side.now)
    better = key > best
    side.now.store((now + 1).name)
    side.best.store(better.pick(key, best).name)
    side.when.store(better.pick(now, side.get(side.when)).name)


@pytest.mark.parametrize(
    ("line", "values"),
    [("t = x", "normal"), ("t = x", "small integers"), ("t = weft.tanh(x @ y.T)", "normal")],
)
def test_a_wrong_index_is_found(monkeypatch: pytest.MonkeyPatch, line: str, values: str) -> None:
    """An argmax of numbers that rounding does not decide among; of equal integers the first."""
    arguments = (Argument("x", (9, 7), values=values), Argument("y", (9, 7), values=values))
    case = Case("graph", 1, (line, "return (t.argmax(axis=0),)"), arguments, calls=(1, 2))
    monkeypatch.setenv("WEFT_CACHE", "0")
    assert check(case).state == "same"
    monkeypatch.setattr(extremes._Lanes, "see", _off_by_one)
    assert check(case).kind == "native: value"


@pytest.mark.parametrize(("result", "state"), [("x * 2", "invalid"), ("x + a", "found")])
def test_an_index_that_nobody_uses_need_not_raise(
    monkeypatch: pytest.MonkeyPatch, result: str, state: str
) -> None:
    """If something uses the element and nothing is raised, that is found."""
    body = ("a = x * 0", "m = 2 * n", "a = v[m]", f"a = {result}", "return a")
    case = Case("program", 1, body, (Argument("x", ()), Argument("v", (4,)), Argument("n", None)))
    case = case.but(arguments=(*case.arguments[:2], Argument("n", None, below=4, fixed=3)))
    right = weft.compile

    def wrong(function: Any, **how: Any) -> Any:
        compiled = right(function, **how)
        return compiled if "capture" not in how else lambda x, v, _n: compiled(x, v, 1)

    monkeypatch.setattr(weft, "compile", wrong)
    assert check(case).state == state


def test_noise_leaves_infinities() -> None:
    special = [np.inf, -np.inf, np.nan, 0.0]
    noisy = Noise(0, Choices()).noisy(weft.asarray([*special, *[1.0] * 9])).numpy()
    np.testing.assert_array_equal(noisy[:4], special)
    assert (noisy[4:] != 1).any()


def test_a_crash_and_a_hang_are_answers() -> None:
    worker = Worker()
    try:
        crash = _case("import os", "os.abort()", "return (x,)")
        assert worker.check(crash).kind == "crash: SIGABRT"
        hang = _case("import time", "time.sleep(60)", "return (x,)")
        assert worker.check(hang, timeout=1.0).kind == "hang"
        assert worker.check(_case("return (x + y,)")).state == "same"
    finally:
        worker.stop()


class _Faulty:
    """A worker that crashes, hangs, makes the fuzzer itself fail, or says that all is well."""

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        kinds = {3: "crash: SIGSEGV", 4: "hang"}
        if job["seed"] == 5:
            raise RuntimeError("no such worker")
        kind = kinds.get(job["seed"], "")
        return {"state": "found" if kind else "same", "kind": kind, "text": ""}

    def check(self, case: Case, timeout: float) -> Result:
        return Result("found", "hang" if case.seed == 4 else "crash: SIGSEGV")

    def stop(self) -> None:
        pass


def test_a_run_goes_on_and_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of six cases one is a program; a run of so many cases ends when they are done, however long
    that takes, and whatever happens to a worker."""
    monkeypatch.setattr(fuzz, "Worker", _Faulty)
    words = ["--cases", "12", "--seed", "0", "--jobs", "2", "--no-reduce"]
    words += ["--summary", str(tmp_path / "said")]
    assert fuzz.parsed(words).minutes == math.inf
    assert fuzz.parsed([]).minutes == 2
    assert fuzz.main(words) == 1
    said = capsys.readouterr().out
    assert "RuntimeError: no such worker" in said
    assert "9 graphs: 7 same (77.78 %), 2 found" in said
    assert "2 programs: 2 same" in said
    assert "11 cases: 3 found, 2 of them different; 0 refused (0.00 %)" in said
    kept = (tmp_path / "said").read_text()
    assert "found     1  crash: SIGSEGV  (--graph 3)" in kept
    assert "def test_crash_sigsegv_graph_3" in kept
    assert "seeds 0 to 11 have run" in kept


def test_a_run_that_is_cut_short_says_how_to_go_on() -> None:
    """Whatever order the cases end in, and also where the rest begins within six."""
    run = fuzz.Run(fuzz.parsed(["--cases", "12", "--seed", "60"]))
    for number in (0, 3, 1):
        run.note_done(number)
    assert run.summary()[-2:] == [
        "seeds 60 to 61 have run",
        "to go on: --seed 62 --cases 10; 1 of these have run",
    ]
    kinds = [fuzz.kind_of(seed, run.options) for seed in range(60, 72)]
    assert kinds == (["program"] + ["graph"] * 5) * 2


def test_reduction() -> None:
    """All that has nothing to do with the failure goes, and the test that is printed runs."""
    case = programs.write(7).but(
        body=(
            "a = x * 1.0",
            "w = v * 0.5",
            "for i in range(3):",
            "    if a > 0:",
            "        w = weft.tanh(w + weft.erfc(v * 2) * a)",
            "    a = a * 0.5",
            "return a, w",
        )
    )

    def fails(candidate: Case) -> bool:
        return "erfc" in candidate.source and ast.parse(candidate.source) is not None

    small = reduced(case, fails, lambda _: {}, seconds=20)
    assert len(small.body) <= 2
    assert len("".join(small.body)) < 40
    text = as_test(small, Result("found", "native: value", "something"))
    space: dict[str, Any] = {}
    exec(f"{TEST_HEAD}\n{text}", space)
    assert sum(name.startswith("test_") for name in space) == 1
