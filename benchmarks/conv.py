"""Convolutions and pooling: generated kernels and PyTorch side by side, on as many threads.

The sides take turns in rounds, so that a slow moment of the machine meets both, and the median
round counts. Results are checked against each other.

    python benchmarks/conv.py [--threads 2] [--rounds 15] [--only cnn] [--dtype float32] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from weft.base.dtypes import as_dtype
from weft.codegen import conv, pool
from weft.codegen.jit import build
from weft.codegen.machine import host
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.ir.op import OPS
from weft.ir.types import TensorType
from weft.runtime.threads import parallel_address, pool_address, set_num_threads

#: name: batch, channels, sizes, outputs, kernel, stride, padding, groups.
CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "cnn 1-16": (64, 1, (28, 28), 16, (3, 3), 1, 1, 1),
    "cnn 16-32": (64, 16, (14, 14), 32, (3, 3), 1, 1, 1),
    "cnn 1-16 valid": (64, 1, (28, 28), 16, (3, 3), 1, 0, 1),
    "cnn 16-32 valid": (64, 16, (13, 13), 32, (3, 3), 1, 0, 1),
    "64-64 at 32x32": (8, 64, (32, 32), 64, (3, 3), 1, 1, 1),
    "128-128 at 14x14": (8, 128, (14, 14), 128, (3, 3), 1, 1, 1),
    "256-256 at 7x7": (8, 256, (7, 7), 256, (3, 3), 1, 1, 1),
    "1x1 64-128": (8, 64, (28, 28), 128, (1, 1), 1, 0, 1),
    "1x1 256-256": (8, 256, (14, 14), 256, (1, 1), 1, 0, 1),
    "depthwise 64": (8, 64, (28, 28), 64, (3, 3), 1, 1, 64),
    "stride 2": (8, 32, (32, 32), 64, (3, 3), 2, 1, 1),
    "5x5 16-32": (8, 16, (28, 28), 32, (5, 5), 1, 2, 1),
    "7x7 by 2, 3-64": (2, 3, (112, 112), 64, (7, 7), 2, 3, 1),
    "one axis 32-64": (8, 32, (1000,), 64, (5,), 1, 2, 1),
    "one image 64-64": (1, 64, (56, 56), 64, (3, 3), 1, 1, 1),
}
#: name: batch, channels, sizes, kernel, stride, padding.
POOLS: dict[str, tuple[Any, ...]] = {
    "pool 2x2 cnn": (64, 16, (28, 28), 2, 2, 0),
    "pool 2x2 second": (64, 32, (14, 14), 2, 2, 0),
    "pool 3x3 by 2": (8, 64, (56, 56), 3, 2, 1),
    "pool whole 7x7": (32, 256, (7, 7), 7, 7, 0),
}
GRAIN_NS = 4_000  # pieces of work are at least so long
WORTH_NS = 12_000  # less work is not worth a second thread

Call = Callable[[], Any]


def generated(op: str, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[Call, Any, float]:
    """A call of a card's kernels on these arrays, its result, and the time to build it in ms."""
    types = [TensorType(as_dtype(a.dtype), a.shape) for a in arrays]
    made = OPS[op].infer(*types, **attrs)
    assert isinstance(made, TensorType)
    node = Node(OPS[op], [Value(t) for t in types], attrs, [made])
    start = time.perf_counter()
    module = Module(host())
    kernels = {**conv.EMITTERS, **pool.EMITTERS}[op](module, "kernel", node, None) or []
    f = module.function("run", "i32", [("ptr", "args"), ("ptr", "pool")], linkage="")
    for kernel in kernels:
        if kernel.items * kernel.cost < WORTH_NS:
            f(f"call i32 @{kernel.name}(ptr %args, i64 0, i64 {kernel.items})")
        else:
            grain = max(1, round(GRAIN_NS / kernel.cost))
            f(
                f"call i32 inttoptr (i64 {parallel_address()} to ptr)(ptr %pool, "
                f"ptr @{kernel.name}, ptr %args, i64 {kernel.items}, i64 {grain}, ptr null)"
            )
    f.do("ret i32 0")
    library = build(module.text(), ["run"])
    took = 1e3 * (time.perf_counter() - start)
    out = np.empty(made.shape, made.dtype.numpy)
    scratch = np.empty(max(kernel.scratch for kernel in kernels) + 64, np.uint8)
    args = (ctypes.c_void_p * 6)(*[a.ctypes.data for a in (*arrays, out, scratch)])
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("run"))
    at, threads = ctypes.cast(args, ctypes.c_void_p), ctypes.c_void_p(pool_address())
    keep = (library, args, scratch, arrays)

    def call(_keep: Any = keep) -> None:
        run(at, threads)

    return call, out, took


