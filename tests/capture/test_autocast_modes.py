"""`weft.autocast` in all modes: they do as eager code does, in values, dtypes and gradients."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from autocast_rows import ROWS

import weft

#: A unit of the last place of the narrow dtype that a value was in.
TOLERANCE = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-7}


def modes(function: Any) -> dict[str, Any]:
    return {
        "trace": weft.trace(function, backend="interpret"),
        "interpret": weft.compile(function, backend="interpret"),
        "native": weft.compile(function, backend="native"),
    }


def data(sign: float = 1.0) -> tuple[Any, Any]:
    w = weft.tensor([[0.5, 0.3, 0.1], [-0.2, 0.7, 0.4], [0.6, -0.1, 0.2]], requires_grad=True)
    return w, weft.tensor([[1.1, 0.7, -0.3], [0.2, 0.9, 1.3]]) * sign


def run(function: Any, sign: float, context: Any = contextlib.nullcontext) -> list[Any]:
    """The results, and the gradient of w by a backward from the last of them."""
    w, x = data(sign)
    with context():
        out = function(w, x)
    if out[-1].requires_grad:
        out[-1].backward()
    return [*[part.detach() for part in out], w.grad]


def inside(function: Any) -> Any:
    """The same with the backward in the function."""

    def step(w: Any, x: Any) -> Any:
        out = function(w, x)
        if out[-1].requires_grad:
            out[-1].backward()
        return tuple([part.detach() for part in out])

    return step


def same(got: list[Any], want: list[Any], note: str) -> None:
    assert len(got) == len(want), note
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert (a is None) == (b is None), f"{note} {i}"
        if a is None:
            continue
        assert a.dtype is b.dtype, f"{note} {i}: {a.dtype} {b.dtype}"
        scale = max(1.0, float(weft.max(weft.abs(b.double()))))
        close = TOLERANCE[b.dtype.name] * scale
        np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), atol=close, err_msg=note)


@pytest.mark.parametrize("name", ROWS)
def test_backward_outside(name: str) -> None:
    function = ROWS[name]
    for mode, compiled in modes(function).items():
        for sign in (1.0, -1.0, 1.0):
            same(run(compiled, sign), run(function, sign), f"{mode} {sign}")


@pytest.mark.parametrize("name", ROWS)
def test_backward_inside(name: str) -> None:
    function = inside(ROWS[name])
    for mode, compiled in modes(function).items():
        for sign in (1.0, -1.0, 1.0):
            same(run(compiled, sign), run(function, sign), f"{mode} {sign}")


@pytest.mark.parametrize("name", ROWS)
def test_called_in_another_autocast(name: str) -> None:
    """One compiled function, called in one mode after the other."""
    function = ROWS[name]
    contexts = [
        contextlib.nullcontext,
        lambda: weft.autocast("float16"),
        lambda: weft.autocast("bfloat16"),
        contextlib.nullcontext,
    ]
    for mode, compiled in modes(function).items():
        for context in contexts:
            same(run(compiled, 1.0, context), run(function, 1.0, context), mode)


@pytest.mark.parametrize("name", ROWS)
def test_gradients_keep_the_dtype(name: str) -> None:
    found = run(ROWS[name], 1.0)[-1]
    assert found is None or found.dtype is weft.float32
    assert not weft.is_autocast_enabled()
