"""Graphs: orders, replacement, clones, pictures."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import graph_ops
import numpy as np
import pytest
from graph_ops import diamond, named
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import GraphError
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.ir.types import TOKEN, TensorType

F32 = TensorType(weft.float32, (2, 3))


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with graph_ops.graph_ops():
        yield


# --- orders ------------------------------------------------------------------------------------


def test_order_of_a_graph_in_order_is_its_own() -> None:
    graph = diamond()
    assert weft.topological_order(graph) == graph.nodes


def test_order_puts_nodes_right() -> None:
    graph = diamond()
    graph.nodes.reverse()
    order = weft.topological_order(graph)
    assert [node.out.name for node in order] == ["a", "c", "b", "d"]
    graph.nodes = order
    graph.verify()


def test_numbers_and_levels() -> None:
    graph = diamond()
    numbers = weft.topological_numbers(graph)
    assert {node.out.name: n for node, n in numbers.items()} == {"a": 0, "b": 1, "c": 1, "d": 2}
    levels = [[node.out.name for node in level] for level in graph.levels()]
    assert levels == [["a"], ["b", "c"], ["d"]]
    assert Graph().levels() == []


def test_tokens_keep_effects_on_levels_of_their_own() -> None:
    graph = Graph()
    token = graph.add_input(TOKEN)
    for _ in range(3):
        token = graph.add(OPS["t_print"], token, message="").out
    assert [len(level) for level in graph.levels()] == [1, 1, 1]


@pytest.mark.parametrize(
    ("edges", "order", "numbers"),
    [
        ({}, [], {}),
        ({"a": []}, ["a"], {"a": 0}),
        ({"a": ["b"]}, ["a", "b"], {"a": 0, "b": 1}),
        ({"a": ["b", "b"]}, ["a", "b"], {"a": 0, "b": 1}),
        ({3: [], 2: [3], 1: [2, 3]}, [1, 2, 3], {3: 2, 2: 1, 1: 0}),
        ({"a": ["c"], "b": ["c"], "c": []}, ["a", "b", "c"], {"a": 0, "b": 0, "c": 1}),
    ],
)
def test_dictionaries(edges: Any, order: Any, numbers: Any) -> None:
    assert weft.topological_order(edges) == order
    assert weft.topological_numbers(edges) == numbers


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ({"a": ["a"]}, "a -> a"),
        ({"a": ["b"], "b": ["c"], "c": ["b", "d"]}, "b -> c -> b"),
        ({1: [2], 2: [3], 3: [1], 0: [1]}, "1 -> 2 -> 3 -> 1"),
    ],
)
@pytest.mark.parametrize("function", [weft.topological_order, weft.topological_numbers])
def test_cycles_are_named(function: Any, edges: Any, cycle: str) -> None:
    with pytest.raises(GraphError) as caught:
        function(edges)
    found = caught.value.message.removeprefix("there is a cycle: ").split(" -> ")
    wanted = cycle.split(" -> ")
    assert len(found) == len(wanted)
    start = found.index(wanted[0])
    assert [*found[start:-1], *found[:start], found[start]] == wanted


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_order_of_random_graphs(pairs: list[tuple[int, int]]) -> None:
    edges: dict[int, list[int]] = {}
    for a, b in pairs:
        edges.setdefault(a, []).append(b)
    try:
        order = weft.topological_order(edges)
    except GraphError as error:
        cycle = [int(word) for word in error.message.split(": ")[1].split(" -> ")]
        assert cycle[0] == cycle[-1]
        assert all(b in edges[a] for a, b in itertools.pairwise(cycle))
        return
    place = {node: i for i, node in enumerate(order)}
    numbers = weft.topological_numbers(edges)
    assert all(place[a] < place[b] and numbers[a] < numbers[b] for a, b in pairs)


def test_depth_is_no_limit() -> None:
    graph = Graph("deep")
    value = graph.add_input(F32, "x")
    for _ in range(20_000):
        value = graph.add(OPS["negative"], value).out
    graph.outputs = (value,)
    assert len(graph.levels()) == 20_000
    again = weft.parse_graph(str(graph))
    again.verify()
    assert again.equals(graph.clone())
    again.nodes[0].inputs = again.outputs
    with pytest.raises(GraphError, match="there is a cycle"):
        again.verify()


# --- replace, clone ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "count", "text"),
    [
        ("x", "y", 1, "a = relu %y; b = multiply %a, %y; c = negative %a; d = add %b, %c; %d"),
        ("d", "b", 1, "a = relu %x; b = multiply %a, %y; c = negative %a; d = add %b, %c; %b"),
        ("a", "x", 2, "a = relu %x; b = multiply %x, %y; c = negative %x; d = add %b, %c; %d"),
        ("a", "a", 0, "a = relu %x; b = multiply %a, %y; c = negative %a; d = add %b, %c; %d"),
        ("x", "d", None, "%a -> multiply -> %b -> add -> %d -> relu -> %a"),
        ("a", "b", None, "%b -> multiply -> %b"),
    ],
)
def test_replace(old: str, new: str, count: int | None, text: str) -> None:
    graph = diamond()
    values = named(graph)
    before = str(graph)
    if count is None:
        with pytest.raises(GraphError, match=re.escape(text)):
            graph.replace(values[old], values[new])
        assert str(graph) == before
        graph.verify()
        return
    assert graph.replace(values[old], values[new]) == count
    graph.verify()
    calls = [line.strip() for line in str(graph).splitlines()[1:-1]]
    assert (
        "; ".join(re.sub(r"^%(\w): \S+ =|return ", r"\1 =", c) for c in calls[:-1])
        + (f"; {calls[-1].removeprefix('return ')}")
        == text
    )


def test_replace_moves_nodes_where_it_has_to() -> None:
    graph = diamond()
    new = graph.add(OPS["abs"], graph.inputs[1]).out
    new.name = "late"
    assert graph.replace(named(graph)["a"], new) == 2
    graph.verify()
    order = [node.out.name for node in graph.nodes]
    assert order.index("late") < order.index("b")


def test_replace_of_all_uses_in_one_call() -> None:
    graph = weft.make_graph(lambda x, y: x * x, weft.spec(2), weft.spec(2))
    assert graph.replace(*graph.inputs) == 2
    assert graph.nodes[0].inputs == (graph.inputs[1],) * 2


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        (lambda g: (g.inputs[0], g.add(OPS["sum"], g.inputs[0], axis=(0,), keepdims=False).out),
         "%x is f32[2,3] and %0 is f32[3]: a value is replaced by one of its own type"),
        (lambda g: (g.inputs[0], diamond().inputs[0]), "is not a value of the graph @f"),
        (lambda g: (diamond().inputs[0], g.inputs[0]), "is not a value of the graph @f"),
    ],
)  # fmt: skip
def test_replace_refuses(pick: Any, message: str) -> None:
    graph = diamond()
    with pytest.raises(GraphError, match=re.escape(message)):
        graph.replace(*pick(graph))


def test_a_clone_is_a_graph_of_its_own() -> None:
    graph = diamond()
    inner = diamond()
    graph.add(OPS["t_choose"], *graph.inputs, graphs=[inner])
    copy = graph.clone("copy")
    assert copy.equals(graph)
    assert copy.name == "copy"
    assert not set(copy.values()) & set(graph.values())
    assert copy.nodes[-1].graphs[0] is not inner
    copy.verify()
    copy.replace(copy.inputs[0], copy.inputs[1])
    copy.nodes[-1].graphs[0].nodes[0].attrs["new"] = 1
    assert not copy.equals(graph)
    assert "new" not in inner.nodes[0].attrs
    graph.verify()


# --- pictures ----------------------------------------------------------------------------------


def test_a_picture() -> None:
    graph = weft.make_graph(lambda x: weft.sum(x * 2.0), weft.spec(3))
    assert graph.to_dot() == (
        "digraph {\n"
        '  rankdir=TB; node [shape=box, fontname="monospace"];\n'
        '  n0 [label="%x\\nf32[3]", style=filled, fillcolor="#cfe8cf"];\n'
        '  n1 [label="constant\\nvalue={2.0}"];\n'
        '  n2 [label="multiply"];\n'
        '  n3 [label="sum\\naxis=(0,), keepdims=False"];\n'
        '  n4 [label="return", style=rounded];\n'
        "  n0 -> n2;\n"
        '  n1 -> n2 [label="%0: f32[]"];\n'
        '  n2 -> n3 [label="%1: f32[3]"];\n'
        '  n3 -> n4 [label="%2: f32[]"];\n'
        "}"
    )


def test_nested_graphs_are_frames_in_the_picture() -> None:
    graph = diamond()
    inner = diamond()
    inner.name = 'the "inner"'
    graph.add(OPS["t_choose"], *graph.inputs, graphs=[inner])
    picture = graph.to_dot()
    assert 'label="@the \\"inner\\" of t_choose";' in picture
    assert picture.count("subgraph cluster_") == 1
    assert picture.count("{") == picture.count("}")
    boxes = re.findall(r"^ *(n\d+) \[", picture, re.MULTILINE)
    assert len(boxes) == len(set(boxes)) == 2 * (2 + 4 + 1) + 1


# --- running -----------------------------------------------------------------------------------


def test_a_graph_read_from_text_runs_as_the_one_it_was() -> None:
    x = weft.tensor(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))

    def f(x: Any) -> Any:
        return weft.nn.functional.relu(x @ x.mT)[:, 1:].sum(axis=0) * 0.1

    graph = weft.make_graph(f, x)
    again = weft.parse_graph(graph.text(), graph.constants())
    np.testing.assert_array_equal(again(x).numpy(), f(x).numpy())
