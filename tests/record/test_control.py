"""Control flow as functions: what they give, what they write, and what they refuse."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import CaptureError, DTypeError, GraphError, ShapeError
from weft.core.bind import bind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.op import OPS
from weft.ir.types import StackType, TensorType

F3 = weft.spec(3)
X = weft.asarray([1.0, 2.0, 3.0])


def nodes_of(graph: Graph, name: str) -> list[Any]:
    return [node for part in graph.walk() for node in part.nodes if node.op.name == name]


# --- eagerly -----------------------------------------------------------------------------------


def test_eager_functions_are_python() -> None:
    seen: list[Any] = []

    def body(c: Any) -> Any:
        seen.append(c)
        return c + 1

    assert weft.while_loop(lambda c: c < 3, body, 0).item() == 3
    assert seen == [0, 1, 2]
    assert weft.cond(True, lambda: "yes", lambda: 1 / 0) == "yes"
    assert weft.switch(9, [lambda: "a", lambda: "b"]) == "b"
    assert weft.switch(weft.asarray(-9), [lambda: "a", lambda: "b"]) == "a"
    carry, ys = weft.scan(lambda c, x: (c + x, {"y": c * x}), weft.asarray(0.0), X, reverse=True)
    assert carry.item() == 6
    assert ys["y"].tolist() == [5.0, 6.0, 0.0]
    assert weft.fori_loop(2, 5, lambda i, c: c * i, 1).item() == 24
    assert weft.map(lambda x: (x, x + 1), X)[1].tolist() == [2.0, 3.0, 4.0]


def test_eager_scan_of_nothing_knows_its_types() -> None:
    carry, ys = weft.scan(lambda c, x: (c, (x.sum(), x > 0)), 1.0, weft.zeros((0, 2)))
    assert carry.item() == 1.0
    assert str(ys[0].type) == "f32[0]"
    assert str(ys[1].type) == "bool[0,2]"


def test_a_write_to_a_carried_value_is_no_write_to_its_start() -> None:
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            c += 1
            return c

        return weft.while_loop(lambda c: c.sum() < 9, body, x), x

    for run in (f, weft.make_graph(f, F3)):
        end, start = run(X)
        assert end.tolist() == [2.0, 3.0, 4.0]
        assert start.tolist() == X.tolist()


# --- what is recorded --------------------------------------------------------------------------


def test_python_predicates_leave_no_nodes() -> None:
    def f(x: Any) -> Any:
        y = weft.cond(x.ndim == 1, lambda: x + 1, lambda: x)
        return weft.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 2), (0, y))[1]

    graph = weft.make_graph(f, F3)
    assert [node.op.name for node in graph.nodes if node.op.name != "constant"] == [
        *("add", "multiply", "multiply")
    ]


def test_a_loop_that_turns_into_one_over_tensors() -> None:
    """The first round is Python's; from the second on, the condition is a tensor."""

    def f(x: Any) -> Any:
        return weft.while_loop(lambda c: c < 20, lambda c: c * 2 + x.sum(), 1)

    graph = weft.make_graph(f, F3)
    assert len(nodes_of(graph, "while")) == 1
    assert graph(X).item() == f(X).item()


def test_nested_graphs_are_closed_through_several_levels() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * y
        return weft.cond(
            x.sum() > 0,
            lambda: weft.cond(y.sum() > 0, lambda: z + X, lambda: z * x),
            lambda: y,
        )

    graph = weft.make_graph(f, F3, F3)
    graph.verify()
    for a in (X, -X):
        for b in (X, -X):
            assert graph(a, b).tolist() == f(a, b).tolist()


def test_operands_that_agree_in_value_but_not_in_history() -> None:
    """A parameter after an update without gradients: the same numbers, once with a history."""
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    def f(x: Any) -> Any:
        with weft.no_grad():
            new = w * 2
            w.copy_(new)
        y = weft.cond(x.sum() > 0, lambda: (w * new * x).sum(), lambda: x.sum())
        return weft.autograd.grad(y, w)[0]

    x = weft.asarray([3.0, 4.0])
    graph = weft.make_graph(f, x)
    assert graph(x).tolist() == [6.0, 16.0]


Pair = namedtuple("Pair", ["a", "b"])


def test_trees_and_python_values_in_a_carry() -> None:
    def f(x: Any) -> Any:
        init = Pair({"x": x, "word": "same", "n": 0}, [None, True])

        def body(c: Any) -> Any:
            assert c.a["word"] == "same"
            return Pair({"x": c.a["x"] * 2, "word": "same", "n": c.a["n"] + 1}, [None, c.b[1]])

        return weft.while_loop(lambda c: c.a["x"].sum() < 40, body, init)

    out = weft.make_graph(f, F3)(X)
    assert out.a["x"].tolist() == [8.0, 16.0, 24.0]
    assert out.a["word"] == "same"
    assert out.a["n"].item() == 3
    assert out.b[1] is not None


