"""Each sample row, compiled once, at other sizes: results and gradients are those of eager.

`WEFT_TEST_ALL=1` takes all samples of each row, also in machine code.
"""

from __future__ import annotations

import pytest
from samples import ROWS
from samples.table import Row
from sized_calls import ALL, chosen, outcome

MOST = None if ALL else 1
#: Whether a result is an error depends on values, which compiled code looks at later.
LATER = {"istft": "the sum of windows is 0 somewhere"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row) -> None:
    if row.name in LATER:
        pytest.skip(LATER[row.name])
    assert outcome(row, MOST).differences == []


@pytest.mark.parametrize("row", [r for r in ROWS if chosen(12, r.name)], ids=lambda row: row.name)
def test_machine_code(row: Row) -> None:
    if row.name in LATER:
        pytest.skip(LATER[row.name])
    assert outcome(row, MOST, "native").differences == []
