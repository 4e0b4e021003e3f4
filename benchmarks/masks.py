"""A masked mean-square loss with its backward, and another mask in each step.

    python benchmarks/masks.py            # one thread

`((x[m] - y[m]) ** 2).mean()` of 1000 x 64 numbers, where each mask chooses another number of rows:
compiled (one recording, one native program), Weft eagerly, and PyTorch where it is installed.
The libraries take turns; times are medians.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

ROWS, COLUMNS, MASKS, ROUNDS = 1000, 64, 100, 15


def loss(x: Any, y: Any, m: Any) -> Any:
    return ((x[m] - y[m]) ** 2).mean()


def step(x: Any, y: Any, m: Any) -> Any:
    x.grad = None
    found = loss(x, y, m)
    found.backward()
    return found


def main() -> None:
    weft.set_num_threads(1)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((ROWS, COLUMNS)).astype(np.float32) for _ in range(2))
    masks = [rng.random(ROWS) < rng.random() for _ in range(MASKS)]
    x, y = weft.tensor(a, requires_grad=True), weft.asarray(b)
    mine = [weft.asarray(mask) for mask in masks]
    compiled = weft.compile(step)
    runs: dict[str, Callable[[], object]] = {
        "compiled": lambda: [compiled(x, y, mask) for mask in mine],
        "eager": lambda: [step(x, y, mask) for mask in mine],
    }
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        tx, ty = torch.tensor(a, requires_grad=True), torch.tensor(b)
        theirs = [torch.tensor(mask) for mask in masks]
        runs["PyTorch"] = lambda: [step(tx, ty, mask) for mask in theirs]
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / MASKS)
    base = statistics.median(times["compiled"])
    for name, found in times.items():
        median = statistics.median(found)
        least = f"{min(found) * 1e6:.1f}"
        print(f"{name:10} {median * 1e6:8.1f} µs a step, least {least}, {median / base:.2f}x")
    print(f"{len(compiled.recordings)} recordings, {len(compiled.programs)} programs")


if __name__ == "__main__":
    main()
