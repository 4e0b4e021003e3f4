"""Training, eagerly: Weft beside PyTorch in one run, on the same numbers, with 2 threads each.

Each case is a whole step: forward, backward and, for the models, the update of the parameters. The
sides take turns in rounds, so that a slow moment of the machine meets both, and the median round
counts. Before that the results of both sides are compared.

    python benchmarks/eager_train.py [--rounds 15] [--seconds 0.2] [--only mlp_small] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import weft
import weft.nn
import weft.optim

THREADS = 2

Step = Callable[[], Any]  # one step; returns the loss
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Case:
    """What is timed. `make(library)` gives (a step, what to compare after some steps)."""

    name: str
    title: str
    bar: float  # weft's time over torch's: at most this
    make: Callable[[Any], tuple[Step, Callable[[], Arrays]]]


def numpy_of(tensor: Any) -> np.ndarray[Any, Any]:
    return np.array(tensor.detach().numpy())


# --- a chain of small ops ----------------------------------------------------------------------


def chain(library: Any) -> tuple[Step, Callable[[], Arrays]]:
    rng = np.random.default_rng(0)
    w, x, start = (
        library.tensor(rng.standard_normal(32).astype(np.float32), requires_grad=True)
        for _ in range(3)
    )
    tanh = library.tanh

    def step() -> Any:
        z = start
        for _ in range(10):
            z = tanh(z * w + x)
        loss = z.sum()
        w.grad = x.grad = start.grad = None
        loss.backward()
        return loss

    def results() -> Arrays:
        return {name: numpy_of(t.grad) for name, t in (("w", w), ("x", x), ("z", start))}

    return step, results


# --- models ------------------------------------------------------------------------------------


def training(library: Any, model: Any, images: Any, classes: int) -> tuple[Step, Any]:
    """An SGD step of a model, whose weights are made the same on both sides."""
    rng = np.random.default_rng(1)
    parameters = list(model.parameters())
    with library.no_grad():
        for p in parameters:
            bound = 1 / np.sqrt(np.prod(p.shape[1:]) if p.ndim > 1 else 100)
            p.copy_(library.tensor(rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32)))
    x = library.tensor(images)
    y = library.tensor(rng.integers(0, classes, len(images)))
    optimizer = library.optim.SGD(parameters, lr=0.01)
    cross_entropy = library.nn.functional.cross_entropy

    def step() -> Any:
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def results() -> Arrays:
        return {str(i): numpy_of(p) for i, p in enumerate(parameters)}

    return step, results


def mlp(*sizes: int, batch: int) -> Callable[[Any], tuple[Step, Any]]:
    def make(library: Any) -> tuple[Step, Any]:
        nn = library.nn
        layers: list[Any] = []
        for size, following in itertools.pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        images = np.random.default_rng(0).standard_normal((batch, sizes[0])).astype(np.float32)
        return training(library, nn.Sequential(*layers[:-1]), images, sizes[-1])

    return make


def cnn(library: Any) -> tuple[Step, Any]:
    nn = library.nn
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )
    images = np.random.default_rng(0).standard_normal((64, 1, 28, 28)).astype(np.float32)
    return training(library, model, images, 10)


CASES = [
    Case("chain", "10 x tanh(z * w + x) on 32 floats", 0.7, chain),
    Case("mlp_small", "MLP 64-64-10, batch 32", 0.9, mlp(64, 64, 10, batch=32)),
    Case("mlp", "MLP 784-512-512-10, batch 128", 1.15, mlp(784, 512, 512, 10, batch=128)),
    Case("cnn", "CNN 16-32 channels, batch 64, 28x28", 2.0, cnn),
]


def limit_threads() -> None:
    """Both sides on as many threads: PyTorch, and the OpenBLAS that NumPy brings along."""
    torch.set_num_threads(THREADS)
    module: Any = np._core._multiarray_umath  # type: ignore[attr-defined]
    library = ctypes.CDLL(module.__file__)  # its symbols include those of OpenBLAS
    library.scipy_openblas_set_num_threads64_(THREADS)


# --- measuring ---------------------------------------------------------------------------------


def check(case: Case, steps: int = 5) -> None:
    """The same losses, and the same gradients or weights after some steps, on both sides."""
    found = {}
    for library in (weft, torch):
        step, results = case.make(library)
        losses = np.array([numpy_of(step()) for _ in range(steps)])
        found[library.__name__] = {"losses": losses, **results()}
    for name, value in found["torch"].items():
        np.testing.assert_allclose(
            found["weft"][name], value, rtol=1e-4, atol=1e-5, err_msg=f"{case.name}: {name}"
        )


def timed(step: Step, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls * 1e6


def measure(case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    """The median time of a step on each side, in microseconds; a round lasts about `seconds`."""
    sides = {library.__name__: case.make(library)[0] for library in (weft, torch)}
    once = {side: min(timed(step, 3) for _ in range(3)) for side, step in sides.items()}
    calls = {side: max(1, round(seconds * 1e6 / each)) for side, each in once.items()}
    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 else list(sides)[::-1]  # nobody always goes first
        for side in order:
            timed(sides[side], 1)  # the other side's data goes out of the caches
            times[side].append(timed(sides[side], calls[side]))
    medians = {side: statistics.median(found) for side, found in times.items()}
    ratio = medians["weft"] / medians["torch"]
    return {
        "case": case.name,
        "title": case.title,
        "weft_us": medians["weft"],
        "torch_us": medians["torch"],
        "weft/torch": ratio,
        "bar": case.bar,
        "met": ratio <= case.bar,
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':<38}{'weft µs':>11}{'torch µs':>11}{'ratio':>8}{'bar':>7}"]
    for row in rows:
        verdict = "" if row["met"] else "  NOT met"
        lines.append(
            f"{row['title']:<38}{row['weft_us']:>11.1f}{row['torch_us']:>11.1f}"
            f"{row['weft/torch']:>8.2f}{row['bar']:>7.2f}{verdict}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="eager training steps beside PyTorch's")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each side in a round")
    parser.add_argument("--only", choices=[case.name for case in CASES], action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    limit_threads()
    chosen = [case for case in CASES if options.only is None or case.name in options.only]
    for case in chosen:
        check(case)
    rows = [measure(case, options.rounds, options.seconds) for case in chosen]
    versions = {"torch": torch.__version__, "numpy": np.__version__, "weft": weft.__version__}
    if options.json:
        print(json.dumps({"versions": versions, "threads": THREADS, "rows": rows}))
        return
    print(f"eager training steps, median of {options.rounds} rounds, {THREADS} threads each")
    print(f"torch {versions['torch']}, numpy {versions['numpy']}; results checked equal\n")
    print(table(rows))


if __name__ == "__main__":
    main()
