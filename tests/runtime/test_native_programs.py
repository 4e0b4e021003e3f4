"""Programs and training steps as machine code: near to what eager gives.

Sums are added in another order than NumPy's, and functions are rounded differently in the last
place: results agree to some places, and everything else (errors, shapes, dtypes, what is written
where) exactly.
"""

from __future__ import annotations

import pytest
from native_runs import check_program, check_training
from programs import PROGRAMS
from programs.table import Program
from training import CASES
from training.table import Case


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if "source" in p.supports], ids=lambda p: p.name
)
def test_programs(program: Program) -> None:
    check_program(program)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_training_steps(case: Case) -> None:
    check_training(case)
