"""`weft.rewrite`: patterns and replacements as Python functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import graph_ops
import numpy as np
import pytest

import weft
from weft.errors import GraphError
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.ir.types import TensorType

relu = weft.nn.functional.relu
NAMES = ("t_fused", "t_sincos", "t_cube")


@pytest.fixture(autouse=True)
def fused() -> Iterator[Any]:
    """relu(x @ w + b) as one op."""

    def infer(x: Any, w: Any, b: Any) -> Any:
        return TensorType(x.dtype, (*x.shape[:-1], w.shape[-1]))

    @weft.custom_op("t_fused", infer=infer)
    def call(xp: Any, x: Any, w: Any, b: Any) -> Any:
        return xp.maximum(x @ w + b, xp.zeros_like(b))

    @weft.custom_op("t_sincos", infer=lambda x: (x, x), outputs=2)
    def sincos(xp: Any, x: Any) -> Any:
        return xp.sin(x), xp.cos(x)

    @weft.custom_op("t_cube")
    def cube(xp: Any, x: Any) -> Any:
        return x * x * x

    with graph_ops.graph_ops():
        yield call
    for name in NAMES:
        del OPS[name]


def op(name: str) -> Any:
    def call(*inputs: Any) -> Any:
        return weft.core.bind.bind(OPS[name], *inputs)

    return call


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def rewritten(graph: Graph, *args: Any, **kwargs: Any) -> Graph:
    """The new graph, which is valid; the old one is as it was."""
    before = graph.text()
    new = weft.rewrite(graph, *args, **kwargs)
    new.verify()
    graph.verify()
    assert graph.text() == before
    return new


# --- the example of the issue --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.float16])
@pytest.mark.parametrize(
    "shapes",
    [
        [("B", 4), (4, 2), (2,)],
        [(8, 16, 4), (4, 2), (2,)],
        [(3, 4), (4, 2), (3, 2)],
        [(5, 3, 4), (5, 4, 2), ()],
        [(3, 4), (4, "N"), ("N",)],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "model",
    [
        lambda x, w, b: relu(x @ w + b),
        lambda x, w, b: relu(b + x @ w),
        lambda x, w, b: relu(weft.matmul(x, w) + b) * 2,
    ],
)
def test_a_fused_layer(fused: Any, model: Any, shapes: Any, dtype: Any) -> None:
    graph = weft.make_graph(model, *(weft.spec(shape, dtype) for shape in shapes))
    new = rewritten(graph, lambda x, w, b: relu(x @ w + b), lambda x, w, b: fused(x, w, b))
    assert names(new)[0] == "t_fused"
    assert len(new.nodes) == len(graph.nodes) - 2
    assert [value.name for value in new.inputs] == ["x", "w", "b"]
    assert new.nodes[0].inputs == new.inputs
    assert new.nodes[0].location == graph.nodes[2].location
    stage = new.history[-1]
    assert (stage.name, stage.note) == ("rewrite", "1 replacement of a pattern")


def test_the_new_graph_computes_the_same(fused: Any) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (weft.asarray(rng.normal(size=s)) for s in [(3, 4), (4, 4), (4,)])

    def net(x: Any, w: Any, b: Any) -> Any:
        return relu(b + relu(x @ w + b) @ w).sum()

    graph = weft.make_graph(net, x, w, b)
    new = rewritten(graph, lambda x, w, b: relu(x @ w + b), fused)
    assert names(new) == ["t_fused", "t_fused", "sum"]
    assert new.history[-1].note == "2 replacements of a pattern"
    np.testing.assert_allclose(new(x, w, b).numpy(), net(x, w, b).numpy())


# --- where patterns match, and where not ---------------------------------------------------------

F = weft.spec((2, 3))
CUBE = (lambda x: x * x * x, lambda x: op("t_cube")(x))

#: program, pattern, replacement, the ops that are left
CASES: dict[str, tuple[Any, Any, Any, list[str]]] = {
    "a wildcard twice is one value": (
        lambda a, b: a * b * a, *CUBE, ["multiply", "multiply"]),
    "a wildcard twice": (
        lambda a, b: a * (a * a) + b, *CUBE, ["t_cube", "add"]),
    "two wildcards may be one value": (
        lambda a, b: a + a, lambda x, y: x + y, lambda x, y: x - y, ["subtract"]),
    "an inner value that is used elsewhere": (
        lambda a, b: (a * a * a) + a * a, lambda x: x * x * x, op("t_cube"),
        ["t_cube", "multiply", "add"]),
    "an inner value that is shared": (
        lambda a, b: (lambda s: s * a + s)(a * a), *CUBE, ["multiply", "multiply", "add"]),
    "an inner value that is an output": (
        lambda a, b: (lambda s: (s, s * a))(a * a), *CUBE, ["multiply", "multiply"]),
    "overlapping: the first wins": (
        lambda a, b: weft.exp(weft.exp(weft.exp(a))),
        lambda x: weft.exp(weft.exp(x)), lambda x: weft.sin(x), ["sin", "exp"]),
    "one after the other": (
        lambda a, b: weft.exp(weft.exp(weft.exp(weft.exp(a)))),
        lambda x: weft.exp(weft.exp(x)), lambda x: weft.sin(x), ["sin", "sin"]),
    "commutative inside": (
        lambda a, b: (b + a * 2) * weft.sin(a),
        lambda x, y: weft.sin(x) * (2 * x + y), lambda x, y: x - y, ["subtract"]),
    "not commutative": (
        lambda a, b: b - weft.exp(a), lambda x, y: weft.exp(x) - y, lambda x, y: x,
        ["exp", "subtract"]),
    "equal constants": (
        lambda a, b: a * 2.0 + 1.0, lambda x: x * 2.0, lambda x: x + x, ["add", "constant", "add"]),
    "other constants": (
        lambda a, b: a * 3.0, lambda x: x * 2.0, lambda x: x + x, ["constant", "multiply"]),
    "-0.0 is not 0.0": (
        lambda a, b: a + 0.0, lambda x: x + -0.0, lambda x: x, ["constant", "add"]),
    "a constant that someone else uses stays": (
        lambda a, b: (lambda c: a * c + b - c)(weft.asarray([1.0, 2.0, 3.0])),
        lambda x, y: x * weft.asarray([1.0, 2.0, 3.0]) + y, lambda x, y: x - y,
        ["constant", "subtract", "subtract"]),
    "a wildcard may be a constant": (
        lambda a, b: weft.exp(a * 2.0), lambda x, y: weft.exp(x * y), lambda x, y: x + y,
        ["constant", "add"]),
    "a constant that stands there twice": (
        lambda a, b: a * 2.0 + b * 2.0,
        lambda x, y: (lambda c: x * c + y * c)(weft.asarray(2.0)), lambda x, y: x + y, ["add"]),
    "equal attributes": (
        lambda a, b: weft.sum(a * b, axis=0), lambda x, y: weft.sum(x * y, axis=0),
        lambda x, y: weft.max(x + y, axis=0), ["add", "max"]),
    "other attributes": (
        lambda a, b: weft.sum(a * b, axis=1), lambda x, y: weft.sum(x * y, axis=0),
        lambda x, y: weft.max(x + y, axis=0), ["multiply", "sum"]),
    "attributes that follow from the rank": (
        lambda a, b: weft.sum(a * b), lambda x, y: weft.sum(x * y),
        lambda x, y: weft.max(x + y), ["add", "max"]),
    "the replacement may be a parameter": (
        lambda a, b: weft.abs(weft.abs(a)) + b, lambda x: weft.abs(weft.abs(x)), lambda x: x,
        ["add"]),
    "the replacement may be larger": (
        lambda a, b: weft.exp(a), lambda x: weft.exp(x), lambda x: weft.exp(x - 1) * weft.e,
        ["constant", "subtract", "exp", "constant", "multiply"]),
    "what a pattern computes for nobody is nothing": (
        lambda a, b: weft.exp(a), lambda x: (weft.sin(x), weft.exp(x))[1], lambda x: weft.cos(x),
        ["cos"]),
    "several results": (
        lambda a, b: weft.sin(a) + weft.cos(a), lambda x: (weft.sin(x), weft.cos(x)),
        op("t_sincos"), ["t_sincos", "add"]),
    "several results, the second first": (
        lambda a, b: weft.exp(weft.cos(a)) + weft.sin(a),
        lambda x: (weft.sin(x), weft.cos(x)), op("t_sincos"), ["t_sincos", "exp", "add"]),
    "several results of several values": (
        lambda a, b: weft.sin(a) * weft.exp(b), lambda x, y: (weft.sin(x), weft.exp(y)),
        lambda x, y: (x, y), ["multiply"]),
    "one result leads to the other": (
        lambda a, b: weft.cos(weft.sin(a) * b), lambda x, y: (weft.sin(x), weft.cos(y)),
        lambda x, y: (x, y), ["sin", "multiply", "cos"]),
    "one result leads to the other, and there is a third": (
        lambda a, b: weft.cos(weft.sin(a) * b) - weft.cos(b),
        lambda x, y: (weft.sin(x), weft.cos(y)), lambda x, y: (x, y),
        ["multiply", "cos", "subtract"]),
    "a chain of results": (
        lambda a, b: weft.exp(a + b) + (a + b), lambda x, y: (x + y, weft.exp(x + y)),
        lambda x, y: (x - y, x * y), ["subtract", "multiply", "add", "add"]),
    "two results that would wait for each other": (
        lambda a, b: (weft.cos(weft.sin(a) * 2), weft.cos(weft.sin(b) * 2)),
        lambda x, y: (weft.sin(x), weft.cos(y)), lambda x, y: (x, y),
        ["constant", "multiply", "constant", "multiply", "cos", "sin"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_matches(name: str) -> None:
    program, pattern, replacement, left = CASES[name]
    graph = weft.make_graph(program, F, F)
    new = rewritten(graph, pattern, replacement)
    assert sorted(names(new)) == sorted(left), str(new)


def test_a_whole_softmax() -> None:
    def softmax(x: Any) -> Any:
        e = weft.exp(x - weft.max(x, axis=-1, keepdims=True))
        return e / weft.sum(e, axis=-1, keepdims=True)

    for shape in [(4,), ("B", 5), (2, 3, 4)]:
        graph = weft.make_graph(lambda x: softmax(x * 2.0), weft.spec(shape))
        assert names(rewritten(graph, softmax, op("t_cube"))) == ["constant", "multiply", "t_cube"]


def test_mixed_dtypes_are_found_with_their_casts() -> None:
    def pattern(x: Any, y: Any) -> Any:
        return weft.exp(x + y)

    specs = weft.spec(3), weft.spec(3, weft.float64)
    graph = weft.make_graph(lambda x, y: weft.exp(y + x) * 2, *specs)
    assert "astype" in names(graph)
    new = rewritten(graph, pattern, lambda x, y: x * y)
    assert "exp" not in names(new)
    assert new.history[-1].note == "1 replacement of pattern"


def test_nested_graphs_are_rewritten_too() -> None:
    graph = weft.parse_graph("""
