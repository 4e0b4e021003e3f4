"""Notices ranks that do not come: a thread beside each rank, which ends all ranks with one error.

A rank that waits longer than `timeout` gives up. Under `weft run`, ranks also leave a sign of life
every second in a common folder, so that one that is stopped or has ended is noticed at once, and
an error can say where the others are.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from weft.distributed.run_folder import RunFolder

__all__ = ["Watchdog"]

EVERY = 1.0  # seconds between two looks
PATIENCE = 2.0  # before a look at whether other ranks are still there


class Watchdog:
    def __init__(self, rank: int, timeout: float, abort: Callable[[], None]) -> None:
        self.rank = rank
        self.timeout = timeout
        self._abort = abort
        self._folder = RunFolder.current()
        self._waits: tuple[float, str, Any] | None = None  # since when, for what
        self._calls = 0
        #: Of groups that pass arrays through shared memory: the first word counts messages.
        self.channels: list[Any] = []
        self._tell()
        atexit.register(self._leave)
        threading.Thread(target=self._watch, daemon=True, name="weft-watchdog").start()

    def begin(self, what: str, x: Any = None) -> None:
        """This rank waits for others from now on."""
        self._waits = time.monotonic(), what, x

    def end(self, *, counted: bool = False) -> None:
        """`counted`: whether one of the channels counts the message."""
        self._waits = None
        self._calls += not counted

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY)
            self._tell()
            waits = self._waits
            if waits is None:
                continue
            since = time.monotonic() - waits[0]
            gone = self._folder.gone() if self._folder and since > PATIENCE else []
            if gone:
                rank, why = gone[0]
                self._end(f"rank {rank} {why}, and rank {self.rank} waits for it")
            elif since > self.timeout:
                self._end(
                    f"rank {self.rank} waited {self.timeout:g} s for other ranks\n"
                    "  to fix: do all ranks call the same collectives in the same order? "
                    "For longer work, distributed.init(timeout=...)"
                )

    def _leave(self) -> None:
        """The program ends; the process waits for others in MPI's own end."""
        if self._folder is not None:
            self._folder.sign_of_life(self.rank, "has ended its program", ended=True)

    def _tell(self) -> None:
        if self._folder is not None:
            self._folder.sign_of_life(self.rank, self._doing(self._waits))

    def _doing(self, waits: tuple[float, str, Any] | None) -> str:
        if waits is None:
            return f"works, after {self._count()} messages"
        _, what, x = waits
        of = "" if x is None else f" of {x.dtype.name}{list(x.shape)}"
        return f"waits in {what}{of}, after {self._count()} messages"

    def _count(self) -> int:
        return self._calls + sum(int(channel[0]) for channel in self.channels)

    def _end(self, message: str) -> None:
        lines = [f"weft.distributed: {message}"]
        if self._folder is not None:
            lines += [f"  rank {rank} {doing}" for rank, doing in self._folder.doing()]
        else:
            lines.append(f"  rank {self.rank} {self._doing(self._waits)}")
        text = "\n".join(lines)
        if self._folder is None or not self._folder.failed(self.rank, text):
            os.write(2, (text + "\n").encode())
        self._abort()
