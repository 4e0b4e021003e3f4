"""Twenty steps of training: traced = compiled = eager, and = PyTorch where that has the same."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from nn_samples.table import quiet_figures
from training import CASES
from training.table import STEPS, Case, compare, of_torch, of_weft, train

import weft

CAPTURES = {"trace": weft.trace, "source": weft.compile}

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.parametrize("mode", CAPTURES)
@by_case
def test_captured_steps_are_eager_steps(case: Case, mode: str) -> None:
    """Losses, parameters, gradients, moments, buffers, random state; and how often it records."""
    want, _ = train(case, of_weft())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is kept as a graph
        got, counts = train(case, of_weft(), CAPTURES[mode])
    compare(got, want, case.rtol, case.atol)
    place = list(CAPTURES).index(mode)
    settled = case.settled[place]
    assert counts[-1] <= case.recordings[place], counts
    assert counts[settled - 1 :] == [counts[-1]] * (STEPS - settled + 1), counts


@pytest.mark.parametrize("case", [case for case in CASES if case.torch], ids=lambda c: c.name)
def test_steps_are_those_of_pytorch(case: Case) -> None:
    """From the same start: losses, parameters, gradients, buffers and the optimizer's state."""
    name = f"training_{case.name.replace(' ', '_')}"
    want = quiet_figures(name, lambda torch: packed(train(case, of_torch(torch))[0]))
    compare(packed(train(case, of_weft())[0]), want, 1e-7, 1e-9)


def packed(found: dict[str, Any]) -> dict[str, Any]:
    """All numbers in a few arrays, in the order of their names: a file has a price per array."""
    groups: dict[str, list[Any]] = {
        "loss": [],
        "grad": [],
        "optimizer": [],
        "state": [],
        "none": [],
    }
    for name in sorted(found):
        value = found[name]
        kinds = [kind for kind in groups if kind in name]
        if value is None:  # which of them have no gradient
            groups["none"].append([float(len(groups["grad"]))])
        elif name != "random state":
            groups[kinds[0] if kinds else "state"].append(np.ravel(value).astype(np.float64))
    return {kind: np.concatenate(parts or [[]]) for kind, parts in groups.items()}


def test_rows() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    for case in CASES:
        assert case.recordings == (1, 1) or case.why, case.name
