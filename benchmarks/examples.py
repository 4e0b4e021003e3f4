"""The examples beside PyTorch: one step of each, the same source in both libraries.

    python benchmarks/examples.py [NAME …] [--torch-compile] [--json FILE]

PyTorch's side is the example's own file with its imports changed to PyTorch's, and `weft.compile`
to nothing (PyTorch eager), or to `torch.compile`. One thread each; a step's CPU time counts, so
that other work on the machine disturbs little. The sides take turns, and the median round counts.
Examples that draw no random numbers must agree on their first loss before they are timed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import torch

import weft

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
NAMES = [
    *("digits", "char_gpt", "neural_ode", "cartpole_ppo", "diffusion", "hmc"),
    *("cloth", "vae", "unet", "gcn", "beam_search", "ray_marcher"),
]
ROUNDS, ROUND_S = 9, 0.15
WITHOUT_CHANCE = ("cloth", "ray_marcher")


def as_weft(compile: Callable[[Any], Any]) -> types.ModuleType:
    """PyTorch under the names that the examples use of Weft."""
    names = types.ModuleType("torch_as_weft")
    names.__dict__.update(vars(torch))
    names.__dict__.update(compile=compile, grad=torch.func.grad, vmap=torch.func.vmap)
    return names


def load(name: str, library: Any) -> dict[str, Any]:
    """The example as a module, with `weft` being this library."""
    source = (EXAMPLES / f"{name}.py").read_text()
    if library is not weft:
        source = source.replace("import weft\n", "").replace("from weft", "from torch")
    namespace = {"__name__": name, "__file__": str(EXAMPLES / f"{name}.py"), "weft": library}
    if library is weft:
        sys.modules.pop(name, None)
        return vars(__import__(name))
    exec(compile(source, str(EXAMPLES / f"{name}.py"), "exec"), namespace)
    return namespace


def seconds(step: Callable[[], Any], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - start) / calls


def measure(steps: dict[str, Callable[[], Any]]) -> dict[str, float]:
    calls = {}
    for side, step in steps.items():
        seconds(step, 3)  # the first calls compile
        calls[side] = max(1, round(ROUND_S / seconds(step, 2)))
    rounds: dict[str, list[float]] = {side: [] for side in steps}
    for _ in range(ROUNDS):
        for side, step in steps.items():
            rounds[side].append(seconds(step, calls[side]))
    return {side: statistics.median(values) for side, values in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    weft.set_num_threads(1)
    torch.set_num_threads(1)
    today = datetime.date.today().isoformat()
    print(f"{today}, {platform.machine()}, one thread, CPU time; torch {torch.__version__}")
    sides = {"weft": weft, "torch": as_weft(lambda function: function)}
    if options.torch_compile:
        sides["torch.compile"] = as_weft(torch.compile)
    results = {}
    for name in options.names:
        steps, first = {}, {}
        for side, library in sides.items():
            try:
                steps[side] = load(name, library)["build"]()[0]
                first[side] = steps[side]()
            except Exception as error:
                steps.pop(side, None)
                print(f"{name}: {side} cannot: {type(error).__name__}: {str(error)[:80]}")
        if name in WITHOUT_CHANCE:
            losses = [loss.item() for loss, _ in first.values()]
            assert max(losses) - min(losses) < 1e-3 * max(losses), losses
        results[name] = measured = measure(steps)
        times = "   ".join(f"{side} {value * 1e3:8.3f} ms" for side, value in measured.items())
        print(f"{name:14} {times}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"date": today, "seconds": results}, indent=1))


if __name__ == "__main__":
    main()
