"""What a profile costs while it is open, and while it is not.

    python benchmarks/profile_overhead.py

Functions whose kernels take 20 µs and more are called with and without a profile, in turns; the
medians are compared. The bar: 10 % while it is open. While none is open there is nothing to
compare: the same code runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import weft

ROUNDS = 31
CALLS = 20


def microseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - start) / CALLS * 1e6


def product(x: weft.Tensor) -> weft.Tensor:
    return (x @ x) @ x


def function(x: weft.Tensor) -> weft.Tensor:
    return weft.exp(weft.exp(x.reshape(-1)).sort())


def main() -> None:
    x = weft.randn((192, 192))
    for name, run in (("two products", product), ("exp and sort", function)):
        compiled = weft.compile(run, backend="native")
        for mode, call in (("native", compiled), ("eager", run)):
            call(x)
            with weft.profile(roofline=False):
                call(x)
            plain, open_ = [], []
            for _ in range(ROUNDS):
                plain.append(microseconds(lambda call=call: call(x)))  # type: ignore[misc]
                with weft.profile(roofline=False) as p:
                    call(x)  # makes what it needs
                    open_.append(microseconds(lambda call=call: call(x)))  # type: ignore[misc]
            kernels = [event.seconds for event in p.events if event.kind in ("kernel", "op")]
            a, b = statistics.median(plain), statistics.median(open_)
            shortest = min(kernels) * 1e6
            print(
                f"{name}, {mode}: {a:.0f} µs, with a profile {b:.0f} ({b / a - 1:+.1%}; bar 10 %), "
                f"shortest kernel {shortest:.0f} µs"
            )


if __name__ == "__main__":
    main()
