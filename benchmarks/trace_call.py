"""What calling a traced function costs over running its ops, and what checking guards costs.

    python benchmarks/trace_call.py

A traced function of one tiny op is called, and the same op run by the interpreter alone; the two
alternate, and the medians are compared. The bars: 10 µs over the interpreter's own op time, 2 µs
for ten guards.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import weft
from weft.capture.trace.traced import Traced
from weft.core.bind import bind
from weft.ir.interpret import Program

CALLS = 2000
ROUNDS = 15


def microseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - start) / CALLS * 1e6


def medians(*runs: Callable[[], object]) -> list[float]:
    """Median times of several functions, called in turns."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        microseconds(run)
    for _ in range(ROUNDS):
        for run, seen in zip(runs, times, strict=True):
            seen.append(microseconds(run))
    return [statistics.median(seen) for seen in times]


def one_op(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
    return x + y


class Settings:
    def __init__(self) -> None:
        self.a, self.b, self.c, self.d, self.e = 1, 2.0, "text", True, None


SETTINGS = Settings()


def guarded(x: weft.Tensor) -> weft.Tensor:
    s = SETTINGS
    if s.a == 1 and s.b == 2.0 and s.c == "text" and s.d and s.e is None:
        return x + 1
    return x


def main() -> None:
    x, y = weft.ones(4), weft.ones(4)
    traced: Traced = weft.trace(one_op)
    traced(x, y)
    graph = weft.make_graph(one_op, x, y)
    program = Program(graph)
    call, op, eager = medians(
        lambda: traced(x, y), lambda: program.run([x, y], bind), lambda: one_op(x, y)
    )
    print(f"traced call {call:.2f} µs, interpreter alone {op:.2f} µs, eager {eager:.2f} µs")
    print(f"over the interpreter: {call - op:.2f} µs (bar: 10)")

    watched: Traced = weft.trace(guarded)
    watched(x)
    root = watched._roots[0]
    count = len(root.guards)
    (checked,) = medians(lambda: root.check((x,), {}))
    print(f"checking {count} guards: {checked:.2f} µs, {checked / count * 10:.2f} for ten (bar: 2)")


if __name__ == "__main__":
    main()
