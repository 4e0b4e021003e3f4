"""Training and generation with sizes that change from call to call. Each row has its bar.

    python benchmarks/lengths.py                      # all rows, one thread
    python benchmarks/lengths.py first steps          # some of them
    python benchmarks/lengths.py alone --cpu-time     # on a machine where others work, too
    python benchmarks/lengths.py alone --every 4      # a fourth of the lengths

first      70 lengths of a transformer's encoder layer (64 wide, 4 heads, batch 4), steps of Adam,
           in a new process without caches on disk: at most 2 recordings, 1 s in first calls
steps      40 steps with 32 of these lengths, all of them cold: 2 s
alone      each of these lengths, over a program made for this length alone: 1.15
batches    the works of `suite.py` that train, with a batch of any size, over the fixed one: 1.10
generate   256 tokens of a decoder whose cache grows by one row in each call: 2 recordings

A ratio is that of the best times. The sides run in turns, in memory of their own that is allocated
anew several times: where weights lie can make a step a third slower. `first` and `steps` also run
`torch.compile(dynamic=True)` and `jax.jit`, where these are installed, for --limit seconds each:
of one that is not done by then, the row says how far it came.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("WEFT_CACHE", "0")

import numpy as np
from works import WORKS, models
from works.base import Kit

WIDE, HEADS, CLASSES, BATCH, LONGEST = 64, 4, 8, 4, 128
LENGTHS = random.Random(0).sample(range(1, LONGEST + 1), 70)
STEPS = random.Random(1).choices(LENGTHS[:32], k=40)
PLACES, ROUNDS, SECONDS, EVERY, LIMIT = 3, 10, 0.003, 1, 300.0
TRAINING = ("mlp_small", "mlp", "transformer", "cnn", "lstm", "adam_small", "adam", "embedding")
TRAINING += ("batchnorm_cnn", "mlp_float64")
clock, MEASURE = time.perf_counter, "wall"


def _same(function: Any) -> Any:
    return function


def _data(length: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(length)
    x = rng.standard_normal((BATCH, length, WIDE)).astype(np.float32)
    return x, rng.integers(0, CLASSES, BATCH * length)


# --- the sides: (x, y) -> loss, and what makes their tensors --------------------------------------


def weft_step(**options: Any) -> Any:
    import weft

    kit = Kit(weft, weft.compile(**options), _same, _same)
    build = models.transformer(WIDE, HEADS, CLASSES)
    return models.training(build, *_data(2), optimizer="Adam", lr=1e-3)(kit).program


def _torch_step() -> tuple[Any, Any]:
    import torch

    def compiled(function: Any) -> Any:
        return torch.compile(function, dynamic=True)

    kept: list[Any] = []

    def step(function: Any) -> Any:
        kept.append(function)
        return function

    build = models.transformer(WIDE, HEADS, CLASSES)
    models.training(build, *_data(2), optimizer="Adam", lr=1e-3)(
        Kit(torch, step, compiled, compiled)
    )
    return kept[0], torch.tensor


def _jax_step() -> tuple[Any, Any]:
    jax = importlib.import_module("jax")
    side = importlib.import_module("works.jax_side")
    options = {"width": WIDE, "heads": HEADS, "classes": CLASSES}
    params, forward, _ = side._ready("transformer", options, _data(2)[0])
    start, update = side._adam(1e-3)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(forward(params, x))
        return -jax.numpy.take_along_axis(scores, y[:, None], 1).mean()

    @jax.jit
    def whole(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        return loss, *update(params, gradients, state)

    now = [params, start(params)]

    def step(x: Any, y: Any) -> Any:
        loss, now[0], now[1] = whole(now[0], now[1], x, y)
        return loss.block_until_ready()

    return step, jax.numpy.asarray


def serve(side: str, what: str) -> None:
    """In a process of its own: the times of some calls, as JSON."""
    if side == "weft":
        import weft

        step: Any = weft_step()
        tensor: Any = weft.tensor
    else:
        step, tensor = _torch_step() if side == "torch.compile" else _jax_step()
    data = {length: tuple(map(tensor, _data(length))) for length in LENGTHS}
    wall = used = 0.0
    lengths = LENGTHS if what == "first" else STEPS
    for done, length in enumerate(lengths, 1):
        start, begin = time.perf_counter(), _used()
        step(*data[length])
        wall += time.perf_counter() - start
        used += _used() - begin
        if what == "first":  # what each call takes later is no part of it
            runs = [_taken(lambda: step(*data[length])) for _ in range(3)]  # noqa: B023
            wall -= min(run[0] for run in runs)
            used -= min(run[1] for run in runs)
        found = {"wall": wall, "cpu": used, "done": done, "of": len(lengths)}
        found["recordings"] = len(step.recordings) if side == "weft" else 0
        print(json.dumps(found), flush=True)


def _used() -> float:
    """CPU time of this process and of those that it has waited for."""
    return time.process_time() + sum(os.times()[2:4])


def _taken(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and of CPU time."""
    start, begin = time.perf_counter(), _used()
    run()
    return time.perf_counter() - start, _used() - begin


