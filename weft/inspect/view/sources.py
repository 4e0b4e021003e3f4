"""The user's source code on the page."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable
from typing import Any

from weft.base.source import SourceLocation

__all__ = ["Sources"]

#: Files up to this many lines are included whole; of others, this many around each line.
WHOLE, AROUND = 1200, 40


class Sources:
    """Numbers locations, and collects the source text around them."""

    def __init__(self) -> None:
        self.numbers: dict[SourceLocation, int] = {}
        self._files: dict[str, set[int]] = {}

    def add(self, location: SourceLocation | None) -> None:
        """Add a location, and that of its forward call."""
        while location is not None and location not in self.numbers:
            self.numbers[location] = len(self.numbers)
            self._files.setdefault(location.file, set()).add(location.line)
            location = location.forward

    def as_json(self) -> tuple[list[list[Any]], list[dict[str, Any]]]:
        """The locations (number of the file, line, function, module), and the files."""
        files = {file: number for number, file in enumerate(self._files)}
        locations = [[files[w.file], w.line, w.function, w.module] for w in self.numbers]
        return locations, [_file(file, lines) for file, lines in self._files.items()]


def _file(path: str, wanted: Iterable[int]) -> dict[str, Any]:
    lines = [line.rstrip("\n") for line in linecache.getlines(path)]
    if len(lines) <= WHOLE:
        return {"name": os.path.basename(path) or path, "path": path, "parts": [[1, lines]]}
    parts: list[list[Any]] = []
    end = 0
    for line in sorted(wanted):
        first, last = max(line - AROUND, end + 1), min(line + AROUND, len(lines))
        if first > last:
            continue
        if parts and first == end + 1:
            parts[-1][1] += lines[first - 1 : last]
        else:
            parts.append([first, lines[first - 1 : last]])
        end = last
    return {"name": os.path.basename(path), "path": path, "parts": parts}