@pytest.mark.parametrize(
    ("dtype", "start", "kind"),
    [
        (weft.float16, 0.0, "f16[]"),
        (weft.float64, 0.0, "f64[]"),
        (weft.float32, 0, "f32[]"),
        (weft.int32, 0, "i32[]"),
        (weft.int32, False, "i32[]"),
        (weft.complex64, 1.5, "c64[]"),
    ],
)
def test_numbers_take_the_dtype_that_the_body_gives(dtype: Any, start: Any, kind: str) -> None:
    def f(w: Any, n: Any) -> Any:
        return weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + w), (0, start))[1]

    graph = weft.make_graph(f, weft.spec((), dtype), weft.spec((), weft.int64))
    assert str(graph.outputs[0].type) == kind
    w, n = weft.ones((), dtype=dtype), weft.asarray(2)
    assert graph(w, n).item() == f(w, n).item()
    assert f(w, n).dtype is graph(w, n).dtype


def test_numbers_in_branches_take_the_dtype_of_the_other() -> None:
    def f(x: Any) -> Any:
        return weft.cond(x > 0, lambda: (x, 1, "a", 2.0), lambda: (0, 2.5, "a", 2.0))

    out = weft.make_graph(f, weft.spec((), weft.float64))(weft.asarray(-1.0, dtype=weft.float64))
    assert [str(out[0].type), str(out[1].type)] == ["f64[]", "f32[]"]
    assert (out[1].item(), out[2], out[3]) == (2.5, "a", 2.0)


@pytest.mark.parametrize("unroll", [1, 2, 3, 7, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_unroll(unroll: Any, reverse: bool, length: int) -> None:
    def f(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            return c * 0.5 + x, (c - x, x)

        return weft.scan(step, weft.zeros(2), xs, reverse=reverse, unroll=unroll)

    xs = weft.reshape(weft.arange(length * 2, dtype=weft.float32), (length, 2))
    graph = weft.make_graph(f, xs)
    graph.verify()
    got, want = weft.tree_leaves(graph(xs)), weft.tree_leaves(f(xs))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_symbolic_lengths() -> None:
    def f(xs: Any, h: Any) -> Any:
        total = weft.fori_loop(0, xs.shape[0], lambda i, c: c + xs[i], h)
        return weft.scan(lambda c, x: (c * x, c), total, xs)

    graph = weft.make_graph(f, weft.spec(("T", "D")), weft.spec(("D",)))
    graph.verify()
    for length in (0, 1, 4):
        xs, h = weft.ones((length, 2)) * 2, weft.ones(2)
        got, want = weft.tree_leaves(graph(xs, h)), weft.tree_leaves(f(xs, h))
        assert [a.tolist() for a in got] == [b.tolist() for b in want]


def test_a_graph_called_in_another_stays_control_flow() -> None:
    def inner(x: Any, n: Any) -> Any:
        return weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]

    made = weft.make_graph(inner, weft.spec(("B",)), weft.spec((), weft.int64))
    graph = weft.make_graph(lambda x, n: made(x + 1, n) * 2, X, weft.asarray(1))
    graph.verify()
    assert len(nodes_of(graph, "while")) == 1
    assert graph(X, weft.asarray(2)).tolist() == [16.0, 54.0, 128.0]


# --- state -------------------------------------------------------------------------------------


def draws(x: Any, n: Any) -> Any:
    y = weft.cond(x > 0, lambda: weft.rand(2) * x, lambda: weft.ones(2))
    y = weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + weft.rand(2)), (0, y))[1]
    y, ys = weft.scan(lambda c, _: (c, c * weft.randn(2)), y, None, length=2)
    return y, ys, weft.rand(1)


@pytest.mark.parametrize("x", [1.0, -1.0])
@pytest.mark.parametrize("n", [0, 3])
def test_random_numbers_are_those_of_eager_code(x: float, n: int) -> None:
    args = weft.asarray(x), weft.asarray(n)
    graph = weft.make_graph(draws, *args)
    graph.verify()
    weft.manual_seed(7)
    want = [*draws(*args), weft.rand(1)]
    weft.manual_seed(7)
    got = [*graph(*args), weft.rand(1)]
    assert [a.tolist() for a in got] == [b.tolist() for b in want]


