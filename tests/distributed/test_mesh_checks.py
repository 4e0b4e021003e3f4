"""Checks of programs over a mesh, on ranks that are threads; `test_mpi.py` makes them by MPI."""

from __future__ import annotations

import pytest
from mesh_checks import CHECKS

from weft import distributed


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str, ranks: int) -> None:
    distributed.run_virtual(ranks, CHECKS[name])