def convolutions(name: str, dtype: str) -> dict[str, tuple[Any, ...]]:
    """For each part: our call, its result, the time to build it, PyTorch's call, operations."""
    batch, channels, sizes, outputs, kernel, stride, padding, groups = CONVOLUTIONS[name]
    rng = np.random.default_rng(0)
    axes = len(sizes)
    x = rng.standard_normal((batch, channels, *sizes)).astype(dtype)
    w = rng.standard_normal((outputs, channels // groups, *kernel)).astype(dtype)
    attrs = {
        "stride": (stride,) * axes,
        "padding": ((padding, padding),) * axes,
        "dilation": (1,) * axes,
        "groups": groups,
    }
    tx, tw = torch.from_numpy(x), torch.from_numpy(w)
    one, zero = [1] * axes, [0] * axes
    given = ([stride] * axes, [padding] * axes, one)
    y = torch.convolution(tx, tw, None, *given, False, zero, groups)
    g = rng.standard_normal(y.shape).astype(dtype)
    tg = torch.from_numpy(g)

    def back(*wanted: bool) -> Call:
        rest = (*given, False, zero, groups, [*wanted, False])
        place = wanted.index(True)
        return lambda: torch.ops.aten.convolution_backward(tg, tx, tw, None, *rest)[place]

    work = 2 * y.numel() * w[0].size
    forward = lambda: torch.convolution(tx, tw, None, *given, False, zero, groups)  # noqa: E731
    return {
        "forward": (*generated("conv", [x, w], attrs), forward, work),
        "input": (
            *generated("conv_input", [g, w], {**attrs, "size": sizes}),
            back(True, False),
            work,
        ),
        "weight": (
            *generated("conv_weight", [x, g], {**attrs, "size": kernel}),
            back(False, True),
            work,
        ),
    }


def pools(name: str, dtype: str) -> dict[str, tuple[Any, ...]]:
    batch, channels, sizes, kernel, stride, padding = POOLS[name]
    x = np.random.default_rng(0).standard_normal((batch, channels, *sizes)).astype(dtype)
    attrs = {
        "kernel": (kernel, kernel),
        "stride": (stride, stride),
        "padding": ((padding, padding),) * 2,
        "dilation": (1, 1),
    }
    tx = torch.from_numpy(x)
    given = ([kernel, kernel], [stride, stride], [padding, padding], [1, 1], False)
    y, places = torch.ops.aten.max_pool2d_with_indices(tx, *given)
    g = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    tg = torch.from_numpy(g)
    back = torch.ops.aten.max_pool2d_with_indices_backward
    work = y.numel() * kernel * kernel
    return {
        "forward": (
            *generated("max_pool", [x], attrs),
            lambda: torch.ops.aten.max_pool2d_with_indices(tx, *given)[0],
            work,
        ),
        "input": (
            *generated("max_pool_input", [g, x, y.numpy()], attrs),
            lambda: back(tg, tx, *given, places),
            work,
        ),
    }


def measure(part: tuple[Any, ...], rounds: int) -> dict[str, float]:
    ours, out, took, theirs, work = part
    ours()
    wanted = theirs().numpy()
    scale = 1e-6 if out.dtype == np.float32 else 1e-14
    np.testing.assert_allclose(out, wanted, atol=scale * work**0.5)
    repeats = max(1, int(4e-3 / (work / 1e11 + 1e-5)))
    times: dict[str, list[float]] = {"weft": [], "torch": []}
    calls: dict[str, Call] = {"weft": ours, "torch": theirs}
    for number in range(rounds):
        for side in list(calls)[:: 1 if number % 2 else -1]:
            call, start = calls[side], time.perf_counter()
            for _ in range(repeats):
                call()
            times[side].append((time.perf_counter() - start) / repeats * 1e6)
    weft_us, torch_us = (statistics.median(times[side]) for side in calls)
    return {
        "weft_us": weft_us,
        "torch_us": torch_us,
        "gflops": work / weft_us / 1e3,
        "ratio": weft_us / torch_us,
        "of minima": min(times["weft"]) / min(times["torch"]),
        "build_ms": took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--part", default="", help="forward, input or weight")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    heads = ("weft_us", "torch_us", "gflops", "ratio", "of minima", "build_ms")
    if not options.json:
        print(f"{'work':>20}{'part':>9}" + "".join(f"{head:>11}" for head in heads))
    for name in (*CONVOLUTIONS, *POOLS):
        if options.only not in name:
            continue
        parts = (convolutions if name in CONVOLUTIONS else pools)(name, options.dtype)
        for part, given in parts.items():
            if options.part not in part:
                continue
            row = measure(given, options.rounds)
            if options.json:
                print(json.dumps({"work": name, "part": part, **row}), flush=True)
            else:
                numbers = "".join(f"{row[head]:>11.2f}" for head in heads)
                print(f"{name:>20}{part:>9}{numbers}", flush=True)


if __name__ == "__main__":
    main()
