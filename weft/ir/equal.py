"""Whether two graphs are the same program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.attributes import attrs_key

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node, Value


def same_graph(first: Graph, second: Graph) -> bool:
    """Whether inputs, calls (in order, with their operands) and outputs are the same.

    Names of graphs and results, source lines and history are ignored.
    """
    pairs = [(first, second)]
    while pairs:
        a, b = pairs.pop()
        if len(a.nodes) != len(b.nodes) or len(a.inputs) != len(b.inputs):
            return False
        place: dict[Value, int] = {value: i for i, value in enumerate(a.values())}
        other: dict[Value, int] = {value: i for i, value in enumerate(b.values())}
        for x, y in zip(a.inputs, b.inputs, strict=True):
            if x.type != y.type or x.name != y.name:
                return False
        for one, two in zip(a.nodes, b.nodes, strict=True):
            if not _same_call(one, two) or _places(one.inputs, place) != _places(two.inputs, other):
                return False
            pairs.extend(zip(one.graphs, two.graphs, strict=True))
        if _places(a.outputs, place) != _places(b.outputs, other):
            return False
    return True


def _same_call(one: Node, two: Node) -> bool:
    return (
        one.op is two.op
        and len(one.graphs) == len(two.graphs)
        and [value.type for value in one.outputs] == [value.type for value in two.outputs]
        and attrs_key(one.attrs) == attrs_key(two.attrs)
    )


def _places(values: tuple[Value, ...], place: dict[Value, int]) -> list[int]:
    return [place.get(value, -1) for value in values]