def _asked(side: str, what: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cold:
        places = {"WEFT_CACHE": "0", "TORCHINDUCTOR_CACHE_DIR": cold}
        command = [sys.executable, __file__, "--side", side, what]
        try:
            run = subprocess.run(
                command,
                env={**os.environ, **places},
                capture_output=True,
                text=True,
                check=True,
                timeout=LIMIT,
            )
            lines = run.stdout.splitlines()
        except subprocess.TimeoutExpired as over:
            lines = (over.stdout or b"").decode().splitlines()
    return dict(json.loads(lines[-1])) if lines else {}


def _sides() -> list[str]:
    peers = {"torch.compile": "torch", "jax": "jax"}
    return ["weft", *[s for s, module in peers.items() if importlib.util.find_spec(module)]]


def first() -> bool:
    return _new_processes("first", 1.0)


def steps() -> bool:
    return _new_processes("steps", 2.0)


def _new_processes(what: str, bar: float) -> bool:
    good = True
    for side in _sides():
        found = _asked(side, what)
        if not found:
            print(f"{what:10} {side:14} no call was done in {LIMIT:.0f} s", flush=True)
            continue
        said = ""
        if found["done"] < found["of"]:
            said = (
                f", for the first {found['done']:.0f} of {found['of']:.0f} calls in {LIMIT:.0f} s"
            )
        if side == "weft":
            good = found[MEASURE] <= bar and found["recordings"] <= 2
            said += f", {found['recordings']:.0f} recordings"
        print(
            f"{what:10} {side:14} {found['wall']:.2f} s, CPU time {found['cpu']:.2f} s{said}",
            flush=True,
        )
    return good


# --- in turns -------------------------------------------------------------------------------------


def seconds(run: Callable[[], object], count: int) -> float:
    start = clock()
    for _ in range(count):
        run()
    return (clock() - start) / count


def in_turns(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The best time of each."""
    for run in runs:
        seconds(run, 2)
    count = max(1, round(SECONDS / max(seconds(runs[-1], 3), 1e-7)))
    times = [[seconds(run, count) for run in runs] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*times, strict=True)]


def alone() -> bool:
    import weft

    sized = []
    for _ in range(PLACES):
        sized.append(weft_step())
        for length in LENGTHS[:2]:
            sized[-1](*map(weft.tensor, _data(length)))
    worst: list[tuple[float, int, float, float]] = []
    for length in sorted(LENGTHS)[::EVERY]:
        best = [float("inf")] * 2
        for step in sized:
            own = weft_step(dynamic=False)
            given = [*map(weft.tensor, _data(length))]
            times = in_turns([lambda: step(*given), lambda: own(*given)])  # noqa: B023
            best = [min(pair) for pair in zip(best, times, strict=True)]
        worst.append((best[0] / best[1], length, *best))
    worst.sort(reverse=True)
    for ratio, length, took, fixed in worst[:5]:
        print(f"alone      T={length:<4} {took * 1e6:8.1f} µs, alone {fixed * 1e6:8.1f} µs: "
              f"{ratio:.3f}", flush=True)  # fmt: skip
    middle = worst[len(worst) // 2][0]
    print(f"alone      {len(worst)} lengths: the worst above, half of them at most {middle:.3f}; "
          f"{[len(step.recordings) for step in sized]} recordings")  # fmt: skip
    return worst[0][0] <= 1.15


def batches() -> bool:
    import weft

    good = True
    for name in TRAINING:
        work = next(work for work in WORKS if work.name == name)
        best = [float("inf")] * 2
        for _ in range(PLACES):
            given: list[Any] = []

            class Keeping(Kit):
                """Its tensors are kept: the last two are those of the data."""

                def tensor(self, array: Any, grad: bool = False) -> Any:
                    given.append(super().tensor(array, grad))  # noqa: B023
                    return given[-1]  # noqa: B023

            fixed, sized = (
                work.make(Keeping(weft, weft.compile(dynamic=dynamic), _same, _same)).program
                for dynamic in (False, "auto")
            )
            x, y = given[-2:]
            rows, each = x.shape[0], y.shape[0] // x.shape[0]
            for count in (rows // 2, rows):
                sized(x[:count] + 0, y[: count * each] + 0)
            times = in_turns([lambda: sized(x, y), lambda: fixed(x, y)])  # noqa: B023
            best = [min(pair) for pair in zip(best, times, strict=True)]
        ratio = best[0] / best[1]
        good = good and ratio <= 1.10
        print(f"batches    {name:14} {best[0] * 1e6:9.1f} µs, fixed {best[1] * 1e6:9.1f} µs: "
              f"{ratio:.3f}, {len(sized.recordings)} recordings", flush=True)  # fmt: skip
    return good


# --- generation -----------------------------------------------------------------------------------


def decoder(lib: Any) -> Any:
    """One block of a GPT, 128 wide, whose cache the module holds."""
    nn, functional, wide = lib.nn, lib.nn.functional, 128

    class Decoder(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(65, wide), nn.Embedding(512, wide)
            self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
            self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
            self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
            self.head = nn.Linear(wide, 65)
            self.keys, self.values = (lib.zeros((1, HEADS, 0, wide // HEADS)) for _ in range(2))

        def forward(self, token: Any) -> Any:
            at = lib.full((1, 1), self.keys.shape[2], dtype=lib.int64)
            x = self.token(token) + self.place(at)
            parts = self.qkv(self.norm1(x)).reshape(1, 1, 3, HEADS, wide // HEADS)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            self.keys = lib.concat([self.keys, k], 2)
            self.values = lib.concat([self.values, v], 2)
            a = functional.scaled_dot_product_attention(q, self.keys, self.values)
            x = x + self.out(a.permute(0, 2, 1, 3).reshape(1, 1, wide))
            x = x + self.down(functional.gelu(self.up(self.norm2(x))))
            return self.head(x)[0, -1].argmax()

    return Decoder()


def _generate(lib: Any, compiled: Callable[[Any], Any], count: int = 256) -> tuple[float, Any]:
    model = decoder(lib)

    def generate(token: Any) -> Any:
        with lib.no_grad():
            return model(token)

    step, token = compiled(generate), lib.tensor([[1]])
    start = time.perf_counter()
    for _ in range(count):
        token = step(token).reshape(1, 1)
    return time.perf_counter() - start, step


def generate() -> bool:
    import weft

    took, step = _generate(weft, weft.compile)
    eager, _ = _generate(weft, _same)
    said = f"generate   256 tokens {took:.2f} s, first calls included, eagerly {eager:.2f} s"
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        _generate(torch, _same, 16)
        said += f", PyTorch eagerly {_generate(torch, _same)[0]:.2f} s"
    print(f"{said}; {len(step.recordings)} recordings")
    return len(step.recordings) <= 2


ROWS = {row.__name__: row for row in (first, steps, alone, batches, generate)}


def main() -> int:
    global clock, MEASURE, EVERY, LIMIT
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--side")
    options = parser.parse_args()
    if options.side:
        serve(options.side, options.rows[0])
        return 0
    EVERY, LIMIT = options.every, options.limit
    if options.cpu_time:
        clock, MEASURE = time.process_time, "cpu"
    import weft

    weft.set_num_threads(1)
    weft.manual_seed(0)
    results = [ROWS[name]() for name in options.rows or ROWS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
