"""Specializes the graph of a backward to absent cotangents.

Eagerly, a result without a cotangent costs nothing: the backward skips it. In a recorded backward
its cotangent must not become zeros: zeros times an infinite derivative would be NaN, and a leaf
that only this result depends on would get a gradient. So nodes that depend only on absent
cotangents are removed, in loops and branches, too. A backward is linear in its cotangents, so
nothing else changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.base.dataclass import dataclass
from weft.ir.graph import Builder, Graph, Node, Value, copied, extract
from weft.ir.types import TensorType, TokenType
from weft.ops.cards import ADD, FULL
from weft.ops.control import IF, SCAN, SWITCH, WHILE

Numbers = frozenset[int]


class _NoZeros(Exception):
    """An absent value is needed, and it is a stack, for which there are no zeros."""


def without_cotangents(
    graph: Graph, cotangents: Sequence[int], absent: Collection[int]
) -> tuple[Graph, list[int]] | None:
    """The graph without its absent cotangents, and the numbers of the outputs that remain.

    `cotangents` and `absent` are numbers of inputs. None if there is no such graph.
    """
    try:
        part = _part(graph, frozenset(absent), frozenset(cotangents))
    except _NoZeros:
        return None
    made = part.graph
    kept = [i for i in range(len(graph.outputs)) if i not in part.absent]
    inputs = [value for i, value in enumerate(made.inputs) if i not in absent]
    return extract(graph.name, inputs, made.nodes, [made.outputs[i] for i in kept]), kept


@dataclass(frozen=True, slots=True)
class _Part:
    """A graph with the same inputs and outputs, whose absent outputs are zeros.

    moved    outputs that depend on cotangents
    absent   those of `moved` that depend only on absent cotangents
    zero     other outputs that are zeros
    """

    graph: Graph
    moved: Numbers
    absent: Numbers
    zero: Numbers


def _part(graph: Graph, absent: Numbers, moved: Numbers) -> _Part:
    """`absent` and `moved` are the inputs that are absent, and that depend on cotangents."""
    gone = {graph.inputs[i] for i in absent}
    depends = {graph.inputs[i] for i in moved} | gone
    builder = Builder(graph)
    for node in graph.nodes:
        _write(builder, node, gone, depends)
    for value in gone.intersection(graph.outputs):
        _add_zeros(builder, value, None)

    def numbers(values: set[Value]) -> Numbers:
        return frozenset(i for i, value in enumerate(graph.outputs) if value in values)

    zero = {value for value in graph.outputs if _is_zero(value)}
    return _Part(builder.finish(), numbers(depends), numbers(gone), numbers(zero - depends))


def _write(builder: Builder, node: Node, gone: set[Value], depends: set[Value]) -> None:
    """Copy a node without absent operands; its results are added to `gone` and `depends`."""
    if not depends.intersection(node.inputs):
        builder.copy(node)
        return
    missing = [value for value in node.inputs if value in gone]
    outputs = [value for value in node.outputs if not isinstance(value.type, TokenType)]
    if node.op in _NESTED:
        missing_at = frozenset(i for i, value in enumerate(node.inputs) if value in gone)
        moved_at = frozenset(i for i, value in enumerate(node.inputs) if value in depends)
        graphs, moved, absent = _NESTED[node.op](node, missing_at, moved_at)
        depends.update(node.outputs[i] for i in moved)
        gone.update(node.outputs[i] for i in absent)
        if len(absent) < len(node.outputs):
            _copy_with_zeros(builder, node, missing, graphs, gone)
        return
    depends.update(outputs)
    if not missing:
        builder.copy(node)
    elif all(value in gone for value in node.inputs if value in depends) and len(outputs) == len(
        node.outputs
    ):
        gone.update(outputs)
    else:
        _copy_with_zeros(builder, node, missing, node.graphs, gone)


def _copy_with_zeros(
    builder: Builder, node: Node, missing: list[Value], graphs: Sequence[Graph], gone: set[Value]
) -> None:
    others = [value for value in node.inputs if value not in missing]
    if node.op is ADD and [value.type for value in others] == [node.out.type]:
        builder.forward(node.outputs, [builder[others[0]]])
        return
    for value in missing:
        _add_zeros(builder, value, node)
    new = copied(node, builder.inputs_of(node), graphs)
    builder.graph.nodes.append(new)
    pairs = zip(node.outputs, new.outputs, strict=True)
    builder.map.update((old, made) for old, made in pairs if old not in gone)


def _add_zeros(builder: Builder, value: Value, like: Node | None) -> None:
    kind = value.type
    if not isinstance(kind, TensorType):
        raise _NoZeros
    zeros = {"shape": kind.shape, "dtype": kind.dtype, "value": 0, "device": kind.device}
    builder.map[value] = builder.add(FULL, like=like, **zeros)


def _is_zero(value: Value) -> bool:
    node = value.node
    return node is not None and node.op is FULL and node.attrs["value"] == 0


# --- loops and branches --------------------------------------------------------------------------

_Rewritten = tuple[list[Graph], Numbers, Numbers]  # graphs, moved results, absent results


def _branches(node: Node, absent: Numbers, moved: Numbers) -> _Rewritten:
    """A result is absent if each branch leaves it absent or gives zeros."""
    inside = [frozenset(i - 1 for i in some if i) for some in (absent, moved)]
    parts = [_part(graph, *inside) for graph in node.graphs]
    depends = frozenset().union(*[part.moved for part in parts])
    gone = depends.intersection(*[part.absent | part.zero for part in parts])
    return [part.graph for part in parts], depends, gone


def _loop(node: Node, absent: Numbers, moved: Numbers) -> _Rewritten:
    """A carry is absent if it starts absent or as zeros and each iteration keeps it so."""
    attrs, body = node.attrs, node.graphs[-1]
    first = attrs["consts"]
    count = attrs["carries"] if node.op is SCAN else len(node.inputs) - first
    carries = range(first, first + count)
    while True:  # until an iteration moves no more carries
        found = _part(body, frozenset(), moved).moved
        more = moved | {i for i in carries if i - first in found}
        if more == moved:
            break
        moved = more
    begins = {i for i in carries if i in absent or _is_zero(node.inputs[i])}
    inside = frozenset(i for i in absent if i not in carries) | (begins & moved)
    while True:  # until an iteration keeps all remaining carries absent
        part = _part(body, inside, moved)
        fewer = frozenset(i for i in inside if i not in carries or i - first in part.absent)
        if fewer == inside:
            break
        inside = fewer
    # The results of a counted `while` are its carries, its count and its stacks.
    shift = len(node.outputs) - len(body.outputs)

    def results(some: Numbers) -> Numbers:
        return frozenset(i if i < count else i + shift for i in some)

    return [*node.graphs[:-1], part.graph], results(part.moved), results(part.absent)


_NESTED = {IF: _branches, SWITCH: _branches, WHILE: _loop, SCAN: _loop}
