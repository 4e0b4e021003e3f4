"""Type rules, public functions and derivatives with sizes that are not known.

Every function of the tables in `support/samples` is called with sizes replaced by symbolic ones, in
several ways: each size alone, and all of them. Where the result cannot be said symbolically it is a
clear ShapeError, and the function stands in a table here with the reason.
"""

from __future__ import annotations

import pytest
from samples import ROWS
from samples.table import Row
from symbolic import (
    check_derivatives,
)
from symbolic_rows import AMBIGUOUS, AMBIGUOUS_DERIVATIVES, outcome


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_function(row: Row) -> None:
    """The same numbers, and types that are right once sizes are known."""
    found = outcome(row)
    assert found.passed, f"{row.name} works with no symbolic size"
    if row.name in AMBIGUOUS:
        assert found.refused, f"{row.name} is never ambiguous: take it out of the table"
    else:
        assert not found.refused, found.refused[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_derivatives(row: Row) -> None:
    """The derivative of each op call, with symbolic sizes and with numbers."""
    for recorder, call in outcome(row).calls:
        check_derivatives(recorder, call, AMBIGUOUS_DERIVATIVES)
