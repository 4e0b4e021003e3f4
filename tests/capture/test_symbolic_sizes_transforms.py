"""Transforms, checkpoints, memory budgets and loops with symbolic sizes, inside and around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

SIZES = (3, 7, 0, 1, 2, 64)


def loss(x: Any, w: Any) -> Any:
    h = weft.tanh(x @ w)
    if h.sum() > 0:
        h = h * 2
    return (h * h).sum() / max(x.shape[0], 1)


def gradient(x: Any, w: Any) -> Any:
    return weft.grad(lambda w: loss(x, w))(w)


def hessian(x: Any, w: Any) -> Any:
    return weft.hessian(lambda w: loss(x, w))(w)


def tangents(x: Any, w: Any) -> Any:
    return weft.jvp(lambda x: loss(x, w), (x,), (x * 0.5,))


def rows(x: Any, w: Any) -> Any:
    return weft.vmap(lambda row: weft.tanh(row @ w).sum())(x)


def gradients_of_rows(x: Any, w: Any) -> Any:
    return weft.vmap(weft.grad(lambda row, w: weft.tanh(row @ w).sum()), (0, None))(x, w)


def checkpointed(x: Any, w: Any) -> Any:
    y = weft.checkpoint(lambda x: weft.tanh(x @ w) * weft.sigmoid(x @ w))(x)
    return (y * y).sum() / (x.shape[0] + 1)


def looped(x: Any, w: Any) -> Any:
    count, y = 0, x
    while y.abs().sum() < 50 and count < 20:
        y = y * 1.5 + 1
        count += 1
    return (y @ w).sum()


def stacked(x: Any, w: Any) -> Any:
    found = []
    for row in x:
        found.append((row @ w).sum())  # noqa: PERF401
    return weft.stack(found).sum() if found else x.sum() * w.sum()


def masked(x: Any, w: Any) -> Any:
    return (x[x[:, 0] > 0] @ w).sum()


def in_place(x: Any, w: Any) -> Any:
    y = x @ w
    y[: x.shape[0] // 2] *= 2
    y += weft.arange(x.shape[0])[:, None]
    return y


INSIDE = [loss, gradient, hessian, tangents, rows, gradients_of_rows, checkpointed, looped]
INSIDE += [stacked, masked, in_place]


def data(size: int) -> Any:
    return weft.asarray(np.random.default_rng(size).normal(size=(size, 4)))


W = weft.asarray(np.random.default_rng(99).normal(size=(4, 3)))


def outcome(call: Callable[..., Any], size: int) -> list[Any]:
    x, w = data(size), W.clone()
    x.requires_grad = w.requires_grad = True
    found = call(x, w)
    results = list(found) if isinstance(found, tuple) else [found]
    total = sum((part * part).sum() for part in results)
    assert isinstance(total, weft.Tensor)
    if total.requires_grad:
        total.backward()
    grads = [weft.zeros_like(t) if t.grad is None else t.grad for t in (x, w)]
    return [part.detach().numpy() for part in (*results, *grads)]


def agree(call: Callable[..., Any], reference: Callable[..., Any]) -> None:
    for size in SIZES:
        got, want = outcome(call, size), outcome(reference, size)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=str(size))


@pytest.mark.filterwarnings("ignore:.*the memory budget 0.4 was not reached")
@pytest.mark.parametrize("budget", [None, 0.4])
@pytest.mark.parametrize("mode", ["trace", "source"])
@pytest.mark.parametrize("function", INSIDE, ids=lambda f: f.__name__)
def test_inside(function: Any, mode: str, budget: float | None) -> None:
    options: Any = {"capture": mode, "memory_budget": budget, "backend": "interpret"}
    call = weft.compile(function, dynamic="auto", **options)
    agree(call, function)
    if mode == "source" and function not in (masked, stacked):
        assert len(call.recordings) <= 4, [str(r) for r in call.recordings]


AROUND: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: lambda x, w: weft.grad(f, 1)(x, w),
    "grad of grad": lambda f: lambda x, w: weft.grad(lambda w: weft.grad(f, 1)(x, w).sum())(w),
    "jvp": lambda f: lambda x, w: weft.jvp(lambda x: f(x, w), (x,), (x,)),
    "vmap": lambda f: lambda x, w: weft.vmap(lambda x: f(x, w))(weft.stack([x, -x])),
    "vmap of grad": lambda f: (
        lambda x, w: weft.vmap(weft.grad(f), (0, None))(weft.stack([x, -x]), w)
    ),
}


@pytest.mark.parametrize("function", [loss, looped], ids=lambda f: f.__name__)
@pytest.mark.parametrize("around", AROUND)
def test_around(around: str, function: Any) -> None:
    sized = weft.compile(function, dynamic="auto", backend="interpret")
    fixed = weft.compile(function, dynamic=False, backend="interpret")
    agree(AROUND[around](sized), AROUND[around](fixed))
    assert len(sized.recordings) <= 3, [str(r) for r in sized.recordings]


def forgets(x: Any, w: Any) -> Any:
    last, total = x * 0.5, x.sum()
    for row in x:
        with weft.no_grad():
            last = row * 0.3
        total = total + (row @ w).sum()
    return total, last


def test_which_results_of_a_loop_learn() -> None:
    call = weft.compile(forgets, dynamic="auto", backend="interpret")
    for size in (3, 5, 1, 7, 0):
        x, w = data(size), W.clone()
        x.requires_grad = True
        got, want = call(x, w), forgets(x, w)
        assert [part.requires_grad for part in got] == [part.requires_grad for part in want]