def test_a_condition_that_draws() -> None:
    def f(p: Any) -> Any:
        return weft.while_loop(lambda c: weft.rand(()) < p, lambda c: c + 1, 0)

    p = weft.asarray(0.9)
    graph = weft.make_graph(f, p)
    for seed in range(5):
        weft.manual_seed(seed)
        want = f(p).item(), weft.rand(1).item()
        weft.manual_seed(seed)
        assert (graph(p).item(), weft.rand(1).item()) == want


def training(kind: str) -> tuple[Callable[..., Any], Any]:
    w = weft.tensor([1.0, -2.0], requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1, momentum=0.0)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((w * x - 1) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    def by_scan(xs: Any) -> Any:
        return weft.scan(lambda c, x: (c, step(x).detach()), None, xs)[1]

    def by_while(xs: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, step(xs[c[0]])

        end = weft.asarray(xs.shape[0])
        return weft.while_loop(lambda c: c[0] < end, body, (0, weft.asarray(0.0)))[1].detach()

    return {"scan": by_scan, "while": by_while}[kind], w


@pytest.mark.parametrize("kind", ["scan", "while"])
def test_training_inside_of_a_loop(kind: str) -> None:
    xs = weft.asarray([[1.0, 2.0], [0.5, 1.0], [2.0, 0.1]])
    eager, w = training(kind)
    want = eager(xs).tolist(), w.tolist(), w.grad.tolist()
    f, w = training(kind)
    graph = weft.make_graph(f, xs)
    graph.verify()
    assert w.grad is None
    assert w.tolist() == [1.0, -2.0]
    assert (graph(xs).tolist(), w.tolist(), w.grad.tolist()) == want


def test_gradients_that_are_set_in_a_branch() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    def f(x: Any) -> None:
        loss = (x * w).sum()
        weft.cond(x.sum() > 0, lambda: loss.backward(), lambda: (loss * 2).backward())

    x = weft.asarray([3.0, 4.0])
    graph = weft.make_graph(f, x)
    for sign, wanted in [(1, [3.0, 4.0]), (-1, [-6.0, -8.0])]:
        w.grad = None
        graph(x * sign)
        assert w.grad.tolist() == wanted

    def half(x: Any) -> None:
        loss = (x * w).sum()
        weft.cond(x.sum() > 0, lambda: loss.backward(), lambda: None)

    w.grad = None
    with pytest.raises(CaptureError, match="None after another"):
        weft.make_graph(half, x)
    w.grad = weft.ones(2)
    graph = weft.make_graph(half, x)
    graph(-x)
    assert w.grad.tolist() == [1.0, 1.0]
    graph(x)
    assert w.grad.tolist() == [4.0, 5.0]


def test_a_body_that_raises_leaves_the_recording_as_it_was() -> None:
    total = weft.zeros(3)

    def f(x: Any) -> Any:
        nonlocal total
        y = x * 2

        def bad(_: Any) -> Any:
            nonlocal total
            total += 1
            raise KeyError("no")

        with pytest.raises(KeyError):
            weft.while_loop(lambda c: c.sum() < 1, bad, x)
        with pytest.raises(KeyError):
            weft.cond(x.sum() > 0, lambda: bad(x), lambda: x)
        return y + total

    graph = weft.make_graph(f, F3)
    graph.verify()
    assert total.tolist() == [0.0, 0.0, 0.0]
    assert graph(X).tolist() == [2.0, 4.0, 6.0]


def test_tracing_records_control_flow_and_guards() -> None:
    calls = 0

    def f(x: Any, n: Any) -> Any:
        nonlocal calls
        y = weft.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]
        return y + 1 if y.sum() > 50 else y

    traced = weft.trace(f)
    for n in (0, 2, 5, 1):
        x = weft.tensor([1.0, 2.0], requires_grad=True)
        y = weft.tensor([1.0, 2.0], requires_grad=True)
        traced(x, weft.asarray(n)).sum().backward()
        f(y, weft.asarray(n)).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()
    assert len(traced.recordings) == 2


# --- what is refused ---------------------------------------------------------------------------

ERRORS: list[tuple[str, Callable[[Any], Any], type, str]] = [
    (
        "shapes of branches",
        lambda x: weft.cond(x.sum() > 0, lambda: {"a": x}, lambda: {"a": x[:2]}),
        ShapeError,
        r"result\['a'\] is f32\[3\] where .*control.py:\d+.* and f32\[2\] where .*control.py:\d+",
    ),
    (
        "dtypes of branches",
        lambda x: weft.cond(x.sum() > 0, lambda: x, lambda: x.astype(weft.float64)),
        DTypeError,
        r"the result is f32\[3\] .* and f64\[3\]",
    ),
    (
        "structures of branches",
        lambda x: weft.cond(x.sum() > 0, lambda: {"a": x}, lambda: {"b": x}),
        DTypeError,
        r"\{'a': \*\} .* \{'b': \*\}",
    ),
    (
        "a number beside a vector",
        lambda x: weft.cond(x.sum() > 0, lambda: 1.0, lambda: x),
        DTypeError,
        r"the Python float 1.0 where the condition holds .* and f32\[3\] where it does not",
    ),
    (
        "Python values of branches",
        lambda x: weft.switch(x.sum().astype(weft.int64), [lambda: "a", lambda: "b"]),
        DTypeError,
        r"'a' in branch 0 .* 'b' in branch 1",
    ),
    ("predicate", lambda x: weft.cond(x, lambda: x, lambda: x), ShapeError, "one truth value"),
    (
        "index",
        lambda x: weft.switch(x.sum(), [lambda: x]),
        DTypeError,
        r"one integer, not f32\[\]",
    ),
    (
        "shape of a carry",
        lambda x: weft.while_loop(
            lambda c: c["i"].sum() < 3, lambda c: {"i": c["i"][:1]}, {"i": x}
        ),
        ShapeError,
        r"carry\['i'\] is f32\[3\] before the loop \(.*:\d+ in .*, and f32\[1\] after the body \(",
    ),
    (
        "dtype of a carry",
        lambda x: weft.scan(lambda c, y: (c.astype(weft.float64), y), x[0], x),
        DTypeError,
        r"the carry is f32\[\] before the loop .* and f64\[\] after the body",
    ),
    (
        "shape of a number",
        lambda x: weft.while_loop(lambda c: c[0].sum() < 3, lambda c: (c[0], c[1] + x), (x, 0.0)),
        DTypeError,
        r"carry\[1\] is the Python float 0.0 before the loop .* and f32\[3\] after",
    ),
    (
        "a number of a higher kind",
        lambda x: weft.while_loop(
            lambda c: x.sum() < 3, lambda c: weft.zeros((), dtype=weft.int64), 0.5
        ),
        DTypeError,
        r"the Python float 0.5 before .* and i64\[\] after",
    ),
    (
        "a Python value that changes",
        lambda x: weft.while_loop(lambda c: c[0].sum() < 3, lambda c: (c[0], "b"), (x, "a")),
        DTypeError,
        r"carry\[1\] is the Python str 'a' before the loop",
    ),
    (
        "structure of a carry",
        lambda x: weft.while_loop(lambda c: c[0].sum() < 3, lambda c: (c[0],), (x, x)),
        DTypeError,
        r"\(\*, \*\) before the loop",
    ),
    (
        "question",
        lambda x: weft.scan(lambda c, y: (c, y if y > 0 else c), x[0], x),
        CaptureError,
        "asks a tensor .* inside of a loop",
    ),
    (
        "no pair",
        lambda x: weft.scan(lambda c, y: c, x[0], x),
        CaptureError,
        r"not \(carry, y\)",
    ),
    ("no length", lambda x: weft.scan(lambda c, y: (c, y), x, None), ShapeError, "how often"),
    (
        "lengths",
        lambda x: weft.scan(lambda c, y: (c, y), 0.0, {"a": x, "b": x[:2]}),
        ShapeError,
        r"xs\['b'\] is f32\[2\], of length 2, and xs\['a'\] says 3",
    ),
    (
        "size of a y",
        lambda x: weft.scan(lambda c, y: (c, {"y": c[c > y]}), x, x),
        ShapeError,
        r"y\['y'\] is f32\[n\d+\].*depends on values",
    ),
]


@pytest.mark.parametrize(
    ("f", "error", "message"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS]
)
def test_errors(f: Callable[[Any], Any], error: type, message: str) -> None:
    with pytest.raises(error) as caught:
        weft.make_graph(f, F3)
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)


