"""Control flow on mapped tensors that is recorded: in captured functions, and in graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import CaptureError

Function = Callable[..., Any]

ROWS = weft.asarray([[1.0, 2.0], [-3.0, -4.0], [0.5, -0.25], [0.0, 0.0], [30.0, 1.0]], dtype="f8")


def branch(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return -x


def chain(x: Any) -> Any:
    y = x
    if x[0] > 2:
        y = y * y
    elif x[0] < -1:
        y = weft.sin(y)
    else:
        y = y + 1
    if y.sum() > 3:
        y = y - x
    return y.sum() * y


def halved(x: Any) -> Any:
    n = x * 1.0
    while abs(n.sum()) > 1:
        n = n / 2
    return n


def counted(x: Any) -> Any:
    steps, n = 0, x
    while n.sum() > 1:
        n = n / 3
        steps = steps + 1
        if n[0] > n[1]:
            n = n - 0.1
    return n * steps


def rows_of(x: Any) -> Any:
    total = x[0] * 0
    for part in x:
        if part > 0:
            total = total + part * part
    return total


PYTHON: dict[str, Function] = {f.__name__: f for f in (branch, chain, halved, counted, rows_of)}


def one_by_one(f: Function, xs: Any) -> Any:
    return np.stack([np.array(f(x).detach().numpy()) for x in xs])


@pytest.mark.parametrize("name", PYTHON)
def test_vmap_of_a_compiled_function(name: str) -> None:
    f = PYTHON[name]
    compiled = weft.compile(f)
    mapped = weft.vmap(compiled)
    for xs in (ROWS, ROWS * 3, -ROWS):
        np.testing.assert_allclose(mapped(xs).numpy(), one_by_one(f, xs), rtol=1e-12)
    assert len(compiled.recordings) == 1
    np.testing.assert_allclose(compiled(ROWS[0]).numpy(), f(ROWS[0]).numpy())


@pytest.mark.parametrize("name", PYTHON)
def test_gradients_through_it(name: str) -> None:
    """Of the whole, and for each element; as without vmap, and as finite differences say."""
    f = PYTHON[name]
    compiled = weft.compile(f)
    want = np.stack([np.array(weft.grad(lambda x: (f(x) ** 2).sum())(x).numpy()) for x in ROWS])
    whole = weft.grad(lambda xs: (weft.vmap(compiled)(xs) ** 2).sum())(ROWS)
    np.testing.assert_allclose(whole.numpy(), want, rtol=1e-9)
    each = weft.vmap(weft.grad(lambda x: (compiled(x) ** 2).sum()))(ROWS)
    np.testing.assert_allclose(each.numpy(), want, rtol=1e-9)
    step = 1e-6
    xs = ROWS[4:5]
    for i in range(2):
        shift = np.zeros((1, 2))
        shift[0, i] = step
        up, down = (float((weft.vmap(compiled)(xs + s) ** 2).sum()) for s in (shift, -shift))
        np.testing.assert_allclose((up - down) / (2 * step), want[4, i], rtol=1e-4, atol=1e-6)


def test_vmap_of_vmap_of_a_compiled_function() -> None:
    both = weft.stack([ROWS, ROWS * 2])
    found = weft.vmap(weft.vmap(weft.compile(halved)))(both)
    want = np.stack([one_by_one(halved, xs) for xs in both])
    np.testing.assert_allclose(found.numpy(), want)


def test_what_is_the_same_for_all_decides_once() -> None:
    @weft.compile
    def f(x: Any, c: Any) -> Any:
        if c > 0:
            return x * 2
        return x / 0

    found = weft.vmap(f, in_axes=(0, None))(ROWS, weft.asarray(1.0))
    np.testing.assert_allclose(found.numpy(), ROWS.numpy() * 2)


def test_a_compiled_function_that_writes_runs_as_it_is() -> None:
    seen: list[Any] = []

    @weft.compile
    def f(x: Any) -> Any:
        seen.append(1)
        return x * 2

    np.testing.assert_allclose(weft.vmap(f)(ROWS).numpy(), ROWS.numpy() * 2)
    assert seen == [1]


def test_vmap_of_a_graph_with_control_flow() -> None:
    graph = weft.make_graph(
        lambda x: weft.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, x), ROWS[0]
    )
    np.testing.assert_allclose(weft.vmap(graph)(ROWS).numpy(), one_by_one(branch, ROWS))


# --- while_loop in a recorded graph --------------------------------------------------------------


def loop(x: Any) -> Any:
    return weft.while_loop(lambda n: abs(n.sum()) > 1, lambda n: n / 2, x)


def pair(x: Any) -> Any:
    """Two carries, a number among them, and a tensor from outside of the loop."""
    scale = x[0] * 0 + 3
    out, steps = weft.while_loop(
        lambda c: c[0].sum() > 1, lambda c: (c[0] / scale, c[1] + 1), (x, 0)
    )
    return out * steps


@pytest.mark.parametrize("f", [loop, pair])
def test_a_mapped_loop_is_one_loop_of_the_graph(f: Function) -> None:
    graph = weft.make_graph(weft.vmap(f), ROWS)
    assert [node.op.name for node in graph.nodes].count("while") == 1
    for xs in (ROWS, ROWS * 50, -ROWS):
        np.testing.assert_allclose(graph(xs).numpy(), one_by_one(f, xs), rtol=1e-12)


@pytest.mark.parametrize("f", [loop, pair])
@pytest.mark.parametrize("capture", [weft.trace, weft.compile])
def test_a_captured_mapped_loop_is_recorded_once(f: Function, capture: Any) -> None:
    captured = capture(weft.vmap(f))
    for xs in (ROWS, ROWS * 50, -ROWS):
        np.testing.assert_allclose(captured(xs).numpy(), one_by_one(f, xs), rtol=1e-12)
    assert len(captured.recordings) == 1


def test_gradients_of_a_recorded_mapped_loop() -> None:
    graph = weft.make_graph(weft.grad(lambda xs: (weft.vmap(loop)(xs) ** 2).sum()), ROWS)
    for xs in (ROWS, ROWS * 50):
        want = [weft.grad(lambda x: (halved(x) ** 2).sum())(x).numpy() for x in xs]
        np.testing.assert_allclose(graph(xs).numpy(), np.stack(want), rtol=1e-12)


def test_gradients_inside_of_a_mapped_loop() -> None:
    """The loop is one step on the level of the vmap, whose gradient is that of all elements."""
    inner = weft.vmap(weft.grad(lambda x: (loop(x) ** 2).sum()))
    traced, graph = weft.trace(inner), weft.make_graph(inner, ROWS)
    for xs in (ROWS, ROWS * 50):
        np.testing.assert_allclose(traced(xs).numpy(), inner(xs).numpy())
        np.testing.assert_allclose(graph(xs).numpy(), inner(xs).numpy())
    assert len(traced.recordings) == 1


def test_mapped_twice() -> None:
    both = weft.stack([ROWS, ROWS * 2])
    graph = weft.make_graph(weft.vmap(weft.vmap(loop)), both)
    want = np.stack([one_by_one(halved, xs) for xs in both])
    np.testing.assert_allclose(graph(both).numpy(), want)


def test_a_write_in_a_recorded_mapped_loop() -> None:
    """What the body writes to is carried: each element has what its own iterations left there."""

    def f(x: Any) -> Any:
        kept = x * 1

        def body(n: Any) -> Any:
            kept[0] = n[0]
            return n / 2

        return weft.while_loop(lambda n: n.sum() > 1, body, x) + kept

    graph = weft.make_graph(weft.vmap(f), ROWS)
    for xs in (ROWS, ROWS * 50, -ROWS):
        np.testing.assert_allclose(graph(xs).numpy(), one_by_one(f, xs))
        np.testing.assert_allclose(weft.vmap(f)(xs).numpy(), one_by_one(f, xs))


# --- vmap in a captured function -----------------------------------------------------------------


@pytest.mark.parametrize("name", PYTHON)
def test_compile_of_vmap(name: str) -> None:
    """A Python `if` or `while` on a mapped tensor, in a function that is compiled as a whole."""
    f = PYTHON[name]
    captured = weft.compile(weft.vmap(f))
    for xs in (ROWS, ROWS * 3, -ROWS):
        np.testing.assert_allclose(captured(xs).numpy(), one_by_one(f, xs), rtol=1e-12)
    assert len(captured.recordings) == 1


@pytest.mark.parametrize("name", PYTHON)
def test_gradients_of_compile_of_vmap(name: str) -> None:
    f = PYTHON[name]

    def loss(xs: Any) -> Any:
        return (weft.vmap(f)(xs) ** 2).sum()

    captured = weft.compile(weft.grad(loss))
    outside = weft.grad(weft.compile(loss))
    for xs in (ROWS, ROWS * 3):
        want = np.stack([np.array(weft.grad(lambda x: (f(x) ** 2).sum())(x).numpy()) for x in xs])
        np.testing.assert_allclose(captured(xs).numpy(), want, rtol=1e-9)
        np.testing.assert_allclose(outside(xs).numpy(), want, rtol=1e-9)
    assert len(captured.recordings) == 1


@pytest.mark.parametrize("name", ["branch", "chain"])
def test_compile_of_vmap_of_grad(name: str) -> None:
    f = PYTHON[name]
    each = weft.grad(lambda x: (f(x) ** 2).sum())
    captured = weft.compile(weft.vmap(each))
    np.testing.assert_allclose(captured(ROWS).numpy(), one_by_one(each, ROWS), rtol=1e-9)


def test_compile_of_vmap_of_vmap() -> None:
    both = weft.stack([ROWS, ROWS * 2])
    for f in (branch, halved):
        found = weft.compile(weft.vmap(weft.vmap(f)))(both)
        want = np.stack([one_by_one(f, xs) for xs in both])
        np.testing.assert_allclose(found.numpy(), want)


def test_what_compile_of_vmap_cannot_map_is_an_error() -> None:
    """A function that writes outside runs as it is: once, and Python may not ask there."""
    seen: list[Any] = []

    def noted(x: Any) -> Any:
        seen.append(1)
        return x * 2

    np.testing.assert_allclose(weft.compile(weft.vmap(noted))(ROWS).numpy(), ROWS.numpy() * 2)
    assert seen == [1]

    def asks(x: Any) -> Any:
        if x.sum() > 0:
            x = x * 2
        seen.append(1)
        return x

    with pytest.raises(CaptureError, match="mapped tensor"):
        weft.compile(weft.vmap(asks))(ROWS)


def test_parameters_in_compile_of_vmap() -> None:
    weight = weft.tensor([[1.0, -2.0], [0.5, 1.0]], dtype="f8", requires_grad=True)

    def f(x: Any) -> Any:
        y = weight @ x
        if y.sum() > 0:
            y = y * y
        return y

    weft.compile(lambda xs: weft.vmap(f)(xs).sum())(ROWS).backward()
    found = np.array(weight.grad.numpy())
    weight.grad = None
    for x in ROWS:
        f(x).sum().backward()
    np.testing.assert_allclose(found, weight.grad.numpy())


def test_effects_inside_of_a_compiled_vmap_are_refused() -> None:
    def loud(x: Any) -> Any:
        print(x)
        return x * 2

    with pytest.raises(weft.errors.CaptureError, match="print of a tensor in a function that"):
        weft.compile(weft.vmap(loud))(weft.ones(3))
