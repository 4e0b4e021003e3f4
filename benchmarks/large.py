"""What is large: deep models, many cores, eager mode on big tensors, beside PyTorch and JAX.

    python benchmarks/large.py [GROUP …] [--only NAME …] [--threads 2] [--rounds 5] [--cpu-time]

Groups stand in `benchmarks/large_works/`, one file each. Each side of a work is a process of its
own (`side.py`), cold: its caches on disk are empty. Measured are the seconds of the first and of
the second call, those of a settled step (sides take turns, the least counts), and the largest
memory that the process has had. Then the bars are judged. `build/bench/large.json` has it all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from large_works import GROUPS
from large_works.base import FIGURES, Bar, Large
from suite import Failed, Side, difference, progress

Row = dict[str, Any]


def measure(large: Large, options: argparse.Namespace, caches: Path) -> Row:
    row: Row = {"name": large.name, "title": large.work.title, "sides": {}}
    sides: dict[str, Side] = {}
    try:
        for name in large.sides:
            if name in options.without:
                continue
            progress(f"{large.name}: {name}")
            own = Path(tempfile.mkdtemp(dir=caches))
            try:
                side = sides[name] = Side(name, large.work, options, own)
                found = row["sides"][name] = {"version": side.versions}
                given = side.ask("check", large.check) if large.check else None
                found["peak"] = side.ask("peak")
                row.setdefault("given", {})[name] = given
                side.close()  # what was compared is not what is timed: its first call was another
                side = sides[name] = Side(name, large.work, options, own.with_suffix(".cold"))
                found["first"], found["second"] = side.ask("first"), side.ask("first")
                side.ask("first")
                found["peak"] = side.ask("peak")
            except Failed as reason:
                row["sides"].setdefault(name, {})["failed"] = str(reason)
                if name in sides:
                    sides.pop(name).close()
        _compare(large, row)
        for number in range(options.rounds):
            for name in list(sides) if number % 2 else list(sides)[::-1]:
                progress(f"{large.name}: round {number + 1}, {name}")
                once = sides[name].ask("least", 1)
                calls = max(1, min(50, round(0.2 / once)))
                found = row["sides"][name]
                found["step"] = min(found.get("step", once), sides[name].ask("least", calls))
    finally:
        for side in sides.values():
            side.close()
    return row


def _compare(large: Large, row: Row) -> None:
    """Sides that give something else than PyTorch are marked."""
    given = row.pop("given", {})
    standard = given.get("torch")
    for name, found in given.items():
        if standard is not None and found is not None:
            why = difference(found, standard, large.work.tolerance)
            if why:
                row["sides"][name]["failed"] = f"gives something else: {why}"


def further(rows: list[Row], works: list[Large]) -> None:
    """The seconds of each further layer, by the difference to the shorter work."""
    named = {row["name"]: row for row in rows}
    for large in works:
        short, row = named.get(large.shorter), named.get(large.name)
        if short is None or row is None:
            continue
        for name, found in row["sides"].items():
            other = short["sides"].get(name, {})
            if "first" in found and "first" in other:
                found["further"] = (found["first"] - other["first"]) / large.fewer


def judged(bar: Bar, row: Row) -> tuple[str, bool]:
    """A bar in words, and whether it is met."""
    sides = row["sides"]
    ours = sides.get("weft", {}).get(bar.figure)
    peers = {n: f[bar.figure] for n, f in sides.items() if n != "weft" and bar.figure in f}
    if bar.of == "best":
        base = min(peers.values(), default=None)
    else:
        base = peers.get(bar.of) if bar.of else 1.0
    if ours is None or base is None or "failed" in sides["weft"]:
        return f"{bar.figure}: not measured", False
    what = f"{bar.figure} {ours / base:.3f}" + (f" of {bar.of}" if bar.of else "")
    return f"{what} (bar {bar.at_most:g})", ours / base <= bar.at_most


def report(row: Row, bars: tuple[Bar, ...]) -> str:
    lines = [row["title"]]
    for name, found in row["sides"].items():
        line = f"  {name:<14}"
        for figure in FIGURES:
            if figure in found:
                unit = "MB" if figure == "peak" else "s"
                line += f"{figure:>9} {found[figure]:>9.{1 if unit == 'MB' else 4}f} {unit}"
        lines.append(line + (f"  FAILS: {found['failed']}" if "failed" in found else ""))
    for bar in bars:
        text, met = judged(bar, row)
        lines.append(f"    {'pass' if met else 'FAIL'}  {text}")
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What is large, in Weft beside its peers")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these groups, some works")
    parser.add_argument("--without", nargs="+", default=[], help="leave sides out")
    parser.add_argument("--threads", type=int, default=2, help="of each side (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side's turn comes")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    return parser.parse_args()


def main() -> int:
    options = parsed()
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(usable) > options.threads:
        os.sched_setaffinity(0, usable[: options.threads])
    works = [large for name in options.groups or GROUPS for large in GROUPS[name]]
    works = [large for large in works if not options.only or large.name in options.only]
    rows: list[Row] = []
    missed = 0
    with tempfile.TemporaryDirectory(prefix="weft-bench.") as caches:
        for large in works:
            rows.append(measure(large, options, Path(caches)))
            further(rows, works)
            progress("")
            print(report(rows[-1], large.bars), flush=True)
            missed += sum(not judged(bar, rows[-1])[1] for bar in large.bars)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "large.json").write_text(json.dumps(rows, indent=1))
    bars = sum(len(large.bars) for large in works)
    print(f"\n{bars - missed} of {bars} bars met, {options.threads} threads")
    return 0


if __name__ == "__main__":
    sys.exit(main())
