"""The fuzzer: fixed seeds in all modes, and that it finds and reduces what is wrong."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from fuzzing import graphs, programs
from fuzzing.case import Argument, Case
from fuzzing.check import Result, check
from fuzzing.pool import Worker
from fuzzing.reduce import reduced
from fuzzing.report import TEST_HEAD, as_test
from fuzzing.rounding import explained

import weft


@pytest.mark.parametrize("seed", range(100))
def test_graphs(seed: int) -> None:
    result = check(graphs.write(seed))
    assert result.state in ("same", "refused"), result.text


@pytest.mark.parametrize("seed", range(60))
def test_programs(seed: int) -> None:
    result = check(programs.write(seed))
    assert result.state in ("same", "refused", "invalid"), result.text


@pytest.mark.parametrize("write", [graphs.write, programs.write])
def test_cases_are_repeatable_and_pass_between_processes(write: Any) -> None:
    for seed in range(50):
        case = write(seed)
        assert case == write(seed)
        assert Case.from_json(case.to_json()) == case
        ast.parse(case.source)


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
            except (AssertionError, IndexError, UnboundLocalError):
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

    def again(seed: int) -> list[Any]:
        noise = np.random.default_rng(seed).uniform(-2, 2, 1000) * 2**-23
        return [np.asarray((terms * (1 + noise)).sum(), np.float32)]

    other_order = np.asarray(np.cumsum(terms[::-1])[-1])
    assert explained([want], [other_order], again) == -1
    assert explained([want], [want + np.float32(1e-3)], again) == 0


def test_a_crash_and_a_hang_are_answers() -> None:
    worker = Worker()
    try:
        crash = _case("import os", "os.abort()", "return (x,)")
        assert worker.check(crash).kind == "crash: SIGABRT"
        hang = _case("import time", "time.sleep(60)", "return (x,)")
        assert worker.check(hang, timeout=3.0).kind == "hang"
        assert worker.check(_case("return (x + y,)")).state == "same"
    finally:
        worker.stop()


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
