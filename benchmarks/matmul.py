"""Matrix products: generated kernels, NumPy's BLAS and PyTorch side by side, on as many threads.

The sides take turns in rounds, so that a slow moment of the machine meets all of them, and the
median round counts. All results are checked against a product in float64.

    python benchmarks/matmul.py [--threads 2] [--rounds 15] [--only mlp] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":  # NumPy reads it when it is loaded
    _at = sys.argv.index("--threads") + 1 if "--threads" in sys.argv else 0
    os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[_at] if _at else "2"

import numpy as np
import torch

import weft
from weft.codegen.jit import build
from weft.codegen.machine import host
from weft.codegen.matmul import Product, emit, plain_store
from weft.codegen.text import Module
from weft.runtime.threads import parallel_address, pool_address, set_num_threads

#: name: m, n, k, the stack, and which operands lie turned: "t" is for the transposed one.
SHAPES: dict[str, tuple[int, int, int, tuple[int, ...], str]] = {
    "1024 cubed": (1024, 1024, 1024, (), "nn"),
    "512 cubed": (512, 512, 512, (), "nn"),
    "mlp x w": (128, 512, 784, (), "nn"),
    "mlp x wT": (128, 512, 784, (), "nt"),
    "mlp xT g": (784, 512, 128, (), "tn"),
    "mlp g wT": (128, 784, 512, (), "nt"),
    "mlp head": (128, 10, 512, (), "nn"),
    "mlp head xT g": (512, 10, 128, (), "tn"),
    "mlp head g wT": (128, 512, 10, (), "nt"),
    "attention q kT": (128, 128, 32, (64,), "nt"),
    "attention p v": (128, 32, 128, (64,), "nn"),
    "attention pT g": (128, 32, 128, (64,), "tn"),
    "transformer qkv": (1024, 768, 256, (), "nn"),
    "transformer ff": (1024, 256, 1024, (), "nn"),
    "transformer ff xT g": (256, 1024, 1024, (), "tn"),
    "transformer ff g wT": (1024, 256, 1024, (), "nt"),
    "small x w": (32, 64, 64, (), "nn"),
    "small head": (32, 10, 64, (), "nn"),
    "small xT g": (64, 64, 32, (), "tn"),
    "small g wT": (32, 64, 10, (), "nt"),
    "tiny": (4, 32, 32, (), "nn"),
    "row times matrix": (1, 512, 784, (), "nn"),
    "row times matrixT": (1, 512, 784, (), "nt"),
    "matrix times column": (512, 1, 784, (), "nn"),
}
GRAIN_NS = 20_000  # work below this is not worth a second thread

Call = Callable[[], Any]


def generated(product: Product, a: Any, b: Any, out: Any) -> tuple[Call, float]:
    """A call of the kernels on these arrays, and how long it took to build them, in ms."""
    start = time.perf_counter()
    module = Module(host())
    kernels = emit(module, "product", product, 0, 1, plain_store(product, 2), 3) or []
    scratch = np.empty(max(kernel.scratch for kernel in kernels) + 64, np.uint8)
    # One function that runs the kernels, as a compiled graph's does.
    f = module.function("run", "i32", [("ptr", "args"), ("ptr", "pool")], linkage="")
    for kernel in kernels:
        grain = max(1, round(GRAIN_NS / kernel.cost))
        if kernel.items * kernel.cost < 2 * GRAIN_NS:
            f(f"call i32 @{kernel.name}(ptr %args, i64 0, i64 {kernel.items})")
        else:
            f(
                f"call i32 inttoptr (i64 {parallel_address()} to ptr)(ptr %pool, "
                f"ptr @{kernel.name}, ptr %args, i64 {kernel.items}, i64 {grain}, ptr null)"
            )
    f.do("ret i32 0")
    library = build(module.text(), ["run"])
    took = 1e3 * (time.perf_counter() - start)
    args = (ctypes.c_void_p * 4)(*[x.ctypes.data for x in (a, b, out, scratch)])
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("run"))
    at, pool = ctypes.cast(args, ctypes.c_void_p), ctypes.c_void_p(pool_address())
    keep = (library, args, scratch)

    def call(_keep: Any = keep) -> None:
        run(at, pool)

    return call, took


def measure(name: str, rounds: int) -> dict[str, Any]:
    m, n, k, stack, turned = SHAPES[name]
    rng = np.random.default_rng(0)
    turn_a, turn_b = (word == "t" for word in turned)
    product = Product.dense(m, n, k, weft.float32, stack, turn_a=turn_a, turn_b=turn_b)
    a = rng.standard_normal((*stack, k, m) if turn_a else (*stack, m, k), dtype=np.float32)
    b = rng.standard_normal((*stack, n, k) if turn_b else (*stack, k, n), dtype=np.float32)
    x, y = a.mT if turn_a else a, b.mT if turn_b else b
    outs = {side: np.empty(product.shape, np.float32) for side in ("weft", "numpy", "torch")}
    tx, ty = (torch.from_numpy(v) for v in (a, b))
    tx, ty = tx.mT if turn_a else tx, ty.mT if turn_b else ty
    to = torch.from_numpy(outs["torch"])
    ours, took = generated(product, a, b, outs["weft"])
    calls: dict[str, Call] = {
        "weft": ours,
        "numpy": lambda: np.matmul(x, y, out=outs["numpy"]),
        "torch": lambda: torch.matmul(tx, ty, out=to),
    }
    wanted = x.astype(np.float64) @ y.astype(np.float64)
    size = 2 * m * n * k * int(np.prod(stack, dtype=int))
    repeats = max(1, int(4e-3 / (size / 2e11 + 2e-6)))
    times: dict[str, list[float]] = {side: [] for side in calls}
    for side, call in calls.items():
        call()
        np.testing.assert_allclose(outs[side], wanted, atol=1e-5 * k, err_msg=f"{name}: {side}")
    for number in range(rounds):
        order = list(calls)
        turn = number % len(order)  # nobody always goes first
        for side in order[turn:] + order[:turn]:
            call, start = calls[side], time.perf_counter()
            for _ in range(repeats):
                call()
            times[side].append((time.perf_counter() - start) / repeats * 1e6)
    medians = {side: statistics.median(found) for side, found in times.items()}
    best = min(medians["numpy"], medians["torch"])
    return {
        "product": name,
        "shape": "x".join(map(str, (*stack, m, n, k))) + f" {turned}",
        **{f"{side}_us": median for side, median in medians.items()},
        "gflops": size / medians["weft"] / 1e3,
        "weft/best": medians["weft"] / best,
        "least weft/best": min(times["weft"]) / min(min(times["numpy"]), min(times["torch"])),
        "build_ms": took,
    }


def line(row: dict[str, Any]) -> str:
    times = "".join(f"{row[f'{side}_us']:>11.2f}" for side in ("weft", "numpy", "torch"))
    ratios = f"{row['weft/best']:>11.2f}{row['least weft/best']:>11.2f}"
    shape = f"{row['product']:>20}{row['shape']:>22}"
    return f"{shape}{times}{row['gflops']:>11.1f}{ratios}{row['build_ms']:>11.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="part of a product's name")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    if not options.json:
        heads = ("weft_us", "numpy_us", "torch_us", "GFLOP/s", "ratio", "of minima", "build_ms")
        print(f"{'product':>20}{'shape':>22}" + "".join(f"{head:>11}" for head in heads))
    for name in SHAPES:
        if options.only in name:
            row = measure(name, options.rounds)
            print(json.dumps(row) if options.json else line(row), flush=True)


if __name__ == "__main__":
    main()
