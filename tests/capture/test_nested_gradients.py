"""Gradients taken inside of loops and branches, differentiated again: one graph for all counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 3))
X, Y = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 4))


def tensor(value: Any) -> weft.Tensor:
    return weft.tensor(np.asarray(value, dtype=np.float64))


def cube(v: Any) -> Any:
    return (v**3).sum()


# --- programs ----------------------------------------------------------------------------------


def descent(x: Any) -> Any:
    while x > 1:
        x = x - 0.1 * weft.grad(cube)(x)
    return x


def descent_by_vjp(x: Any) -> Any:
    while x > 1:
        _, pull = weft.vjp(cube, x)
        x = x - 0.1 * pull(weft.ones_like(x))[0]
    return x


def descent_by_jacobians(x: Any) -> Any:
    while x > 1:
        x = x - 0.05 * weft.jacrev(cube)(x) - 0.05 * weft.jacfwd(cube)(x)
    return x


def descent_by_backward(x: Any) -> Any:
    while x > 1:
        (slope,) = weft.autograd.grad(cube(x), (x,), create_graph=True)
        x = x - 0.1 * slope
    return x


def descent_for(x: Any) -> Any:
    for _ in range(3):
        x = x - 0.1 * weft.grad(cube)(x)
    return x


def descent_scan(x: Any) -> Any:
    def step(carry: Any, rate: Any) -> Any:
        return carry - rate * weft.grad(cube)(carry), carry

    last, passed = weft.scan(step, x, tensor([0.1, 0.2, 0.05]))
    return last * passed.sum()


def branches(x: Any) -> Any:
    if x > 1:
        x = x - 0.1 * weft.grad(cube)(x)
    elif x > 0:
        x = weft.vjp(lambda v: weft.sin(v) * v, x)[1](2 * x)[0]
    else:
        x = x * weft.grad(weft.grad(weft.exp))(x)
    return x


def newton(a: Any) -> Any:
    """The roots of x³/3 = a x, by steps with the inverse of the Hessian."""

    def energy(v: Any) -> Any:
        return (v**3 / 3 - a * v).sum()

    x = weft.ones_like(a)
    while weft.abs(weft.grad(energy)(x)).max() > 1e-8:
        x = x - weft.linalg.solve(weft.hessian(energy)(x), weft.grad(energy)(x))
    return (x * a).sum()


def meta_learning(w: Any) -> Any:
    """The loss after steps from shared parameters, one task after the other."""
    xs, ys = tensor(X), tensor(Y)

    def loss(p: Any, x: Any, y: Any) -> Any:
        return ((weft.tanh(x @ p) - y) ** 2).mean()

    total = tensor(0.0)
    for x, y in zip(xs, ys, strict=True):
        p = w
        for _ in range(3):
            p = p - 0.1 * weft.grad(loss)(p, x, y)
        total = total + loss(p, x, y)
    return total


def leapfrog(q: Any) -> Any:
    """Hamiltonian dynamics, as samplers do it."""
    w = tensor(W)

    def log_density(q: Any) -> Any:
        return -0.5 * (q @ w @ w.T @ q) - (q**4).sum()

    p = q * 0.3
    for _ in range(5):
        p = p + 0.05 * weft.grad(log_density)(q)
        q = q + 0.1 * p
        p = p + 0.05 * weft.grad(log_density)(q)
    return (q * p).sum()


def loop_in_loop(x: Any) -> Any:
    def inner(v: Any) -> Any:
        while v > 0.5:
            v = v * weft.sin(v) * 0.8
        return v * v

    while x > 1:
        x = x - 0.3 * weft.grad(inner)(x) - 0.1
    return x


Program = Callable[[Any], Any]
PROGRAMS: list[tuple[Program, list[Any]]] = [
    (descent, [1.7, 1.05, 3.1, 0.5]),
    (descent_by_vjp, [1.7, 1.05, 0.5]),
    (descent_by_jacobians, [1.7, 1.05, 0.5]),
    (descent_by_backward, [1.7, 1.05, 0.5]),
    (descent_for, [1.3, -0.4]),
    (descent_scan, [1.3, -0.4]),
    (branches, [1.3, 0.4, -0.7]),
    (newton, [[2.0, 3.0], [50.0, 0.5]]),
    (meta_learning, [W[0], W[1]]),
    (leapfrog, [W[0], W[1] * 0.5]),
    (loop_in_loop, [2.1, 1.05, 0.5]),
]
IDS = [program.__name__ for program, _ in PROGRAMS]


def slopes(f: Program, x: Any, step: float = 1e-5) -> Any:
    """The gradient by differences."""
    at = np.asarray(x, dtype=np.float64)
    found = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        d = np.zeros_like(at)
        d[i] = step
        more, less = [f(weft.tensor(at + e, requires_grad=True)).item() for e in (d, -d)]
        found[i] = (more - less) / (2 * step)
    return found


@pytest.mark.parametrize(("program", "points"), PROGRAMS, ids=IDS)
def test_gradient_inside_of_control_flow(program: Program, points: list[Any]) -> None:
    compiled = weft.compile(weft.grad(program))
    for x in points:
        found = compiled(tensor(x)).numpy()
        np.testing.assert_allclose(found, weft.grad(program)(tensor(x)).numpy(), rtol=1e-9)
        np.testing.assert_allclose(found, slopes(program, x), rtol=1e-4, atol=1e-6)
    assert len(compiled.recordings) == 1


@pytest.mark.parametrize("program", [descent, descent_scan, branches, newton, loop_in_loop])
def test_second_gradient(program: Program) -> None:
    points = dict(PROGRAMS)[program]

    def squared(x: Any) -> Any:
        return (weft.grad(program)(x) ** 2).sum()

    compiled = weft.compile(weft.grad(squared))
    for x in points:
        found = compiled(tensor(x)).numpy()
        expected = weft.grad(squared)(tensor(x)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert len(compiled.recordings) == 1


# --- whose history a result has ------------------------------------------------------------------

ONE = tensor(1.0)
#: Derivatives by a point that is a constant, of a function that holds values of those around.
AT_A_CONSTANT: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, y: weft.grad(f)(y),
    "value_and_grad": lambda f, y: weft.value_and_grad(f)(y)[0],
    "vjp": lambda f, y: weft.vjp(f, y)[1](ONE)[0],
    "jvp": lambda f, y: weft.jvp(f, (y,), (ONE,))[1],
    "jacobian": lambda f, y: weft.jacobian(f)(y),
    "hessian": lambda f, y: weft.hessian(f)(y),
    "grad of grad": lambda f, y: weft.grad(weft.grad(f))(y),
    "vmap of grad": lambda f, y: weft.vmap(weft.grad(f))(weft.stack([y, y])).sum(),
    "grad in a loop": lambda f, y: [weft.grad(f)(y + k) for k in weft.arange(2)][-1],
}
AROUND: dict[str, Callable[[Any, Any], Any]] = {
    "value_and_grad": lambda f, v: weft.value_and_grad(f)(v),
    "vjp": lambda f, v: (lambda out, pull: (out, pull(ONE)))(*weft.vjp(f, v)),
    "jvp": lambda f, v: weft.jvp(f, (v,), (weft.ones_like(v),)),
    "jacobian": lambda f, v: weft.jacobian(f)(v),
    "jacrev": lambda f, v: weft.jacrev(f)(v),
    "hessian": lambda f, v: weft.hessian(f)(v),
}


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("outer", AROUND)
def test_results_have_the_history_of_arguments_only(outer: str, captured: bool) -> None:
    """The arguments of an inner transform that has ended are no leaves for those outside."""
    for inner, derivative in AT_A_CONSTANT.items():

        def program(v: Any, derivative: Any = derivative) -> Any:
            def f(v: Any) -> Any:
                b = (v**3).sum()
                return derivative(lambda t: weft.sin(t) * b, tensor(0.5))

            return AROUND[outer](f, v)

        run = weft.compile(program) if captured else program
        for wanted in (False, True):
            v = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=wanted)
            results, _ = weft.tree_flatten(run(v))
            assert [r.requires_grad for r in results] == [wanted] * len(results), inner
