"""Processes that MPI starts: `weft run`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path

import collective_rows
import pytest

from weft.distributed import launch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or launch.mpiexec() is None,
    reason="mpi4py and mpich are not installed",
)
SUPPORT = Path(collective_rows.__file__).parent


def run(ranks: int, script: str, *arguments: str, seconds: float = 100) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "weft", "run", "-n", str(ranks), str(SUPPORT / script)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=seconds, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("shared", ["1", "0"], ids=["shared memory", "messages"])
def test_rows_on_four_ranks(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SHARED_MEMORY", shared)
    status, out, error = run(4, "collective_rows.py")
    assert status == 0, error
    rows = len(collective_rows.ROWS)
    for rank in range(4):
        assert f"rank {rank}: {rows} rows" in out


#: Way of failing -> words of the error.
FAILURES = {
    "raises": ["rank 1 of 2 failed", "failing_rank.py", "weft.ones(3) @ weft.ones(4)"],
    "is killed": ["rank 1 of 2 ended with status 9"],
    "is stopped": ["rank 1 is stopped, and rank 0 waits", "in all_reduce sum of float32[4]"],
    "hangs": ["rank 0 waited 3 s for other ranks", "rank 1 works, after 1 messages"],
    "leaves": ["rank 1 has ended its program, and rank 0 waits for it"],
    "differs": ["different collectives: all_", "must run the same program"],
    "differs in machine code": ["all_reduce sum of float32[5] on rank 1"],
    "is stopped in machine code": ["rank 1 is stopped, and rank 0 waits", "in all_reduce sum of"],
}


@pytest.mark.parametrize("way", FAILURES)
def test_a_rank_that_fails_ends_all_within_10_seconds(way: str) -> None:
    status, out, error = run(2, "failing_rank.py", way)
    assert status != 0
    failed = re.search(r"fails at ([\d.]+)", out)
    assert failed
    assert time.time() - float(failed[1]) < 10
    for words in FAILURES[way]:
        assert words in error
    assert "BAD TERMINATION" not in error
