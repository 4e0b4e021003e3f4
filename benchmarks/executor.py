"""The dataflow executor: its time per node, overlapping calls, and TensorFlow's executor.

The bars: at most 3 µs for each node of a chain of 10,000 cheap nodes, over what their kernels take;
8 independent calls of 20 ms that let go of Python's lock take at most 1.3 times the ideal on two
threads. TensorFlow runs the same loop and the same wide graph (`tf.function`, two inter-op threads,
one intra-op thread, no rewriting of its graph), in a process of its own:

    python benchmarks/executor.py [--rounds 7] [--tensorflow PYTHON]

PYTHON is an interpreter that has TensorFlow (`pip install tensorflow-cpu`), by default this one;
without TensorFlow its column stays empty. Minima of the rounds: seconds of the processor for the
chain and the loop, which one thread runs, so that other work on the machine does not count; by the
clock for what overlaps.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

PER_NODE_US, OVER_IDEAL = 3.0, 1.3
NODES, CALLS, SLEEP, THREADS = 10_000, 8, 0.02, 2
STEPS, WIDE, DEEP, SIDE = 1000, 8, 10, 256

ROWS = {
    "chain": f"chain of {NODES} additions of 8 numbers, µs per node",
    "over": "the same, over the kernels",
    "calls": f"{CALLS} calls of {SLEEP * 1e3:.0f} ms on {THREADS} threads, of the ideal",
    "loop": f"while loop of {STEPS} iterations on 8 numbers, µs per iteration",
    "wide": f"{WIDE} independent chains of {DEEP} products of {SIDE} × {SIDE}, ms",
    "one": "the same on one thread, ms",
}


def best(
    work: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.process_time
) -> float:
    work()
    times = []
    for _ in range(rounds):
        begun = clock()
        work()
        times.append(clock() - begun)
    return min(times)


def weft_figures(rounds: int) -> dict[str, float]:
    import numpy as np

    import weft

    @weft.custom_op("executor_sleep")
    def sleep(xp: Any, x: Any) -> Any:
        time.sleep(SLEEP)
        return x + 1

    def chain(x: Any, y: Any) -> Any:
        for _ in range(NODES):
            x = x + y
        return x

    def calls(x: Any) -> Any:
        return sum(sleep(x + i) for i in range(CALLS))

    def loop(x: Any, n: Any) -> Any:
        i = n * 0
        while i < n:
            x = x * 0.99 + 0.1 * weft.sin(x)
            i = i + 1
        return x

    def wide(x: Any, w: Any) -> Any:
        total = x * 0
        for k in range(WIDE):
            y = x + k
            for _ in range(DEEP):
                y = y @ w
            total = total + y
        return total

    def made(function: Any, scheduler: str, threads: int = THREADS) -> Any:
        return weft.compile(
            function, capture="trace", backend=weft.Dataflow(scheduler, threads=threads)
        )

    small = weft.ones(8)
    one = weft.full((8,), 1e-3)
    square = weft.ones((SIDE, SIDE)) * 0.01
    run = made(chain, "fifo")
    got = run(small, one)
    kernel = _kernel(np)
    a, b = np.ones(8, np.float32), np.full(8, 1e-3, np.float32)

    def kernels() -> Any:
        x = a
        for _ in range(NODES):
            x = kernel(x, b)
        return x

    np.testing.assert_array_equal(got.numpy(), kernels())
    whole, bare = best(lambda: run(small, one), rounds), best(kernels, rounds)
    apart, n = made(calls, "pool"), weft.asarray(STEPS)
    looping = weft.compile(loop, backend="dataflow")
    pooled, alone = made(wide, "pool"), made(wide, "fifo")
    return {
        "chain": whole / NODES * 1e6,
        "over": (whole - bare) / NODES * 1e6,
        "calls": best(lambda: apart(small), rounds, time.perf_counter) / (CALLS * SLEEP / THREADS),
        "loop": best(lambda: looping(small, n), rounds) / STEPS * 1e6,
        "wide": best(lambda: pooled(square, square), rounds, time.perf_counter) * 1e3,
        "one": best(lambda: alone(square, square), rounds, time.perf_counter) * 1e3,
    }


def _kernel(np: Any) -> Any:
    """The kernel of an addition, as the card gives it."""
    from weft.ir.op import OPS

    return OPS["add"].kernels[np.ndarray][np.dtype(np.float32)]


def tensorflow_figures(rounds: int) -> dict[str, float]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    @tf.function
    def chain(x: Any, y: Any) -> Any:
        for _ in range(NODES):
            x = x + y
        return x

    def sleep(x: Any) -> Any:
        time.sleep(SLEEP)
        return x + 1

    @tf.function
    def calls(x: Any) -> Any:
        found = [
            tf.numpy_function(sleep, [x + float(i)], tf.float32, stateful=False)
            for i in range(CALLS)
        ]
        return tf.add_n(found)

    @tf.function
    def loop(x: Any, n: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            return i + 1, x * 0.99 + 0.1 * tf.sin(x)

        return tf.while_loop(lambda i, _x: i < n, body, (tf.constant(0), x))[1]

    @tf.function
    def wide(x: Any, w: Any) -> Any:
        total = x * 0
        for k in range(WIDE):
            y = x + float(k)
            for _ in range(DEEP):
                y = y @ w
            total = total + y
        return total

    small = tf.ones(8)
    one = tf.fill((8,), 1e-3)
    square = tf.ones((SIDE, SIDE)) * 0.01
    steps = tf.constant(STEPS)
    return {
        "chain": best(lambda: chain(small, one).numpy(), rounds) / NODES * 1e6,
        "calls": best(lambda: calls(small).numpy(), rounds, time.perf_counter)
        / (CALLS * SLEEP / THREADS),
        "loop": best(lambda: loop(small, steps).numpy(), rounds) / STEPS * 1e6,
        "wide": best(lambda: wide(square, square).numpy(), rounds, time.perf_counter) * 1e3,
    }


SIDES = {"weft": weft_figures, "tensorflow": tensorflow_figures}


def measured(side: str, python: str, rounds: int) -> dict[str, float]:
    """The figures of one side, in a process of its own; one thread for each product."""
    alone = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [python, __file__, "--only", side, "--rounds", str(rounds)],
        env={**os.environ, **alone},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{side} does not run: {done.stderr.strip().splitlines()[-1:]}")
        return {}
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tensorflow", default=sys.executable, help="Python with TensorFlow")
    parser.add_argument("--only", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(SIDES[options.only](options.rounds)))
        return
    ours = measured("weft", sys.executable, options.rounds)
    theirs: dict[str, float] = {}
    if options.tensorflow != sys.executable or importlib.util.find_spec("tensorflow"):
        theirs = measured("tensorflow", options.tensorflow, options.rounds)
    print(f"{'':<66} {'Weft':>9} {'TensorFlow':>11}")
    for key, said in ROWS.items():
        cells = [f"{side[key]:.2f}" if key in side else "–" for side in (ours, theirs)]
        print(f"{said:<66} {cells[0]:>9} {cells[1]:>11}")
    kept = ours["over"] <= PER_NODE_US and ours["calls"] <= OVER_IDEAL
    bars = f"{PER_NODE_US} µs per node, {OVER_IDEAL} × ideal"
    print(f"the bars ({bars}): {'kept' if kept else 'BROKEN'}")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