def test_a_value_of_a_body_is_not_used_outside() -> None:
    def f(x: Any) -> Any:
        kept: list[Any] = []

        def body(c: Any) -> Any:
            kept.append(c * 2)
            return c + 1

        weft.while_loop(lambda c: c.sum() < 9, body, x)
        return kept[-1] + 1

    with pytest.raises(CaptureError, match="body that has ended"):
        weft.make_graph(f, F3)


def test_an_error_in_a_body_names_its_line() -> None:
    def f(x: Any, i: Any) -> Any:
        return weft.while_loop(lambda c: c.sum() < 9, lambda c: c + x[i], x)

    graph = weft.make_graph(f, F3, weft.spec((), weft.int64))
    with pytest.raises(IndexError, match=r"gather.*\n.*\n.*lambda c: c \+ x\[i\]"):
        graph(X, weft.asarray(7))


# --- the cards ---------------------------------------------------------------------------------


def branch(name: str, outputs: int, *kinds: Any) -> Graph:
    graph = Graph(name)
    graph.set_inputs(kinds)
    graph.outputs = graph.inputs[:outputs]
    return graph


F = TensorType(weft.float32, (2,))
FLAG = TensorType(weft.bool, ())


def test_type_rules_refuse() -> None:
    graph = branch("g", 0, F, FLAG)
    x, p = graph.inputs
    with pytest.raises(DTypeError, match=r"must be bool\[\]"):
        graph.add(OPS["if"], x, x, graphs=[branch("a", 1, F), branch("b", 1, F)])
    with pytest.raises(DTypeError, match="different types"):
        graph.add(OPS["if"], p, x, p, graphs=[branch("a", 1, F, FLAG), branch("b", 2, F, FLAG)])
    with pytest.raises(DTypeError, match="input 0 of branch 1"):
        graph.add(OPS["if"], p, x, graphs=[branch("a", 1, F), branch("b", 1, FLAG)])
    with pytest.raises(ShapeError, match="two branches"):
        graph.add(OPS["if"], p, x, graphs=[branch("a", 1, F)])
    with pytest.raises(DTypeError, match="0-d integer"):
        graph.add(OPS["switch"], p, x, graphs=[branch("a", 1, F)])
    bodies = [branch("c", 1, F, FLAG), branch("b", 2, F, FLAG)]
    with pytest.raises(DTypeError, match="condition must be"):
        graph.add(OPS["while"], x, p, graphs=bodies, consts=0, counted=False)
    attrs = {"consts": 0, "carries": 0, "length": 3, "reverse": False}
    with pytest.raises(ShapeError, match="cannot go over"):
        graph.add(OPS["scan"], x, graphs=[branch("b", 0, FLAG)], **attrs)


