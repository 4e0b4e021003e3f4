"""Loading a large safetensors file: with `weft.load`, and with the `safetensors` package.

The bars: mapped, the first tensor is there within 5 ms; reading all of it is at least 0.9 times as
fast as the package. The file is in the cache of the system for both sides, which take turns; the
median counts. The file is removed at the end. `--cpu-time` counts the seconds of the processor in
place of those of the clock: what a quiet machine would show, even while others work on this one.

    python benchmarks/weights.py [--size 1.0] [--rounds 7] [--folder FOLDER] [--cpu-time]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import weft

FIRST_MS, PART = 5.0, 0.9


def write_file(path: Path, gigabytes: float) -> None:
    """A file as that of a model: many matrices, each with a small vector."""
    count = max(1, round(gigabytes * 1e9 / (4096 * 1024 * 4)))
    matrix = weft.randn(4096, 1024)
    state = {f"layers.{i:03}.weight": matrix + float(i) for i in range(count)}
    state |= {f"layers.{i:03}.bias": weft.full((1024,), float(i)) for i in range(count)}
    weft.save(state, path)


def first(path: Path) -> float:
    return float(weft.load(path)["layers.000.weight"][0, 0].item())


def use(found: dict[str, Any]) -> float:
    """All elements, read once."""
    return sum(float(np.asarray(x).sum(dtype=np.float32)) for x in found.values())


def seconds(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    begun = clock()
    work()
    return clock() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=float, default=1.0, help="gigabytes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where the file is written; a temporary folder by default")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "model.safetensors"
        write_file(path, options.size)
        size = os.path.getsize(path)
        with open(path, "rb") as file:  # into the cache of the system
            while file.read(1 << 24):
                pass
        works: dict[str, Callable[[], Any]] = {
            "weft, the first element of a mapped file": lambda: first(path),
            "weft, all read": lambda: weft.load(path, mmap=False),
            "safetensors, all read": lambda: safetensors.numpy.load_file(path),
            "weft, mapped, all elements used": lambda: use(weft.load(path)),
            "weft, read, all elements used": lambda: use(weft.load(path, mmap=False)),
            "safetensors, all elements used": lambda: use(safetensors.numpy.load_file(path)),
        }
        times: dict[str, list[float]] = {name: [] for name in works}
        for number in range(options.rounds):
            names = list(works) if number % 2 else list(works)[::-1]
            for name in names:
                times[name].append(seconds(works[name], clock))
        assert use(weft.load(path)) == use(safetensors.numpy.load_file(path))
    print(f"{size / 1e9:.2f} GB, {options.rounds} rounds")
    middle = {name: statistics.median(found) for name, found in times.items()}
    for name, found in middle.items():
        print(f"{name:42} {1e3 * found:9.2f} ms  (least {1e3 * min(times[name]):9.2f})")
    opened = 1e3 * middle["weft, the first element of a mapped file"]
    read = middle["safetensors, all read"] / middle["weft, all read"]
    used = middle["safetensors, all elements used"] / middle["weft, mapped, all elements used"]
    print(f"the first tensor: {opened:.2f} ms (bar: {FIRST_MS:g})")
    print(
        f"all read: {read:.2f} times the package's speed (bar: {PART}); mapped and used: {used:.2f}"
    )


if __name__ == "__main__":
    main()
