"""Where the time of a work's machine code goes, kernel by kernel.

    python benchmarks/kernels.py NAME [--threads 1] [--seconds 3] [--cpu-time]

The clock is read before and after each call of a kernel in the generated code; the least of each is
shown, as others may run on the machine, with how often it is called per step. On a busy machine,
--cpu-time (with one thread) leaves out when others had the core. The time of a step is taken
before, without clocks inside.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["WEFT_CACHE"] = "0"

import look
from side import found_work
from works.base import Kit

import weft
from weft.runtime.executable import Executable, instrumented
from weft.runtime.native import NativeProgram
from weft.runtime.timed import TimedProgram, read_runs, site_totals

FEWEST = 4  # steps: the first of them touches memory that it has not touched before


@dataclass
class Took:
    """How long a kernel took, in ns: at least, in all, and how often it ran."""

    least: int = 1 << 62
    total: int = 0
    calls: int = 0


class Counting:
    """An instrument that runs programs with clocks in them, and counts what their kernels take."""

    def __init__(self, clock: int) -> None:
        self.clock = clock
        self.took: dict[tuple[int, str], Took] = {}  # by program and kernel
        self._timed: dict[int, TimedProgram] = {}
        self._kept: list[Any] = []  # so that an id stays its program's

    def __call__(self, executable: Executable, inputs: Any, proceed: Any) -> Any:
        program = executable.program
        if not isinstance(program, NativeProgram):
            return proceed(inputs)
        timed = self._timed.get(id(program))
        if timed is None:
            self._kept.append(program)
            made = TimedProgram(program.graph, dict(program.in_place), self.clock)
            timed = self._timed[id(program)] = made
        outputs, raw, beyond = timed.profiled(inputs)
        for ran in read_runs(raw):
            took = self._of(timed, ran.site)
            if took is not None:
                took.least = min(took.least, ran.stop - ran.start)
                took.total += ran.stop - ran.start
                took.calls += 1
        for site, (calls, total) in enumerate(
            site_totals(len(timed.sites), beyond) if beyond else ()
        ):
            took = self._of(timed, site)
            if took is not None:
                took.total += total
                took.calls += calls
        return outputs

    def _of(self, timed: TimedProgram, number: int) -> Took | None:
        site = timed.sites[number]
        if site.inner or site.part:
            return None
        name = site.kernel or f"call.{site.group.nodes[0].op.name}"
        return self.took.setdefault((id(timed), name), Took())


def repeated(
    step: Callable[[], Any], seconds: float, now: Callable[[], float]
) -> tuple[int, float]:
    """Call a function for some seconds: how often, and the least that it took."""
    count, end, least = 0, time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end or count < FEWEST:
        start = now()
        step()
        least = min(least, now() - start)
        count += 1
    return count, least


def main() -> None:
    parser = argparse.ArgumentParser(description="a work's time, kernel by kernel")
    parser.add_argument("name", help="a work of suite.py or large.py")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    weft.set_num_threads(options.threads)
    look.watch()
    counting = Counting(time.CLOCK_THREAD_CPUTIME_ID if options.cpu_time else time.CLOCK_MONOTONIC)
    now = time.process_time if options.cpu_time else time.perf_counter
    work = found_work(options.name)
    job = work.make(Kit(weft, weft.compile, lambda f: f, lambda f: f))
    job.step()
    job.step()  # the first may have been a recording
    print(look.summary(look.programs()))
    _, least = repeated(job.step, options.seconds / 2, now)
    with instrumented(counting):
        steps, _ = repeated(job.step, options.seconds / 2, now)
    rows = [
        (took.least * took.calls / steps / 1e3, took.total / steps / 1e3, took.calls / steps, name)
        for (_, name), took in counting.took.items()
        if took.calls
    ]
    inside = sum(row[0] for row in rows)
    print(f"\na step: {least * 1e6:,.1f} µs at least, of that kernels {inside:,.1f} µs")
    print(f"{'least µs':>10}{'mean µs':>10}{'calls':>7}")
    for row in sorted(rows, reverse=True):
        print(f"{row[0]:>10,.2f}{row[1]:>10,.2f}{row[2]:>7,.0f}  {row[3]}")


if __name__ == "__main__":
    main()
