"""The folder in which the ranks of one `weft run` leave signs of life and their errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

__all__ = ["RunFolder"]

VARIABLE = "WEFT_RUN_FOLDER"


class RunFolder:
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @staticmethod
    def current() -> RunFolder | None:
        """The folder of this run; None if it was not started by `weft run`."""
        path = os.environ.get(VARIABLE)
        return RunFolder(path) if path and os.path.isdir(path) else None

    def sign_of_life(self, rank: int, doing: str, *, ended: bool = False) -> None:
        entry = {"rank": rank, "doing": doing, "pid": os.getpid(), "ended": ended}
        self._write(f"rank{rank}.json", entry)

    def failed(self, rank: int, text: str) -> bool:
        """Keep an error for `weft run` to print; whether that could be done."""
        return self._write(f"error{rank}.json", {"rank": rank, "text": text, "time": time.time()})

    def error(self) -> tuple[int, str] | None:
        """The first error of a rank."""
        found = [entry for entry, _ in self._read("error*.json")]
        if not found:
            return None
        first = min(found, key=lambda entry: float(entry["time"]))
        return int(first["rank"]), str(first["text"])

    def gone(self) -> list[tuple[int, str]]:
        """The ranks for which others wait in vain, with the reason."""
        reasons = [(int(e["rank"]), _why_gone(e)) for e, _ in self._read("rank*.json")]
        return [(rank, why) for rank, why in reasons if why]

    def doing(self) -> list[tuple[int, str]]:
        return sorted((int(e["rank"]), str(e["doing"])) for e, _ in self._read("rank*.json"))

    def ranks_of(self, pid: int) -> list[int]:
        return [int(entry["rank"]) for entry, _ in self._read("rank*.json") if entry["pid"] == pid]

    def kill(self) -> None:
        """End all ranks, also those that are stopped."""
        for entry, _ in self._read("rank*.json"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry["pid"]), signal.SIGKILL)

    def _write(self, name: str, entry: dict[str, Any]) -> bool:
        try:
            beside = self.path / f".{name}"
            beside.write_text(json.dumps(entry))
            beside.replace(self.path / name)
        except OSError:  # the run is over
            return False
        return True

    def _read(self, pattern: str) -> list[tuple[dict[str, Any], float]]:
        found = []
        for file in self.path.glob(pattern):
            try:
                found.append((json.loads(file.read_text()), file.stat().st_mtime))
            except (OSError, ValueError):
                continue
        return found


def _why_gone(entry: dict[str, Any]) -> str:
    """Why a rank will not come; "" if it may. All ranks are on one machine."""
    if entry["ended"]:
        return "has ended its program"
    try:
        stat = Path(f"/proc/{entry['pid']}/stat").read_text()
    except OSError:
        return "has ended" if Path("/proc/self").exists() else ""
    return {"T": "is stopped", "Z": "has ended"}.get(stat.rpartition(")")[2].split()[0], "")
