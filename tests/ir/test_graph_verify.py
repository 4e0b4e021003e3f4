"""The rules of graphs that `verify` holds, each broken once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import graph_ops
import pytest
from graph_ops import diamond, named

import weft
from weft.base.source import SourceLocation
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import OPS
from weft.ir.types import TOKEN, TensorType

F32 = TensorType(weft.float32, (2, 3))


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with graph_ops.graph_ops():
        yield


def test_a_valid_graph_passes() -> None:
    diamond().verify()
    Graph("empty").verify()


def cyclic(graph: Graph) -> None:
    graph.nodes[0].inputs = (named(graph)["d"],)


def late(graph: Graph) -> None:
    graph.nodes[0], graph.nodes[1] = graph.nodes[1], graph.nodes[0]


def foreign_input(graph: Graph) -> None:
    graph.nodes[0].inputs = diamond().inputs[:1]


def foreign_result(graph: Graph) -> None:
    graph.nodes[3].inputs = (diamond().nodes[1].out, graph.nodes[2].out)


def foreign_output(graph: Graph) -> None:
    graph.outputs = diamond().outputs


def one_name_twice(graph: Graph) -> None:
    named(graph)["c"].name = "x"


def node_twice(graph: Graph) -> None:
    graph.nodes.append(graph.nodes[-1])


def input_twice(graph: Graph) -> None:
    graph.inputs = (graph.inputs[0], graph.inputs[0])


def stolen_result(graph: Graph) -> None:
    graph.nodes[2].outputs = (Value(F32, "c", graph.nodes[1], 0),)
    graph.nodes[3].inputs = (graph.nodes[1].out, graph.nodes[2].out)


def wrong_type(graph: Graph) -> None:
    graph.nodes[3].out.type = TensorType(weft.float64, (2, 3))


def wrong_shape(graph: Graph) -> None:
    graph.nodes[3].out.type = TensorType(weft.float32, (2, weft.dim("B")))


def refused_types(graph: Graph) -> None:
    graph.inputs[1].type = TensorType(weft.float32, (4, 4))


def unknown_attribute(graph: Graph) -> None:
    graph.nodes[0].attrs["axis"] = 1


def missing_attribute(graph: Graph) -> None:
    graph.nodes[2] = Node(OPS["sum"], [named(graph)["a"]], {"axis": (0,)}, [F32])


def too_many_inputs(graph: Graph) -> None:
    graph.nodes[0].inputs = graph.inputs


def too_few_inputs(graph: Graph) -> None:
    graph.nodes[1].inputs = graph.inputs[:1]


def needless_graphs(graph: Graph) -> None:
    graph.nodes[0].graphs = (Graph(),)


def no_graphs(graph: Graph) -> None:
    graph.nodes[0] = Node(OPS["t_choose"], graph.inputs, {}, [F32])


def too_many_results(graph: Graph) -> None:
    graph.nodes[3].outputs += (Value(F32, "e", graph.nodes[3], 1),)


def effect_without_token(graph: Graph) -> None:
    graph.nodes.append(Node(OPS["t_print"], graph.inputs, {"message": ""}, [TOKEN]))


def token_twice(graph: Graph) -> None:
    token = graph.add_input(TOKEN, "t")
    graph.add(OPS["t_print"], token, message="first")
    graph.add(OPS["t_print"], token, message="second")


def token_returned_and_used(graph: Graph) -> None:
    token = graph.add_input(TOKEN, "t")
    graph.add(OPS["t_print"], token, message="first")
    graph.outputs = (token,)


def nested_is_broken(graph: Graph) -> None:
    inner = diamond()
    inner.name = "inner"
    wrong_type(inner)
    graph.add(OPS["t_choose"], *graph.inputs, graphs=[inner])


def nested_sees_outside(graph: Graph) -> None:
    inner = Graph("inner")
    inner.outputs = (graph.inputs[0],)
    graph.add(OPS["t_choose"], *graph.inputs, graphs=[inner])


def nested_in_two_places(graph: Graph) -> None:
    inner = diamond()
    graph.add(OPS["t_choose"], *graph.inputs, graphs=[inner, inner])


BROKEN: list[tuple[Callable[[Graph], None], str]] = [
    (cyclic, "there is a cycle: %a -> multiply -> %b -> add -> %d -> relu -> %a"),
    (late, "%a is used before it is defined"),
    (foreign_input, "the input <value %x: f32[2,3]> is not a value of the graph"),
    (foreign_result, "the input <value %b: f32[2,3] of multiply> is not a value of the graph"),
    (foreign_output, "the output <value %d: f32[2,3] of add> is not a value of the graph"),
    (one_name_twice, "two values are named %x"),
    (node_twice, "<value %d: f32[2,3] of add> is defined twice"),
    (input_twice, "input 1 is a result, or another input"),
    (stolen_result, "result 0 belongs to another node"),
    (wrong_type, "%d is f32[2,3] by the type rule"),
    (wrong_shape, "%d is f32[2,3] by the type rule"),
    (refused_types, "the type rule refuses: shapes (2, 3) and (4, 4) do not broadcast"),
    (unknown_attribute, "the op has no attribute axis"),
    (missing_attribute, "the attribute keepdims is missing"),
    (too_many_inputs, "2 inputs for an op that takes 1"),
    (too_few_inputs, "1 inputs for an op that takes 2"),
    (needless_graphs, "no nested graphs"),
    (no_graphs, "nested graphs are missing"),
    (too_many_results, "2 results, and the type rule gives 1"),
    (effect_without_token, "an effect takes a token first and gives one first"),
    (token_twice, "the token %t is used twice"),
    (token_returned_and_used, "the token %t is used twice"),
    (nested_is_broken, "graph @inner is not valid: %d is f32[2,3] by the type rule"),
    (nested_sees_outside, "the output <value %x: f32[2,3]> is not a value of the graph"),
    (nested_in_two_places, "the graph @f stands in two places, or in itself"),
]


@pytest.mark.parametrize(("breaks", "message"), BROKEN, ids=lambda p: getattr(p, "__name__", ""))
def test_a_broken_rule_is_named(breaks: Callable[[Graph], None], message: str) -> None:
    graph = diamond()
    breaks(graph)
    with pytest.raises(GraphError, match=re.escape(message)):
        graph.verify()
    str(graph)  # what is broken can still be looked at
    graph.to_dot()


def test_the_error_shows_the_call_and_the_users_line() -> None:
    graph = diamond()
    graph.nodes[1].location = SourceLocation("model.py", 12, "f")
    graph.nodes[1].out.type = TensorType(weft.float32, (2,))
    with pytest.raises(GraphError) as caught:
        graph.verify()
    assert str(caught.value) == (
        "graph @f is not valid: %b is f32[2,3] by the type rule\n"
        "  %b: f32[2] = multiply %a, %y\n"
        "  at model.py:12 in f"
    )


def test_sizes_that_depend_on_values_are_free() -> None:
    graph = weft.make_graph(lambda x: weft.nonzero(x)[0] * 2, weft.spec(("B", 4)))
    graph.verify()
    assert str(graph.nodes[0].out.type) == "i64[2,n0]"
    again = weft.parse_graph(str(graph))
    again.verify()


def test_effects_are_a_chain_of_tokens() -> None:
    weft.parse_graph("""
graph @f(%t: token, %x: f32[2]) {
  %0: token = t_print[message='a'] %t, %x
  %1: token = t_print[message='b'] %0, %x, %x
  return %1
}""").verify()
