"""Slices whose bounds are tensors or loop counters: values, gradients and tangents as eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import DTypeError, IndexError

PROGRAMS: dict[str, Callable[[Any], Any]] = {}
DATA = ([0.5, -1.0, 2.0, 0.3], [-1.0, -2.0, 3.0, 0.1], [1.0, 2.0, 3.0, 4.0])


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


@program
def windows_written(x: Any) -> Any:
    acc = weft.zeros(8) + x.sum() * 0
    for i in range(3):
        acc[2 * i : 2 * i + 2] = x[i] * weft.tensor([1.0, 2.0])
    return (acc * acc).sum()


@program
def each_of_those_before(x: Any) -> Any:
    out = weft.zeros(5) + 0 * x.sum()
    out[0] = x[0]
    for i in range(1, 5):
        out[i] = (out[:i] * 0.5).sum() + x[i - 1]
    return (out * out).sum()


@program
def backwards(x: Any) -> Any:
    t = x.sum() * 0
    for i in range(3):
        t = t + (x[i::-1] ** 2).sum()
    return t


@program
def beginning(x: Any) -> Any:
    n = (x > 0).sum()
    return (x[:n] ** 2).sum()


@program
def beginning_cleared(x: Any) -> Any:
    n = (x > 0).sum()
    y = x * 1
    y[:n] = 0.0
    return (y * y).sum()


@program
def rest_raised(x: Any) -> Any:
    n = (x > 0).sum()
    y = x * 1
    y[n:] += 2
    return (y * y).sum()


@program
def window_at_a_tensor(x: Any) -> Any:
    i = weft.argmax(x) // 2
    return (x[i : i + 2] ** 2).sum()


@program
def counter_of_a_while(x: Any) -> Any:
    i = 0
    t = x.sum() * 0
    while t < 1:
        i = i + 1
        t = t + (x[:i] ** 2).sum()
    return t * x[0]


@program
def windows_of_a_while(x: Any) -> Any:
    i = weft.asarray(0)
    t = x.sum() * 0
    while i < 3:
        t = t + (x[i : i + 2] ** 2).sum()
        i = i + 1
    return t


@program
def windows_written_in_a_while(x: Any) -> Any:
    i = weft.asarray(0)
    acc = x * 0
    while i < 2:
        acc[2 * i : 2 * i + 2] = x[i] * weft.tensor([1.0, 2.0])
        i = i + 1
    return (acc * acc).sum()


@program
def blocks(x: Any) -> Any:
    X = weft.stack([x, x * 2, x * 3, x * 4])
    for i in range(2):
        X[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = X[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] * 2
    return (X * X).sum()


@program
def counter_of_a_tensor_range(x: Any) -> Any:
    n = (x > 0).sum()
    t = x.sum() * 0
    for i in range(n):
        t = t + (x[: i + 1] ** 2).sum()
    return t


@program
def a_size_of_its_own(x: Any) -> Any:
    n = (x > 0).sum() + 1
    z = x[:n]
    return (z * weft.arange(z.shape[0])).sum()


@program
def rotated(x: Any) -> Any:
    n = (x > 0).sum()
    return weft.concat([x[n:], x[:n] * 2]).cumulative_sum().sum()


@program
def in_branches(x: Any) -> Any:
    n = (x > 0).sum()
    if x.sum() > 1:
        return (x[:n] ** 2).sum()
    return x[n:].sum() * 2


@program
def in_a_scan(x: Any) -> Any:
    def body(c, i):
        return c + (x[i : i + 2] ** 2).sum(), None

    c, _ = weft.scan(body, x.sum() * 0, weft.arange(3))
    return c


@program
def in_a_fori_loop(x: Any) -> Any:
    return weft.fori_loop(0, 3, lambda i, c: c + (x[i : i + 2] ** 2).sum(), x.sum() * 0)


@program
def blocks_of_a_while(x: Any) -> Any:
    m = weft.stack([x, x * 2, x * 3, x * 4])
    i = weft.asarray(0)
    while i < 2:
        m[2 * i : 2 * i + 2, ..., 2 * i : 2 * i + 2] *= 2
        m[2 * i, : i + 1] = 1.0
        m[i + 1 :, 3] += x[0]
        m[:i, None, i:] = x[i:] * 0.5
        i = i + 1
    return (m * m).sum()


@program
def every_second(x: Any) -> Any:
    n = (x > 0).sum()
    y = x * 1
    y[n::-2] = 3.0
    y[:n:2] *= x[:n:2]
    return (y * y).sum() + x[n::-1].sum() + x[:-n].sum()


def gradient(run: Any, x: list[float], inside: bool) -> tuple[Any, Any]:
    w = weft.tensor(x, requires_grad=True)
    out = run(w)
    if not inside:
        out.backward()
    assert w.grad is not None
    return out.detach().numpy(), w.grad.numpy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_as_eagerly(name: str) -> None:
    function = PROGRAMS[name]

    def step(x: Any) -> Any:
        out = function(x)
        out.backward()
        return out.detach()

    wanted = [gradient(function, x, False) for x in DATA]
    runs = [(weft.compile(function, backend=b), False) for b in ("interpret", "native")]
    runs += [(weft.compile(step), True), (weft.trace(function, backend="interpret"), False)]
    for run, inside in runs:
        for x, (value, grad) in zip(DATA, wanted, strict=True):
            got = gradient(run, x, inside)
            np.testing.assert_allclose(got[0], value, rtol=1e-4)
            np.testing.assert_allclose(got[1], grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms(name: str) -> None:
    """Gradient, tangent, and a gradient of a gradient: all of one compiled function each."""
    function = PROGRAMS[name]
    t = weft.tensor([0.3, -0.2, 0.5, 0.7])

    def moved(x: Any) -> Any:
        return weft.jvp(function, (x,), (t,))[1]

    def curved(x: Any) -> Any:
        return weft.grad(lambda v: (weft.grad(function)(v) * t).sum())(x)

    for transform in (weft.grad(function), moved, curved):
        compiled = weft.compile(transform)
        for x in DATA:
            point = weft.tensor(x)
            np.testing.assert_allclose(
                compiled(point).numpy(), transform(point).numpy(), rtol=1e-4, atol=1e-5
            )


def test_a_window_of_known_length_is_one_graph_and_must_lie_inside() -> None:
    def crop(x: Any, i: Any) -> Any:
        return x[i : i + 2] * weft.tensor([1.0, 10.0])

    compiled = weft.compile(crop)
    x = weft.tensor([1.0, 2.0, 3.0, 4.0])
    for i in (0, 2, 1, -3):
        want = crop(x, weft.asarray(i)).numpy()
        np.testing.assert_array_equal(compiled(x, weft.asarray(i)).numpy(), want)
    assert len(compiled.recordings) == 1
    for i in (3, -1, 9):
        with pytest.raises(IndexError, match="out of"):
            compiled(x, weft.asarray(i))


def test_the_step_and_the_kind_of_a_bound_are_checked() -> None:
    x = weft.tensor([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(DTypeError, match="bound of a slice must be one integer"):
        weft.compile(lambda x: x[: x.sum()] * 1)(x)
    with pytest.raises(DTypeError, match="step of a slice"):
        weft.compile(lambda x, n: x[::n] * 1)(x, weft.asarray(2))
