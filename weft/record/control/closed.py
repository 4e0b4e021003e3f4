"""What rules of transforms share to build nested graphs from other nested graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from weft.autodiff.transforms.levels import LevelArray
from weft.autodiff.transforms.vmap import MappedArray
from weft.base.source import SourceLocation
from weft.core import bind as binding
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, type_of
from weft.ir.graph import Graph, Node, Value
from weft.ir.infer import infer_types
from weft.ir.op import Op
from weft.ir.types import StackType, TensorType, Type
from weft.record.control.nested import NestedRecorder
from weft.record.recorder import GraphRecorder


class LevelRunner(Protocol):
    """Runs graphs and nodes on the innermost level, for the rules of transforms."""

    def __call__(self, graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a graph."""

    def differing(self, node: Node, given: Sequence[Tensor]) -> list[Tensor]:
        """The results of a node that takes different paths for the elements of a `vmap`."""


Item = TypeVar("Item")
#: Contiguous inputs or outputs of a nested graph: its constants, its carries, its slices.
Groups = Sequence[range]


def groups_of(*sizes: int) -> Groups:
    """Consecutive groups of these sizes."""
    found: list[range] = []
    for size in sizes:
        start = found[-1].stop if found else 0
        found.append(range(start, start + size))
    return found


def laid_out(first: Sequence[Item], second: Sequence[Item | None], groups: Groups) -> list[Item]:
    """Group by group: all items of `first`, then those of `second` that are not None."""
    found: list[Item] = []
    for group in groups:
        found += [first[i] for i in group]
        found += [item for item in (second[i] for i in group) if item is not None]
    return found


def taken_apart(
    items: Sequence[Item], flags: Sequence[bool], groups: Groups
) -> tuple[list[Item], list[Item | None]]:
    """The inverse of `laid_out`; `flags` says which items of the second are there."""
    left = iter(items)
    first: list[Item] = []
    second: list[Item | None] = []
    for group in groups:
        first += [next(left) for _ in group]
        second += [next(left) if flags[i] else None for i in group]
    return first, second


def bottom_recorder() -> GraphRecorder | None:
    """The recorder of a graph below all levels of this thread."""
    found = [r for r in binding._thread.recorders if isinstance(r, GraphRecorder)]
    return found[-1] if found else None


def inner_recorder(name: str) -> NestedRecorder:
    """A recorder for a nested graph of a node that is called on the current level."""
    around = bottom_recorder()
    assert around is not None
    return NestedRecorder(around, name)


def value_type(tensor: Tensor) -> Type:
    """The type of a tensor as an operand of a node; for a stack, the type of the stack."""
    data = tensor._data
    if isinstance(data, MappedArray) and data.mapped:
        return _one_of(value_type(data.tensor))
    if isinstance(data, LevelArray):
        return value_type(data.tensor)
    if isinstance(data, SymbolicArray):
        kind: Type = data.value.type
        return kind
    return type_of(tensor)


def _one_of(kind: Type) -> Type:
    """The type of one element of a mapped value."""
    if isinstance(kind, StackType):
        element = _one_of(kind.element)
        assert isinstance(element, (TensorType, StackType))
        return StackType(element)
    assert isinstance(kind, TensorType)
    return kind.like(shape=kind.shape[1:])


def described(
    op: Op,
    operands: Sequence[Tensor],
    graphs: Sequence[Graph],
    attrs: dict[str, Any],
    location: SourceLocation | None,
) -> Node:
    """A node for operands like these. It is in no graph: it describes a call."""
    values = [Value(value_type(x)) for x in operands]
    return Node(op, values, attrs, infer_types(op, values, attrs, graphs), graphs, location)
