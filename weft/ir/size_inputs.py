"""Inputs that tell symbolic sizes: a part of a path gets them where what it uses does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from weft.base.dim_algebra import Dim
from weft.base.dims import dims_in, has_dims
from weft.ir.concrete import names_in
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType

#: Of each name: an input with an axis from whose size its number follows.
Tellers = dict[str, Value]


def linear_name(size: int) -> str | None:
    """The name in a * name + b, the only form that tells a number for the name."""
    if not isinstance(size, Dim) or len(size.names) != 1:
        return None
    (monomial, _), *rest = size._terms
    alone = len(monomial) == 1 and monomial[0].kind == "name" and not any(m for m, _ in rest)
    return monomial[0].text if alone else None


def told_by(values: Iterable[Value]) -> Iterator[tuple[str, Value]]:
    """The names whose numbers follow from the shapes of these values."""
    for value in values:
        kind = value.type
        if isinstance(kind, TensorType) and has_dims(kind.shape):
            for size in kind.shape:
                name = linear_name(size)
                if name is not None:
                    yield name, value


def told_by_data(nodes: Iterable[Node]) -> Iterator[tuple[str, Value]]:
    """The names of sizes that depend on data, which these nodes tell."""
    for node in nodes:
        if node.op.data_shape:
            yield from told_by(node.outputs)


def with_tellers(inputs: Sequence[Value], nodes: Sequence[Node], tellers: Tellers) -> list[Value]:
    """The inputs of these nodes, with those that tell the other sizes in them."""
    given = list(inputs)
    if not tellers:
        return given
    part = Graph("part")
    part.nodes = list(nodes)
    wanted = names_in(part) - {name for name, _ in told_by_data(nodes)}
    wanted.update(
        name
        for value in given
        if isinstance(value.type, TensorType)
        for size in dims_in(value.type.shape)
        for name in size.names
    )
    told = {name for name, _ in told_by(given)}
    for name in sorted(wanted - told):
        value = tellers.get(name)
        if value is not None and value not in given:
            given.append(value)
    return given
