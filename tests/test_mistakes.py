"""Mistakes raise what they should, and the user's line is named, in every mode."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import mistakes
from mistakes import MISTAKES, marked_line, named_lines, said

import weft
from weft.base.errors import CaptureError, NonFiniteError, WeftError


@pytest.mark.parametrize("backend", [None, "interpret", "native"])
@pytest.mark.parametrize("make", MISTAKES, ids=lambda make: make.__name__)
def test_the_traceback_ends_on_the_line(make: Callable[[], Any], backend: str | None) -> None:
    error = said(make, backend)
    if backend is None and make.__name__ in mistakes.FINE_EAGERLY:
        assert error is None
        return
    assert error is not None
    line = marked_line(make)
    assert list(named_lines(error))[-1] == line
    if isinstance(error, WeftError):
        assert error.location is not None
        assert (error.location.file, error.location.line) == (mistakes.__file__, line)
        assert f"{Path(mistakes.__file__).name}:{line} in" in str(error)


@pytest.mark.parametrize("make", MISTAKES, ids=lambda make: make.__name__)
def test_the_same_kind_of_error_is_raised(make: Callable[[], Any]) -> None:
    eager, *others = (said(make, backend) for backend in (None, *mistakes.BACKENDS))
    for other in others:
        assert other is not None
        if not isinstance(other, CaptureError):
            assert eager is not None
            assert list(named_lines(other)) == list(named_lines(eager))
        assert isinstance(other, (CaptureError if eager is None else type(eager), CaptureError))


def test_there_are_as_many_as_the_docs_promise() -> None:
    assert len(MISTAKES) >= 15


@pytest.mark.parametrize("backend", mistakes.BACKENDS)
def test_an_error_of_a_backward_step_ends_on_the_forward_line(backend: str) -> None:
    w = weft.zeros(2)
    w.requires_grad = True

    @weft.compile(backend=backend)
    def step(x: Any) -> Any:
        y = weft.sqrt(w)  # the forward line
        loss = (y * x).sum()
        loss.backward()  # the backward line
        return loss

    with weft.detect_nan(), pytest.raises(NonFiniteError) as caught:
        step(weft.ones(2))
    entries = traceback.extract_tb(caught.value.__traceback__)
    texts = [entry.line or "" for entry in entries if entry.filename == __file__]
    assert texts[-1].endswith("# the forward line")
    assert texts[-2].endswith("# the backward line")
    assert "in the backward of sqrt at" in str(caught.value)
