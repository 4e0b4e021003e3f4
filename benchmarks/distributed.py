"""Two ranks on two cores: all_reduce by size, data parallel steps, beside PyTorch with gloo.

    weft run -n 2 benchmarks/distributed.py

Both sides run in the same processes and take turns; a figure is the median over rounds of the time
of the slower rank. PyTorch is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import distributed, nn, optim

HAS_TORCH = importlib.util.find_spec("torch") is not None


def seconds(call: Callable[[], Any], times: int) -> float:
    """The time of one of several calls, on the slower rank."""
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(times):
        call()
    spent = (time.perf_counter() - start) / times
    return distributed.all_reduce(weft.tensor(spent, dtype=weft.float64), op="max").item()


def side_by_side(sides: dict[str, Callable[[], Any]], times: int, rounds: int) -> dict[str, float]:
    for call in sides.values():
        seconds(call, 3)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            found[name].append(seconds(call, times))
    return {name: statistics.median(values) for name, values in found.items()}


def report(what: str, figures: dict[str, float]) -> None:
    if distributed.rank() == 0:
        ours, *others = figures.values()
        ratio = f"  {ours / min(others):5.2f}" if others else ""
        print(f"{what:32}", *[f"{name} {1e6 * t:9.1f} us" for name, t in figures.items()], ratio)


def reductions(torch: Any, rounds: int) -> None:
    for kib in (1, 16, 256, 1024, 4096, 16384, 65536):
        x = weft.ones(kib * 256)
        sides: dict[str, Callable[[], Any]] = {"weft": lambda x=x: distributed.all_reduce(x)}
        if torch is not None:
            theirs = torch.ones(kib * 256)
            sides["gloo"] = lambda t=theirs: torch.distributed.all_reduce(t.clone())
        report(f"all_reduce of {kib} KiB", side_by_side(sides, max(2, 512 // kib), rounds))


def steps(torch: Any, rounds: int) -> None:
    sizes = (784, 256, 256, 10)
    rng = np.random.default_rng(distributed.rank())
    x = rng.normal(size=(64, sizes[0])).astype(np.float32)
    y = rng.integers(0, 10, 64)

    def ours(parallel: bool) -> Callable[[], Any]:
        layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        if parallel:
            distributed.data_parallel(model)
        optimizer = optim.Adam(model.parameters(), lr=1e-3)
        data = weft.tensor(x), weft.tensor(y)

        @weft.compile
        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return lambda: step(*data)

    sides = {"weft": ours(True)}
    if torch is not None:
        layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        plain = torch.nn.Sequential(
            layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]
        )
        model = torch.nn.parallel.DistributedDataParallel(plain)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        given = torch.tensor(x), torch.tensor(y)

        def theirs() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(given[0]), given[1]).backward()
            optimizer.step()

        sides["gloo"] = theirs
    report("data parallel MLP step", side_by_side(sides, 10, rounds))
    report("the same without other ranks", side_by_side({"weft": ours(False)}, 10, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch = None
    if HAS_TORCH and distributed.world_size() > 1:
        torch = __import__("torch")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        torch.set_num_threads(1)
        __import__("torch.distributed")
        torch.distributed.init_process_group(
            "gloo", rank=distributed.rank(), world_size=distributed.world_size()
        )
    reductions(torch, rounds)
    steps(torch, rounds)
    if torch is not None:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
