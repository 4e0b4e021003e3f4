"""For tests of graphs: ops of kinds that the cards do not have, and the way to text and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import weft
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import TOKEN


def _print_type(token: Any, *values: Any, message: str) -> Any:
    return TOKEN


def _choose_type(condition: Any, *values: Any, graphs: Any) -> Any:
    return tuple(value.type for value in graphs[0].outputs)


def _sized_type(x: Any, *, size: Any, table: Any = None) -> Any:
    return x


def _any_type(*values: Any, **attrs: Any) -> Any:
    return values


def _none(*_args: Any, **_attrs: Any) -> Any:
    raise NotImplementedError


@contextmanager
def graph_ops() -> Iterator[None]:
    """The ops `t_print` (an effect), `t_choose` (two nested graphs), `t_sized`, `t any`."""
    ops = [
        Op("t_print", _print_type, _none, traits=Trait.EFFECT),
        Op("t_choose", _choose_type, _none),
        Op("t_sized", _sized_type, _none),
        Op("t any", _any_type, _none),
    ]
    try:
        yield
    finally:
        for op in ops:
            del OPS[op.name]


def there_and_back(graph: Graph) -> Graph:
    """The graph read from its own text, which must be the same."""
    table: dict[str, Any] = {}
    text = graph.text(constants=table)
    again = weft.parse_graph(text, table)
    assert again.equals(graph), text
    assert graph.equals(again)
    assert again.text() == text
    assert again.name == graph.name
    assert [v.name for v in again.values()] == [v.name for v in graph.values()]
    assert [n.location for n in again.nodes] == [n.location for n in graph.nodes]
    return again


def one_node(op: Op, types: Any, attrs: Any, results: Any) -> Graph:
    graph = Graph("one")
    graph.set_inputs(types)
    graph.nodes.append(Node(op, graph.inputs, attrs, results))
    graph.outputs = graph.nodes[0].outputs
    return graph


def diamond() -> Graph:
    """x -> a -> (b, c) -> d"""
    return weft.parse_graph("""
graph @f(%x: f32[2,3], %y: f32[2,3]) {
  %a: f32[2,3] = relu %x
  %b: f32[2,3] = multiply %a, %y
  %c: f32[2,3] = negative %a
  %d: f32[2,3] = add %b, %c
  return %d
}""")


def named(graph: Graph) -> dict[str, Value]:
    return {value.name: value for value in graph.values()}
