"""Source capture: plain Python control flow on tensors, eager = traced = one graph.

Each construct is a small function with inputs that take every way through it. `tests/programs` has
whole programs; here are the constructs one by one, their errors, and what the graph looks like.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from programs.compare import call, difference

import weft
from weft import nn
from weft.errors import CaptureError

f64 = functools.partial(weft.asarray, dtype=weft.float64)
Pair = namedtuple("Pair", "low high")


@dataclasses.dataclass
class State:
    x: Any
    steps: Any = 0


# --- constructs -----------------------------------------------------------------------------------


def if_only(x):
    y = x
    if x.sum() > 0:
        y = y * x
    return y


def elif_chain(x):
    s = x.sum()
    if s > 4:
        y = x * x
    elif s > 0:
        y = weft.sin(x)
    else:
        y = -x
    return y


def returns_everywhere(x):
    if x.sum() > 4:
        return x * 2
    for v in x:
        if v < -1:
            return x * v
    while x.sum() < 3:
        x = x + 1
        if (x > 2).any():
            return x * x
    return x


def conditional_expression(x):
    return (x * x if x[0] > 0 else weft.exp(x)) + (1 if x[1] > 0 else 2)


def and_or_not(x):
    a, b = x[0] > 0, x[1] > 0
    if a and not b:
        return x * 2
    if (a or b) and x.sum() < 3:
        return x * 3
    return x * 5


def and_is_lazy(x):
    """The second part must not be evaluated where the first one decides."""
    i = (x > 0).sum()
    if i > 0 and x[i - 1] > 0.5:
        return x * 2
    return x


def chained_comparison(x):
    return x * 2 if 0 < x[0] <= x[1] < 3 else x


def membership(x):
    i = x.argmax()
    if i in (0, 2) and 5.0 not in x:
        return x * 2
    return x


def while_plain(x):
    n = 0
    while x.sum() < 10:
        x = x * 1.5
        n += 1
    return x, n


def while_else(x):
    n = 0
    while n < 4:
        if x[n % 2] > 3:
            y = x * n
            break
        x = x + 1
        n += 1
    else:
        y = -x
    return y


def break_and_continue(x):
    total = 0.0
    for v in x:
        if v < 0:
            continue
        if v > 3:
            break
        total = total + v * v
    return total


def nested_loops(x):
    total = x.sum() * 0
    i = 0
    while i < 3:
        j = 0
        while j < 3:
            j += 1
            if x[i % 2] * j > 2:
                break
            if j == 2:
                continue
            total = total + x[j % 2] * (i + 1)
        i += 1
    return total


def over_rows(x):
    h = weft.zeros_like(x[:1])
    for row in x:
        h = weft.tanh(h * 0.5 + row)
    return h


def over_zip_enumerate_reversed(x):
    total = x[0] * 0
    for i, (a, b) in enumerate(zip(x, reversed(x), strict=False)):
        total = total + a * b * (i + 1)
    return total


def over_range_of_a_tensor(x):
    n = (x > 0).sum() + 1
    y = x
    for i in range(n):
        y = y * x + i
    return y


def range_with_python_bounds(x):
    for i in range(1, 8, 3):
        x = x * i + x[i % 2]
    return x


def index_assignment(x):
    y = weft.zeros(4, dtype=x.dtype)
    for i in range(4):
        if x[i % 2] > 1:
            y[i] = x[i % 2] * i
        else:
            y[i] += 1
    return y


def augmented(x):
    y = x.clone()
    while y.sum() < 5:
        y += 1
        y *= 1.25
    return y


def walrus(x):
    n = 0
    while (s := (x * x).sum()) < 9:
        x = x * 1.5
        n += 1
    return x * s, n


def walrus_in_and(x):
    if x[0] > 0 and (m := x[1] * 2) > 1:
        return x * m
    return x


def containers_as_state(x):
    pair, table, state = (x, 0), {"a": x, "n": 0}, State(x)
    bounds = Pair(x * 0, x)
    while (table["a"] < 4).any():
        pair = (pair[0] + 1, pair[1] + 1)
        table = {"a": table["a"] * 1.5 + 1, "n": table["n"] + 1}
        state = State(state.x + table["a"], state.steps + 2)
        bounds = Pair(bounds.high, bounds.low + bounds.high)
    return pair, table, state.x, state.steps, tuple(bounds)


def mutated_containers(x):
    """Objects from before the loop, written to inside of it."""
    table, state, items = {"sum": x.sum() * 0}, State(x), [x, x * 2]
    while state.steps < 3:
        table["sum"] = table["sum"] + state.x.sum()
        if state.x[0] > 1:
            state.x = state.x / 2
        else:
            items[0] = items[0] + state.x
        state.steps += 1
    return table["sum"], state.x, items[0]


def append_each_time(x):
    seen = []
    for i in range(5):
        x = weft.tanh(x * (i + 1))
        seen.append(x)
    return weft.stack(seen), seen[1], seen[-1], len(seen)


def append_in_while(x):
    seen = [x]
    while x.sum() > 1:
        x = x / 3
        seen.append(x)
    return weft.stack(seen).sum(axis=0), len(seen)


def append_sometimes(x):
    kept = []
    for v in x:
        if v > 0:
            kept.append(v * v)  # noqa: PERF401
    return kept


def names_of_one_way(x):
    """Fine as long as nobody uses them."""
    if x.sum() > 0:
        only = x * 2
        y = only
    else:
        other = x * 3
        y = other + 1
    return y


def closures(x):
    scale = x.sum()
    count = 0

    def apply(v):
        nonlocal count
        count += 1
        return v * scale

    while count < 3:
        x = apply(x) if x[0] < 5 else apply(x * 0.5)
    return x, count


def recursion(x, depth=3):
    if depth == 0:
        return x
    return recursion(x * x if x.sum() < 2 else x / 2, depth - 1)


def comprehensions(x):
    scaled = [x * i for i in range(3) if i != 1]
    return sum(scaled) if x[0] > 0 else weft.stack([v * 2 for v in scaled]).sum(axis=0)


def without_gradient(x):
    with weft.no_grad():
        limit = (x * x).sum()
        while limit > 1:
            limit = limit / 2
    return x * limit


def gradient_inside(x):
    y = x.detach()
    for _ in range(4):
        y.requires_grad = True
        (g,) = weft.autograd.grad((y**4).sum() / 4, [y])
        y = y.detach() - 0.1 * g
    return y * x


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


def partials(x):
    def power(n, v):
        return v**n if v.sum() > 0 else v * n

    return functools.partial(power, 3)(x) + (lambda v: v if v[0] > 0 else -v)(x)


def python_numbers(x):
    """Numbers that tensors decide stay numbers: weak beside tensors, exact beside numbers."""
    rate, count = 0.1, 0
    while x.sum() < 4:
        x = x + rate
        rate = rate * 2 if x[0] > 0 else 0.25
        count += 1
    return x.astype(weft.float32) * rate, rate, count, count // 2, count > 2


def minmax(x):
    n = 0
    for v in x:
        n = max(n, 3) if v > 0 else min(n, 2)
    return x * n


IN = [f64([1.0, 2.0]), f64([-1.0, 0.5]), f64([0.25, -3.0]), f64([4.0, 3.0])]
CONSTRUCTS = [
    *(if_only, elif_chain, returns_everywhere, conditional_expression, and_or_not, and_is_lazy),
    *(chained_comparison, membership, while_else, break_and_continue, nested_loops, over_rows),
    *(over_zip_enumerate_reversed, over_range_of_a_tensor, range_with_python_bounds),
    *(index_assignment, augmented, walrus_in_and, mutated_containers, append_each_time),
    *(append_in_while, append_sometimes, names_of_one_way, closures, recursion, comprehensions),
    *(without_gradient, gradient_inside, prints, asserts, raises, partials, minmax),
]
POSITIVE = [while_plain, walrus, containers_as_state, python_numbers]
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


# --- errors ---------------------------------------------------------------------------------------


def undefined_name(x):
    if x.sum() > 0:
        y = x
    return y


def types_differ(x):
    if x.sum() > 0:
        y = x
    else:
        y = x[:1]
    return y


def structures_differ(x):
    if x.sum() > 0:
        return x
    return (x, x)


def carry_grows(x):
    while x.sum() < 10:
        x = weft.concat([x, x])
    return x


def asks_inside(x):
    while x.sum() < 10:
        x = x * int(x[0])
    return x


def foreign(x):
    return x + np.sin(x)


def strings_differ(x):
    name = "small"
    if x.sum() > 3:
        name = "large"
    return {"small": 1, "large": 2}[name] * x


ERRORS = [
    (undefined_name, "'y' is used here, and it has no value where the condition does not hold"),
    (types_differ, "'y' is f64.2. where the condition holds .*: y = x.*f64.1. where .*x.:1."),
    (structures_differ, "the result is f64\\[2\\] .*return x.* and a tuple .*return \\(x, x\\)"),
    (carry_grows, "'x' is f64\\[2\\] before the loop, and f64\\[4\\] after the body .*concat"),
    (asks_inside, "asks a tensor .f64... for its value .int.(.|\n)*x = x . int.x.0.."),
    (foreign, "numpy.sin is called on tensors(.|\n)*weft.py_call"),
    (strings_differ, "'name' is the str 'large' .* and the str 'small'"),
]


@pytest.mark.parametrize(("function", "message"), ERRORS, ids=lambda e: getattr(e, "__name__", ""))
def test_errors(function: Any, message: str) -> None:
    for x in IN[:2]:
        with pytest.raises(CaptureError, match=message) as caught:
            weft.compile(function)(x)
        assert "test_source.py" in str(caught.value)
        assert caught.value.hint


def test_no_source() -> None:
    names: dict[str, Any] = {}
    exec("def made(x):\n    return x", names)
    with pytest.raises(CaptureError, match="cannot be converted: there is no source"):
        weft.compile(names["made"])(weft.ones(1))


def test_errors_are_those_of_the_path_that_is_taken() -> None:
    def division(x, i):
        if x.sum() > 0:
            return x / [1, 2][1]
        return x / {"a": 1}["b"]

    compiled = weft.compile(division)
    assert compiled(weft.ones(1), 0).tolist() == [0.5]
    with pytest.raises(KeyError):
        compiled(-weft.ones(1), 0)


def test_both_sides_raise() -> None:
    def refuses(x):
        if x.sum() > 0:
            raise ValueError("positive")
        raise KeyError("negative")

    compiled = weft.compile(refuses)
    with pytest.raises(ValueError, match="positive"):
        compiled(weft.ones(1))
    with pytest.raises(KeyError):
        compiled(-weft.ones(1))


def test_a_name_that_only_the_loop_defines() -> None:
    def last(x):
        while x.sum() < 4:
            y = x * 2
            x = x + 1
        return y

    compiled = weft.compile(last)
    assert compiled(weft.ones(1)).tolist() == [6.0]
    with pytest.raises(UnboundLocalError, match="'y' has no value where the loop ends before"):
        compiled(weft.ones(1) * 5)


def test_assert_says_its_line() -> None:
    with pytest.raises(AssertionError, match="the sum is") as caught:
        weft.compile(asserts)(-weft.ones(2))
    assert "assert x.sum() > 0" in caught.value.__notes__[0]


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


def test_print_is_in_order_and_each_time() -> None:
    compiled = weft.compile(prints)
    for x in (*IN, IN[0]):
        shown = []
        for function in (prints, compiled):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                function(x)
            shown.append(out.getvalue())
        assert shown[0] == shown[1]


def test_py_call_and_fallback() -> None:
    def ranked(x):
        order = weft.py_call(lambda v: np.argsort(v.numpy()), weft.spec(2, weft.int64), x)
        return x[order] if x.sum() > 0 else x

    compiled = weft.compile(ranked)
    for x in (IN[0], IN[3], IN[1]):
        assert compiled(x).tolist() == ranked(x).tolist()
    assert len(compiled.recordings) == 1
    called = weft.compile(foreign, fallback="python")
    for x in IN:
        assert np.allclose(called(x), foreign(x))
    assert any(node.op.name == "py_call" for node in called.paths()[0].nodes)


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