def test_stacks() -> None:
    stack = StackType(F)
    assert str(stack) == "stack<f32[2]>"
    assert str(StackType(stack)) == "stack<stack<f32[2]>>"
    text = """
    graph @f(%x: f32[2], %y: f32[2]) {
      %0: stack<f32[2]> = stack_new[shape=(2,), dtype=f32, device=device('cpu'), depth=1]
      %1: stack<f32[2]> = stack_push %0, %x
      %2: stack<f32[2]> = stack_push %1, %y
      %3: stack<f32[2]> = stack_zeros[shape=(2,), dtype=f32, device=device('cpu'), depth=1]
      %4: stack<f32[2]> = stack_push %3, %x
      %5: stack<f32[2]> = stack_add %2, %4
      %6: stack<f32[2]>, %7: f32[2] = stack_pop %5
      %8: stack<f32[2]>, %9: f32[2] = stack_pop %6
      %10: stack<stack<f32[2]>> = stack_new[shape=(2,), dtype=f32, device=device('cpu'), depth=2]
      %11: stack<stack<f32[2]>> = stack_push %10, %2
      %12: stack<stack<f32[2]>>, %13: stack<f32[2]> = stack_pop %11
      %14: stack<f32[2]>, %15: f32[2] = stack_pop %13
      return %7, %9, %15
    }"""
    graph = weft.parse_graph(text)
    graph.verify()
    assert weft.parse_graph(graph.text()).equals(graph)
    x, y = weft.asarray([1.0, 2.0]), weft.asarray([10.0, 20.0])
    found = [out.tolist() for out in interpret(graph, [x, y], bind)]
    assert found == [[11.0, 22.0], [1.0, 2.0], [10.0, 20.0]]
    with pytest.raises(DTypeError, match="does not fit onto"):
        graph.add(OPS["stack_push"], graph.nodes[0].out, graph.nodes[0].out)
    empty = Graph("e")
    made = empty.add(OPS["stack_new"], shape=(2,), dtype=weft.float32, device=x.device, depth=1)
    empty.outputs = (empty.add(OPS["stack_pop"], made.out).outputs[1],)
    with pytest.raises(IndexError, match="stack is empty"):
        interpret(empty, [], bind)


@pytest.mark.parametrize("text", ["stack<f32[2]", "stack<token>", "stack<>"])
def test_texts_that_are_no_stack(text: str) -> None:
    with pytest.raises(GraphError):
        weft.parse_graph(f"graph @f(%x: {text}) {{\n  return %x\n}}")
