"""Processes that MPI starts: `weft run`."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import collective_rows
import mesh_checks
import pytest

from weft.distributed import launch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or launch.mpiexec() is None,
    reason="mpi4py and mpich are not installed",
)
SUPPORT = Path(collective_rows.__file__).parent


RESUME = SUPPORT.parents[1] / "examples" / "resume.py"


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


def test_a_killed_run_goes_on_bit_by_bit(tmp_path: Path) -> None:
    """Kill -9 of a rank when there is a first checkpoint, then in the middle of a run that has
    gone on."""
    steps = "600"

    def killed(folder: Path, known: int) -> None:
        command = [sys.executable, "-m", "weft", "run", "-n", "2", str(RESUME), str(folder), steps]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as training:
            assert training.stdout is not None
            pid = 0
            while not pid:
                line = re.match(rb"rank 1, process (\d+)", training.stdout.readline())
                pid = int(line[1]) if line else 0
            until = time.monotonic() + 60
            while _latest(folder) <= known and time.monotonic() < until:
                time.sleep(0.001)
            os.kill(pid, signal.SIGKILL)
            training.communicate(timeout=30)
            assert training.returncode != 0

    status, whole, error = run(2, str(RESUME), str(tmp_path / "whole"), steps)
    assert status == 0, error
    folder = tmp_path / "killed"
    killed(folder, 0)
    first = _latest(folder)
    assert 0 < first < int(steps)
    killed(folder, first)
    second = _latest(folder)
    assert first < second < int(steps)
    status, rest, error = run(2, str(RESUME), str(folder), steps)
    assert status == 0, error
    assert rest.count(f"goes on from step {second}") == 2
    weights = re.findall("weights [0-9a-f]+", whole)
    assert len(weights) == 2
    assert re.findall("weights [0-9a-f]+", rest) == weights


def _latest(folder: Path) -> int:
    """The step of the last checkpoint."""
    return max(
        (int(p.stem.split("-")[1]) for p in folder.glob("checkpoint-????????.s*")), default=0
    )


@pytest.mark.parametrize(("ranks", "shared"), [(2, "1"), (4, "1"), (2, "0")])
def test_checks(ranks: int, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SHARED_MEMORY", shared)
    status, out, error = run(ranks, "mesh_checks.py")
    assert status == 0, error
    assert f"{len(mesh_checks.CHECKS)} checks" in out


def test_training_with_layouts_on_two_ranks() -> None:
    status, out, error = run(2, "sharded_training.py", "transformer")
    assert status == 0, error
    for way in ("data", "fully sharded", "tensor"):
        assert f"transformer: {way} agrees" in out


def test_1f1b_needs_less_memory_than_gpipe() -> None:
    """The first of two stages holds 16 micro-batches of 3 MB or more, or 2 of them."""
    grown, losses = {}, set()
    for schedule in ("gpipe", "1f1b"):
        status, out, error = run(2, "pipeline_memory.py", schedule)
        assert status == 0, error
        found = re.search(r"rank 0 grew by (\d+) MB", out)
        assert found
        grown[schedule] = int(found[1])
        losses |= set(re.findall(r"loss ([\d.]+)", out))
    assert len(losses) == 1  # the same on all ranks, with both schedules
    assert grown["gpipe"] > 40
    assert grown["1f1b"] < grown["gpipe"] - 25
