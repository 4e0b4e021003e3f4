"""Each sample row, compiled once, at other sizes: results and gradients are those of eager.

`WEFT_TEST_ALL=1` takes all samples of each row.
"""

from __future__ import annotations

import os

import pytest
from samples import ROWS
from samples.table import Row
from sized_calls import outcome

MOST = None if os.environ.get("WEFT_TEST_ALL") else 1
#: Whether a result is an error depends on values, which compiled code looks at later.
LATER = {"istft": "the sum of windows is 0 somewhere"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row) -> None:
    if row.name in LATER:
        pytest.skip(LATER[row.name])
    assert outcome(row, MOST).differences == []
