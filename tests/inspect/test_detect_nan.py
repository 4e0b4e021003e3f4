"""`weft.detect_nan`: the op and the line that create a NaN or inf, eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base.errors import NonFiniteError, RangeError

HERE = Path(__file__).name
MODES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "trace": lambda f: weft.trace(f, backend="interpret"),
    "interpret": lambda f: weft.compile(f, backend="interpret"),
    "native": lambda f: weft.compile(f, backend="native"),
}


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    assert len(found) == 1, (text, found)
    return found[0]


# --- functions in which something is born, each with x = [1, 0, 2] ------------------------------


def log_of_zero(x: Any) -> Any:
    y = x * 2
    z = y.log() if y.sum() > 0 else y  # log of zero
    return z + 1


def in_a_loop(x: Any) -> Any:
    y = x + 3
    n = 0
    while n < y.sum() * 0 + 6:
        y = weft.sqrt(y - 1)  # root in a loop
        n = n + 1
    return y


def in_a_scan(x: Any) -> Any:
    total = x.sum()
    for row in weft.stack([x + 1, x + 2, x - 1, x]):
        total = total + row.log().sum()  # log in a scan
    return total


def of_infs(x: Any) -> Any:
    masked = weft.where(x > 5, x, weft.asarray(-weft.inf))
    return (masked - masked.max()).exp()  # inf minus inf


def too_large(x: Any) -> Any:
    h = (x * 100).exp()  # overflow
    return h / h


def backward_inside(x: Any) -> Any:
    w = weft.zeros(3).requires_grad_()
    h = w * x
    loss = (h * h).sum().sqrt()  # root of zero
    loss.backward()
    return w.grad


#: name: the function, the mark of its line, the op that eager mode names, what is born.
BORN: dict[str, tuple[Any, str, str]] = {
    "log": (log_of_zero, "log of zero", "an inf"),
    "while": (in_a_loop, "root in a loop", "a NaN"),
    "scan": (in_a_scan, "log in a scan", "a NaN"),
    "infs": (of_infs, "inf minus inf", "a NaN"),
    "overflow": (too_large, "overflow", "an inf"),
    "backward": (backward_inside, "root of zero", "an inf"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BORN)
def test_the_line_is_named(name: str, mode: str) -> None:
    function, mark, what = BORN[name]
    run = MODES[mode](function)
    x = weft.asarray([1.0, 0.0, 2.0])
    with pytest.raises(NonFiniteError) as caught, weft.detect_nan():
        run(x)
    error = caught.value
    assert isinstance(error, FloatingPointError)
    assert f"{HERE}:{line_of(mark)}" in str(error)
    assert what in str(error)
    run(x)  # it is over: nothing is raised


@pytest.mark.parametrize("mode", ["interpret", "native"])
@pytest.mark.parametrize(
    ("name", "iteration"), [("while", "iteration 2 of the while"), ("scan", "iteration 2 of the")]
)
def test_the_iteration_is_named(name: str, iteration: str, mode: str) -> None:
    run = MODES[mode](BORN[name][0])
    x = weft.asarray([1.0, 0.0, 2.0]) if name == "while" else weft.asarray([1.0, 1.5, 2.0])
    with pytest.raises(NonFiniteError, match=iteration), weft.detect_nan():
        run(x)


@pytest.mark.parametrize("mode", MODES)
def test_a_backward_outside(mode: str) -> None:
    def f(z: Any) -> Any:
        return (z**0.5).sum()  # root by power

    z = weft.tensor([1.0, 0.0], requires_grad=True)
    run = MODES[mode](f)
    with pytest.raises(NonFiniteError, match="backward of pow") as caught, weft.detect_nan():
        run(z).backward()
    assert f"{HERE}:{line_of('root by power')}" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_operands_are_summed_up(mode: str) -> None:
    def f(a: Any, b: Any) -> Any:
        return a / b

    run = MODES[mode](f)
    with pytest.raises(NonFiniteError, match="2 of 4 elements") as caught, weft.detect_nan():
        run(weft.asarray([1.0, 2.0, 3.0, 4.0]), weft.asarray([1.0, 0.0, 0.0, 2.0]))
    assert "f32[4] in [1, 4]" in str(caught.value)
    assert "f32[4] in [0, 2] (2 zeros)" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_meant_is_no_finding(mode: str) -> None:
    def masked(x: Any, mask: Any) -> Any:
        scores = weft.where(mask, x, weft.asarray(-weft.inf))
        return weft.nn.functional.softmax(scores, dim=-1) + weft.full((3,), weft.nan)[:1].sum() * 0

    def clean(x: Any, mask: Any) -> Any:
        scores = weft.where(mask, x, weft.asarray(-weft.inf))
        return weft.nn.functional.softmax(scores, dim=-1)

    x, mask = weft.asarray([1.0, 2.0, 3.0]), weft.asarray([True, False, True])
    for function in (masked, clean):
        with weft.detect_nan():
            MODES[mode](function)(x, mask)


@pytest.mark.parametrize("mode", MODES)
def test_a_derivative_that_takes_its_own_nan_out_again_is_no_finding(mode: str) -> None:
    def f(x: Any, p: Any) -> Any:
        return (x**p).sum()  # the derivative by p has a log of 0, which is masked

    x = weft.tensor([0.0, 2.0], requires_grad=True)
    p = weft.tensor([2.0, 3.0], requires_grad=True)
    with weft.detect_nan():
        MODES[mode](f)(x, p).backward()
    assert np.isfinite(p.grad.numpy()).all()


@pytest.mark.parametrize("mode", MODES)
def test_inf_may_be_allowed(mode: str) -> None:
    run = MODES[mode](log_of_zero)
    x = weft.asarray([1.0, 0.0, 2.0])
    with weft.detect_nan(inf=False):
        assert np.isinf(run(x).numpy()).any()
    with pytest.raises(NonFiniteError), weft.detect_nan(inf=False):
        MODES[mode](in_a_loop)(x)


def test_it_can_be_switched_on_and_off() -> None:
    zero = weft.asarray(0.0)
    weft.detect_nan()
    try:
        with pytest.raises(NonFiniteError):
            weft.log(zero)
        with weft.detect_nan(False):
            weft.log(zero)
        with pytest.raises(NonFiniteError):
            weft.log(zero)
    finally:
        weft.detect_nan(False)
    weft.log(zero)
    with pytest.raises(RangeError, match="no stage"):
        weft.detect_nan(stage="scheduled")


@pytest.mark.parametrize("stage", ["captured", "optimized"])
def test_a_training_step_is_the_same_under_it(stage: str) -> None:
    def trained(watched: bool) -> Any:
        weft.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = weft.optim.Adam(net.parameters(), lr=0.1)

        @weft.compile(backend="native")
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        x = weft.randn((5, 3))
        for _ in range(3):
            if watched:
                with weft.detect_nan(stage=stage):
                    step(x)
            else:
                step(x)
        return net[0].weight.numpy()

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5, atol=1e-6)


def test_an_input_that_holds_nan_is_told_of() -> None:
    f = weft.compile(lambda x: x * 2, backend="native")
    x = weft.asarray([1.0, float("nan")])
    with pytest.warns(UserWarning, match="holds NaN when it is called"), weft.detect_nan():
        f(x)
