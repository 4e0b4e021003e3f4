"""What the examples share: `show` runs one, says how long it took, and draws its picture."""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "images" / "examples"


def show(
    run: Callable[..., dict[str, Any]],
    draw: Callable[[Any, dict[str, Any]], None],
    size: tuple[float, float] = (6, 3),
) -> None:
    """Run an example from the command line and save its picture, if matplotlib is installed."""
    name = Path(inspect.getfile(run)).stem
    parser = argparse.ArgumentParser(description=inspect.getmodule(run).__doc__)
    parser.add_argument("--steps", type=int, help="fewer steps: a quick look, without a picture")
    options = parser.parse_args()
    start = time.perf_counter()
    result = run() if options.steps is None else run(options.steps)
    print(f"{name}: {result['summary']}, {time.perf_counter() - start:.1f} s in all")
    if options.steps is not None:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    figure = Figure(figsize=size, layout="constrained")
    draw(figure, result)
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"{name}.png", dpi=72, pil_kwargs={"optimize": True})
