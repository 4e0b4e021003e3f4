"""Functions in the style of other people's code, called while what they read is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from programs.compare import Outcome, call, difference
from programs.modes import MODES, allowed, capture
from programs.styles import STYLES
from programs.table import Call

from weft import nn

Maker = Callable[[], tuple[Any, list[Any]]]


def run(function: Any, given: Any, module: Any) -> Outcome:
    asked = given if isinstance(given, Call) else Call(*given)
    owner = module if isinstance(module, nn.Module) else None
    return call(function, asked.args, asked.kwargs, second=True, module=owner)


@pytest.mark.parametrize("make", STYLES, ids=lambda make: make.__name__)
def test_eager(make: Maker) -> None:
    """Each call runs, but for one that looks up a name in vain; changes show in the results."""
    function, script = make()
    before: dict[str, Outcome] = {}
    changed = not any(callable(step) for step in script)
    for step in script:
        if callable(step):
            step()
            continue
        out = run(function, step, function)
        assert out.error in (None, KeyError), out.message
        changed |= repr(step) in before and bool(difference(before[repr(step)], out))
        before[repr(step)] = out
    assert changed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", STYLES, ids=lambda make: make.__name__)
def test_captured(make: Maker, mode: str) -> None:
    function, script = make()
    original, other = make()
    captured = capture(mode, original)
    for i, (step, same) in enumerate(zip(script, other, strict=True)):
        if callable(step):
            step()
            same()
            continue
        want = run(function, step, function)
        found = difference(want, run(captured, same, original), **allowed(mode))
        assert not found, f"step {i}: {found}"
