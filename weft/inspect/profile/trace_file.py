"""Writes events as a trace file for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from weft.inspect.profile.events import Event, MemoryChange
from weft.inspect.profile.summary import line_of, line_text, module_of

__all__ = ["trace_of"]


def trace_of(
    events: Iterable[Event],
    memory: Iterable[MemoryChange],
    main: int,
    names: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """The content of the file for JSON: threads as rows, memory as a curve, times in µs. `names`:
    those of threads; by default the main one is Python, and others are workers."""
    process = os.getpid()
    number = itertools.count(1)
    threads = {main: 0}
    rows: list[dict[str, Any]] = []
    begin = min((event.start for event in events), default=0)

    def entry(event: Event, thread: int, start: int, stop: int) -> dict[str, Any]:
        known = threads.get(thread)
        if known is None:
            known = threads[thread] = next(number)
        return {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "ts": (start - begin) / 1e3,
            "dur": (stop - start) / 1e3,
            "pid": process,
            "tid": known,
            "args": _details(event),
        }

    for event in events:
        parts = event.parts or [(event.thread, event.start, event.stop)]
        rows += [entry(event, *part) for part in parts]
    used = 0
    for change in sorted(memory, key=lambda change: change.time):
        used += change.bytes
        rows.append(
            {
                "name": "memory",
                "ph": "C",
                "ts": (change.time - begin) / 1e3,
                "pid": process,
                "args": {"bytes": used},
            }
        )
    labels = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": process,
            "tid": known,
            "args": {
                "name": names[thread] if names else "Python" if known == 0 else f"worker {known}"
            },
        }
        for thread, known in threads.items()
    ]
    return {"traceEvents": [*labels, *rows], "displayTimeUnit": "ns"}


def _details(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"lines": [line_text(line_of(place)) for place in event.places]}
    modules = list(dict.fromkeys(module_of(place) for place in event.places))
    if event.program:
        found["function"] = event.program
    if modules:
        found["modules"] = modules
    if event.device:
        found |= {"device": event.device, "waited us": event.waited / 1e3}
        found |= {"iteration": event.where} if event.where else {}
        found |= {"critical path": True} if event.critical else {}
    if event.flops or event.bytes:
        found |= {"flops": event.flops, "bytes": event.bytes}
    return found
