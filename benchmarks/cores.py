"""How works gain from more cores, and where cores wait.

    python benchmarks/cores.py [--only NAME …] [--threads 1 2 4 8 16] [--peers] [--kernels]

For each work and each number of threads: µs per step, and the share of what so many threads could
compute at most. With `--peers` the other libraries, at the largest number. With `--kernels` each
kernel at the largest number: how long it took, how many of the threads' time it used, how many
parts it had, the longest of them, and how long the last thread took to begin. What no kernel used
is lost: cores that wait.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import suite
from side import found_work
from works import _mlp, _step_flops
from works.base import Job, Kit, Work

import weft
from weft.codegen.machine import host
from weft.runtime import peak
from weft.runtime.executable import Executable, instrumented
from weft.runtime.native import NativeProgram
from weft.runtime.timed import KernelRun, TimedProgram, read_runs

_WIDE = (1024, 2048, 2048, 1024)
#: The suite's works that machines of many cores are judged by, and a wider one.
LARGER = [
    Work("mlp_wide", "MLP 1024-2048-2048-1024, batch 512", 1.0, **_mlp(_WIDE, 512),
         flops=_step_flops(512, *_WIDE)),
]  # fmt: skip
USUAL = ("transformer", "mlp", "mlp_wide", "cnn", "product")


def per_step(job: Job, seconds: float) -> float:
    """The median time of a step, in rounds of some milliseconds."""
    once = min(suite_timed(job, 1) for _ in range(3))
    calls = max(1, round(0.01 / once))
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        found.append(suite_timed(job, calls))
    return statistics.median(found)


def suite_timed(job: Job, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        job.step()
    return (time.perf_counter() - start) / calls


class Timeline:
    """An instrument that collects when the kernels of programs ran, run by run."""

    def __init__(self) -> None:
        self.runs: list[tuple[TimedProgram, list[KernelRun]]] = []
        self._timed: dict[int, TimedProgram] = {}

    def __call__(self, executable: Executable, inputs: Any, proceed: Any) -> Any:
        program = executable.program
        if not isinstance(program, NativeProgram):
            return proceed(inputs)
        timed = self._timed.get(id(program))
        if timed is None:
            timed = TimedProgram(program.graph, dict(program.in_place))
            self._timed[id(program)] = timed
        outputs, raw, _ = timed.profiled(inputs)
        self.runs.append((timed, read_runs(raw)))
        return outputs


def lost(job: Job, threads: int, steps: int) -> list[str]:
    """The table of kernels, those first that waste most."""
    timeline = Timeline()
    with instrumented(timeline):
        for _ in range(steps):
            job.step()
    wall: dict[str, list[float]] = defaultdict(list)
    busy: dict[str, list[float]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    longest: dict[str, list[float]] = defaultdict(list)
    late: dict[str, list[float]] = defaultdict(list)
    ops: dict[str, str] = {}
    spans = []
    for timed, runs in timeline.runs[steps // 5 :]:
        outer = [run for run in runs if not timed.sites[run.site].part]
        inner: dict[str, list[KernelRun]] = defaultdict(list)
        for run in runs:
            if timed.sites[run.site].part:
                inner[timed.sites[run.site].kernel].append(run)
        spans.append(max(run.stop for run in runs) - min(run.start for run in runs))
        for run in outer:
            site = timed.sites[run.site]
            name = site.kernel or f"call.{site.group.nodes[0].op.name}"
            ops[name] = " ".join(node.op.name for node in site.group.in_order())
            own = [
                part for part in inner[name] if run.start <= part.start and part.stop <= run.stop
            ]
            took = run.stop - run.start
            first: dict[int, int] = {}
            for part in own:
                first[part.thread] = min(first.get(part.thread, part.start), part.start)
            wall[name].append(took)
            busy[name].append(sum(p.stop - p.start for p in own) if own else took)
            parts[name].append(len(own) or 1)
            longest[name].append(max((p.stop - p.start for p in own), default=took))
            late[name].append(max(first.values(), default=run.start) - run.start)
    rows = []
    for name in wall:
        took, used = (statistics.median(found[name]) for found in (wall, busy))
        rows.append((threads * took - used, took, used / (threads * took), name))
    span = statistics.median(spans)
    used_in_all = sum(statistics.median(found) for found in busy.values())
    lines = [
        f"  a run {span / 1e3:,.1f} µs; threads are in kernels {used_in_all / span / threads:.0%} "
        "of it",
        f"  {'µs':>8}{'used':>6}{'lost µs':>9}{'parts':>6}{'longest':>9}{'last in':>9}",
    ]
    for gone, took, share, name in sorted(rows, reverse=True):
        lines.append(
            f"  {took / 1e3:>8.1f}{share:>6.0%}{gone / threads / 1e3:>9.1f}"
            f"{statistics.median(parts[name]):>6.0f}{statistics.median(longest[name]) / 1e3:>9.1f}"
            f"{statistics.median(late[name]) / 1e3:>9.1f}  {name}: {ops[name][:70]}"
        )
    return lines


def peers(work: Work, threads: int, seconds: float) -> dict[str, float]:
    """Seconds per step of PyTorch and JAX, each in a process of its own."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="weft-cores.") as caches:
        for name in ("torch", "jax"):
            options = argparse.Namespace(threads=threads, cpu_time=False)
            try:
                side = suite.Side(name, work, options, Path(caches))
                side.ask("time", 3)
                once = side.ask("time", 2)
                each = max(1, round(0.02 / once))
                rounds = max(5, round(seconds / (once * each)))
                found[name] = statistics.median(side.ask("time", each) for _ in range(rounds))
                side.close()
            except suite.Failed as reason:
                print(f"  {name}: {reason}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="what more cores give")
    parser.add_argument("--only", nargs="+", default=list(USUAL), metavar="NAME")
    usable = len(os.sched_getaffinity(0))
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < usable] + [usable]
    parser.add_argument("--threads", nargs="+", type=int, default=counts)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    options = parser.parse_args()
    most = max(options.threads)
    print(host().cpu, host().caches, f"{host().vector_bytes} bytes, {usable} usable cores")
    peaks = {n: peak.measured(n) for n in options.threads}
    for n, found in peaks.items():
        print(
            f"{n:3} threads: {found.flops32 / 1e9:8,.0f} GFlop/s, memory {found.bytes / 1e9:6.0f} "
            f"GB/s, caches {found.cached / 1e9:6.0f} GB/s"
        )
    larger = {work.name: work for work in LARGER}
    for work in [larger.get(name) or found_work(name) for name in options.only]:
        print(f"\n{work.name}: {work.title}, {work.flops / 1e9:.2f} GFlop")
        job = work.make(Kit(weft, weft.compile, lambda f: f, lambda f: f))
        for _ in range(3):
            job.step()
        ours = 0.0
        first = None
        for n in options.threads:
            weft.set_num_threads(n)
            ours = per_step(job, options.seconds)
            share = work.flops / ours / peaks[n].flops32
            first = first or ours
            print(f"  {n:3} threads {ours * 1e6:10,.1f} µs  {share:5.1%} of peak, "
                  f"{first / ours:5.2f} × one", flush=True)  # fmt: skip
        if options.peers and work not in LARGER:
            for name, took in peers(work, most, options.seconds).items():
                print(f"  {name:8} {took * 1e6:10,.1f} µs at {most}; ours is {ours / took:.2f}")
        if options.kernels:
            print("\n".join(lost(job, most, options.steps)), flush=True)


if __name__ == "__main__":
    main()
