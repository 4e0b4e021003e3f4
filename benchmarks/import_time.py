"""What `import weft` adds to `import numpy`: medians over fresh processes, taking turns.

python benchmarks/import_time.py [--rounds 11] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

BAR = 0.12  # seconds more than `import numpy`
SIDES = ("numpy", "weft")
#: Bytecode is kept, as it is where packages are installed: else compiling is what is measured.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def import_time(module: str) -> float:
    """Seconds that the import takes in a new process, without the start of Python itself."""
    code = (
        "import time; start = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - start)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of `import weft`")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    for side in SIDES:
        import_time(side)  # warm-up: files cached, bytecode written
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            times[side].append(import_time(side))
    medians = {side: statistics.median(found) for side, found in times.items()}
    more = medians["weft"] - medians["numpy"]
    if options.json:
        print(json.dumps({"median_s": medians, "weft_adds_s": more, "bar": BAR}))
        return
    print(f"import time in seconds (median of {options.rounds} fresh processes)")
    for side, median in medians.items():
        print(f"  {side:<6} {median:.3f}")
    verdict = "met" if more <= BAR else "NOT met"
    print(f"weft adds {more:.3f} s to numpy; bar: at most {BAR} s: {verdict}\n")


if __name__ == "__main__":
    main()
