"""Eager's own derivatives against differences of values: an oracle from outside.

Along one direction, the difference quotients of two step sizes must agree with each other; else the
function has a kink near by (a sort of equal numbers, say) and nothing can be said. Then they must
agree with the gradient. At a kink (`relu` at 0), a gradient between the quotients to both sides is
right, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from fuzzing.case import Case
from fuzzing.outcomes import run

#: The two step sizes; how near their quotients must be; the gradient.
STEPS, AGREE, NEAR = (1e-4, 3e-5), 1e-5, 1e-3


def wrong_derivative(case: Case, function: Callable[..., Any], values: list[Any]) -> str:
    """What is wrong with the gradient of `value_and_grad`, in words; empty if nothing is."""
    at = [i for i, one in enumerate(case.arguments) if one.is_float and one.grad]
    rounds = any(name in line for line in case.body for name in ("float16", "float32"))
    if rounds or any(case.arguments[i].dtype != "float64" for i in at):
        return ""  # values change by steps
    if any(one.values in ("special", "small integers") for one in case.arguments):
        return ""  # there are no differences of infinities, and ties are kinks
    if any(name in line for line in case.body for name in ("stop_gradient", "detach", "no_grad")):
        return ""  # the value changes where the gradient is cut
    rng = np.random.default_rng(3)
    direction = {i: rng.standard_normal(values[i].shape) for i in at}

    def value(step: float) -> float:
        moved = [
            x + weft.asarray(step * direction[i]) if i in direction else x
            for i, x in enumerate(values)
        ]
        return float(run(function, moved).leaves[0])

    out = run(function, values)
    gradients = out.leaves[1:]
    got = sum(float((g * direction[i]).sum()) for g, i in zip(gradients, at, strict=True))
    if not np.isfinite(got):
        return ""
    here = float(out.leaves[0])
    try:
        ends = [(value(h), value(-h)) for h in STEPS]
    except IndexError:  # it raises there
        return ""
    quotients = [(up - down) / (2 * h) for h, (up, down) in zip(STEPS, ends, strict=True)]
    sizes = [abs(here), abs(got), *map(abs, quotients)]
    scale = 1 + max(sizes)
    if not np.all(np.isfinite(quotients)) or abs(quotients[0] - quotients[1]) > AGREE * scale:
        return ""
    (up, down), h = ends[1], STEPS[1]
    sides = sorted([(up - here) / h, (here - down) / h])
    if sides[0] - NEAR * scale <= got <= sides[1] + NEAR * scale:
        return ""
    return f"eagerly, the derivative in a direction is {got}; differences say {quotients[1]}"
