"""Scans whose rows are independent: a batch of sequences that do not interact.

Threads then need no barrier in each iteration: each runs the whole loop on a part of the rows. The
number of rows in a part depends on the loop alone, so results are the same for any number of
threads.

Rows lie along the first axis. A value of the body is a value of rows if row i of it depends only on
row i of other values of rows; it is fixed if it depends on no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.base.dims import has_dims
from weft.base.errors import ShapeError
from weft.ir.failing import DOES_MORE
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Op
from weft.ir.types import TensorType
from weft.ops.cards import (
    ASSUME_SHAPE,
    BROADCAST_TO,
    CONCAT,
    FULL,
    GETITEM,
    MATMUL,
    PERMUTE_DIMS,
    RESHAPE,
    TO_DEVICE,
)

__all__ = ["RowScan", "row_scan"]

#: Minimum rows of a part: products of fewer rows are slower.
LEAST_ROWS = 8
MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class RowScan:
    """parts   the number of parts, which have equal sizes
    size    the rows of a part
    body    the body of the loop for the rows of one part
    rows    for each operand, then each result, of the scan: whether it is split into parts
    """

    parts: int
    size: int
    body: Graph
    rows: list[bool]


#: Gives the value of a Python expression over sizes of the run a name: `RunSizes.let`.
Let = Callable[[str], int]


def row_scan(node: Node, let: Let | None = None) -> RowScan | None:
    """How a scan is split into parts; None if its rows are not independent. With `let`, each run
    may decide how many rows there are."""
    body = node.graphs[0]
    changing = body.inputs[node.attrs["consts"] :]
    kinds = [value.type for value in (*changing, *body.outputs)]
    sizes = {k.shape[0] if isinstance(k, TensorType) and k.shape else None for k in kinds}
    if len(sizes) != 1 or None in sizes:
        return None
    count = sizes.pop() or 0
    if has_dims((count,)):
        if let is None:
            return None
        size = let(_part_size_of(count))
        parts = let(f"({count}) // {size}")
    else:
        size = _part_size(count)
        if not size:
            return None
        parts = count // size
    cut = _Cut(body, count, size, set(changing))
    try:
        if not cut.runs():
            return None
    except ShapeError:  # what the size of a part does not tell
        return None
    rows = [value in cut.rows for value in body.inputs]
    return RowScan(parts, size, cut.graph, rows + [True] * len(node.outputs))


def _part_size_of(count: int) -> str:
    """`_part_size` of a count of the run, as an expression; all rows, if there is no way."""
    least = f"max({LEAST_ROWS}, -(-({count}) // {MOST_PARTS}))"
    # No size has a name like this variable.
    some = f"(let_n for let_n in range({least}, ({count}) // 2 + 1) if ({count}) % let_n == 0)"
    return f"next({some}, {count})"


def _part_size(count: int) -> int:
    """The rows of a part: parts are equal, few, and not small. 0 if that is impossible."""
    least = max(LEAST_ROWS, -(-count // MOST_PARTS))
    return next((n for n in range(least, count // 2 + 1) if count % n == 0), 0)


class _Cut:
    """Builds the body for the rows of one part."""

    def __init__(self, body: Graph, count: int, size: int, changing: set[Value]) -> None:
        self.body, self.count, self.size = body, count, size
        self.rows = set(changing)  # values of rows
        self.fixed: set[Value] = set()  # values that are used as fixed ones
        self.graph = Graph(body.name)

    def runs(self) -> bool:
        """Find the values of rows, and build the body. False if one is neither that nor fixed."""
        plans: list[dict[str, Any] | None] = []
        for node in self.body.nodes:
            if len(node.outputs) != 1 or node.graphs or node.op.traits & DOES_MORE:
                return False
            kind = node.outputs[0].type
            if not isinstance(kind, TensorType):
                return False
            if not self.rows.isdisjoint(node.inputs) or self._meets_rows(node):
                found = _rule(node)(self, node)
                if found is None:
                    return False
                self.rows.add(node.outputs[0])
                plans.append(found)
            else:
                self.fixed.update(node.inputs)
                plans.append({})
        if not self.rows.issuperset(self.body.outputs) or self.rows & self.fixed:
            return False
        self._build(plans)
        return True

    def _meets_rows(self, node: Node) -> bool:
        """Whether a node that depends on no rows creates them: as many as there are, all equal."""
        shape = node.outputs[0].tensor_type.shape
        made = node.op in (FULL, BROADCAST_TO) and len(shape) > 1
        return made and shape[0] == self.count and not self._leads(node)

    def _leads(self, node: Node) -> bool:
        """Whether the first axis of the result is the operand's, with more than one element."""
        if not node.inputs:
            return False
        given = node.inputs[0].tensor_type.shape
        return len(given) == len(node.outputs[0].tensor_type.shape) and given[0] != 1

    def _build(self, plans: list[Any]) -> None:
        kinds: list[Any] = []
        for value in self.body.inputs:
            shape = value.tensor_type.shape
            part = value in self.rows
            kinds.append(
                value.tensor_type.like(shape=(self.size, *shape[1:])) if part else value.type
            )
        self.graph.set_inputs(kinds)
        known = dict(zip(self.body.inputs, self.graph.inputs, strict=True))
        for node, attrs in zip(self.body.nodes, plans, strict=True):
            given = [known[value] for value in node.inputs]
            new = self.graph.add(node.op, *given, location=node.location, **{**node.attrs, **attrs})
            known[node.outputs[0]] = new.out
        self.graph.outputs = tuple([known[value] for value in self.body.outputs])

    # --- rules: the attributes that change, or None if rows do not stay independent -------------

    def is_rows(self, value: Value) -> bool:
        return value in self.rows

    def aligned(self, value: Value, rank: int) -> bool:
        """Whether an elementwise op can use a value with rows: row by row, or the same for all.

        A constant of the loop with as many rows is split, too.
        """
        shape = value.tensor_type.shape
        if value in self.rows:
            return len(shape) == rank
        if len(shape) == rank and shape[0] != 1:
            if value.node is not None or shape[0] != self.count or value in self.fixed:
                return False
            self.rows.add(value)
            return True
        self.fixed.add(value)
        return True

    def sized(self, shape: Any) -> tuple[int, ...]:
        return (self.size, *shape[1:])


