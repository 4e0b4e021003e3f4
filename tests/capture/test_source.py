"""Source capture: plain Python control flow on tensors, eager = traced = one graph.

Here are the constructs of `source_constructs.py` one by one, and what the graph looks like.
`support/programs` has whole programs, `test_source_errors.py` what is refused.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import source_constructs
from programs.compare import call, difference
from source_constructs import (
    IN,
    POSITIVE,
    State,
    append_in_while,
    append_sometimes,
    gradient_inside,
    if_only,
)

import weft
from weft import nn


def prints(x):
    print("start", x.shape)
    for i in range(3):
        if x[i % 2] > 1:
            print(f"{i}: {x[i % 2]} is large")
    print("end")
    return x


def asserts(x):
    assert x.sum() > 0, f"the sum is {x.sum()}"
    while x.sum() < 5:
        x = x * 2
        assert (x < 6).all()
    return x


def raises(x):
    if x.sum() < 0:
        raise ValueError("negative")
    return weft.sqrt(x)


CONSTRUCTS = [*source_constructs.CONSTRUCTS, prints, asserts, raises]
#: Gradients of what all iterations share are added up in another order.
NEAR = 1e-12


@pytest.mark.parametrize("mode", ["trace", "source"])
@pytest.mark.parametrize("function", [*CONSTRUCTS, *POSITIVE], ids=lambda f: f.__name__)
def test_constructs(function: Any, mode: str) -> None:
    inputs = IN if function in CONSTRUCTS else [x.abs() for x in IN]
    captured = weft.compile(function, capture=mode)
    for x in [*inputs, *reversed(inputs)]:
        second = function is not gradient_inside
        wanted = function is not prints  # eagerly, tensors with a history say so
        want = call(function, (x,), {}, wanted=wanted, second=second)
        got = call(captured, (x,), {}, wanted=wanted, second=second)
        assert not difference(want, got, loose=mode == "source", near=NEAR), x


@pytest.mark.parametrize("function", [*CONSTRUCTS, *POSITIVE], ids=lambda f: f.__name__)
def test_one_recording_serves_all_values(function: Any) -> None:
    """Control flow on tensors is in the graph: other values need no other recording."""
    asks_for_lengths = (append_in_while, append_sometimes)
    captured = weft.compile(function)
    for x in IN if function in CONSTRUCTS else [x.abs() for x in IN]:
        with contextlib.suppress(AssertionError, ValueError), contextlib.redirect_stdout(None):
            captured(x)
    assert len(captured.recordings) == 1 or function in asks_for_lengths
    for graph in captured.paths():
        graph.verify()


def test_assert_says_its_line() -> None:
    with pytest.raises(AssertionError, match="the sum is") as caught:
        weft.compile(asserts)(-weft.ones(2))
    assert "assert x.sum() > 0" in caught.value.__notes__[0]


def test_print_is_in_order_and_each_time() -> None:
    compiled = weft.compile(prints)
    for x in (*IN, IN[0]):
        shown = []
        for function in (prints, compiled):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                function(x)
            shown.append(out.getvalue())
        assert shown[0] == shown[1]


# --- loops stay loops -----------------------------------------------------------------------------


def nodes(function: Any, *args: Any) -> int:
    compiled = weft.compile(function)
    compiled(*args)
    (graph,) = compiled.paths()
    return graph.node_count()


def test_a_loop_of_python_numbers_is_one_node() -> None:
    def body(x, n):
        total = x * 0
        outs = []
        for i in range(n):
            x = weft.sin(x) + i * 0.001
            if x.sum() > 1:
                total = total + x[i % 2]
            outs.append(total)
        return weft.stack(outs).sum() + total

    assert nodes(body, IN[0], 10) == nodes(body, IN[0], 10_000)


def test_a_loop_that_needs_its_number_is_unrolled() -> None:
    layers = [nn.Linear(2, 2) for _ in range(3)]

    def deep(x):
        for i in range(3):
            x = weft.tanh(layers[i](x))
        return x

    x = weft.ones(2)
    compiled = weft.compile(deep)
    assert np.allclose(compiled(x), deep(x))
    assert not any(node.graphs for node in compiled.paths()[0].nodes)


def test_a_loop_whose_carry_changes_shape_is_unrolled() -> None:
    def doubling(x):
        for _ in range(3):
            x = weft.concat([x, x])
        return x

    assert weft.compile(doubling)(weft.ones(2)).shape == (16,)


def test_unroll() -> None:
    def sums(x):
        for i in weft.unroll(range(4)):
            x = x + i
        return x

    compiled = weft.compile(sums)
    assert compiled(weft.ones(1)).tolist() == sums(weft.ones(1)).tolist() == [7.0]
    assert not any(node.graphs for node in compiled.paths()[0].nodes)


# --- what is around -------------------------------------------------------------------------------


def test_converted_source() -> None:
    text = weft.compile(if_only).converted_source()
    assert "__weft__.if_(" in text
    compile(text, "converted", "exec")


def test_tracebacks_show_the_users_lines() -> None:
    def wrong(x):
        for _ in range(1):
            if len(x.shape) == 1:
                x = x @ weft.ones((5, 5))
        return x

    with pytest.raises(weft.errors.ShapeError, match="test_source") as caught:
        weft.compile(wrong)(weft.ones(2))
    names = [entry.name for entry in caught.traceback]
    assert "wrong" in names


@pytest.mark.parametrize("make", [weft.compile, weft.trace], ids=["source", "trace"])
@pytest.mark.parametrize("name", ["transformer", "limit", "_inner", "_sets_aside", "_latest"])
def test_attributes_of_a_module_are_its_own(name: str, make: Any) -> None:
    """Whatever the wrapper calls its own."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            setattr(self, name, 7)

        def forward(self, x: Any) -> Any:
            return self.inner(x) * getattr(self, name)

    net, x = Net(), weft.ones((2, 3))
    wrapped = make(net)
    for way in (wrapped, wrapped, weft.vmap(wrapped)):
        assert weft.all(abs(way(x) - net(x)) < 1e-6)
    if name == "transformer":
        assert wrapped.transformer == 7
    net.inner = nn.Linear(3, 3)
    assert wrapped.inner is net.inner
    assert weft.all(abs(wrapped(x) - net(x)) < 1e-6)


