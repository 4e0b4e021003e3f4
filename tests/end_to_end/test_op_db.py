"""PyTorch's own samples of its 702 ops, called through `weft.torch`: values, dtypes, gradients."""

from __future__ import annotations

import pytest
from op_db_calls import run, stored_calls
from op_db_rows import EAGER_ONLY, NOT_COVERED

REASONS = {name: reason for reason, names in NOT_COVERED.items() for name in names}
COVERED = sorted(name for name in stored_calls() if name not in REASONS)


def test_every_op_is_covered_or_has_a_reason() -> None:
    assert len(stored_calls()) == 702
    assert set(REASONS) <= set(stored_calls())
    assert sum(map(len, NOT_COVERED.values())) == len(REASONS), "an op has two reasons"
    assert len(COVERED) >= 520
    assert all(stored_calls()[name] for name in COVERED)


@pytest.mark.parametrize("name", COVERED)
def test_as_in_pytorch(name: str) -> None:
    for call in stored_calls()[name]:
        run(name, call)


@pytest.mark.parametrize("name", [name for name in COVERED if name not in EAGER_ONLY])
def test_compiled_as_in_pytorch(name: str) -> None:
    run(name, stored_calls()[name][0], compiled="native")
