"""Two ranks on two cores, one thread each: all_reduce by size and data parallel steps, beside
PyTorch and JAX, both with gloo; and what a rank costs over one process.

    weft run -n 2 benchmarks/distributed.py

All sides run in the same processes and take turns; a figure is the least over rounds of the time
of the slower rank, so that what else runs on the machine counts little. Peers are left out where
they are not installed. `--json FILE` keeps the figures, `--only steps` (or reductions, overhead)
measures a part.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax_peer import Jax

import weft
from weft import distributed, nn, optim

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_JAX = importlib.util.find_spec("jax") is not None
Sides = dict[str, Callable[[], Any]]
KEPT: dict[str, dict[str, float]] = {}
VOCABULARY, LENGTH, WIDTH = 256, 64, 128


def seconds(call: Callable[[], Any], times: int) -> float:
    """The time of one of several calls, on the slower rank."""
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(times):
        call()
    spent = (time.perf_counter() - start) / times
    return distributed.all_reduce(weft.tensor(spent, dtype=weft.float64), op="max").item()


def side_by_side(sides: Sides, times: int, rounds: int) -> dict[str, float]:
    for call in sides.values():
        seconds(call, 4)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            found[name].append(seconds(call, times))
    return {name: min(values) for name, values in found.items()}


def report(what: str, figures: dict[str, float], ratio: float | None, meaning: str) -> None:
    KEPT[what] = figures | ({} if ratio is None else {meaning: ratio})
    if distributed.rank() == 0:
        shown = "  ".join(f"{name} {1e6 * t:9.1f} us" for name, t in figures.items())
        print(f"{what:32} {shown}", "" if ratio is None else f" {meaning} {ratio:5.2f}", flush=True)


def of_best_peer(figures: dict[str, float]) -> float | None:
    ours, *peers = (figures[name] for name in figures if name not in ("alone", "one rank"))
    return ours / min(peers) if peers else None


def reductions(torch: Any, jax: Any, rounds: int) -> None:
    for kib in (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536):
        x = weft.ones(kib * 256)
        sides: Sides = {"weft": lambda x=x: distributed.all_reduce(x)}
        if torch is not None:
            theirs = torch.ones(kib * 256)
            sides["gloo"] = lambda t=theirs: torch.distributed.all_reduce(t)  # in place: no copy
        if jax is not None:
            sides["JAX"] = jax.all_reduce(kib * 256)
        figures = side_by_side(sides, max(3, min(1024 // kib, 100)), rounds)
        report(f"all_reduce of {kib} KiB", figures, of_best_peer(figures), "of the peer's")


# --- training steps -------------------------------------------------------------------------------


def mlp(library: Any) -> Any:
    sizes = (784, 256, 256, 10)
    layers = [library.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return library.Sequential(layers[0], library.ReLU(), layers[1], library.ReLU(), layers[2])


def transformer(library: Any) -> Any:
    layers = [
        library.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        for _ in range(2)
    ]
    ends = library.Embedding(VOCABULARY, WIDTH), library.Linear(WIDTH, VOCABULARY)
    return library.Sequential(ends[0], *layers, ends[1])


def mlp_batch(rng: Any) -> tuple[Any, Any]:
    return rng.normal(size=(64, 784)).astype(np.float32), rng.integers(0, 10, 64)


def transformer_batch(rng: Any) -> tuple[Any, Any]:
    x, y = rng.integers(0, VOCABULARY, (2, 8, LENGTH))
    return x, y


def our_step(make: Any, batch: Any, how: Callable[[Any], Any]) -> Callable[[], Any]:
    model = how(make(nn))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    data = [weft.tensor(array) for array in batch]

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(*data)


def their_step(torch: Any, make: Any, batch: Any, how: Callable[[Any], Any]) -> Callable[[], Any]:
    model = how(make(torch.nn))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = [torch.tensor(array) for array in batch]

    def step() -> None:
        optimizer.zero_grad()
        out = model(data[0])
        out = out.reshape(-1, out.shape[-1])
        torch.nn.functional.cross_entropy(out, data[1].reshape(-1)).backward()
        optimizer.step()

    return step


def steps(torch: Any, jax: Any, rounds: int) -> None:
    for name, make, batches in (
        ("MLP", mlp, mlp_batch),
        ("transformer", transformer, transformer_batch),
    ):
        batch = batches(np.random.default_rng(distributed.rank()))
        sides = {"weft": our_step(make, batch, distributed.data_parallel)}
        if torch is not None:
            wraps = {"DDP": torch.nn.parallel.DistributedDataParallel, "FSDP": torch.fully_shard}
            for peer, wrap in wraps.items():
                sides[peer] = their_step(torch, make, batch, wrap)
        if jax is not None:
            sides["JAX"] = jax.step(name, batch)
        figures = side_by_side(sides, 10, rounds)
        report(f"data parallel {name} step", figures, of_best_peer(figures), "of the best peer's")
        # Alone means: while the other rank computes nothing.
        alone, both = our_step(make, batch, lambda model: model), sides["weft"]
        figures = beside_nobody(alone, both, rounds)
        ratio = figures["one rank"] / figures["two ranks"]
        report(f"{name}: two ranks", figures, ratio, "efficiency")


def beside_nobody(alone: Callable[[], Any], both: Callable[[], Any], rounds: int) -> Any:
    """A step of one process, with the other core idle, in turns with that of two ranks."""
    found: dict[str, list[float]] = {"two ranks": [], "one rank": []}
    for _ in range(4):
        alone()
    for _ in range(rounds):
        found["two ranks"].append(seconds(both, 10))
        start = time.perf_counter()
        if distributed.rank() == 0:
            for _ in range(10):
                alone()
        spent = (time.perf_counter() - start) / 10
        if distributed.rank() != 0:
            time.sleep(0.02)  # it does not watch for the other one meanwhile
        shared = distributed.broadcast(weft.tensor(spent, dtype=weft.float64))
        found["one rank"].append(shared.item())
    return {name: min(values) for name, values in found.items()}


def overhead(rounds: int) -> None:
    """A small step whose gradients are summed over a group of this rank alone: what differs from a
    step of one process is what a rank costs, but for the time that it waits for others."""
    small = [np.ones((4, 8), np.float32), np.zeros(4, np.int64)]

    def layer(library: Any) -> Any:
        return library.Linear(8, 4)

    mesh = distributed.Mesh({"mine": 1, "others": distributed.world_size()})
    sides = {
        "a rank": our_step(
            layer, small, lambda model: distributed.data_parallel(model, "mine", mesh=mesh)
        ),
        "one process": our_step(layer, small, lambda model: model),
    }
    figures = side_by_side(sides, 200, rounds)
    more = 1e6 * (figures["a rank"] - figures["one process"])
    report("cost of a rank per step", figures, more, "us more:")


def start_torch() -> Any:
    torch = __import__("torch")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    torch.set_num_threads(1)
    __import__("torch.distributed.fsdp")
    torch.fully_shard = torch.distributed.fsdp.fully_shard
    torch.distributed.init_process_group(
        "gloo", rank=distributed.rank(), world_size=distributed.world_size()
    )
    return torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=("reductions", "steps", "overhead"))
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args()
    many = distributed.world_size() > 1
    jax = Jax(distributed.rank(), distributed.world_size()) if HAS_JAX and many else None
    torch = start_torch() if HAS_TORCH and many else None
    if given.only in (None, "reductions"):
        reductions(torch, jax, given.rounds)
    if given.only in (None, "steps"):
        steps(torch, jax, given.rounds)
    if given.only in (None, "overhead"):
        overhead(given.rounds)
    if given.json and distributed.rank() == 0:
        given.json.write_text(json.dumps(KEPT, indent=1))
    if torch is not None:
        torch.distributed.destroy_process_group()
    if jax is not None:
        jax.stop()


if __name__ == "__main__":
    main()
