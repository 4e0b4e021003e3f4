"""Programs and training steps as machine code: near to what eager gives.

Sums are added in another order than NumPy's, and functions are rounded differently in the last
place: results agree to some places, and everything else (errors, shapes, dtypes, what is written
where) exactly.
"""

from __future__ import annotations

import random
import warnings

import pytest
from programs import PROGRAMS
from programs.compare import difference
from programs.table import Program
from test_programs import Captured, run
from training import CASES
from training.table import Case, compare, of_weft, train

import weft

#: How far apart results may be, relatively: of float64 and of float32.
NEAR = 1e-9
NEAR_32 = 2e-4

#: Programs whose path turns on the last bit of a number: rounding may take another one.
TURNS_ON_A_BIT: dict[str, str] = {}


def native(function: object) -> object:
    return weft.compile(function, backend="native")


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if "source" in p.supports], ids=lambda p: p.name
)
def test_programs(program: Program) -> None:
    eager = program.make()
    captured = Captured("source", program.make())
    captured.call = native(captured.module)
    calls = list(enumerate(program.calls()))
    again = calls.copy()
    random.Random(program.name).shuffle(again)
    for i, given in [*calls, *again]:
        want = run(program, eager, given, program.second_order)
        got = run(program, captured, given, program.second_order)
        near = max(program.near, NEAR_32 if _is_narrow(given) else NEAR)
        found = difference(want, got, loose=True, gradients_near=10 * near, near=near)
        assert not found, f"call {i}: {found}"


def _is_narrow(given: object) -> bool:
    leaves = weft.tree_leaves((given.args, given.kwargs))  # type: ignore[attr-defined]
    return any(isinstance(x, weft.Tensor) and x.dtype is weft.float32 for x in leaves)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_training_steps(case: Case) -> None:
    want, _ = train(case, of_weft())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, _ = train(case, of_weft(), native)
    compare(got, want, max(case.rtol, 1e-6), max(case.atol, 1e-8))