def test_decorator_method_module_lambda() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(weft.ones(2))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.weight if x.sum() > 0 else x - self.weight

        @weft.compile(limit=8)
        def twice(self, x):
            return self(self(x))

    model = Scale()
    compiled = weft.compile(model)
    x = weft.asarray([1.0, -3.0])
    assert compiled(x).tolist() == [0.0, -4.0]
    assert compiled(-x).tolist() == [-1.0, 3.0]
    assert model.calls == 2
    assert len(list(compiled.parameters())) == 1
    compiled(-x).sum().backward()
    assert model.weight.grad.tolist() == [-1.0, 3.0]
    assert model.twice(x).tolist() == model(model(x)).tolist()
    halves = weft.compile(lambda v: v / 2 if v.sum() > 0 else v)
    assert halves(weft.ones(1)).tolist() == [0.5]


def test_guards() -> None:
    factor = 2

    def scaled(x):
        return x * factor if x.sum() > 0 else x

    compiled = weft.compile(scaled)
    assert compiled(weft.ones(1)).tolist() == [2.0]
    factor = 3
    assert compiled(weft.ones(1)).tolist() == [3.0]
    assert "factor was 2, now 3" in str(compiled.recordings[1])


def test_written_arguments_and_state() -> None:
    def count_up(x, state):
        while x.sum() < 5:
            x += 1
            state.steps += 1
        state.x = x * 2

    for capture in ("trace", "source"):
        function = weft.compile(count_up, capture=capture)
        for _ in range(2):
            x, state = weft.ones(2), State(None)
            function(x, state)
            assert x.tolist() == [3.0, 3.0]
            assert state.x.tolist() == [6.0, 6.0]
            assert state.steps == 2


def test_random_numbers_are_those_of_eager() -> None:
    def walk(x):
        while x.abs().sum() < 3:
            if weft.rand() > 0.5:
                x = x + weft.randn(2, dtype=x.dtype)
        return x

    compiled = weft.compile(walk)
    for seed in range(3):
        weft.manual_seed(seed)
        want = walk(IN[1])
        after = weft.get_rng_state().tolist()
        weft.manual_seed(seed)
        assert compiled(IN[1]).tolist() == want.tolist()
        assert weft.get_rng_state().tolist() == after


def test_a_loop_function_in_a_branch_in_a_loop() -> None:
    """What the inner loop carries is its own: the branch around it merges nothing of it."""

    def step(i: Any, y: Any) -> Any:
        return weft.cond(
            i % 2 == 0,
            lambda: weft.while_loop(
                lambda d: d[0] < 2, lambda d: (d[0] + 1, d[1] * 0.9), (0 * i, y)
            )[1],
            lambda: y * 0.1,
        )

    def f(x: Any, n: Any) -> Any:
        m = n * 0
        while m < 2:
            m = m + 1
            x = (
                x
                + weft.while_loop(
                    lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[0], c[1])), (0, x)
                )[1]
            )
        return x

    captured = weft.compile(f)
    for n in (0, 1, 4):
        given = weft.asarray(0.3), weft.asarray(n)
        np.testing.assert_allclose(captured(*given).numpy(), f(*given).numpy(), rtol=1e-6)


@pytest.mark.parametrize("later", [lambda t: t * 2, lambda *t: t[0], lambda s, t=1: s * t])
def test_parameters_of_a_lambda_are_no_variables_of_the_function(later: Any) -> None:
    """A name of the function that is a parameter there may have two types in two branches."""

    def f(x: Any) -> Any:
        if x.sum() > 0:
            t = x * 2
            x = x + t
        else:
            t = x.reshape(-1, 1)
            x = x + t[:, 0] * 3
        y = weft.grad(lambda t: (t**3).sum())(x)
        return later(y) + (lambda s, *, t=2, **x: s * t)(y)

    captured = weft.compile(f)
    for sign in (1, -1):
        x = weft.asarray([1.0, 2.0]) * sign
        np.testing.assert_allclose(captured(x).numpy(), f(x).numpy(), rtol=1e-6)
