"""`weft.profile`: measures where time and memory go."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

from weft.autodiff.engine import observer
from weft.base.errors import RangeError
from weft.core.bind import recording
from weft.inspect.explain.blocks import Bar, Code, Dim, Line, Place, Section, Table
from weft.inspect.explain.html import sections_html
from weft.inspect.explain.style import shown_bytes, shown_flops, shown_seconds, style_for
from weft.inspect.explain.text import sections_text
from weft.inspect.profile.eager import Eager, now
from weft.inspect.profile.events import Event, MemoryChange
from weft.inspect.profile.flame import flame_svg, memory_svg
from weft.inspect.profile.programs import Programs
from weft.inspect.profile.summary import KEYS, Row, rows_by
from weft.inspect.profile.timeline import timeline_section, timeline_svg
from weft.inspect.profile.trace_file import trace_of
from weft.inspect.view.page import Page, Panel
from weft.runtime.dataflow.timeline import Timeline
from weft.runtime.executable import instrumented
from weft.runtime.peak import Peak, machine_peak
from weft.runtime.threads import get_num_threads

__all__ = ["profile"]

WIDTH = 110
FEW = 100_000  # allocations between two garbage collections
TITLES = {"op": "Ops and kernels", "line": "Lines", "module": "Modules"}


class profile:
    """Measure everything that runs inside of `with`.

    >>> @weft.compile
    ... def f(x):
    ...     return (weft.tanh(x) @ x).sum()
    >>> x = weft.ones((64, 64))
    >>> y = f(x)
    >>> with weft.profile() as p:
    ...     y = f(x)                        # kernels of machine code
    ...     z = weft.exp(x)                 # an op that runs at once
    >>> sorted({event.kind for event in p.events})
    ['compile', 'kernel', 'op', 'run']
    >>> p.rows("op")[0].seconds > 0
    True

    print(p)            tables: by op and kernel, by source line, by module
    p.rows("line")      the same as data
    p.events            all events, one by one
    p.save_trace(file)  for Perfetto or chrome://tracing, with a row for each thread
    p.view(file)        a page with a flame view and the memory over time
    p.timelines         of the dataflow executor: when each node ran, and the critical path

    Eager op calls and their backward passes are recorded in the thread that opened the profile,
    runs of compiled functions in all threads. Compiled functions are compiled again with a timer
    around each kernel; that time is not counted. Without an open profile there is no overhead.
    """

    def __init__(self, *, roofline: bool = True) -> None:
        """`roofline`: measure the peak of the machine (a few tenths of a second, once)."""
        self.events: list[Event] = []
        self.memory: list[MemoryChange] = []
        self.timelines: list[Timeline] = []  # of the runs of the dataflow executor
        self.seconds = 0.0
        self.peak: Peak | None = None
        self._roofline = roofline
        self._open = contextlib.ExitStack()
        self._main = threading.get_ident()

    def __enter__(self) -> profile:
        self._eager = Eager()
        self._programs = Programs(self._eager)
        self._main = threading.get_ident()
        self._open.callback(gc.set_threshold, *gc.get_threshold())
        # Recorded events stay alive until the end: garbage collections would scan them for nothing.
        gc.set_threshold(max(FEW, gc.get_threshold()[0]), *gc.get_threshold()[1:])
        before = observer.apply
        self._open.callback(setattr, observer, "apply", before)
        observer.apply = self._eager.apply
        self._open.enter_context(recording(self._eager))
        self._open.enter_context(instrumented(self._programs))
        self._start = now()
        return self

    def __exit__(self, *_error: object) -> None:
        stop = now()
        self._open.close()
        self._programs.finish()
        self.events = sorted(
            [*self._eager.events(), *self._programs.found], key=lambda event: event.start
        )
        self.memory = sorted(
            [*self._eager.memory, *self._programs.memory], key=lambda change: change.time
        )
        self.timelines = self._programs.timelines
        compiling = sum(event.seconds for event in self.events if event.kind == "compile")
        self.seconds = (stop - self._start) * 1e-9 - compiling
        if self._roofline:
            self.peak = machine_peak(get_num_threads())

    # --- what was found -----------------------------------------------------------------------

    def rows(self, by: str = "op") -> list[Row]:
        """Sums of the events by "op" (and kernel), "line" or "module"; the longest first."""
        if by not in KEYS:
            raise RangeError(f"there is no key {by!r}", op="profile.rows", hint=", ".join(KEYS))
        return rows_by(self.events, by, self.peak)

    @property
    def peak_memory(self) -> int:
        """The peak of the memory that was allocated inside, in bytes."""
        used = most = 0
        for change in self.memory:
            used += change.bytes
            most = max(most, used)
        return most

    def sections(self) -> list[Section]:
        busy = sum(row.seconds for row in self.rows())
        brief = f"{shown_seconds(self.seconds)} in all, {shown_seconds(busy)} in ops and kernels"
        if self.memory:
            brief += f", at most {shown_bytes(self.peak_memory)} in use"
        found = [Section("Profile", blocks=[Line([brief])])]
        for key, title in TITLES.items():
            rows = self.rows(key)
            if rows and not all(row.name.startswith("(") for row in rows):
                found.append(_section(title, rows, key))
        if self.timelines:
            found.append(timeline_section(self.timelines))
        return found

    def text(self, *, colour: bool = False, width: int = WIDTH) -> str:
        return sections_text(self.sections(), style_for(colour), width)

    def __str__(self) -> str:
        style = style_for(None)
        columns = shutil.get_terminal_size((WIDTH, 0)).columns if style.colour else WIDTH
        return sections_text(self.sections(), style, max(60, min(columns, 2 * WIDTH)))

    def __repr__(self) -> str:
        return f"<profile: {len(self.events)} events in {shown_seconds(self.seconds)}; print it>"

    def as_dict(self) -> dict[str, Any]:
        """The tables as plain data."""
        return {
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
            "machine": None if self.peak is None else self.peak.as_dict(),
            "rows": {
                key: [
                    {
                        "name": row.name,
                        "count": row.count,
                        "seconds": row.seconds,
                        "flops": row.flops,
                        "bytes": row.bytes,
                        "roofline": row.least,
                        "share": row.share,
                    }
                    for row in self.rows(key)
                ]
                for key in KEYS
            },
        }

    # --- to look at ---------------------------------------------------------------------------

    def trace(self) -> dict[str, Any]:
        """The content of the trace file."""
        return trace_of(self.events, self.memory, self._main)

    def save_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write a file for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        target = Path(path)
        target.write_text(json.dumps(self.trace()), encoding="utf-8")
        return target

    def html_fragment(self) -> str:
        """A part of a page: the flame graph, memory over time, the tables."""
        flame = f"<h2>Where time goes</h2>{flame_svg(self.events)}"
        memory = memory_svg(self.memory)
        pictures = flame + (f"<h2>Memory</h2>{memory}" if memory else "")
        if self.timelines:
            longest = max(self.timelines, key=lambda timeline: timeline.stop - timeline.start)
            pictures += f"<h2>Timeline</h2>{timeline_svg(longest)}"
        return sections_html(self.sections(), pictures)

    def view(self, path: str | os.PathLike[str] | None = None) -> Page:
        """A page without external resources; written to a file if `path` is given."""
        page = Page([], [Panel("Profile", self.html_fragment())], title="profile")
        if path is not None:
            page.save(path)
        return page

    def _repr_html_(self) -> str:
        return self.html_fragment()


def _section(title: str, rows: list[Row], key: str) -> Section:
    whole = sum(row.seconds for row in rows) or 1.0
    lines: list[Any] = []
    for row in rows:
        named: list[Any] = [Place(row.place) if row.place else row.name]
        if key == "line":
            named.append(Code(row.place.text if row.place else ""))
        share = "–" if row.share is None else f"{row.share:.0%}"
        lines.append(
            [
                *named,
                Bar(row.seconds / whole, 12),
                f"{row.seconds / whole:.1%}",
                shown_seconds(row.seconds),
                Dim(f"× {row.count}"),
                shown_flops(row.flops) if row.flops else "–",
                shown_bytes(row.bytes) if row.bytes else "–",
                share,
            ]
        )
    head = ["", *([""] if key == "line" else []), "", "share", "time", "calls", "work", "moved"]
    head.append("of roofline")
    table = Table(lines, head, most=20, yielding=(0, 1) if key == "line" else (0,))
    return Section(title, f"{len(rows)}", [table])
