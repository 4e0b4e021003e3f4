"""Every op on the device "cuda" against the CPU: on a GPU, or on CuPy's stand-in."""

from __future__ import annotations

import pytest
from cuda_device import REAL, cuda
from cuda_samples import DRAWS, differences, same_draws
from samples import ROWS
from samples.table import Row

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


@pytest.mark.skipif(REAL, reason="tools/gpu_check.py does it, with many processes")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_values_and_gradients(row: Row) -> None:
    for dtype in row.dtypes():
        assert list(differences(row, dtype)) == []


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_the_same_bits(name: str) -> None:
    assert same_draws(name)
