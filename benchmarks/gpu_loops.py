"""Loops on a GPU, forward and backward: by one block, around launches, and in PyTorch.

    python3 benchmarks/gpu_loops.py

A line for each loop: how it runs, µs for one call (the best of four rounds of five), and how far
the result and the sums of squares of the gradients are from those of the first way.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import weft  # noqa: E402
from weft.codegen.cuda import emitter  # noqa: E402
from weft.runtime.cuda import opening  # noqa: E402


def shrinking(x: Any, w: Any) -> Any:
    while x.abs().max() > 1e-2:
        x = 0.99 * (x @ w).tanh()
    return x.sum()


def recurrent(xs: Any, h: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        new = weft.tanh(h @ w + x)
        return new, new

    return (weft.scan(step, h, xs)[1] ** 2).mean()


def main() -> None:
    rng = np.random.default_rng(0)
    driver = opening.driver()
    machine, threads = driver.machine, emitter.block_threads

    def made(library: Any, arrays: Any, device: str) -> Any:
        found = [library.asarray(x).to(device) for x in arrays]
        for x in found:
            x.requires_grad = True
        return found

    def timed(library: Any, work: Any, given: Any) -> tuple[float, list[float]]:
        def run() -> Any:
            for x in given:
                x.grad = None
            return work(*given)

        for _ in range(4):
            total = run()
        found = [total.item(), *((x.grad * x.grad).sum().item() for x in given)]
        library.cuda.synchronize()
        best = 1e9
        for _ in range(4):
            start = time.perf_counter()
            for _ in range(5):
                run()
            library.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / 5)
        return best * 1e6, found

    def stepped(function: Any) -> Any:
        def both(*given: Any) -> Any:
            total = function(*given)
            total.backward()
            return total

        return both

    def loop(rows: int, size: int) -> Any:
        w = rng.standard_normal((size, size), np.float32) * np.float32(0.75 / size**0.5)
        return shrinking, (np.ones((rows, size), np.float32), w)

    def scan(steps: int, rows: int, size: int) -> Any:
        w = rng.standard_normal((size, size), np.float32) * np.float32(0.5 / size**0.5)
        xs = rng.standard_normal((steps, rows, size), np.float32)
        return recurrent, (xs, np.zeros((rows, size), np.float32), w)

    works = {
        "while 4×32": loop(4, 32),
        "while 64×64": loop(64, 64),
        "while 64×256": loop(64, 256),
        "while 1024×1024": loop(1024, 1024),
        "scan 64 of 8×64": scan(64, 8, 64),
        "scan 64 of 64×512": scan(64, 64, 512),
    }
    for name, (function, arrays) in works.items():
        line = f"{name}:"
        _, want = 0, None
        for way in ("whole", "block", "around", "torch"):
            try:
                driver.machine = dataclasses.replace(machine, whole=way == "whole")
                emitter.block_threads = threads if way != "around" else (lambda *_: 0)
                if way == "torch":
                    if "scan" in name:
                        continue
                    spent, found = timed(torch, stepped(function), made(torch, arrays, "cuda"))
                else:
                    compiled = weft.compile(stepped(function))
                    spent, found = timed(weft, compiled, made(weft, arrays, "cuda"))
                    reason = {made_.program.reason[:60] for made_ in compiled.programs}
                    line += f" [{max(reason, key=len)}]"
                want = want or found
                far = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(found, want, strict=True))
                line += f" {way} {spent:.0f} us (off {far:.0e});"
            except Exception as error:
                line += f" {way} {type(error).__name__} {str(error)[:120]};"
        print(line, flush=True)


if __name__ == "__main__":
    main()
