"""The same work in Weft, PyTorch eager, torch.compile and jax.jit: who is how fast.

    python benchmarks/suite.py [--only NAME …] [--quick] [--skip-torch-compile] [--threads 2]
    python benchmarks/suite.py --threads 1 --cpu-time      # on a machine where others work, too

Each side of a work is a process of its own that waits until it is asked, so that the thread pools
of the libraries do not disturb each other. First the sides do some steps from the same numbers, and
what they give is compared; then they take turns, in many short rounds, and the median round counts.

What it prints: µs per step, our time over that of the best peer, the bar, and whether it is met;
then the time of first calls, for Weft also in a new process that finds its code on disk; then the
share of the machine's peak. `build/bench/` gets the same as JSON, as a plot and as a page.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peak
import plot
from works import WORKS
from works.base import SIDES, Work

HERE = Path(__file__).resolve().parent
STEPS = 3  # that are compared before anything is timed
SETTLE_S = 0.004  # until the threads of the side before have gone to sleep
LIMIT_S = 900.0  # for an answer
FIRST_CALLS = 3  # in as many processes: the median counts


class Failed(Exception):
    """A side could not do what it was asked."""


class Side:
    """A process that does one work in one library."""

    def __init__(self, name: str, work: Work, options: argparse.Namespace, caches: Path) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 (shown where the process dies of it)
        threads = options.threads
        command = [sys.executable, str(HERE / "side.py"), name, work.name, str(threads)]
        command.append("cpu" if options.cpu_time else "wall")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env=environment(threads, caches),
        )
        self.versions = str(self.ask("make"))

    def ask(self, request: str, argument: Any = None) -> Any:
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        too_long = threading.Timer(LIMIT_S, process.kill)
        too_long.start()
        try:
            pickle.dump((request, argument), process.stdin)
            process.stdin.flush()
            verdict, answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            raise Failed(f"the process ended: {self._last_words()}") from None
        finally:
            too_long.cancel()
        if verdict == "error":
            raise Failed(answer)
        return answer

    def _last_words(self) -> str:
        self.said.seek(0)
        said = self.said.read().decode(errors="replace").strip()
        return said.splitlines()[-1] if said else "it said nothing"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.said):
            with contextlib.suppress(OSError, AttributeError):
                pipe.close()  # type: ignore[union-attr]


def environment(threads: int, caches: Path) -> dict[str, str]:
    """As many threads on all sides, and caches on disk that begin empty."""
    counts = ("OMP", "OPENBLAS", "MKL", "WEFT")
    eigen = "true" if threads > 1 else "false"
    return {
        **os.environ,
        **{f"{library}_NUM_THREADS": str(threads) for library in counts},
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={eigen}",
        "JAX_PLATFORMS": "cpu",
        "WEFT_CACHE_DIR": str(caches / "weft"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


# --- measuring ---------------------------------------------------------------------------------


def measure(work: Work, options: argparse.Namespace, caches: Path, say: Any) -> dict[str, Any]:
    """One row: for each side its times, or why there are none."""
    row: dict[str, Any] = {"name": work.name, "title": work.title, "bar": work.bar}
    row["sides"] = {}
    row["issue"] = work.issue
    sides: dict[str, Side] = {}
    own = Path(tempfile.mkdtemp(prefix=f"{work.name}.", dir=caches))
    try:
        for name in wanted(work, options, row):
            say(f"{work.name}: {name} makes it")
            try:
                with_peers = caches if name != "weft" else own
                side = sides[name] = Side(name, work, options, with_peers)
                firsts = [float(side.ask("first"))]
                if name != "torch.compile":  # seconds each, by which the machine's moods are small
                    firsts += [
                        first_call(name, work, options, Path(tempfile.mkdtemp(dir=caches)))
                        for _ in range(FIRST_CALLS - 1)
                    ]
                row["sides"][name] = {
                    "first_s": statistics.median(firsts),
                    "version": side.versions,
                }
            except Failed as reason:
                row["sides"][name] = {"failed": str(reason)}
                if name in sides:
                    sides.pop(name).close()
        compare(work, sides, row)
        if "weft" in sides:
            with contextlib.suppress(Failed):
                row["programs"] = sides["weft"].ask("look")
            say(f"{work.name}: first call from disk")
            with contextlib.suppress(Failed):
                row["warm_s"] = statistics.median(
                    first_call("weft", work, options, own) for _ in range(FIRST_CALLS)
                )
        take_turns(work, sides, row, options, say)
    finally:
        for side in sides.values():
            side.close()
    return row


def wanted(work: Work, options: argparse.Namespace, row: dict[str, Any]) -> Iterator[str]:
    for name in SIDES:
        if name == "jax" and work.jax is None:
            row["sides"][name] = {"failed": f"refuses: {work.refuses}"}
        elif name not in options.without:
            yield name


def first_call(name: str, work: Work, options: argparse.Namespace, caches: Path) -> float:
    """The first call in a new process, which finds on disk what is in `caches`."""
    side = Side(name, work, options, caches)
    try:
        return float(side.ask("first"))
    finally:
        side.close()


def compare(work: Work, sides: dict[str, Side], row: dict[str, Any]) -> None:
    """Some steps on each side give the same; who differs from PyTorch is not timed."""
    found = {}
    for name, side in list(sides.items()):
        try:
            found[name] = side.ask("check", STEPS)
        except Failed as reason:
            row["sides"][name]["failed"] = str(reason)
            sides.pop(name).close()
    standard = next(
        (found[name] for name in ("torch", "jax", "torch.compile") if name in found), None
    )
    for name, given in found.items():
        why = difference(given, standard, work.tolerance) if standard is not None else ""
        if why:
            row["sides"][name]["failed"] = f"gives something else: {why}"
            sides.pop(name).close()


def difference(given: dict[str, Any], standard: dict[str, Any], tolerance: float) -> str:
    """Where results differ by more than the tolerance, relative to the largest of them."""
    pairs = zip(
        [given["outs"], *given["results"]],
        [standard["outs"], *standard["results"]],
        strict=True,
    )
    for number, (a, b) in enumerate(pairs):
        if a.shape != b.shape:
            return f"result {number}: shape {a.shape}, not {b.shape}"
        if not np.isfinite(a).all():
            return f"result {number}: not finite"
        scale = max(float(np.abs(b).max(initial=0)), 1e-6)
        gap = float(np.abs(a - b).max(initial=0)) / scale
        if gap > tolerance:
            return f"result {number}: off by {gap:.1e} of its largest"
    return ""


def take_turns(
    work: Work, sides: dict[str, Side], row: dict[str, Any], options: argparse.Namespace, say: Any
) -> None:
    calls, times = {}, {name: [] for name in sides}  # type: dict[str, int], dict[str, list[float]]
    for name, side in sides.items():
        side.ask("time", 2)
        once = min(side.ask("time", 1) for _ in range(3))
        calls[name] = min(20_000, max(1, round(options.seconds / once)))
    order = list(sides)
    for number in range(options.rounds):
        say(f"{work.name}: round {number + 1} of {options.rounds}")
        for name in order if number % 2 else order[::-1]:  # nobody always goes first
            time.sleep(SETTLE_S)
            sides[name].ask("time", max(1, calls[name] // 10))  # caches and threads wake up
            times[name].append(sides[name].ask("time", calls[name]))
    for name, found in times.items():
        row["sides"][name].update(spread(found))
    judge(work, row)


def spread(found: list[float]) -> dict[str, float]:
    """In µs: the median, the least, and how far apart the middle half lies, as part of it."""
    ordered = sorted(found)
    median = statistics.median(ordered)
    middle = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    return {
        "us": median * 1e6,
        "least_us": ordered[0] * 1e6,
        "spread": (middle[1] - middle[0]) / median,
    }


def judge(work: Work, row: dict[str, Any]) -> None:
    """Our time over that of the best peer, by medians and by the least."""
    sides = row["sides"]
    peers = [name for name in sides if name != "weft" and "us" in sides[name]]
    ours = sides.get("weft", {}).get("us")
    if not peers or ours is None:
        row["met"] = False if ours is None else None
        return
    row["best"] = min(peers, key=lambda name: sides[name]["us"])
    row["ratio"] = ours / sides[row["best"]]["us"]
    row["least_ratio"] = sides["weft"]["least_us"] / min(sides[n]["least_us"] for n in peers)
    row["met"] = row["ratio"] <= work.bar


# --- what is shown -----------------------------------------------------------------------------


def figure(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    if "us" not in found:
        return "refuses" if found.get("failed", "").startswith("refuses") else "FAILS"
    return f"{found['us']:,.1f} ±{found['spread'] / 2:.0%}"


def table(rows: list[dict[str, Any]]) -> str:
    head = f"{'µs per step':<52}" + "".join(f"{name:>17}" for name in SIDES)
    lines = [head + f"{'ours/best':>11}{'(least)':>9}{'bar':>6}"]
    for row in rows:
        line = f"{row['title']:<52}"
        line += "".join(f"{figure(row['sides'].get(name)):>17}" for name in SIDES)
        if "ratio" in row:
            line += f"{row['ratio']:>11.2f}{row['least_ratio']:>9.2f}{row['bar']:>6.2f}"
            line += "  pass" if row["met"] else "  FAIL"
        lines.append(line)
    return "\n".join(lines)


def first_calls(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'first call, in seconds':<52}{'weft':>9}{'bar':>7}{'from disk':>11}{'bar':>7}"
        f"{'torch':>9}{'torch.compile':>15}{'jax':>9}"
    ]
    works = {work.name: work for work in WORKS}
    for row in rows:
        work, sides = works[row["name"]], row["sides"]
        cold, warm = sides.get("weft", {}).get("first_s"), row.get("warm_s")
        line = f"{row['title']:<52}{seconds(cold):>9}{bound(cold, work.first_s):>7}"
        line += f"{seconds(warm):>11}{bound(warm, work.warm_s):>7}"
        for name, width in (("torch", 9), ("torch.compile", 15), ("jax", 9)):
            line += f"{seconds(sides.get(name, {}).get('first_s')):>{width}}"
        lines.append(line)
    return "\n".join(lines)


def seconds(found: float | None) -> str:
    return "–" if found is None else f"{found:.3f}"


def bound(found: float | None, bar: float | None) -> str:
    return "" if bar is None else f"{bar:g}{'' if found is not None and found <= bar else ' !'}"


def shares(rows: list[dict[str, Any]], machine: dict[str, float]) -> str:
    """How near to the machine's peak each side comes."""
    lines = [
        f"share of the peak: {machine['flops32'] / 1e9:.0f} GFLOP/s in float32, "
        f"{machine['flops64'] / 1e9:.0f} in float64, {machine['bytes'] / 1e9:.1f} GB/s from memory"
    ]
    works = {work.name: work for work in WORKS}
    for row in rows:
        work = works[row["name"]]
        peak = machine["flops64" if "float64" in work.name else "flops32"]
        best_s = work.flops / peak or work.bytes / machine["bytes"]
        if not best_s:
            continue
        line = f"{row['title']:<52}"
        for name in SIDES:
            us = row["sides"].get(name, {}).get("us")
            line += f"{'–' if us is None else f'{best_s / us * 1e6:.0%}':>17}"
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def troubles(rows: list[dict[str, Any]]) -> str:
    """Who could not do what, and what of Weft's is not machine code."""
    lines = []
    for row in rows:
        for name, found in row["sides"].items():
            if "failed" in found:
                lines.append(f"{row['name']}: {name} {found['failed']}")
        for program in row.get("programs", ()):
            calls = ", ".join(f"{op} × {n}" for op, n in program["python_calls"].items())
            if program["kind"] == "interpreted":
                lines.append(f"{row['name']}: weft interprets it: {program['reason']}")
            elif calls:
                lines.append(f"{row['name']}: weft calls Python for {calls}")
    return "\n".join(lines)


