"""Loops over Python's ranges, zips and lists of numbers: which become loops of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

N = 40
PROGRAMS: dict[str, Callable[[Any], Any]] = {}
#: Those that are unrolled, and a part of the reason that `explain` gives.
UNROLLED = {
    "tensors_of_a_list": "it iterates over a Python list",
    "key_of_a_dict": "Python asks a tensor",
    "numpy_numbers": "it iterates over a Python ndarray",
}


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


@program
def plain(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9 + i
    return x


@program
def backwards(x: Any) -> Any:
    for i in reversed(range(N)):
        x = x * 0.9 + i
    return x


@program
def enumerated_range(x: Any) -> Any:
    for j, i in enumerate(range(N)):
        x = x * 0.9 + i - j
    return x


@program
def enumerated_from_one(x: Any) -> Any:
    for j, i in enumerate(range(N), 1):
        x = x * 0.9 + i / j
    return x


@program
def zip_range_tensor(x: Any) -> Any:
    ys = weft.arange(N) * 1.0
    for i, y in zip(range(N), ys, strict=True):
        x = x * 0.9 + i * y
    return x


@program
def zip_ranges(x: Any) -> Any:
    for i, j in zip(range(N), range(N, 0, -1), strict=True):
        x = x * 0.9 + i * j
    return x


@program
def steps_of_two(x: Any) -> Any:
    for i in range(0, 2 * N, 2):
        x = x * 0.9 + i
    return x


@program
def negative_steps(x: Any) -> Any:
    for i in range(N - 1, -1, -1):
        x = x * 0.9 + i
    return x


@program
def tensor_of_the_counter(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9 + weft.tensor([i])
    return x


@program
def tensor_of_a_list(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9 + weft.tensor([i, 1], dtype=weft.float32)[0]
    return x


@program
def full_of_a_fraction(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9 + weft.full((3,), i / N)
    return x


@program
def full_of_integers(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9 + weft.full((3,), i, dtype=weft.int64)
    return x


@program
def index(x: Any) -> Any:
    ys = weft.arange(N) * 1.0
    for i in range(N):
        x = x * 0.9 + ys[i]
    return x


@program
def index_prev(x: Any) -> Any:
    ys = weft.arange(N + 1) * 1.0
    for i in reversed(range(N)):
        x = x * ys[i] / ys[i + 1]
    return x


@program
def branch_on_the_counter(x: Any) -> Any:
    for i in range(N):
        if i % 2 == 0:  # noqa: SIM108
            x = x * 0.9
        else:
            x = x + 1
    return x


@program
def branch_in_a_sampler(x: Any) -> Any:
    for i in range(N):
        if i > 0:
            x = x * 0.9 + weft.randn(3) * 0
    return x


@program
def conditional_expression(x: Any) -> Any:
    for i in reversed(range(N)):
        noise = weft.randn(3) * 0 if i > 0 else weft.zeros(3)
        x = x * 0.9 + noise
    return x


@program
def text_nobody_reads(x: Any) -> Any:
    for i in range(N):
        s = f"step {i}"  # noqa: F841
        x = x * 0.9
    return x


@program
def printed_text(x: Any) -> Any:
    for i in range(N):
        print(f"step {i}", end="")
        x = x * 0.9
    return x


@program
def list_of_results(x: Any) -> Any:
    out = []
    for i in range(N):
        x = x * 0.9 + i
        out.append(x)
    return weft.stack(out)


@program
def item_of_a_list(x: Any) -> Any:
    ws = [0.1 * k for k in range(N)]
    for i in range(N):
        x = x * 0.9 + ws[i]
    return x


@program
def numbers_of_a_list(x: Any) -> Any:
    for w in [0.1 * k for k in range(N)]:
        x = x * 0.9 + w
    return x


@program
def enumerated_list(x: Any) -> Any:
    for i, w in enumerate([0.1 * k for k in range(N)]):
        x = x * 0.9 + w * i
    return x


@program
def zipped_lists(x: Any) -> Any:
    ws = [0.1 * k for k in range(N)]
    for a, b in zip(ws[:-1], ws[1:], strict=False):  # noqa: RUF007
        x = x * a + b
    return x


@program
def tensors_of_a_list(x: Any) -> Any:
    ws = [weft.ones(3) * k for k in range(N)]
    for w in ws:
        x = x * 0.9 + w
    return x


@program
def embedding(x: Any) -> Any:
    table = weft.arange(3 * N).reshape(N, 3) * 0.01
    for i in range(N):
        t = weft.tensor([i])
        x = x + table[t][0]
    return x


@program
def writes(x: Any) -> Any:
    acc = weft.zeros(N)
    for i in range(N):
        acc[i] = (x * i).sum()
    return acc


@program
def functions_of_math(x: Any) -> Any:
    for i in range(1, N):
        x = x * math.cos(i / N) + math.sqrt(i)
    return x


@program
def powers(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9**i + 2**i % 7
    return x


@program
def nested(x: Any) -> Any:
    for i in range(10):
        for j in range(i):
            x = x * 0.9 + j
    return x


@program
def slices(x: Any) -> Any:
    ys = weft.arange(N + 2) * 1.0
    for i in range(N):
        x = x * 0.9 + ys[i : i + 2].sum()
    return x


@program
def key_of_a_dict(x: Any) -> Any:
    d = {k: k * 0.5 for k in range(N)}
    for i in range(N):
        x = x * 0.9 + d[i]
    return x


@program
def item_of_a_tensor(x: Any) -> Any:
    for i in range(N):  # noqa: B007
        x = x * 0.9 + x.sum().item() * 0.01
    return x


@program
def leaves_early(x: Any) -> Any:
    for i in range(N):
        x = x * 0.9
        if i == 30:
            break
    return x


@program
def continues(x: Any) -> Any:
    for i in range(N):
        if i % 3:
            continue
        x = x * 0.9
    return x


@program
def conversions(x: Any) -> Any:
    for i in range(N):
        x = x * float(i) * 0.01 + int(i / 2)
    return x


@program
def numpy_numbers(x: Any) -> Any:
    for t in np.linspace(0, 1, N):
        x = x * 0.9 + t
    return x


@program
def rows(x: Any) -> Any:
    for t in weft.linspace(1, 0, N):
        x = x * 0.9 + t
    return x


@program
def pairs(x: Any) -> Any:
    for a, b in [(k, k + 1) for k in range(N)]:
        x = x * 0.9 + a * b
    return x


@program
def sizes_and_the_counter(x: Any) -> Any:
    for i in range(N):
        x = x + weft.full((x.shape[0],), i, dtype="int64")
    return x
