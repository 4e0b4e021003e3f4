"""What a captured function reads and writes outside of itself is what the eager one does."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from state import ROWS
from state.table import Row, World, equal, seen

import weft
from weft.capture.trace.captured import CaptureWarning

MODES = {"trace": weft.trace, "source": weft.compile}


@contextlib.contextmanager
def quiet(kept: bool) -> Iterator[None]:
    """A warning says that a function is not kept as a graph: an error, unless the row says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("error" if kept else "ignore", CaptureWarning)
        yield


def run(row: Row, mode: str) -> list[Any]:
    """What is seen after each call: the result, the arguments, and the world."""
    world = World()
    function = row.make(world)
    call = MODES[mode](function) if mode != "eager" else function
    out = []
    for args in row.calls():
        result = call(*args)
        vars(world).get("after", lambda: None)()
        extra = vars(world).get("read", lambda: None)()
        held = {k: v for k, v in vars(world).items() if k not in ("after", "read")}
        given = [x for x in args if isinstance(x, (weft.Tensor, weft.Generator))]
        out.append(seen([result, given, held, extra]))
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_state_is_that_of_eager(row: Row, mode: str) -> None:
    if mode not in row.modes:
        pytest.skip(row.why)
    want = run(row, "eager")
    with quiet(row.kept):
        got = run(row, mode)
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        assert equal(a, b), f"call {i}:\n{b}\ninstead of\n{a}"


def test_rows() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.why or (row.kept and set(row.modes) == set(MODES)) for row in ROWS)