def versions(rows: list[dict[str, Any]]) -> list[str]:
    sides = [found for row in rows for found in row["sides"].values()]
    return sorted({found["version"] for found in sides if "version" in found})


def progress(text: str) -> None:
    """What is going on now, in one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def chosen(options: argparse.Namespace) -> list[Work]:
    return [work for work in WORKS if options.only is None or work.name in options.only]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Weft beside PyTorch and JAX")
    names = [work.name for work in WORKS]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="few short rounds")
    parser.add_argument(
        "--skip-torch-compile", action="store_true", help="it takes long to compile"
    )
    parser.add_argument("--without", nargs="+", default=[], choices=SIDES, help="leave sides out")
    parser.add_argument("--threads", type=int, default=2, help="of each side (default: 2)")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="for a busy machine: seconds of the processor, with --threads 1",
    )
    parser.add_argument("--rounds", type=int, help="how often each side's turn comes")
    parser.add_argument("--seconds", type=float, help="of a turn")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bar is missed")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="for files")
    options = parser.parse_args()
    options.rounds = options.rounds or (7 if options.quick else 25)
    options.seconds = options.seconds or (0.02 if options.quick else 0.06)
    options.without = {*options.without, *(["torch.compile"] if options.skip_torch_compile else [])}
    return options


def main() -> int:
    options = parsed()
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(usable) > options.threads:  # JAX takes all that it may, so it may as many as the others
        os.sched_setaffinity(0, usable[: options.threads])
    rows = []
    with tempfile.TemporaryDirectory(prefix="weft-bench.") as caches:
        progress("the machine's peak")
        machine = peak.measured(options.threads)
        for work in chosen(options):
            rows.append(measure(work, options, Path(caches), progress))
            progress("")
            print(table(rows[-1:]).splitlines()[-1] if len(rows) > 1 else table(rows), flush=True)
    parts = [first_calls(rows), shares(rows, machine), troubles(rows)]
    print("\n" + "\n\n".join(part for part in parts if part))
    print("\n" + ", ".join(versions(rows)) + f", {options.threads} threads; results compared first")
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"threads": options.threads, "rounds": options.rounds, "machine": machine, "rows": rows}
    (options.out / "suite.json").write_text(json.dumps(found, indent=1))
    plot.write(options.out, rows, options.threads)
    missed = [row["name"] for row in rows if row.get("met") is False]
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} meet their bar; see {options.out}/suite.html"
    )
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
