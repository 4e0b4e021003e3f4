"""Workers that are watched: a crash or a hang is an answer, and the next job has a new process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fuzzing.case import Case
from fuzzing.check import Result

TOOLS = Path(__file__).resolve().parents[1]
#: How many seconds of CPU a case may take, and how many when it is run once more to be sure.
TIMEOUT, PATIENCE = 40.0, 120.0
#: On a busy machine, or in a deadlock, it may wait for the CPU so many times as long.
WAITING = 5
#: A worker makes place for another when it has run so many cases or has grown so large.
MOST_CASES, MOST_MEGABYTES = 2000, 2500


class Worker:
    """One process at a time."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.cases = 0

    def _start(self) -> subprocess.Popen[str]:
        paths = [str(TOOLS), str(TOOLS.parent)]
        settings = {"PYTHONPATH": os.pathsep.join(paths), "WEFT_CACHE": "0"}
        settings |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "WEFT_VERIFY_PLANS": "1"}
        self.cases = 0
        return subprocess.Popen(
            [sys.executable, "-m", "fuzzing.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | settings,
        )

    def ask(self, job: dict[str, Any], timeout: float = TIMEOUT) -> dict[str, Any]:
        """The answer to a job."""
        if self.process is not None and self.process.poll() is not None:
            self._close()
        if self.process is None:
            self.process = self._start()
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        self.cases += 1
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        if not _answers(process, timeout):
            self.stop()
            return {"state": "found", "kind": "hang", "text": f"no answer after {timeout:.0f} s"}
        line = process.stdout.readline()
        if not line.endswith("\n"):
            return self._died()
        found: dict[str, Any] = json.loads(line)
        if self.cases >= MOST_CASES or found.get("megabytes", 0) > MOST_MEGABYTES:
            self.stop()
        return found

    def _died(self) -> dict[str, Any]:
        assert self.process is not None
        code = self.process.wait()
        self._close()
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return {"state": "found", "kind": f"crash: {name}", "text": f"the process died: {name}"}

    def check(self, case: Case, timeout: float = TIMEOUT) -> Result:
        return result(self.ask({"case": case.to_json()}, timeout))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._close()

    def _close(self) -> None:
        assert self.process is not None
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process = None


def _answers(process: subprocess.Popen[str], timeout: float) -> bool:
    """Whether a process answers before it has taken so many seconds of CPU."""
    end, start = time.monotonic() + WAITING * timeout, _cpu_seconds(process.pid)
    while True:
        left = min(timeout - _cpu_seconds(process.pid) + start, end - time.monotonic())
        if select.select([process.stdout], [], [], max(left, 0.0))[0]:
            return True
        if left <= 0:
            return False


def _cpu_seconds(process: int) -> float:
    """How much CPU a process has taken; where nobody can tell, the time by the clock."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return time.monotonic()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def result(answer: dict[str, Any]) -> Result:
    return Result(answer["state"], answer["kind"], answer["text"])
