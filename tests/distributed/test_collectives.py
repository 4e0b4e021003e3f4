"""Collectives on ranks that are threads; `test_mpi.py` runs the same rows on processes."""

from __future__ import annotations

import collective_rows
import pytest

from weft import distributed


@pytest.mark.parametrize("row", collective_rows.ROWS, ids=lambda row: row.name)
def test_values(row: collective_rows.Row) -> None:
    distributed.run_virtual(collective_rows.RANKS, collective_rows.check_row, row)


def test_messages() -> None:
    distributed.run_virtual(collective_rows.RANKS, collective_rows.check_messages)


@pytest.mark.parametrize(
    "row", [r for r in collective_rows.ROWS if "float64" in r.dtypes], ids=lambda row: row.name
)
def test_gradients(row: collective_rows.Row) -> None:
    distributed.run_virtual(collective_rows.RANKS, collective_rows.check_gradient, row)
