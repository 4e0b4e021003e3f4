"""Notes of a recording for `weft.explain`: decided conditions, unrolled loops, calls."""

from __future__ import annotations

import os
import sys
from dataclasses import field
from types import CodeType, FrameType
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.source import PACKAGE

__all__ = ["CaptureNotes", "Place"]

Place = tuple[str, int, str]  # file, line, function


_OURS = tuple(os.path.join(PACKAGE, layer, "") for layer in ("capture", "record"))


def place_now() -> Place:
    """The line of the followed code that is running: the user's own, or that of a layer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return ("", 0, "")
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


@dataclass(slots=True)
class CaptureNotes:
    """
    decided    conditions that Python decided -> the answers
    unrolled   loops that Python ran -> the number of iterations, and why they are not in the graph
    followed   functions whose source was followed -> how often they were recorded
    sizes      names of symbolic sizes -> where they are found, and what is known of them
    """

    decided: dict[Place, dict[bool, None]] = field(default_factory=dict)
    unrolled: dict[Place, tuple[int, str]] = field(default_factory=dict)
    followed: dict[CodeType, int] = field(default_factory=dict)
    sizes: dict[str, tuple[str, str]] = field(default_factory=dict)

    def decide(self, answer: Any) -> None:
        self.decided.setdefault(place_now(), {})[bool(answer)] = None

    def unroll(self, place: Place, count: int, why: str) -> None:
        known = self.unrolled.get(place, (0, ""))[0]
        self.unrolled[place] = (max(known, count), why)

    def follow(self, code: CodeType) -> None:
        self.followed[code] = self.followed.get(code, 0) + 1
