"""Mistakes raise what they should, and the user's line is named, in every mode."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mistakes
import pytest
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


# --- the same error, again ------------------------------------------------------------------------

SAME = ValueError("there is one of it")


def _refuse(_x: Any) -> Any:
    raise SAME.with_traceback(None)


def _called(x: Any) -> Any:
    return weft.py_call(_refuse, weft.spec((2,)), x * 2)


def _names(run: Callable[[], Any]) -> list[str]:
    """The functions of this file that the traceback of an error goes through."""
    with pytest.raises(ValueError, match="one of it") as caught:
        run()
    entries = traceback.extract_tb(caught.value.__traceback__)
    return [entry.name for entry in entries if entry.filename == __file__]


@pytest.mark.parametrize("backend", mistakes.BACKENDS)
def test_an_error_that_is_raised_again_has_lines_again(backend: str) -> None:
    run = weft.compile(_called, backend=backend)
    for _ in range(3):
        assert _names(lambda: run(weft.ones(2)))[-2:] == ["_called", "_refuse"]


@pytest.mark.parametrize("backend", mistakes.BACKENDS)
def test_lines_of_a_graph_that_a_graph_calls(backend: str) -> None:
    inner = weft.compile(_called, backend=backend)

    def passed_on(x: Any) -> Any:
        return inner(x)

    def outer(x: Any) -> Any:
        return weft.py_call(passed_on, weft.spec((2,)), x + 1)

    run = weft.compile(outer, backend=backend)
    for _ in range(2):
        names = _names(lambda: run(weft.ones(2)))
        assert names[-4:] == ["outer", "passed_on", "_called", "_refuse"]
