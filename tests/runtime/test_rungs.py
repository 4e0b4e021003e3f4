"""The ladder of calls: machine code, ctypes, the interpreter. Each gives the same, and what is not
as expected steps down."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_runs import check_program, check_training
from programs import PROGRAMS
from programs.table import Program
from training import CASES
from training.table import Case

import weft
from weft.base.config import CALLS
from weft.codegen import elf
from weft.core import ownership
from weft.core.tensor import Tensor
from weft.ir.signature import OutputRouting
from weft.runtime import native_call, object_layout, outputs, rungs
from weft.runtime.interpreted import InterpretedProgram
from weft.runtime.native import NativeProgram, native
from weft.runtime.output_routing import deliver
from weft.runtime.rungs import RungWarning

#: All programs run on all rungs with WEFT_TEST_RUNGS=1; else each runs on the lower ones in turn.
ALL = os.environ.get("WEFT_TEST_RUNGS") == "1"
LOWER = CALLS[1:]
SOURCE = [program for program in PROGRAMS if "source" in program.supports]


def sampled(rows: list[Any], each: int) -> list[Any]:
    """(rung, row): all of them, or of each rung every so many."""
    if ALL:
        return [(rung, row) for rung in CALLS for row in rows]
    return [(rung, row) for at, rung in enumerate(LOWER) for row in rows[at::each]]


def name(part: Any) -> str:
    return part if isinstance(part, str) else str(part.name)


@pytest.mark.parametrize(("rung", "program"), sampled(SOURCE, 20), ids=name)
def test_programs(rung: str, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CALL", rung)
    check_program(program)


@pytest.mark.parametrize(("rung", "case"), sampled(CASES, 8), ids=name)
def test_training(rung: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CALL", rung)
    check_training(case)


# --- which one it is -----------------------------------------------------------------------------


def step(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return w - x * 2, weft.sum(w * x), x + 1


def made(large: int = 3) -> Any:
    return native(weft.make_graph(step, weft.ones(large), weft.ones(large)), {0: 0})


def check(program: Any, large: int = 3) -> None:
    """Kept results stay as they are, and results go where they belong."""
    w = weft.zeros(large)
    call = program.routed_call(OutputRouting({0: 0})) or (
        lambda inputs: deliver(OutputRouting({0: 0}), inputs, program.call(inputs))
    )
    kept, seen = [], []
    for k in range(5):
        x = weft.full((large,), float(k))
        seen.append(w.numpy().copy())
        kept.append((w.detach(), *call([w, x])))
    for k, (value, total, more) in enumerate(kept):
        np.testing.assert_array_equal(value.numpy(), seen[k])
        np.testing.assert_array_equal(more.numpy(), np.full(large, k + 1.0))
        np.testing.assert_array_equal(total.numpy(), (seen[k] * k).sum())
    np.testing.assert_array_equal(w.numpy(), np.full(large, -20.0))


@pytest.mark.parametrize("large", [3, 30_000])
@pytest.mark.parametrize("rung", CALLS)
def test_a_rung_can_be_forced(rung: str, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CALL", rung)
    program = made(large)
    assert isinstance(program, InterpretedProgram if rung == "interpret" else NativeProgram)
    is_builtin = type(program.call).__name__ == "builtin_function_or_method"
    assert is_builtin == (rung == "machine")
    check(program, large)


def test_a_rung_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CALL", "assembler")
    with pytest.raises(weft.errors.RangeError, match="WEFT_CALL is 'assembler'"):
        made()


@pytest.fixture
def looked_at_anew() -> Iterator[None]:
    """What is found out once in a process is found out again, before and after."""
    found = [
        object_layout.places,
        native_call._ready,
        native_call._counts_are_reliable,
        outputs._counts_are_reliable,
        rungs._best,
    ]
    for kept in found:
        kept.cache_clear()
    yield
    rungs._reasons.clear()
    ownership.calibrate()
    for kept in found:
        kept.cache_clear()


PLACES = ("_list_and_array", "_head", "_first")


@pytest.mark.usefixtures("looked_at_anew")
@pytest.mark.parametrize("which", PLACES)
def test_objects_that_are_laid_out_otherwise(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is not found is a step down to ctypes, without a word."""
    lost = {"_list_and_array": (None, None, None), "_head": (None, 8), "_first": None}
    monkeypatch.setattr(object_layout, which, lambda *_args: lost[which])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = made()
        assert isinstance(program, NativeProgram)
        assert program.routed_call(OutputRouting()) is None
        check(program)
        check(made(30_000), 30_000)


@pytest.mark.usefixtures("looked_at_anew")
@pytest.mark.parametrize("error", [ImportError, AttributeError, ValueError])
def test_a_numpy_without_its_table(error: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_number: int) -> int:
        raise error("no such table")

    monkeypatch.setattr(native_call, "_numpy_function", missing)
    program = made()
    assert program.routed_call(OutputRouting()) is None
    check(program)


@pytest.mark.usefixtures("looked_at_anew")
def test_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning, ctypes, and fresh results."""
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    ownership.calibrate()
    with pytest.warns(RungWarning, match=r"this is Python 3\.99, and this Weft knows Python up to"):
        program = made()
    assert isinstance(program, NativeProgram)
    assert program.routed_call(OutputRouting()) is None
    assert not outputs._counts_are_reliable()
    check(program)


@pytest.mark.usefixtures("looked_at_anew")
def test_no_executable_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_base: int, _size: int) -> None:
        raise elf.NotExecutable("Permission denied")

    monkeypatch.setattr(elf, "_protect", refused)
    with pytest.warns(RungWarning, match="no memory to run code in: Permission denied"):
        program = made()
    assert isinstance(program, InterpretedProgram)
    check(program)
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        assert isinstance(made(4), InterpretedProgram)


#: From Linux 6.3 on a process can give up the right to run what it wrote: PR_SET_MDWE.
HARDENED = """
import ctypes, sys
import weft
from weft.codegen import elf
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
try:
    elf._protect(elf._map(4096), 4096)
    sys.exit(77)
except elf.NotExecutable:
    pass
f = weft.compile(lambda x: x * 2 + 1, backend="native")
print(f(weft.ones(2)).numpy().tolist(), f(weft.zeros(2)).numpy().tolist())
"""


def test_a_process_that_may_not_run_what_it_wrote(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HARDENED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    if done.returncode == 77:
        pytest.skip("this system has no PR_SET_MDWE")
    assert done.stdout == "[3.0, 3.0] [1.0, 1.0]\n", done.stderr
    assert done.stderr.count("RungWarning: this process cannot run code that it makes") == 1
