"""`no_grad` and its kin around and inside of loops and branches: all modes do as eager does.

A row is a program of a parameter `w` and data `x`. Each mode runs it on several inputs, compiled
functions one after the other with other data each time; compared are values, `requires_grad` of
the results, and the gradient of `w`, also whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import no_grad

ROWS: dict[str, tuple[Callable[..., Any], list[list[float]]]] = {}
UP, DOWN, LARGE = [0.5, 1.5], [-0.5, -1.5], [3.0, 4.0]


def row(name: str, *inputs: list[float]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ROWS[name] = (function, list(inputs) or [UP, LARGE])
        return function

    return register


# --- gradients off around a loop or branch -----------------------------------------------------


@row("no_grad around for")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(3):
            t = t * 3
    return (w * t).sum()


@row("no_grad around for, result without history")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(3):
            t = t * 3
    return t, (w + t).sum()


@row("set_grad_enabled(False) around for")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with weft.set_grad_enabled(False):
        for _ in range(3):
            t = t * w
    return (w * t).sum()


@row("set_grad_enabled as a switch")
def _(w: Any, x: Any) -> Any:
    t = w * x
    weft.set_grad_enabled(False)
    for _ in range(3):
        t = t * w + x
    weft.set_grad_enabled(True)
    return (w * t).sum()


@no_grad()
def _tripled(t: Any) -> Any:
    for _ in range(3):
        t = t * 3
    return t


@row("@no_grad on a function with a loop")
def _(w: Any, x: Any) -> Any:
    return (w * _tripled(w * x)).sum()


@row("no_grad around a loop with a carry that passes through")
def _(w: Any, x: Any) -> Any:
    t = w * x
    u = x
    with no_grad():
        for _ in range(3):
            u = t
            t = t * 3
    return u, t, (w * u * t).sum()


@row("no_grad around a loop of one iteration that passes a value on")
def _(w: Any, x: Any) -> Any:
    t = w * x
    u = x
    with no_grad():
        for _ in range(1):
            u = t
            t = t * 3
    return u * 1, t, (w * u * t).sum()


@row("no_grad around while", UP, LARGE)
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        while t.sum() < 50:
            t = t * 2 + w
    return (w * t).sum()


@row("no_grad around a while that may not run", UP, [40.0, 50.0])
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        while t.sum() < 20:
            t = t * 2
    return (w * t).sum()


@row("no_grad around nested loops")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(2):
            for _ in range(2):
                t = t * w
            t = t + w
    return (w * t).sum()


@row("no_grad around the inner loop")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(2):
        with no_grad():
            u = t
            for _ in range(2):
                u = u * w
        t = t * u
    return t.sum()


@row("enable_grad inside of no_grad around a loop")
def _(w: Any, x: Any) -> Any:
    t = x * 1
    u = w * x
    with no_grad():
        for _ in range(2):
            with weft.enable_grad():
                t = t * w
            u = u * 2
    return (t * u).sum()


@row("enable_grad around a loop inside of no_grad")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        v = t * 2
        with weft.enable_grad():
            for _ in range(3):
                t = t * w * v
    return t.sum()


@row("no_grad around if", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        if x.sum() > 0:
            t = t * 3
            u = t - w
        else:
            u = t - w
    return (w * t).sum() + (w * u).sum()


@row("no_grad around scan")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        t, ys = weft.scan(lambda c, v: (c * v * w[0], c + w[1]), w[0] * 2, w * x)
    return t, ys, (w * t).sum() + (ys * w).sum()


@row("no_grad around map")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        ys = weft.map(lambda v: v * v * w[0], w * x)
    return ys, (ys * w).sum()


@row("no_grad around while_loop, fori_loop, cond, switch")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        a = weft.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + w, w * x)
        b = weft.fori_loop(0, 3, lambda i, c: c * w + i, w * x)
        c = weft.cond(x.sum() > 1, lambda: w * 2, lambda: w * x)
        d = weft.switch((x[0] > 1).astype(weft.int64), [lambda: w * w, lambda: w * x])
    return b, c, d, (w * (a + b + c + d)).sum()


@row("gradients taken in a loop under no_grad")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(3):
            with weft.enable_grad():
                v = t.detach().requires_grad_()
                (g,) = weft.autograd.grad((v**3 * x).sum(), v)
            t = t - 0.1 * g
    return t, (w * t).sum()


@row("a gradient that arrives only if the loop is not entered", UP, [40.0, -50.0])
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        while t.sum() < 20:
            t = t * 2 + 9
    return (t * t).sum() + (t.detach() * w[0]).sum()


@row("no gradient of zeros meets an inf where eager has none", [0.5, 1.5], [3.0, 4.0])
def _(w: Any, x: Any) -> Any:
    t, v = w * 1e6, w * x
    for _ in range(2):
        for _ in range(3):
            v = v.detach() * v
            t = t * t
    return (v * x).sum()


# --- gradients off inside of a loop or branch --------------------------------------------------


@row("no_grad inside of for")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        with no_grad():
            scale = (t * t).sum()
        t = t * w / (1 + scale)
    return t.sum()


@row("the whole body under no_grad")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        with no_grad():
            t = t * w
    return t, (t * w).sum()


@row("detach in a loop")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        t = t.detach() * w
    return (t * w).sum()


@row("detach ends a loop body")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        t = (t * w).detach()
    return t, (t * w).sum()


@row("stop_gradient of the history in scan")
def _(w: Any, x: Any) -> Any:
    t, ys = weft.scan(lambda c, v: (weft.stop_gradient(c * w), c * v), w * x, x)
    return t, (ys * w).sum() + (t * w).sum()


# --- in-place writes under no_grad -------------------------------------------------------------


@row("in-place under no_grad in for")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for _ in range(3):
        with no_grad():
            t *= 0.5
    return t, (t * t * x).sum()


@row("in-place under no_grad around for")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    with no_grad():
        for _ in range(3):
            t *= x
    return t, (t * t * x).sum()


@row("indexed write under no_grad in for")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for i in range(2):
        with no_grad():
            t[i] = x[i] * 3
    return t, (t * t * x).sum()


@row("in-place under no_grad in while", UP, LARGE)
def _(w: Any, x: Any) -> Any:
    t = w * x
    while t.sum() < 30:
        with no_grad():
            t += w
    return t, (t * t * x).sum()


@row("in-place under no_grad in one arm", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    if x.sum() > 0:
        with no_grad():
            t *= 0.5
    return t, (t * t * x).sum()


@row("in-place under no_grad in one arm, with gradient in the other", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    if x.sum() > 0:
        with no_grad():
            t *= 0.5
    else:
        t *= w
    return t, (t * t * x).sum()


@row("in-place under no_grad in both arms", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    if x.sum() > 0:
        with no_grad():
            t *= 0.5
    else:
        with no_grad():
            t += 7
    return t, (t * t * x).sum()


@row("in-place under no_grad, then with gradient, in a loop")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for _ in range(3):
        with no_grad():
            t *= 0.5
        t *= w
    return t, (t * t * x).sum()


@row("in-place under no_grad in a branch in a loop", UP, LARGE, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        if t.sum() > 2:
            with no_grad():
                t *= 0.5
    return t, (t * t * x).sum()


@row("in-place under no_grad in nested loops")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for _ in range(2):
        for _ in range(2):
            with no_grad():
                t *= 0.5
        t = t * w
    return t, (t * t * x).sum()


@row("copy_, zero_ and clamp under no_grad in a loop")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    u = w * 3
    for _ in range(2):
        with no_grad():
            t.copy_(x)
            u.zero_()
        u = u + w
    return t, u, (t * t * x * u).sum()


@row("in-place under no_grad on a tensor that had no history")
def _(w: Any, x: Any) -> Any:
    t = x * 2
    for _ in range(2):
        with no_grad():
            t *= w
    return t, (t * w).sum()


@row("copy_ under no_grad of a tensor with a history to one without")
def _(w: Any, x: Any) -> Any:
    t, u = x * 2, x * 1
    for _ in range(3):
        t = t * 1
        with no_grad():
            t.copy_(u)
        u = u * w
    return t, (t * u).sum()


@row("in-place by weft.cond and switch", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    u = w * 3

    def halve() -> Any:
        with no_grad():
            t.copy_(t * 0.5)
        return x * 1

    a = weft.cond(x.sum() > 0, halve, lambda: x * 2)

    def zero() -> Any:
        with no_grad():
            u.zero_()
        return x * 1

    b = weft.switch((x[0] > 0).astype(weft.int64), [zero, lambda: x * 1])
    return t, u, (t * t * a + u * b * w).sum()


@row("in-place by scan and fori_loop")
def _(w: Any, x: Any) -> Any:
    t = w * 2

    def body(c: Any, v: Any) -> Any:
        with no_grad():
            t.copy_(t * v)
        return c + v, c

    c, _ = weft.scan(body, x[0] * 1, x)
    return t, (t * t * c).sum()


# --- history on one side only: what Python can know ----------------------------------------------


@row("the last iteration detaches")
def _(w: Any, x: Any) -> Any:
    t = w * 1
    for k in range(3):
        t = t * w
        if k == 2:
            t = t.detach()
    return t, (t * w).sum()


@row("one iteration brings the history in, the last takes it away")
def _(w: Any, x: Any) -> Any:
    t, u = x * 1, x * 2
    for k in range(4):
        if k % 2 == 1:
            t = w * x
            u = u * w
        else:
            t = x * k
    return t, u, (u * w).sum()


@row("a counter of the outer loop decides in the inner one")
def _(w: Any, x: Any) -> Any:
    t = w * 1
    for k in range(3):
        for j in range(2):
            t = x * j if k > 0 else t * w
    return t, (t * w).sum()


@row("a counter decides in a loop under no_grad")
def _(w: Any, x: Any) -> Any:
    t, u = w * 1, w * x
    with no_grad():
        for k in range(4):
            if k < 2:
                u = x.sin()
            else:
                t = t * 0.5
    return t, u, (t * w).sum()


@row("a branch that Python decides in a loop")
def _(w: Any, x: Any) -> Any:
    t = x * 1
    learns = False
    for _ in range(3):
        t = t * w if learns else t * 2
    return t, (t * w).sum()


@row("a loop that does not run")
def _(w: Any, x: Any) -> Any:
    t = w * 1
    for _ in range(0):
        t = x * 1
    return t, (t * w).sum()


@row("sides of which both, or neither, have a history", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    y, z = x * 1, w * 1
    if x.sum() > 0:
        y = x * 2
        z = w * 2
    return y, z, (y * z).sum()


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
