"""`jvp` of control flow that is recorded: the graph carries tangents along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import CaptureError, GradientError
from weft.base.pytree import tree_leaves

Function = Callable[..., Any]

T = weft.tensor([1.0, -0.5], dtype="f8")
#: They take all branches, and different numbers of iterations.
POINTS = [weft.tensor(x, dtype="f8") for x in ([1.5, 2.0], [0.2, 0.3], [3.0, 4.0], [6.0, 7.0])]


def grown(x: Any) -> Any:
    return weft.while_loop(lambda v: v.sum() < 100, lambda v: v * v + 1, x)


def carries(x: Any) -> Any:
    """Python numbers are carried, too: one that counts, one that gets a tangent."""
    return weft.while_loop(
        lambda c: c[0].sum() < 100,
        lambda c: (c[0] * (x + 2) + 2, c[1] + 1, c[2] + c[0].sum()),
        (x, 0, 0.0),
    )


def branch(x: Any) -> Any:
    return weft.cond(x.sum() > 1, lambda x: {"a": x * x, "b": 1}, lambda x: {"a": x, "b": 2}, x)


def one_constant(x: Any) -> Any:
    return weft.cond(x.sum() > 1, lambda: weft.sin(x), lambda: weft.ones(2, dtype="f8"))


def switched(x: Any) -> Any:
    ways = [lambda x: x * x, lambda x: weft.sin(x), lambda x: x.sum() * x]
    return weft.switch((x.sum() / 3).astype("i8"), ways, x)


def scanned(x: Any) -> Any:
    return weft.scan(lambda c, v: (c * v, {"y": c + v, "n": 1}), x[0], x)


def backwards(x: Any) -> Any:
    return weft.scan(lambda c, v: (c * v[0] + v[1], c), x.sum(), (x, weft.arange(2)), reverse=True)


def repeated(x: Any) -> Any:
    return weft.fori_loop(0, 3, lambda i, c: c * x + i, x)


def as_often_as_said(x: Any) -> Any:
    return weft.fori_loop(0, x[0].astype("i8"), lambda i, c: c * x + i, x)


def nested(x: Any) -> Any:
    def step(v: Any) -> Any:
        return weft.cond(v[0] > 2, lambda v: v + 3 * x, lambda v: v * v + 1, v)

    return weft.while_loop(lambda v: v.sum() < 60, step, x)


def written(x: Any) -> Any:
    """A write to what the branch itself has made."""

    def yes(x: Any) -> Any:
        y = x * 2
        y[0] = x[1] * x[0]
        return y

    return weft.cond(x.sum() > 1, yes, lambda x: x, x)


FUNCTIONS: dict[str, tuple[Function, str]] = {
    f.__name__: (f, op)
    for f, op in (
        *((grown, "while"), (carries, "while"), (branch, "if"), (one_constant, "if")),
        *((switched, "switch"), (scanned, "scan"), (backwards, "scan"), (repeated, "scan")),
        *((as_often_as_said, "while"), (nested, "while"), (written, "if")),
    )
}


def pushed(f: Function) -> Function:
    return lambda x, t: weft.jvp(f, (x,), (t,))


def same(found: Any, want: Any) -> None:
    pairs = list(zip(tree_leaves(found), tree_leaves(want), strict=True))
    assert pairs
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


def total(tree: Any) -> Any:
    """Of all numbers in a tree, their sum."""
    return sum(weft.asarray(x).astype("f8").sum() for x in tree_leaves(tree))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_carries_tangents(name: str) -> None:
    f, op = FUNCTIONS[name]
    graph = weft.make_graph(pushed(f), POINTS[0], T)
    assert [node.op.name for node in graph.nodes if node.graphs] == [op]
    for x in POINTS:
        same(graph(x, T), pushed(f)(x, T))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("capture", [weft.trace, weft.compile])
def test_captured_functions_are_recorded_once(name: str, capture: Any) -> None:
    f = FUNCTIONS[name][0]
    captured = capture(pushed(f))
    for x in POINTS:
        same(captured(x, T), pushed(f)(x, T))
    assert len(captured.recordings) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_finite_differences(name: str) -> None:
    f = FUNCTIONS[name][0]
    graph = weft.make_graph(pushed(f), POINTS[0], T)
    step = 1e-6
    for x in [*POINTS[:2], POINTS[2] + 0.25]:
        up, down = (float(total(f(x + s * T))) for s in (step, -step))
        tangents = graph(x, T)[1]
        np.testing.assert_allclose(float(total(tangents)), (up - down) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("name", ["grown", "branch", "scanned", "nested"])
def test_derivatives_of_it(name: str) -> None:
    """Forward over forward, and reverse over forward."""
    f = FUNCTIONS[name][0]

    def twice(x: Any, t: Any) -> Any:
        return weft.jvp(lambda x: total(weft.jvp(f, (x,), (t,))[1]), (x,), (t,))

    def slope(x: Any, t: Any) -> Any:
        return weft.grad(lambda x: total(weft.jvp(f, (x,), (t,))))(x)

    for g in (twice, slope):
        graph = weft.make_graph(g, POINTS[0], T)
        for x in POINTS:
            same(graph(x, T), g(x, T))


@pytest.mark.parametrize("name", ["grown", "one_constant", "nested"])
def test_with_vmap_in_either_order(name: str) -> None:
    f = FUNCTIONS[name][0]
    xs = weft.stack(POINTS)
    want = weft.stack([pushed(f)(x, T)[1] for x in POINTS])
    inner = weft.make_graph(weft.vmap(lambda x: pushed(f)(x, T)[1]), xs)
    same(inner(xs), want)
    ts = weft.stack([T] * len(POINTS))
    outer = weft.make_graph(lambda xs, ts: weft.jvp(weft.vmap(f), (xs,), (ts,))[1], xs, ts)
    same(outer(xs, ts), want)


def test_a_parameter_in_the_loop() -> None:
    w = weft.tensor([1.5, 2.0], dtype="f8", requires_grad=True)

    def f(x: Any) -> Any:
        return weft.while_loop(lambda v: v.sum() < 100, lambda v: v * w + 1, x)

    graph = weft.make_graph(pushed(f), POINTS[0], T)
    for x in POINTS:
        same(graph(x, T), pushed(f)(x, T))


def test_a_backward_inside_through_a_parameter_is_refused() -> None:
    w = weft.tensor([1.5, 2.0], dtype="f8", requires_grad=True)

    def f(x: Any) -> Any:
        y = weft.while_loop(lambda v: v.sum() < 100, lambda v: v * w + 1, x)
        return weft.autograd.grad(y.sum(), [w])[0]

    with pytest.raises(GradientError, match="inside of jvp"):
        weft.make_graph(pushed(f), POINTS[0], T)


def test_a_gradient_inside_of_jvp() -> None:
    """The function is recorded by itself first, and its graph carries tangents along."""
    g = pushed(weft.grad(lambda x: nested(x).sum()))
    captured = weft.trace(g)
    graph = weft.make_graph(g, POINTS[0], T)
    for x in POINTS:
        same(captured(x, T), g(x, T))
        same(graph(x, T), g(x, T))
    assert len(captured.recordings) == 1


def test_a_gradient_inside_of_jvp_and_python_that_asks() -> None:
    """Then a trace has a path for each way, and a graph cannot be made."""

    def f(x: Any) -> Any:
        return nested(x).sum() if x.sum() > 4 else (grown(x) * x).sum()

    g = pushed(weft.grad(f))
    captured = weft.trace(g)
    for x in POINTS:
        same(captured(x, T), g(x, T))
    with pytest.raises(CaptureError):
        weft.make_graph(g, POINTS[0], T)


def test_a_gradient_inside_of_jvp_and_writes() -> None:
    """What a first attempt wrote, to tensors and to Python objects, is not written twice."""
    seen: list[str] = []
    total = weft.tensor([0.0, 0.0], dtype="f8")

    def f(x: Any) -> Any:
        total[:] = total + 1
        seen.append("called")
        return nested(x).sum()

    g = pushed(weft.grad(f))
    captured = weft.trace(g)
    for count, x in enumerate(POINTS, 1):
        before = len(seen)
        found = captured(x, T)
        assert (len(seen) - before, total.tolist()) == (1, [2.0 * count - 1] * 2)
        same(found, g(x, T))


def test_a_write_outside_is_asked_which_way_it_goes() -> None:
    def f(x: Any) -> Any:
        kept = x * 1

        def yes(x: Any) -> Any:
            kept[0] = x[1]
            return x * x

        return weft.cond(x.sum() > 1, yes, lambda x: x, x) * kept

    captured = weft.trace(pushed(f))
    for x in POINTS:
        same(captured(x, T), pushed(f)(x, T))


# --- Python's own control flow, captured from its source -----------------------------------------


def python_if(x: Any) -> Any:
    if x.sum() > 4:
        return x * x
    elif x[0] > 1:
        return weft.sin(x)
    return x * 3


def python_while(x: Any) -> Any:
    steps = 0
    while x.sum() < 100:
        x = x * x + 1
        if x[0] > 5:
            x = x + 1
        steps = steps + 1
    return x * steps


@pytest.mark.parametrize("f", [python_if, python_while])
def test_python_control_flow_is_recorded_once(f: Function) -> None:
    captured = weft.compile(pushed(f))
    for x in POINTS:
        same(captured(x, T), pushed(f)(x, T))
    assert len(captured.recordings) == 1
    (graph,) = captured.paths()
    assert any(node.graphs for node in graph.nodes)


@pytest.mark.parametrize("f", [python_if, python_while])
def test_jvp_of_a_compiled_function(f: Function) -> None:
    compiled = weft.compile(f)
    for x in POINTS:
        same(pushed(compiled)(x, T), pushed(f)(x, T))
        same(weft.compile(pushed(compiled))(x, T), pushed(f)(x, T))


def scalar(f: Function) -> Function:
    return lambda x: f(x).sum()


def rows(f: Function) -> Function:
    return lambda xs: weft.stack([f(x) for x in xs])


XS, TS = weft.stack(POINTS), weft.stack([T] * len(POINTS))

#: By name: a composition, its argument, and the same one row after the other if it is mapped.
COMPOSED: dict[str, tuple[Function, Any, Function | None]] = {
    "jvp jvp": (lambda f: lambda x: weft.jvp(lambda x: pushed(f)(x, T)[1], (x,), (T,)), None, None),
    "jvp grad": (lambda f: lambda x: weft.jvp(weft.grad(scalar(f)), (x,), (T,)), None, None),
    "grad jvp": (lambda f: weft.grad(lambda x: pushed(f)(x, T)[1].sum()), None, None),
    "hessian": (lambda f: weft.hessian(scalar(f)), None, None),
    "jacfwd": (weft.jacfwd, None, None),
    "vmap jvp": (
        lambda f: weft.vmap(lambda x: pushed(f)(x, T)[1]),
        XS,
        lambda f: rows(lambda x: pushed(f)(x, T)[1]),
    ),
    "jvp vmap": (
        lambda f: lambda xs: weft.jvp(weft.vmap(f), (xs,), (TS,))[1],
        XS,
        lambda f: rows(lambda x: pushed(f)(x, T)[1]),
    ),
    "vmap grad": (
        lambda f: weft.vmap(weft.grad(scalar(f))),
        XS,
        lambda f: rows(weft.grad(scalar(f))),
    ),
}


@pytest.mark.parametrize("f", [python_if, python_while])
@pytest.mark.parametrize("name", COMPOSED)
def test_compositions_of_python_control_flow(name: str, f: Function) -> None:
    compose, mapped, reference = COMPOSED[name]
    captured = weft.compile(compose(f))
    want = (reference or compose)(f)
    for x in POINTS if mapped is None else (mapped, mapped + 0.5):
        same(captured(x), want(x))
