"""`no_grad` and its kin around and inside of loops and branches: all modes do as eager does.

A row (`grad_mode_rows.py`, `grad_mode_write_rows.py`) is a program of a parameter `w` and data `x`.
Each mode runs it on several inputs, compiled functions one after the other with other data each
time; compared are values, `requires_grad` of the results, and the gradient of `w`, also whether
there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from grad_mode_rows import DOWN, UP
from grad_mode_write_rows import ROWS

import weft
from weft import no_grad

# --- history on one side only: what the data knows ----------------------------------------------

ONE_SIDED: dict[str, Callable[..., Any]] = {}


def one_sided(function: Any) -> Any:
    ONE_SIDED[function.__name__] = function
    return function


@one_sided
def branch(w: Any, x: Any) -> Any:
    y = x * 2
    if x.sum() > 0:
        y = w * 2
    return y.sum()


@one_sided
def early_return(w: Any, x: Any) -> Any:
    if x.sum() > 0:
        return (w * w).sum()
    return x.sum()


@one_sided
def detached_branch(w: Any, x: Any) -> Any:
    y = w * w
    if x.sum() < 0:
        y = y.detach()
    return y.sum()


@one_sided
def no_grad_branch(w: Any, x: Any) -> Any:
    y = w * w
    if x.sum() < 0:
        with no_grad():
            y = y * w
    return y.sum()


@one_sided
def loop(w: Any, x: Any) -> Any:
    t = x * 1
    while (t.sum() > 0) & (t.sum() < 5):
        t = t + w * w
    return t.sum()


@one_sided
def conditional(w: Any, x: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda: (w * w).sum(), lambda: x.sum())


@one_sided
def switched(w: Any, x: Any) -> Any:
    return weft.switch((x[0] > 0).astype(weft.int64), [lambda: x.sum(), lambda: (w * w).sum()])


# --- modes ---------------------------------------------------------------------------------------


def modes(function: Any) -> dict[str, Any]:
    return {
        "trace": weft.trace(function, backend="interpret"),
        "interpret": weft.compile(function, backend="interpret"),
        "native": weft.compile(function, backend="native"),
    }


def outside(run: Any, x: list[float]) -> Any:
    """Values, `requires_grad`, and the gradient by a backward outside of the function."""
    w = weft.tensor([1.5, -0.5], requires_grad=True)
    out = run(w, weft.tensor(x))
    parts = out if isinstance(out, tuple) else (out,)
    wants = [part.requires_grad for part in parts]
    if wants[-1]:
        parts[-1].backward()
    return [part.detach().numpy() for part in parts], wants, w.grad


def inside(function: Any) -> Any:
    def step(w: Any, x: Any) -> Any:
        out = function(w, x)
        parts = out if isinstance(out, tuple) else (out,)
        if parts[-1].requires_grad:
            parts[-1].backward()
        return tuple([part.detach() for part in parts])

    return step


def same(got: Any, want: Any, note: str) -> None:
    values, wants, grad = got
    for a, b in zip(values, want[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=note)
    assert wants == want[1], note
    assert (grad is None) == (want[2] is None), f"{note}: {grad} {want[2]}"
    if grad is not None:
        np.testing.assert_allclose(grad.numpy(), want[2].numpy(), rtol=1e-5, err_msg=note)


@pytest.mark.parametrize("name", ROWS)
def test_backward_outside(name: str) -> None:
    function, inputs = ROWS[name]
    wanted = [outside(function, x) for x in inputs]
    for mode, run in modes(function).items():
        for x, want in zip([*inputs, inputs[0]], [*wanted, wanted[0]], strict=True):
            same(outside(run, x), want, f"{mode} {x}")


@pytest.mark.parametrize("name", ROWS)
def test_backward_inside(name: str) -> None:
    function, inputs = ROWS[name]
    step = inside(function)
    wanted = [outside(step, x) for x in inputs]
    for mode, run in modes(step).items():
        for x, want in zip([*inputs, inputs[0]], [*wanted, wanted[0]], strict=True):
            same(outside(run, x), want, f"{mode} {x}")


@pytest.mark.parametrize("name", ROWS)
def test_grad_and_jvp(name: str) -> None:
    function, inputs = ROWS[name]

    def loss(w: Any, x: Any) -> Any:
        out = function(w, x)
        return out[-1] if isinstance(out, tuple) else out

    w, tangent = weft.tensor([1.5, -0.5]), weft.tensor([0.3, 0.7])
    for x in inputs:
        data = weft.tensor(x)
        want = weft.grad(loss)(w, data)
        for backend in ("interpret", "native"):
            got = weft.compile(weft.grad(loss), backend=backend)(w, data)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
        slope = weft.compile(lambda w, data, t: weft.jvp(lambda v: loss(v, data), (w,), (t,))[1])
        got = slope(w, data, tangent)
        np.testing.assert_allclose(got.numpy(), (want * tangent).sum().numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ONE_SIDED)
def test_history_where_only_the_data_knows(name: str) -> None:
    """The result has a history on all ways; where the way taken has none, the gradient is zeros."""
    function = ONE_SIDED[name]
    assert not outside(function, DOWN)[1][0]
    want = outside(function, UP)[2].numpy()
    found = modes(function)
    if name not in ("conditional", "switched"):
        del found["trace"]  # it asks Python at each condition, and records each way by itself
    for run in found.values():
        for x in (UP, DOWN, UP, DOWN):
            _, (wants,), grad = outside(run, x)
            assert wants
            np.testing.assert_allclose(grad.numpy(), want if x is UP else 0 * want, rtol=1e-6)
            w = weft.tensor([1.5, -0.5], requires_grad=True)
            (grad,) = weft.autograd.grad(run(w, weft.tensor(x)), w)
            np.testing.assert_allclose(grad.numpy(), want if x is UP else 0 * want, rtol=1e-6)


@pytest.mark.parametrize("name", ONE_SIDED)
def test_a_backward_inside_where_only_the_data_knows(name: str) -> None:
    function = ONE_SIDED[name]
    want = outside(function, UP)[2].numpy()

    def step(w: Any, x: Any) -> Any:
        function(w, x).backward()

    def asked(w: Any, x: Any) -> Any:
        (w.grad,) = weft.autograd.grad(function(w, x), w)

    for program in (step, asked):
        for backend in ("interpret", "native"):
            compiled = weft.compile(program, backend=backend)
            for x in (UP, DOWN, UP, DOWN):
                w = weft.tensor([1.5, -0.5], requires_grad=True)
                compiled(w, weft.tensor(x))
                assert w.grad is not None
                np.testing.assert_allclose(w.grad.numpy(), want if x is UP else 0 * want, rtol=1e-6)


@pytest.mark.parametrize("name", ONE_SIDED)
def test_a_leaf_of_the_other_way_is_passed_by_as_eagerly(name: str) -> None:
    """Beside another gradient `.grad` is what it is eagerly: an optimizer passes None by."""
    function = ONE_SIDED[name]

    def both(w: Any, v: Any, x: Any) -> Any:
        return function(w, x) * v

    for run in modes(both).values():
        for x in (DOWN, UP, DOWN):
            w, v = (
                weft.tensor([1.5, -0.5], requires_grad=True),
                weft.tensor(2.0, requires_grad=True),
            )
            run(w, v, weft.tensor(x)).backward()
            assert v.grad is not None
            assert (w.grad is None) == (x is DOWN)
