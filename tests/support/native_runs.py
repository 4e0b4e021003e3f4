"""Programs and training steps as machine code beside eager ones."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

from program_runs import Captured, run
from programs.compare import difference
from programs.table import Program
from training.table import Case, compare, of_weft, train

import weft

#: How far apart results may be, relatively: of float64 and of float32.
NEAR = 1e-9
NEAR_32 = 2e-4


def native(function: object) -> object:
    return weft.compile(function, backend="native")


def check_program(program: Program, capture: Callable[[object], object] = native) -> None:
    eager = program.make()
    captured = Captured("source", program.make())
    captured.call = capture(captured.module)
    calls = list(enumerate(program.calls()))
    again = calls.copy()
    random.Random(program.name).shuffle(again)
    for i, given in [*calls, *again]:
        want = run(program, eager, given, program.second_order)
        got = run(program, captured, given, program.second_order)
        near = max(program.near, NEAR_32 if is_narrow(given) else NEAR)
        found = difference(want, got, loose=True, gradients_near=10 * near, near=near)
        assert not found, f"call {i}: {found}"


def check_training(case: Case) -> None:
    want, _ = train(case, of_weft())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, _ = train(case, of_weft(), native)
    compare(got, want, max(case.rtol, 1e-6), max(case.atol, 1e-8))


def is_narrow(given: object) -> bool:
    leaves = weft.tree_leaves((given.args, given.kwargs))  # type: ignore[attr-defined]
    return any(isinstance(x, weft.Tensor) and x.dtype is weft.float32 for x in leaves)
