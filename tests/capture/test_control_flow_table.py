"""Each row of the table in docs/control_flow.md: eager, traced and compiled agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_flow_rows import HOLDER, ROWS

import weft

PAGE = Path(__file__).resolve().parents[2] / "docs" / "control_flow.md"


def run(call: Callable[..., Any], values: list[float]) -> list[Any]:
    """The value and its gradient; or the class of the error."""
    HOLDER.last = None
    weft.manual_seed(3)
    x = weft.tensor(values, dtype=weft.float64, requires_grad=True)
    try:
        y = call(x)
    except (AssertionError, ValueError) as error:
        return [AssertionError if isinstance(error, AssertionError) else type(error)]
    (g,) = weft.autograd.grad(y.sum(), x, create_graph=True)
    second = x * 0
    if g.requires_grad:
        (second,) = weft.autograd.grad((g * g).sum(), x, materialize_grads=True, allow_unused=True)
    return [y.detach(), g.detach(), second.detach()]


@pytest.mark.parametrize("mode", ["trace", "source"])
@pytest.mark.parametrize("name", ROWS)
def test_a_row(name: str, mode: str) -> None:
    function, inputs = ROWS[name]
    captured = weft.compile(function, capture=mode)
    for values in (*inputs, *reversed(inputs)):
        want, got = run(function, values), run(captured, values)
        for a, b in zip(got, want, strict=True):
            if isinstance(b, type):
                assert a is b
            else:
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)
    # The size of what a loop made is a guard: one graph for each.
    guarded = ("attribute", "list grown")
    if mode == "source" and not any(word in name for word in guarded):
        assert len(captured.recordings) == 1, [str(r) for r in captured.recordings]


def test_the_page_lists_these_rows() -> None:
    found = re.findall(r"^\| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    table = found[found.index("construct") + 2 :]
    assert table == list(ROWS)
