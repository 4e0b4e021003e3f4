"""Convolutions and pooling for all heights, widths and lengths, over programs for one size.

    python benchmarks/windows.py                  # all rows
    python benchmarks/windows.py 3x3 pool         # those with such a name

Each row has the result and the gradients of input and weight: µs for one size, µs for all
sizes, and their ratio. It is CPU time with one thread, the best of sides that run in turns.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("WEFT_CACHE", "0")

import numpy as np

import weft
import weft.nn.functional as F
from weft.passes.pipeline import optimize
from weft.runtime.native import native

ROUNDS, SECONDS = 12, 0.004
Shape = tuple[int, ...]


def _conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: F.conv2d(x, w, **options)


#: name -> the function, and the shapes of the input and of the weight, if there is one
ROWS: dict[str, tuple[Callable[..., Any], Shape, Shape | None]] = {
    **{
        f"conv 3x3 {i}-{o} of {n}": (_conv(padding=1), (batch, i, n, n), (o, i, 3, 3))
        for i, o, n, batch in (
            *((3, 16, 32, 8), (16, 32, 28, 8), (64, 64, 14, 4), (64, 128, 7, 8)),
            *((256, 256, 7, 4), (16, 16, 112, 1), (3, 64, 224, 1)),
        )
    },
    "conv 1x1 64-256 of 28": (_conv(), (4, 64, 28, 28), (256, 64, 1, 1)),
    "conv 3x3 stride 2": (_conv(stride=2, padding=1), (4, 32, 28, 28), (64, 32, 3, 3)),
    "conv 7x7 stride 2": (_conv(stride=2, padding=3), (1, 3, 224, 224), (64, 3, 7, 7)),
    "conv 3x3 depthwise": (_conv(padding=1, groups=64), (4, 64, 28, 28), (64, 1, 3, 3)),
    "conv 1d": (lambda x, w: F.conv1d(x, w, padding=1), (8, 64, 100), (64, 64, 3)),
    "conv transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        (4, 32, 14, 14),
        (32, 16, 4, 4),
    ),
    "pool max 2": (lambda x: F.max_pool2d(x, 2), (8, 16, 32, 32), None),
    "pool max 3 stride 2": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 16, 56, 56), None),
    "pool mean 3": (lambda x: F.avg_pool2d(x, 3, 1, 1), (4, 8, 28, 28), None),
    "pool mean of all": (lambda x: F.adaptive_avg_pool2d(x, 1), (8, 64, 14, 14), None),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        (4, 8, 28, 28),
        None,
    ),
}


def _gradient(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    return lambda *given: weft.grad(lambda *x: (function(*x) ** 2).sum(), argnums=number)(*given)


def ratio(function: Callable[..., Any], shapes: list[Shape]) -> str:
    """The times for one size and for all, and their ratio."""
    rng = np.random.default_rng(0)
    given = [weft.asarray(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
    image, *rest = shapes
    any_size = ("B", image[1], *("D", "H", "W")[5 - len(image) :])
    programs = [
        native(optimize(weft.make_graph(function, *map(weft.spec, (first, *rest)))))
        for first in (image, any_size)
    ]
    for program in programs:
        program.call(given)
    start = time.process_time()
    programs[0].call(given)
    count = max(1, round(SECONDS / max(time.process_time() - start, 1e-6)))
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        for side, program in enumerate(programs):
            start = time.process_time()
            for _ in range(count):
                program.call(given)
            best[side] = min(best[side], (time.process_time() - start) / count)
    return f"{best[0] * 1e6:7.1f} {best[1] * 1e6:7.1f} {best[1] / best[0]:.2f}"


def main() -> None:
    weft.set_num_threads(1)
    for name, (function, image, weight) in ROWS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        shapes = [image, *([] if weight is None else [weight])]
        kinds = [function, *(_gradient(function, number) for number in range(len(shapes)))]
        print(f"{name:24}", " | ".join(ratio(kind, shapes) for kind in kinds), flush=True)


if __name__ == "__main__":
    main()
