"""Source capture: what is refused, what the error shows, and the ways around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from source_constructs import IN

import weft
from weft.errors import CaptureError


def undefined_name(x):
    if x.sum() > 0:
        y = x
    return y


def types_differ(x):
    if x.sum() > 0:
        y = x
    else:
        y = x[:1]
    return y


def structures_differ(x):
    if x.sum() > 0:
        return x
    return (x, x)


def carry_grows(x):
    while x.sum() < 10:
        x = weft.concat([x, x])
    return x


def asks_inside(x):
    while x.sum() < 10:
        x = x * int(x[0])
    return x


def foreign(x):
    return x + np.sin(x)


def strings_differ(x):
    name = "small"
    if x.sum() > 3:
        name = "large"
    return {"small": 1, "large": 2}[name] * x


ERRORS = [
    (undefined_name, "'y' is used here, and it has no value where the condition does not hold"),
    (types_differ, "'y' is f64.2. where the condition holds .*: y = x.*f64.1. where .*x.:1."),
    (structures_differ, "the result is f64\\[2\\] .*return x.* and a tuple .*return \\(x, x\\)"),
    (carry_grows, "'x' is f64\\[2\\] before the loop, and f64\\[4\\] after the body .*concat"),
    (asks_inside, "asks a tensor .f64... for its value .int.(.|\n)*x = x . int.x.0.."),
    (foreign, "numpy.sin is called on tensors(.|\n)*weft.py_call"),
    (strings_differ, "'name' is the str 'large' .* and the str 'small'"),
]


@pytest.mark.parametrize(("function", "message"), ERRORS, ids=lambda e: getattr(e, "__name__", ""))
def test_errors(function: Any, message: str) -> None:
    for x in IN[:2]:
        with pytest.raises(CaptureError, match=message) as caught:
            weft.compile(function)(x)
        assert "test_source_errors.py" in str(caught.value)
        assert caught.value.hint


def test_no_source() -> None:
    names: dict[str, Any] = {}
    exec("def made(x):\n    return x", names)
    with pytest.raises(CaptureError, match="cannot be converted: there is no source"):
        weft.compile(names["made"])(weft.ones(1))


def test_errors_are_those_of_the_path_that_is_taken() -> None:
    def division(x, i):
        if x.sum() > 0:
            return x / [1, 2][1]
        return x / {"a": 1}["b"]

    compiled = weft.compile(division)
    assert compiled(weft.ones(1), 0).tolist() == [0.5]
    with pytest.raises(KeyError):
        compiled(-weft.ones(1), 0)


def test_both_sides_raise() -> None:
    def refuses(x):
        if x.sum() > 0:
            raise ValueError("positive")
        raise KeyError("negative")

    compiled = weft.compile(refuses)
    with pytest.raises(ValueError, match="positive"):
        compiled(weft.ones(1))
    with pytest.raises(KeyError):
        compiled(-weft.ones(1))


def test_a_name_that_only_the_loop_defines() -> None:
    def last(x):
        while x.sum() < 4:
            y = x * 2
            x = x + 1
        return y

    compiled = weft.compile(last)
    assert compiled(weft.ones(1)).tolist() == [6.0]
    with pytest.raises(UnboundLocalError, match="'y' has no value where the loop ends before"):
        compiled(weft.ones(1) * 5)


def test_py_call_and_fallback() -> None:
    def ranked(x):
        order = weft.py_call(lambda v: np.argsort(v.numpy()), weft.spec(2, weft.int64), x)
        return x[order] if x.sum() > 0 else x

    compiled = weft.compile(ranked)
    for x in (IN[0], IN[3], IN[1]):
        assert compiled(x).tolist() == ranked(x).tolist()
    assert len(compiled.recordings) == 1
    called = weft.compile(foreign, fallback="python")
    for x in IN:
        assert np.allclose(called(x), foreign(x))
    assert any(node.op.name == "py_call" for node in called.paths()[0].nodes)
