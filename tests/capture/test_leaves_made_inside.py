"""Tensors that a compiled function makes with requires_grad=True and lets go of.

Nobody sees their gradients, but what is computed from them has `requires_grad`, as eagerly; also
where they are made inside of a loop or branch of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

#: Programs of a parameter w and data x; the last result is one number.
PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__.replace("_", " ")] = function
    return function


@program
def outside_of_loops(w: Any, x: Any) -> Any:
    t = weft.tensor(x.sum(), requires_grad=True)
    return t * 2


@program
def in_for(w: Any, x: Any) -> Any:
    s, u = x * 0, x * 1
    for n in range(3):
        t = weft.tensor(n / 4, requires_grad=True)
        s = s + t * x
        u = u * 2
    return u, s.sum()


@program
def in_while(w: Any, x: Any) -> Any:
    s, before = x * 0, x * 0
    while s.sum() < 40:
        before = s
        t = weft.tensor([1.0, 2.0], requires_grad=True)
        s = s + t * (x * x + 1)
    return before, s.sum()


@program
def set_afterwards(w: Any, x: Any) -> Any:
    s = x * 0
    for n in range(3):
        t = x * n
        t.requires_grad_()
        s = s + t
    return s.sum()


@program
def a_parameter(w: Any, x: Any) -> Any:
    s = x * 0
    for n in range(3):
        s = s + weft.nn.Parameter(weft.full((2,), n / 4))
    return s.sum()


@program
def in_a_loop_in_a_loop(w: Any, x: Any) -> Any:
    s = x * 0
    for n in range(2):
        for k in range(2):
            s = s + weft.tensor((n + k) / 4, requires_grad=True)
    return s.sum()


@program
def in_a_branch(w: Any, x: Any) -> Any:
    s = x * 0
    if x.sum() > 0:
        s = s + weft.tensor(x[0] * 2, requires_grad=True)
    else:
        s = s - weft.tensor(x[1] * 2, requires_grad=True)
    return s.sum()


@program
def in_scan(w: Any, x: Any) -> Any:
    def step(c: Any, v: Any) -> Any:
        t = weft.tensor(v * 2, requires_grad=True)
        return c, t * v

    c, ys = weft.scan(step, x[0], x)
    return c, ys.sum()


@program
def beside_a_parameter(w: Any, x: Any) -> Any:
    s, u = w * 0, x * 0
    for n in range(3):
        t = weft.tensor(n / 4, requires_grad=True)
        u = u + t
        s = s + t * w * x
    return u, s.sum()


@program
def its_gradient_is_taken_inside(w: Any, x: Any) -> Any:
    s = x * 0
    for n in range(3):
        t = weft.tensor(n / 4, requires_grad=True)
        (g,) = weft.autograd.grad((t * t * x).sum(), [t])
        s = s + g
    return s.sum()


@program
def detached(w: Any, x: Any) -> Any:
    s = x * 0
    for n in range(3):
        s = s + weft.tensor(n / 4, requires_grad=True).detach()
    return s.sum()


def outcome(run: Callable[..., Any], data: list[float]) -> Any:
    w = weft.tensor([1.5, -0.5], requires_grad=True)
    found = run(w, weft.tensor(data))
    results = found if isinstance(found, tuple) else (found,)
    learns = [result.requires_grad for result in results]
    if learns[-1]:
        results[-1].backward()
    return [result.detach().numpy() for result in results], learns, w.grad


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, backend: str) -> None:
    compiled = weft.compile(PROGRAMS[name], backend=backend)
    for data in ([1.0, 2.0], [-3.0, 0.5], [0.25, 2.0]):
        values, learns, grad = outcome(compiled, data)
        wanted, learned, slope = outcome(PROGRAMS[name], data)
        for value, want in zip(values, wanted, strict=True):
            np.testing.assert_allclose(value, want, rtol=1e-6)
        assert learns == learned
        assert (grad is None) == (slope is None)
        if slope is not None:
            np.testing.assert_allclose(grad.numpy(), slope.numpy(), rtol=1e-6)
