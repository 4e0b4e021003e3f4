"""Jacobians, Hessians and other compositions of transforms over control flow: one graph each.

What a graph gives is compared with the same composition without a graph, which has no control flow,
at points that go different ways; the recordings are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

Function = Callable[..., Any]


def tensor(value: Any, **options: Any) -> weft.Tensor:
    return weft.tensor(np.asarray(value, dtype=np.float64), **options)


W = tensor([[0.5, -0.3], [0.2, 0.8]])
P = tensor([0.3, 0.9], requires_grad=True)
POINTS = [tensor(x) for x in ([1.3, 0.5], [2.6, 3.1], [0.1, 0.2], [9.0, 1.1])]
ROWS = [
    tensor(x) for x in ([[1.3, 0.5], [2.6, 3.1], [0.1, 0.2]], [[9.0, 1.1], [0.3, 0.4], [1, -1]])
]


# --- programs ----------------------------------------------------------------------------------


def while_(x: Any) -> Any:
    t = 0.6
    while (x * x).sum() > t:
        x = weft.sin(x) * 0.95 + 0.1 * weft.cos(x[::-1])
        t = t * 1.02
    return x


def for_(x: Any) -> Any:
    for _ in range(6):
        x = weft.sin(x) * 0.95 + 0.1 * x.sum()
    return x


def nested(x: Any) -> Any:
    n = 0
    while (x * x).sum() > 0.6 and n < 12:
        y = x
        while y.max() > 0.9:
            y = y * 0.7
        x = weft.sin(x) * 0.5 + 0.3 * y
        n = n + 1
    return x * n


def breaks(x: Any) -> Any:
    s = x * 0
    for i in range(8):
        if (s * s).sum() > 3:
            break
        if x.sum() * i > 20:
            continue
        s = s + weft.sin(x * i) @ W
        x = weft.tanh(x) + 0.2 * s
    return s * x


def lists(x: Any) -> Any:
    out = []
    for _ in range(4):
        x = weft.tanh(W @ x) + 0.1
        out.append(x)
    return weft.stack(out).sum(axis=0) * out[1]


def parameters(x: Any) -> Any:
    """What a backward needs of an iteration is a parameter from outside: no stack is kept."""
    while (x * x).sum() > 1.5:
        x = x * P * 0.9 + 0.05 * P * P
    return x * P


def branches(x: Any) -> Any:
    if x.sum() > 3:
        y = x * x
        for i in range(3):
            y = weft.sqrt(y + x[0] ** 2 + i)
        return y
    if x[0] > 1:
        return weft.exp(-x) * x[::-1]
    return x**3


def early(x: Any) -> Any:
    for _ in range(10):
        x = x * 0.9 + weft.cos(x) * 0.1
        if x.sum() < 1:
            return x * x
    return x * x * x


def newton(a: Any) -> Any:
    x = weft.ones_like(a)
    while weft.abs(x * x - a * a - 1).max() > 1e-9:
        x = x - (x * x - a * a - 1) / (2 * x)
    return x


def descent(x: Any) -> Any:
    while (x * x).sum() > 0.8:
        x = x - 0.1 * weft.grad(lambda v: (weft.sin(v) ** 2 + 0.1 * v**4).sum())(x) - 0.02 * x
    return x


def scans(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        return weft.sin(carry) + row[0] * carry[::-1], carry * row[1]

    rows = (weft.arange(4).astype("f8") * 0.1, weft.ones((4, 2), dtype="f8") * x)
    last, ys = weft.scan(step, x, rows, reverse=True)
    return last * ys.sum(axis=0) + ys[1]


def averaged(z: Any, scale: Any) -> Any:
    parts = []
    for i in range(3):
        z = weft.tanh(z * scale + i)
        parts.append(z)
        if z.sum() > 1.3:
            break
    return weft.stack(parts).mean(axis=0)


def list_in_a_loop(x: Any) -> Any:
    """A list of a length that the data decides, made anew in each iteration."""
    w = x
    for _ in range(3):
        w = averaged(w, x)
    return w


def list_in_a_branch_of_a_loop(x: Any) -> Any:
    w = x
    for _ in range(3):
        if x.sum() > 0.1:
            w = averaged(w, x)
    return w


PROGRAMS = [
    *(while_, for_, nested, breaks, lists, parameters, list_in_a_loop, list_in_a_branch_of_a_loop),
    *(branches, early, newton, descent, scans),
]


# --- transforms --------------------------------------------------------------------------------


def number(f: Function) -> Function:
    return lambda x: (f(x) ** 2).sum()


def jvp_of_grad(f: Function) -> Function:
    return lambda x: weft.jvp(weft.grad(number(f)), (x,), (x + 1,))[1]


#: From a program to a function of one point.
SOME: dict[str, Function] = {
    "jacrev": weft.jacrev,
    "jacfwd": weft.jacfwd,
    "hessian": lambda f: weft.hessian(number(f)),
}
MORE: dict[str, Function] = {
    "jacobian": weft.jacobian,
    "hessian of vectors": weft.hessian,
    "grad of grad": lambda f: weft.grad(lambda x: weft.grad(number(f))(x).sum()),
    "jvp of grad": jvp_of_grad,
    "grad of jvp": lambda f: weft.grad(lambda x: weft.jvp(number(f), (x,), (x,))[1]),
    "hvp": lambda f: lambda x: weft.hvp(number(f), (x,), (x,)),
    "jacrev of jacfwd": lambda f: weft.jacrev(weft.jacfwd(number(f))),
    "jacrev of jacrev": lambda f: weft.jacrev(weft.jacrev(number(f))),
    "jacfwd of jacfwd": lambda f: weft.jacfwd(weft.jacfwd(number(f))),
    "jacobian of grad": lambda f: weft.jacobian(weft.grad(number(f))),
    "grad of hessian": lambda f: weft.grad(lambda x: weft.hessian(number(f))(x).sum()),
    "linearize": lambda f: lambda x: weft.linearize(f, x)[1](x),
}


def check(captured: Any, expected: Function, points: list[Any]) -> None:
    for x in points:
        want = expected(x).numpy()
        np.testing.assert_allclose(captured(x).numpy(), want, rtol=1e-8, atol=1e-10)


def one_by_one(f: Function) -> Function:
    return lambda xs: weft.stack([f(x) for x in xs])


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("program", PROGRAMS)
def test_derivatives(program: Function, name: str) -> None:
    compiled = weft.compile(SOME[name](program))
    check(compiled, SOME[name](program), POINTS)
    assert len(compiled.recordings) == 1


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("program", [while_, breaks, scans])
def test_compositions(program: Function, name: str) -> None:
    compiled = weft.compile(MORE[name](program))
    check(compiled, MORE[name](program), POINTS)
    assert len(compiled.recordings) == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_vmap_of_hessian(program: Function) -> None:
    hessian = weft.hessian(number(program))
    compiled = weft.compile(weft.vmap(hessian))
    check(compiled, one_by_one(hessian), ROWS)
    assert len(compiled.recordings) == 1


@pytest.mark.parametrize("name", ["jacrev", "jacfwd", "jacobian"])
@pytest.mark.parametrize("program", [while_, branches])
def test_jacobian_of_vmap(program: Function, name: str) -> None:
    jacobian = getattr(weft, name)

    def expected(xs: Any) -> Any:
        found = np.zeros((3, 2, 3, 2))
        for i in range(3):
            found[i, :, i, :] = weft.jacrev(program)(xs[i]).numpy()
        return weft.tensor(found)

    compiled = weft.compile(jacobian(weft.vmap(program)))
    check(compiled, expected, ROWS)
    assert len(compiled.recordings) == 1


def test_hessian_of_a_loop_by_differences() -> None:
    compiled = weft.compile(weft.hessian(number(while_)))
    slope = weft.grad(number(while_))
    for x in POINTS:
        step = 1e-6 * np.eye(2)
        columns = [(slope(x + d).numpy() - slope(x - d).numpy()) / 2e-6 for d in map(tensor, step)]
        np.testing.assert_allclose(compiled(x).numpy(), np.stack(columns, 1), atol=1e-6)


def test_a_long_loop_is_one_loop() -> None:
    """Its Hessian is no larger for 40 steps, and there is one for any number of them."""

    def steps(x: Any, n: Any) -> Any:
        i = 0
        while i < n:
            x = weft.tanh(W @ x) + 0.1
            i = i + 1
        return (x * x).sum()

    compiled = weft.compile(weft.hessian(steps))
    for count in (0, 3, 40):
        found = compiled(POINTS[0], weft.tensor(count)).numpy()
        np.testing.assert_allclose(found, weft.hessian(steps)(POINTS[0], count).numpy(), atol=1e-10)
    (recording,) = compiled.recordings
    assert int(recording.outcome.split()[0]) < 100


def test_arguments_and_trees() -> None:
    def f(p: Any, x: Any) -> Any:
        y = {"a": x, "b": p["w"] * 2}
        while y["a"].sum() > 1:
            y = {"a": y["a"] * p["w"] * 0.5, "b": y["b"] + y["a"] ** 2}
        return y, y["a"].detach()

    given = ({"w": tensor([0.9, 0.7])}, tensor([3.0, 4.0]))
    for jacobian in (weft.jacrev, weft.jacfwd):
        made = jacobian(f, argnums=(0, 1), has_aux=True)
        for p, x in (given, (given[0], given[1] * 5)):
            found, want = weft.compile(made)(p, x), made(p, x)
            pairs = zip(weft.tree_leaves(found), weft.tree_leaves(want), strict=True)
            for a, b in pairs:
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9)


def straight(x: Any) -> Any:
    return weft.sin(x) * x[::-1]


@pytest.mark.parametrize("program", [straight, while_, breaks])
def test_transforms_of_compiled_functions(program: Function) -> None:
    """There is no graph around them: a backward of native code gets cotangents of a vmap."""
    for name in ("jacrev", "jacfwd"):
        check(SOME[name](weft.compile(program)), SOME[name](program), POINTS)
    slope = weft.grad(number(program))
    for jacobian in (weft.jacrev, weft.jacfwd):
        check(jacobian(weft.compile(slope)), SOME["hessian"](program), POINTS)


# --- control flow by functions, in traces and graphs ---------------------------------------------


def while_function(x: Any) -> Any:
    def going(carry: Any) -> Any:
        return (carry[0] * carry[0]).sum() > carry[1]

    def step(carry: Any) -> Any:
        return weft.sin(carry[0]) * 0.95 + 0.1 * weft.cos(carry[0][::-1]), carry[1] * 1.02

    return weft.while_loop(going, step, (x, 0.6))[0]


def cond_function(x: Any) -> Any:
    return weft.cond(x.sum() > 2, lambda x: x * x * x, lambda x: weft.sin(x) * x[::-1], x)


FUNCTIONS = [while_function, cond_function, scans]
NAMES = ["jacrev", "jacfwd", "hessian", "jvp of grad", "jacrev of jacrev"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("program", FUNCTIONS)
def test_traces_and_graphs(program: Function, name: str) -> None:
    made = {**SOME, **MORE}[name](program)
    traced = weft.trace(made)
    check(traced, made, POINTS)
    assert len(traced.recordings) == 1
    check(weft.make_graph(made, POINTS[0]), made, POINTS)


@pytest.mark.parametrize("program", FUNCTIONS)
def test_a_gradient_inside_of_vmap(program: Function) -> None:
    slope = weft.grad(number(program))
    check(weft.make_graph(weft.vmap(slope), ROWS[0]), one_by_one(slope), ROWS)


def test_a_graph_that_is_called_in_another() -> None:
    inner = weft.make_graph(while_function, POINTS[0])
    for name in ("jacrev", "jacfwd", "hessian"):
        made = weft.make_graph(SOME[name](inner), POINTS[0])
        check(made, SOME[name](while_function), POINTS)
