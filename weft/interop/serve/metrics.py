"""Figures of the server, in the text format of Prometheus.

All workers write to one block of shared memory, each to its own row, so any of them can tell the
figures of all. A row has one writer for each of its numbers.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
#: Statuses that are counted one by one; all others are counted as "other".
CODES = ("200", "400", "404", "405", "406", "408", "411", "413", "415", "500", "503", "504")
#: name: (kind, what it is, buckets)
HISTOGRAMS = {
    "weft_request_seconds": ("Time from the headers of a request to its response.", SECONDS),
    "weft_run_seconds": ("Time of a run of the model, for all requests in it.", SECONDS),
    "weft_batch_size": ("Requests in a run.", SIZES),
}
GAUGES = {
    "weft_queue_length": "Requests that wait for a run.",
    "weft_requests_in_flight": "Requests that are read, wait or run.",
    "weft_body_bytes": "Memory that bodies of requests take.",
}


class Metrics:
    """The figures of `workers` processes for these models: (name, version)."""

    def __init__(self, models: Sequence[tuple[str, str]], workers: int) -> None:
        self._models = [*models, ("", "")]  # the last: requests for no model that there is
        self._number = {model: i for i, model in enumerate(self._models)}
        self._places: dict[str, int] = {}
        size = len(CODES) + 1
        for name, (_, buckets) in HISTOGRAMS.items():
            self._places[name] = size
            size += len(buckets) + 2  # beyond all buckets, and the sum
        shape = (workers, len(self._models) * size + len(GAUGES))
        self._memory = mmap.mmap(-1, max(1, shape[0] * shape[1]) * 8)  # shared after a fork
        self._all = np.frombuffer(self._memory, np.float64).reshape(shape)
        self._counts = self._all[:, : len(self._models) * size]
        self._counts = self._counts.reshape(workers, len(self._models), size)
        self._gauges = self._all[:, len(self._models) * size :]
        self.use_row(0)

    def use_row(self, worker: int) -> None:
        """From now on this process is that worker. Its counts go on, its gauges begin at 0."""
        self._row = self._counts[worker]
        self._gauge_row = self._gauges[worker]
        self._gauge_row[:] = 0

    def count(self, model: tuple[str, str], status: int, seconds: float) -> None:
        """Note an answer."""
        number = self._number.get(model, len(self._models) - 1)
        code = str(status)
        self._row[number, CODES.index(code) if code in CODES else len(CODES)] += 1
        self._observe(number, "weft_request_seconds", seconds)

    def ran(self, model: tuple[str, str], requests: int, seconds: float) -> None:
        """Note a run."""
        number = self._number[model]
        self._observe(number, "weft_run_seconds", seconds)
        self._observe(number, "weft_batch_size", requests)

    def gauge(self, name: str, value: float) -> None:
        self._gauge_row[list(GAUGES).index(name)] = value

    def _observe(self, number: int, name: str, value: float) -> None:
        place, buckets = self._places[name], HISTOGRAMS[name][1]
        row = self._row[number]
        row[place + bisect_left(buckets, value)] += 1
        row[place + len(buckets) + 1] += value

    # --- the text -----------------------------------------------------------------------------

    def text(self) -> str:
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        counts, gauges = self._counts.sum(axis=0), self._gauges.sum(axis=0)
        yield "# HELP weft_requests_total Answers by the status of HTTP."
        yield "# TYPE weft_requests_total counter"
        for labels, row in self._rows(counts):
            for code, found in zip((*CODES, "other"), row, strict=False):
                if found:
                    yield f'weft_requests_total{{{labels},code="{code}"}} {int(found)}'
        for name, (said, buckets) in HISTOGRAMS.items():
            yield f"# HELP {name} {said}"
            yield f"# TYPE {name} histogram"
            place = self._places[name]
            for labels, row in self._rows(counts):
                below = 0
                for bound, found in zip((*buckets, "+Inf"), row[place:], strict=False):
                    below += int(found)
                    yield f'{name}_bucket{{{labels},le="{bound}"}} {below}'
                yield f"{name}_sum{{{labels}}} {row[place + len(buckets) + 1]:.9g}"
                yield f"{name}_count{{{labels}}} {below}"
        for (name, said), value in zip(GAUGES.items(), gauges, strict=True):
            yield f"# HELP {name} {said}"
            yield f"# TYPE {name} gauge"
            yield f"{name} {int(value)}"

    def _rows(self, counts: Any) -> Iterator[tuple[str, Any]]:
        # Names of models have no character that must be escaped.
        for (name, version), row in zip(self._models, counts, strict=True):
            if row.any():
                yield f'model="{name}",version="{version}"', row
