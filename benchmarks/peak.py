"""What the machine can do at most, measured at length: see `weft.runtime.peak`."""

from __future__ import annotations

from weft.runtime import peak

TRIES = 40  # of a few milliseconds each: one of them is not disturbed
ROUNDS = 1_000_000
BYTES = 256 << 20


def measured(threads: int) -> dict[str, float]:
    """Operations per second in float32 and float64, and bytes per second read from memory."""
    found = peak.measured(threads, tries=TRIES, rounds=ROUNDS, size=BYTES, budget_s=60.0)
    return {"flops32": found.flops32, "flops64": found.flops64, "bytes": found.bytes}


if __name__ == "__main__":
    for threads in (1, 2):
        print(
            threads, {name: f"{value / 1e9:.1f} G/s" for name, value in measured(threads).items()}
        )
