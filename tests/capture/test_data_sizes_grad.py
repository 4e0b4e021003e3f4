"""Gradients through masks and data-dependent sizes, by themselves and in loops and branches.

Each program is run on inputs of which other numbers of elements are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

PROGRAMS: dict[str, Callable[[Any], Any]] = {}
DATA = ([0.5, -1.0, 2.0, 0.3], [-1.0, -2.0, 3.0, 0.1], [1.0, 2.0, 3.0, 4.0])


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


@program
def scaled_in_place(x: Any) -> Any:
    y = x * 1
    p = y > 0
    y[p] *= 2
    return (y * y).sum()


@program
def a_mask_that_is_written_twice(x: Any) -> Any:
    y = x * 1
    if x.sum() > 0:
        y[y > 0.4] = y[y > 0.4] * 3
    while (y.abs() > 1).any():
        y[y.abs() > 1] = y[y.abs() > 1] * 0.5
    return (y * y).sum()


@program
def squares(x: Any) -> Any:
    p = x > 0
    return (x[p] * x[p]).sum()


@program
def written_from_a_mask(x: Any) -> Any:
    y = x * 1
    m = x > 0
    y[m] = x[m] * 3
    return (y * y).sum()


@program
def by_index(x: Any) -> Any:
    (i,) = weft.nonzero(x > 0)
    return (x[i] ** 2).sum()


@program
def softmax_of_a_mask(x: Any) -> Any:
    return (weft.nn.functional.softmax(x[x > 0], -1) ** 2).sum()


@program
def two_parts(x: Any) -> Any:
    return weft.concat([x[x > 0], x[x <= 0]]).cumulative_sum().sum()


@program
def in_a_branch(x: Any) -> Any:
    if x.sum() > 0:
        y = x[x > 0]
        return (y * y).sum()
    return x.sum()


@program
def in_a_scan(x: Any) -> Any:
    def body(c, v):
        z = x[x > v]
        return c + (z * z).sum(), c

    c, ys = weft.scan(body, x[0] * 0, x)
    return c + ys.sum()


@program
def outer_product(x: Any) -> Any:
    z = x[x > 0]
    return (z.reshape(-1, 1) * z.reshape(1, -1)).sum()


@program
def nothing_chosen(x: Any) -> Any:
    z = x[x > 100]
    return z.sum() + x.sum()


@program
def first_of_a_mask(x: Any) -> Any:
    z = x[x > 0]
    z = z * 2
    z[0] = 1.0
    return (z * z).sum()


@program
def in_a_matrix(x: Any) -> Any:
    X = weft.stack([x, -x])
    X[X > 0] *= 3
    return (X * X).sum()


@program
def scaled_in_a_loop(x: Any) -> Any:
    y = x * 1
    for _k in range(3):
        p = y > 0
        y[p] *= 2
    return (y * y).sum()


@program
def experts_by_index(x: Any) -> Any:
    W = weft.stack([x, x * 2, x * 3])
    X = weft.stack([x, -x, x * 0.5], axis=0)
    ids = weft.tensor([0, 1, 0]) + (x[:3] > 0).astype(weft.int64)
    out = X * 0
    for k in range(3):
        (i,) = weft.nonzero(ids == k)
        out[i] = X[i] * W[k] + X[i].sum(axis=0)
    return (out * out).sum()


@program
def experts_added_up(x: Any) -> Any:
    W = weft.stack([x, x * 2, x * 3])
    X = weft.stack([x, -x, x * 0.5], axis=0)
    total = x.sum() * 0
    for k in range(3):
        m = X[:, 0] > 0.3 * k
        total = total + (X[m] @ W[k]).sum()
    return total


@program
def nested_loops(x: Any) -> Any:
    t = x * 1
    for _k in range(2):
        for j in range(2):
            m = t > 0.1 * j
            t = t + t[m].sum() * 0.1
    return (t * t).sum()


@program
def in_a_while(x: Any) -> Any:
    t = x * 1
    while t.sum() < 8:
        t[t > 0] *= 1.5
        t = t + 0.5
    return (t * t).sum()


@program
def in_a_branch_in_a_loop(x: Any) -> Any:
    t = x * 1
    for _k in range(3):
        if t.sum() > 1:
            t[t > 0.5] *= 0.5
        else:
            z = t[t < 1.0]
            t = t + (z * z).mean()
    return (t * t).sum()


@program
def softmax_in_a_loop(x: Any) -> Any:
    t = x.sum() * 0
    for k in range(3):
        z = x[x > 0.2 * k - 0.1]
        s = weft.nn.functional.softmax(z, -1)
        t = t + (s * z).sum()
    return t


@program
def sorted_in_a_loop(x: Any) -> Any:
    t = x.sum() * 0
    for k in range(2):
        z = weft.sort(x[x > 0.1 * k])
        t = t + (z * weft.arange(z.shape[0])).sum() + weft.cumulative_sum(z).sum()
    return t


@program
def two_parts_in_a_loop(x: Any) -> Any:
    t = x.sum() * 0
    for k in range(2):
        z = weft.concat([x[x > 0.1 * k], x[x <= 0.1 * k] * 2])
        t = t + (z * z * z).sum()
    return t


@program
def made_of_that_size(x: Any) -> Any:
    t = x.sum() * 0
    for k in range(2):
        z = x[x > 0.1 * k]
        u = weft.zeros(z.shape) + z * z
        v = weft.full((z.shape[0],), 2.0)
        t = t + (u * v).sum()
    return t


@program
def of_each_row(x: Any) -> Any:
    X = weft.stack([x, x + 1, x * 2])
    t = x * 0
    for row in X:
        z = row[row > 0]
        t = t + z.sum() * x
    return t.sum()


@program
def products_in_a_loop(x: Any) -> Any:
    X = weft.stack([x, x + 1, x * 2], axis=1)
    t = x.sum() * 0
    for k in range(2):
        m = X[:, 0] > 0.1 * k
        Z = X[m]
        t = t + (Z.T @ Z).sum()
    return t


@program
def a_list_of_sums(x: Any) -> Any:
    parts = []
    for k in range(2):
        parts.append(x[x > 0.1 * k].sum())  # noqa: PERF401
    return weft.stack(parts).prod()


@program
def written_in_nested_loops(x: Any) -> Any:
    w, i = x * x.sum() * 0.3, x.sum() * 0
    while i < 2:
        i = i + 1
        j = x.sum() * 0
        while j < 2:
            j = j + 1
            k = x.sum() * 0
            while k < 2:
                k = k + 1
                w[w > 0.1] *= x[1] * 0.7
    return (w * w).sum()


def gradient(run: Any, x: list[float], inside: bool) -> tuple[Any, Any]:
    w = weft.tensor(x, requires_grad=True)
    out = run(w)
    if not inside:
        out.backward()
    assert w.grad is not None
    return out.detach().numpy(), w.grad.numpy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_as_eagerly(name: str) -> None:
    function = PROGRAMS[name]

    def step(x: Any) -> Any:
        out = function(x)
        out.backward()
        return out.detach()

    wanted = [gradient(function, x, False) for x in DATA]
    for inside, body in ((False, function), (True, step)):
        runs = [weft.compile(body, backend=backend) for backend in ("interpret", "native")]
        for run in [*runs, weft.trace(body, backend="interpret")]:
            for x, (value, grad) in zip(DATA, wanted, strict=True):
                got = gradient(run, x, inside)
                np.testing.assert_allclose(got[0], value, rtol=1e-4)
                np.testing.assert_allclose(got[1], grad, rtol=1e-4, atol=1e-6)


def test_short_loops_without_gradients_keep_their_sizes() -> None:
    def sums(x: Any) -> Any:
        total = x.sum() * 0
        for k in range(3):
            total = total + (x[x > 0.6 * k] ** 2).sum()
        return total

    for backend in ("interpret", "native"):
        compiled = weft.compile(sums, backend=backend)
        for x in DATA:
            got, want = compiled(weft.tensor(x)), sums(weft.tensor(x))
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_by_transforms(name: str) -> None:
    function = PROGRAMS[name]
    tangent = weft.tensor([0.3, -0.7, 0.2, 1.1])
    by_grad = weft.compile(weft.grad(function))
    for x in DATA:
        point = weft.tensor(x)
        want = gradient(function, x, False)[1]
        np.testing.assert_allclose(by_grad(point).numpy(), want, rtol=1e-4, atol=1e-6)
        moved = weft.jvp(function, (point,), (tangent,))[1]
        np.testing.assert_allclose(moved.numpy(), want @ tangent.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_hessians(name: str) -> None:
    function = PROGRAMS[name]
    compiled = weft.compile(weft.hessian(function))
    for x in DATA:
        point = weft.tensor(x)
        want = weft.hessian(function)(point).numpy()
        np.testing.assert_allclose(compiled(point).numpy(), want, rtol=1e-3, atol=1e-4)


def test_second_derivative_through_a_list_that_a_broken_loop_made() -> None:
    """Rows put together of elements without late sizes are no box: their address was garbage."""

    def chained(x: Any, v: Any) -> Any:
        z, parts = v * 0.5, []
        for i in range(3):
            z = weft.tanh(z * x + i)
            parts.append(z.sum())
            if z[0] > 0.7:
                break
        found = (z + weft.stack(parts).mean()).min()
        return (found - found.detach()) ** 2

    def second(x: Any, v: Any) -> Any:
        return weft.jacrev(weft.jacrev(lambda x: chained(x, v)))(x)

    compiled, v = weft.compile(second), weft.tensor([0.3, 0.2])
    for x in (0.4, 0.7, 1.9, -0.3):
        wanted = second(weft.tensor(x), v).numpy()
        np.testing.assert_allclose(compiled(weft.tensor(x), v).numpy(), wanted, rtol=1e-4)
