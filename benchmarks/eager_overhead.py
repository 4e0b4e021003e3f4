"""What one eager op costs: Weft, PyTorch and NumPy side by side on 32 elements of float32.

At this size the arithmetic takes nanoseconds, so the time is the overhead of the call. The sides
take turns in rounds, so that a slow moment of the machine meets all of them, and the median round
counts.

    python benchmarks/eager_overhead.py [--rounds 41] [--calls 2000] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import timeit
from typing import Any

import numpy as np
import torch

import weft

SIZE = 32
THREADS = 2
BAR = 0.8  # geometric mean of weft's time over torch's: at most this
CASES = ["a + b", "a * 2", "a.sum()", "a[1:]", "a @ b"]


def operands() -> dict[str, dict[str, Any]]:
    """The same numbers for each side."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(SIZE, dtype=np.float32) for name in ("a", "b")}
    return {
        "weft": {name: weft.asarray(array) for name, array in arrays.items()},
        "torch": {name: torch.from_numpy(array.copy()) for name, array in arrays.items()},
        "numpy": arrays,
    }


def check(case: str, sides: dict[str, dict[str, Any]]) -> None:
    """All sides give the same result, of the same dtype."""
    results = {side: np.asarray(eval(case, dict(given))) for side, given in sides.items()}
    for side, result in results.items():
        assert result.dtype == results["numpy"].dtype, f"{case}: {side} gave {result.dtype}"
        np.testing.assert_allclose(
            result, results["numpy"], rtol=1e-5, atol=1e-6, err_msg=f"{case}: {side}"
        )


def measure(case: str, sides: dict[str, dict[str, Any]], rounds: int, calls: int) -> dict[str, Any]:
    """The median time of one call on each side, in nanoseconds."""
    timers = {side: timeit.Timer(case, globals=dict(given)) for side, given in sides.items()}
    times: dict[str, list[float]] = {side: [] for side in timers}
    for timer in timers.values():
        timer.timeit(calls)  # warm-up
    for number in range(rounds):
        order = list(timers)
        turn = number % len(order)  # nobody always goes first
        for side in order[turn:] + order[:turn]:
            times[side].append(timers[side].timeit(calls) / calls * 1e9)
    medians = {side: statistics.median(found) for side, found in times.items()}
    return {
        "op": case,
        **{f"{side}_ns": median for side, median in medians.items()},
        "weft/torch": medians["weft"] / medians["torch"],
        "weft/numpy": medians["weft"] / medians["numpy"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    columns = ["op", "weft_ns", "torch_ns", "numpy_ns", "weft/torch", "weft/numpy"]
    lines = ["".join(f"{column:>12}" for column in columns)]
    for row in rows:
        times = "".join(f"{row[column]:>12.0f}" for column in columns[1:4])
        ratios = "".join(f"{row[column]:>12.2f}" for column in columns[4:])
        lines.append(f"{row['op']:>12}{times}{ratios}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of one eager op on 32 elements")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--calls", type=int, default=2000, help="calls per round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    torch.set_num_threads(THREADS)
    sides = operands()
    for case in CASES:
        check(case, sides)
    rows = [measure(case, sides, options.rounds, options.calls) for case in CASES]
    mean = math.exp(statistics.fmean(math.log(row["weft/torch"]) for row in rows))
    if options.json:
        versions = {"torch": torch.__version__, "numpy": np.__version__, "weft": weft.__version__}
        print(json.dumps({"versions": versions, "rows": rows, "geometric_mean": mean, "bar": BAR}))
        return
    print(f"one eager op on {SIZE} float32, nanoseconds (median of {options.rounds} rounds)")
    print(f"torch {torch.__version__} with {THREADS} threads, numpy {np.__version__}\n")
    print(table(rows))
    verdict = "met" if mean <= BAR else "NOT met"
    print(f"\ngeometric mean weft/torch {mean:.2f}; bar: at most {BAR}: {verdict}")


if __name__ == "__main__":
    main()