graph @f(%p: bool[], %x: f32[2]) {
  %a: f32[2] = exp %x
  %b: f32[2] = exp %a
  %c: f32[2] = t_choose %p, %b {
    graph @then(%y: f32[2]) {
      %d: f32[2] = exp %y
      %0: f32[2] = exp %d
      return %0
    }
    graph @else(%y: f32[2]) {
      return %y
    }
  }
  return %c
}""")
    new = rewritten(graph, lambda x: weft.exp(weft.exp(x)), lambda x: weft.sin(x))
    assert (
        new.text(history=False)
        == """\
graph @f(%p: bool[], %x: f32[2]) {
  %b: f32[2] = sin %x
  %c: f32[2] = t_choose %p, %b {
    graph @then(%y: f32[2]) {
      %0: f32[2] = sin %y
      return %0
    }
    graph @else(%y: f32[2]) {
      return %y
    }
  }
  return %c
}"""
    )
    assert new.history[-1].note.startswith("2 replacements")


# --- where ---------------------------------------------------------------------------------------


def test_where_decides() -> None:
    seen = []

    def where(match: Any) -> bool:
        seen.append((match["x"].type.ndim, [node.op.name for node in match.nodes], repr(match)))
        return match.inputs["x"].type.ndim == 2

    graph = weft.make_graph(lambda x, y: weft.exp(-x).sum() + weft.exp(-y), F, weft.spec(3))
    new = rewritten(graph, lambda x: weft.exp(-x), lambda x: weft.sin(x), where)
    assert names(new) == ["sin", "sum", "negative", "exp", "add"]
    assert seen == [
        (2, ["exp", "negative"], "<match of 2 nodes, x: f32[2,3]>"),
        (1, ["exp", "negative"], "<match of 2 nodes, x: f32[3]>"),
    ]


def test_where_may_choose_among_the_ways_to_match() -> None:
    graph = weft.make_graph(lambda x, y: x * y, F, F)
    new = rewritten(
        graph,
        lambda a, b: a * b,
        lambda a, b: a - b,
        where=lambda match: match["a"].name == "y",
    )
    assert [value.name for value in new.nodes[0].inputs] == ["y", "x"]


# --- patterns that hold for certain sizes --------------------------------------------------------


def test_a_pattern_of_certain_sizes_is_found() -> None:
    def pattern(x: Any) -> Any:
        return weft.reshape(x, (3, 5)) * 2.0

    graph = weft.make_graph(lambda x: weft.reshape(x, (3, 5)) * 2.0, weft.spec(15))
    assert names(rewritten(graph, pattern, lambda x: weft.reshape(x, (3, 5)))) == ["reshape"]
    by_example = rewritten(
        graph, pattern, lambda x: weft.reshape(x, (3, 5)), example=[weft.spec(15)]
    )
    assert names(by_example) == ["reshape"]


def test_a_pattern_that_takes_no_type_of_the_graph_is_nowhere() -> None:
    graph = weft.make_graph(lambda x: x + 1, weft.spec(3, weft.int64))
    new = rewritten(graph, lambda x, y: weft.linalg.cholesky(x) @ y, lambda x, y: x)
    assert new.equals(graph)
    assert new.history[-1].note == "0 replacements of a pattern"


# --- errors --------------------------------------------------------------------------------------

OUTSIDE = weft.ones(3)


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


ERRORS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (lambda x: weft.exp(x), lambda x: weft.sum(x), {},
     "the replacement gives f32[] where the pattern gives f32[2,3]"),
    (lambda x: weft.exp(x), lambda x: weft.exp(x).astype(weft.float64), {},
     "the replacement gives f64[2,3] where the pattern gives f32[2,3]"),
    (lambda x: weft.exp(x), lambda x: (x, x), {},
     "the replacement gives f32[2,3], f32[2,3] where the pattern gives f32[2,3]"),
    (lambda x, y: weft.exp(x), lambda x, y: x, {}, "the parameter y is not used in the pattern"),
    (lambda x: x, lambda x: x, {}, "the parameter x is not used in the pattern"),
    (lambda x: (weft.exp(x), x), lambda x: (x, x), {}, "it does not compute from its parameters"),
    (lambda *xs: xs[0], lambda x: x, {}, "the pattern takes any number of arguments"),
    (lambda: weft.ones(3), lambda: weft.ones(3), {}, "the pattern has no parameters"),
    (lambda x: x * OUTSIDE, lambda x: x, {}, "the pattern reads or writes a tensor from outside"),
    (lambda x: weft.exp(x), lambda x: x * OUTSIDE, {}, "the replacement reads or writes a tensor"),
    (branch, lambda x: x, {},
     "the pattern could not be recorded for the types of the graph: Python asks"),
    (lambda x: x.no_such_method(), lambda x: x, {}, "could not be recorded"),
    (lambda x: weft.exp(x), lambda x: x, {"example": ()}, "0 examples for the parameters x"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "replacement", "options", "message"), ERRORS)
def test_errors(pattern: Any, replacement: Any, options: Any, message: str) -> None:
    graph = weft.make_graph(lambda x: weft.exp(x), F)
    with pytest.raises(GraphError, match=re.escape(message)):
        weft.rewrite(graph, pattern, replacement, **options)


def test_a_thousand_places_and_as_many_that_do_not_match() -> None:
    def program(x: Any) -> Any:
        for _ in range(1000):
            x = weft.sin(weft.exp(-x) + weft.exp(x))
        return x

    graph = weft.make_graph(program, weft.spec(3))
    new = rewritten(graph, lambda x: weft.exp(-x), lambda x: weft.cos(x))
    assert names(new).count("cos") == 1000
    assert names(new).count("exp") == 1000