Attrs = dict[str, Any] | None


def _elementwise(cut: _Cut, node: Node) -> Attrs:
    rank = len(node.outputs[0].tensor_type.shape)
    return {} if all(cut.aligned(value, rank) for value in node.inputs) else None


def _reduction(cut: _Cut, node: Node) -> Attrs:
    rank = len(node.inputs[0].tensor_type.shape)
    axes = [axis % rank for axis in node.attrs["axis"]]
    return {} if 0 not in axes else None


def _matmul(cut: _Cut, node: Node) -> Attrs:
    a, b = node.inputs
    ranks = [len(value.tensor_type.shape) for value in (a, b)]
    if not cut.is_rows(a) or ranks[0] < 2:
        return None
    if cut.is_rows(b):
        return {} if ranks[0] == ranks[1] > 2 else None
    cut.fixed.add(b)
    return {} if ranks[1] <= 2 else None


def _permute(_cut: _Cut, node: Node) -> Attrs:
    return {} if node.attrs["axes"][0] == 0 else None


def _reshape(cut: _Cut, node: Node) -> Attrs:
    shape = node.outputs[0].tensor_type.shape
    return {"shape": cut.sized(shape)} if shape and shape[0] == cut.count else None


def _broadcast(cut: _Cut, node: Node) -> Attrs:
    shape = node.outputs[0].tensor_type.shape
    value = node.inputs[0]
    if cut.is_rows(value):
        return {"shape": cut.sized(shape)} if cut.aligned(value, len(shape)) else None
    cut.fixed.add(value)
    return {"shape": cut.sized(shape)}


def _full(cut: _Cut, node: Node) -> Attrs:
    return {"shape": cut.sized(node.outputs[0].tensor_type.shape)}


def _getitem(cut: _Cut, node: Node) -> Attrs:
    if len(node.inputs) != 1:
        return None
    index = node.attrs["index"]
    parts = index if isinstance(index, tuple) else (index,)
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    rest = len(node.inputs[0].tensor_type.shape) - taken  # axes that the ellipsis stands for
    whole = bool(parts) and (
        (isinstance(parts[0], slice) and parts[0] == slice(None))
        or (parts[0] is Ellipsis and rest > 0)
    )
    return {} if whole else None


def _concat(cut: _Cut, node: Node) -> Attrs:
    rank = len(node.outputs[0].tensor_type.shape)
    same = all(cut.is_rows(value) for value in node.inputs)
    return {} if same and node.attrs["axis"] % rank != 0 else None


def _alias(_cut: _Cut, _node: Node) -> Attrs:
    return {}


def _no_rule(_cut: _Cut, _node: Node) -> Attrs:
    return None


_RULES: dict[Op, Callable[[_Cut, Node], Attrs]] = {
    ASSUME_SHAPE: _no_rule,
    TO_DEVICE: _no_rule,
    MATMUL: _matmul,
    PERMUTE_DIMS: _permute,
    RESHAPE: _reshape,
    BROADCAST_TO: _broadcast,
    FULL: _full,
    GETITEM: _getitem,
    CONCAT: _concat,
}


def _rule(node: Node) -> Callable[[_Cut, Node], Attrs]:
    found = _RULES.get(node.op)
    if found is not None:
        return found
    if node.op.alias:
        return _alias
    if node.op.reduction:
        return _reduction
    return _elementwise if node.op.elementwise else _no_rule
