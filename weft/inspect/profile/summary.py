"""Sums of events by op and kernel, by source line, or by module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.base.source import SourceLocation
from weft.inspect.profile.events import Event
from weft.runtime.peak import Peak

__all__ = ["KEYS", "Row", "rows_by"]


@dataclass(slots=True)
class Row:
    """The sum of a group of events.

    least     the shortest possible time for this work on this machine (its roofline)
    place     the user's line, if all events have the same one
    """

    name: str
    count: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    least: float = 0.0
    place: SourceLocation | None = None

    @property
    def share(self) -> float | None:
        """least / seconds; None if the work is not known."""
        return self.least / self.seconds if self.seconds and self.least else None


def _by_op(event: Event) -> dict[str, float]:
    return {event.name: 1.0}


def _by_line(event: Event) -> dict[str, float]:
    lines = [line_of(place) for place in event.places]
    return _evenly([line_text(line) for line in lines] or ["(no line)"])


def _by_module(event: Event) -> dict[str, float]:
    return _evenly([module_of(place) for place in event.places] or ["(no module)"])


def _evenly(names: list[str]) -> dict[str, float]:
    """Divide a kernel with several lines evenly among them."""
    shares: dict[str, float] = {}
    for name in names:
        shares[name] = shares.get(name, 0.0) + 1 / len(names)
    return shares


#: The keys of sums: a function from an event to the names of its rows, with its share of each.
KEYS: dict[str, Callable[[Event], dict[str, float]]] = {
    "op": _by_op,
    "line": _by_line,
    "module": _by_module,
}


def line_of(place: SourceLocation) -> SourceLocation:
    """The user's line; for a backward step, that of the forward call if it is known."""
    return place.forward or place


def line_text(line: SourceLocation) -> str:
    return f"{os.path.basename(line.file)}:{line.line}"


def module_of(place: SourceLocation) -> str:
    line = line_of(place)
    return line.module or place.module or "(no module)"


def rows_by(events: Iterable[Event], key: str, peak: Peak | None) -> list[Row]:
    """Rows, the longest first. Events that include others are not counted."""
    rows: dict[str, Row] = {}
    for event in events:
        if event.holds_others or event.kind == "compile":
            continue
        least = 0.0
        # The peak is that of the CPU.
        on_cpu = not event.device.startswith("cuda")
        if peak is not None and on_cpu and (event.flops or event.bytes):
            at_best = (
                event.flops / peak.flops(event.itemsize),
                event.bytes / peak.moved(event.bytes),
            )
            least = max(at_best) * event.count
        for name, share in KEYS[key](event).items():
            row = rows.setdefault(name, Row(name))
            row.count += event.count
            row.seconds += event.seconds * share
            row.flops += event.flops * event.count * share
            row.bytes += event.bytes * event.count * share
            row.least += least * share
            if row.place is None and key == "line" and event.places:
                named = [p for p in map(line_of, event.places) if line_text(p) == name]
                row.place = named[0] if named else None
    return sorted(rows.values(), key=lambda row: -row.seconds)
