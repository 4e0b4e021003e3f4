"""One native program for all sizes, against a program made for each set of sizes alone.

    python benchmarks/sizes.py                   # all rows, one thread
    python benchmarks/sizes.py "encoder layer"   # one of them

Each row is a graph with named sizes. Its one program and the program for these sizes alone run in
turns; the best time of each is compared. The bar: 1.15 where a call takes longer than 5 µs (shorter
calls show what is paid for the lookup of the sizes, and for kernels that may be empty).

`built` is how long it takes to generate and compile each program, without the cache on disk; `new`
is the first call with sizes that the program has not seen: its table, its memory plan, and arrays.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ["WEFT_CACHE"] = "0"

import numpy as np

import weft
import weft.nn.functional as F
from weft.runtime.native import native
from weft.runtime.sized import SizedProgram

PLACES, ROUNDS = 4, 12  # where memory lies can make a run twice as slow: each has several tries
SECONDS = 0.004  # of one round
BAR, LEAST = 1.15, 5e-6
SIZES: list[Mapping[str, int]] = [
    {"B": 4, "T": 7},
    {"B": 4, "T": 33},
    {"B": 4, "T": 64},
    {"B": 32, "T": 100},
]
Shape = tuple[Any, ...]


# --- a transformer encoder layer, 64 wide, with 4 heads -------------------------------------------

WIDE, HEADS = 64, 4
WEIGHTS: dict[str, Shape] = {
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDE, WIDE)),
    **{"up": (WIDE, 4 * WIDE), "up_bias": (4 * WIDE,), "down": (4 * WIDE, WIDE), "bias": (WIDE,)},
    **dict.fromkeys(("scale1", "shift1", "scale2", "shift2"), (WIDE,)),
}


def encoder(p: Mapping[str, Any], x: Any) -> Any:
    batch, length = x.shape[:2]

    def heads(y: Any) -> Any:
        return weft.permute_dims(y.reshape((batch, length, HEADS, WIDE // HEADS)), (0, 2, 1, 3))

    a = F.scaled_dot_product_attention(*(heads(x @ p[f"w{name}"]) for name in "qkv"))
    a = weft.permute_dims(a, (0, 2, 1, 3)).reshape((batch, length, WIDE))
    x = F.layer_norm(x + a @ p["wo"], (WIDE,), p["scale1"], p["shift1"])
    y = F.gelu(x @ p["up"] + p["up_bias"]) @ p["down"] + p["bias"]
    return F.layer_norm(x + y, (WIDE,), p["scale2"], p["shift2"])


def adam_step(x: Any, y: Any, *flat: Any) -> Any:
    """The loss, and new weights and moments."""
    count = len(WEIGHTS)
    p = dict(zip(WEIGHTS, flat, strict=False))
    first, second = flat[count : 2 * count], flat[2 * count :]
    loss, gradients = weft.value_and_grad(lambda p: ((encoder(p, x) - y) ** 2).mean())(p)
    made = []
    for name, m, v in zip(WEIGHTS, first, second, strict=True):
        g = gradients[name]
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        made += [p[name] - 0.001 * m / (weft.sqrt(v) + 1e-8), m, v]
    return loss, *made


def mlp_gradients(x: Any, up: Any, down: Any) -> Any:
    return weft.grad(lambda p: ((F.gelu(x @ p[0]) @ p[1]) ** 2).mean())((up, down))


def recurrent(x: Any, w: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = weft.tanh(row + h @ w)
        return h, h

    return weft.scan(step, weft.zeros((x.shape[1], 64)), x)[1]


def causal_gradients(*given: Any) -> Any:
    def loss(*given: Any) -> Any:
        return (F.scaled_dot_product_attention(*given, is_causal=True) ** 2).sum()

    return weft.grad(loss, argnums=(0, 1, 2))(*given)


CONVOLUTIONS: list[Shape] = [(16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (32 * 49, 10), (10,)]


def convolution_gradients(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        return (F.conv2d(x, w, padding=1) ** 2).sum()

    return weft.grad(loss, argnums=(0, 1))(x, w)


def convolutional_step(x: Any, t: Any, *weights: Any) -> Any:
    """Two convolutions, each with a pooling, and classes: the loss and new weights."""
    target = weft.astype(weft.abs(t) * 99, weft.int64) % 10

    def loss(p: Any) -> Any:
        y = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1], padding=1)), 2)
        y = F.max_pool2d(F.relu(F.conv2d(y, p[2], p[3], padding=1)), 2)
        return F.cross_entropy(y.reshape((x.shape[0], -1)) @ p[4] + p[5], target)

    found, gradients = weft.value_and_grad(loss)(list(weights))
    return found, *(w - 0.01 * g for w, g in zip(weights, gradients, strict=True))


ROWS: dict[str, tuple[Callable[..., Any], Sequence[Shape]]] = {
    "elementwise": (lambda x: weft.tanh(x) * 2 + x, [("B", "T", 64)]),
    "sum of rows": (lambda x: x.sum(axis=-1), [("B", "T", 64)]),
    "sum of columns": (lambda x: x.sum(axis=(0, 1)), [("B", "T", 64)]),
    "softmax of T": (lambda x: weft.softmax(x, axis=-1), [("B", 64, "T")]),
    "layer norm": (lambda x: F.layer_norm(x, (64,)), [("B", "T", 64)]),
    "heads": (
        lambda x: weft.permute_dims(x.reshape((*x.shape[:2], 4, 16)), (0, 2, 1, 3)) * 2,
        [("B", "T", 64)],
    ),
    "product": (lambda x, w: x @ w, [("B", "T", 64), (64, 256)]),
    "product of transposed": (lambda x, w: x @ w.T, [("B", "T", 64), (256, 64)]),
    "gradients of two layers": (mlp_gradients, [("B", "T", 64), (64, 256), (256, 64)]),
    "embedding": (
        lambda w, x: F.embedding(weft.astype(weft.abs(x * 99), weft.int64) % 50, w),
        [(50, 64), ("B", "T")],
    ),
    "recurrent net": (recurrent, [("T", "B", 64), (64, 64)]),
    "attention": (F.scaled_dot_product_attention, [("B", 4, "T", 16)] * 3),
    "causal attention's gradients": (causal_gradients, [("B", 4, "T", 16)] * 3),
    "running sum": (lambda x: weft.cumulative_sum(x, axis=1), [("B", "T", 64)]),
    "sort": (lambda x: weft.sort(x, axis=-1), [("B", 16, "T")]),
    "largest four": (lambda x: weft.topk(x, 4, axis=0), [(64, "B", "T")]),
    "argmax": (lambda x: weft.argmax(x, axis=-1), [("B", 64, "T")]),
    "convolution's gradients": (convolution_gradients, [("B", 8, 16, 16), (16, 8, 3, 3)]),
    "a step of a convolutional net": (
        convolutional_step,
        [("B", 1, 28, 28), ("B",), *CONVOLUTIONS],
    ),
    "encoder layer": (lambda x, *w: encoder(dict(zip(WEIGHTS, w, strict=True)), x),
                      [("B", "T", WIDE), *WEIGHTS.values()]),
    "its Adam step": (adam_step, [("B", "T", WIDE)] * 2 + [*WEIGHTS.values()] * 3),
}  # fmt: skip


# --- timing ---------------------------------------------------------------------------------------


def timed(run: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def _in_turns(calls: Sequence[Callable[..., Any]], arrays: Sequence[Any]) -> list[float]:
    """The best time of each call on these arrays, in memory of its own."""
    inputs = [weft.asarray(array.copy()) for array in arrays]
    runs = [lambda call=call: call(list(inputs)) for call in calls]
    for run in runs:
        timed(run, 2)
    count = max(1, round(SECONDS / timed(runs[1], 3)))
    best = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        best = [min(seen, timed(run, count)) for run, seen in zip(runs, best, strict=True)]
    return best


def measure(name: str) -> bool:
    """Print the times of a row; returns whether it holds the bar."""
    function, shapes = ROWS[name]
    start = time.perf_counter()
    program = native(weft.make_graph(function, *(weft.spec(shape) for shape in shapes)))
    built = time.perf_counter() - start
    if not isinstance(program, SizedProgram):
        print(f"{name:24} no program for all sizes: {getattr(program, 'why', '')[:120]}")
        return False
    good = True
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        arrays = [
            np.abs(rng.standard_normal([sizes.get(n, n) for n in shape]).astype(np.float32) * 0.1)
            for shape in shapes
        ]
        inputs = [weft.asarray(array) for array in arrays]
        start = time.perf_counter()
        alone = native(weft.make_graph(function, *(x.type for x in inputs)))
        built_alone = time.perf_counter() - start
        start = time.perf_counter()
        program.call(list(inputs))
        new = time.perf_counter() - start
        best = [float("inf")] * 2
        for _ in range(PLACES):
            times = _in_turns([SizedProgram(program.native).call, alone._caller()], arrays)
            best = [min(pair) for pair in zip(times, best, strict=True)]
        ratio = best[0] / best[1]
        slow = ratio > BAR and best[1] > LEAST
        good = good and not slow
        print(
            f"{name:24} B={sizes['B']:<3} T={sizes['T']:<4} {best[0] * 1e6:9.1f} µs, alone "
            f"{best[1] * 1e6:9.1f} µs: {ratio:5.2f}   built {built:.2f} s, alone "
            f"{built_alone:.2f} s, new {new * 1e3:.2f} ms{'   slow' if slow else ''}",
            flush=True,
        )
    return good


def main() -> int:
    weft.set_num_threads(1)
    results = [measure(name) for name in sys.argv[1:] or ROWS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
