"""`weft run -n 4 train.py`: start a script on several ranks."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, TextIO

from weft.base.errors import DistributedError
from weft.distributed.run_folder import VARIABLE, RunFolder

__all__ = ["launch"]

#: Those who start several processes set one of these: then the script just runs.
STARTED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")

PATIENCE = 2.0  # seconds that mpiexec has to end all ranks, before they are killed


def launch(ranks: int, script: str, arguments: Sequence[str]) -> int:
    """Run a script on so many ranks; returns the exit status of the run."""
    command = [sys.executable, script, *arguments]
    if ranks == 1 or any(name in os.environ for name in STARTED):
        return subprocess.call(command)
    starter = mpiexec()
    if starter is None:
        raise DistributedError("there is no mpiexec", hint='pip install "weft[mpi]" brings one')
    with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
        environment = {**os.environ, VARIABLE: folder}
        # Ranks share the cores: each has its part of them, unless the user says otherwise.
        environment.setdefault("WEFT_NUM_THREADS", str(max(1, _cores() // ranks)))
        run = subprocess.Popen(
            [starter, "-n", str(ranks), *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        passed = [Passed(run.stdout, sys.stdout), Passed(run.stderr, sys.stderr)]
        there = RunFolder(folder)
        try:
            status = _ended(run, there)
        except KeyboardInterrupt:
            there.kill()
            run.wait()
            status = 130
        for stream in passed:
            stream.join()
        error = there.error()
        dead = [rank for pid in passed[0].pids for rank in there.ranks_of(pid)]
    if error is not None:
        print(f"\nweft run: rank {error[0]} of {ranks} failed:\n{error[1]}", file=sys.stderr)
        return status or 1
    if status:
        who = f"rank {dead[0]} of {ranks}" if dead else "a rank"
        print(f"\nweft run: {who} ended with status {status}", file=sys.stderr)
    return status


class Passed(threading.Thread):
    """Passes on what ranks print, without what mpiexec says where a rank ends.

    pids  the processes that mpiexec named
    """

    def __init__(self, source: IO[bytes] | None, target: TextIO) -> None:
        super().__init__(daemon=True)
        assert source is not None
        self.pids: list[int] = []
        self._source = source
        self._target = target
        self.start()

    def run(self) -> None:
        inside = False
        for line in self._source:
            named = _PID.match(line)
            if named:
                self.pids.append(int(named[1]))
            if _BEGINS.match(line) or _SAYS.match(line):
                inside = inside or bool(_BEGINS.match(line))
                continue
            if inside:
                inside = not _ENDS.match(line)
                continue
            with contextlib.suppress(BrokenPipeError):  # nobody reads: the ranks go on
                self._target.write(line.decode(errors="replace"))
                self._target.flush()


#: What mpich's mpiexec prints of a rank that ended, from a first to a last line, and on its own.
_BEGINS = re.compile(rb"={60,}$|=   BAD TERMINATION")
_ENDS = re.compile(rb"Please see the FAQ page")
_SAYS = re.compile(rb"Abort\(\d+\) on node|\[mpiexec@|\[proxy:")
_PID = re.compile(rb"=   PID (\d+) RUNNING")


def _ended(run: subprocess.Popen[bytes], folder: RunFolder) -> int:
    """The exit status of mpiexec, which is helped where it waits for a rank that is stopped."""
    while True:
        try:
            return run.wait(0.5)
        except subprocess.TimeoutExpired:
            pass
        if folder.error() is not None:
            try:
                return run.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                folder.kill()


def mpiexec() -> str | None:
    """The mpiexec that was installed with mpi4py, or else that of the machine."""
    beside = os.path.join(sysconfig.get_path("scripts"), "mpiexec")
    return beside if os.path.exists(beside) else shutil.which("mpiexec")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
