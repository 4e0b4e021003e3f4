"""Sample calls that are recorded as graphs, and how results are compared."""

from __future__ import annotations

from typing import Any

import pytest
from op_calls import flat
from samples import ROWS

CASES = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
    for row in ROWS
    for dtype in row.dtypes()
]


#: Functions that need numbers to know their result's shape: they are recorded by trace only.
NEED_NUMBERS = {"repeat"}


def same(got: Any, want: Any) -> None:
    """Equal in type and in all bits."""
    for a, b in zip(flat(got), flat(want), strict=True):
        assert a.type == b.type
        assert a.numpy().tobytes() == b.numpy().tobytes()
