"""Making closed nested graphs from others, for the rules of transforms."""

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


class Run(Protocol):
    """How rules of transforms run, on the innermost level, what they make."""

    def __call__(self, graph: Graph, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a graph."""

    def differing(self, node: Node, given: Sequence[Tensor]) -> list[Tensor]:
        """The results of a node whose way differs from element to element of a `vmap`."""


Item = TypeVar("Item")
#: The inputs or outputs of a nested graph that stand together: constants, carries, slices.
Groups = Sequence[range]


def groups_of(*sizes: int) -> Groups:
    """Groups of these sizes, one after the other."""
    found: list[range] = []
    for size in sizes:
        start = found[-1].stop if found else 0
        found.append(range(start, start + size))
    return found


def laid_out(first: Sequence[Item], second: Sequence[Item | None], groups: Groups) -> list[Item]:
    """In each group, all of the first, then those of the second that are there."""
    found: list[Item] = []
    for group in groups:
        found += [first[i] for i in group]
        found += [item for item in (second[i] for i in group) if item is not None]
    return found


def taken_apart(
    items: Sequence[Item], flags: Sequence[bool], groups: Groups
) -> tuple[list[Item], list[Item | None]]:
    """What was laid out: the first, and the second where its flag says that it is there."""
    left = iter(items)
    first: list[Item] = []
    second: list[Item | None] = []
    for group in groups:
        first += [next(left) for _ in group]
        second += [next(left) if flags[i] else None for i in group]
    return first, second


def bottom_recorder() -> GraphRecorder | None:
    """What records a graph here, below all levels that are open."""
    found = [r for r in binding._thread.recorders if isinstance(r, GraphRecorder)]
    return found[-1] if found else None


def inner_recorder(name: str) -> NestedRecorder:
    """A recorder for a nested graph of a node that will be called on the level of now."""
    around = bottom_recorder()
    assert around is not None
    return NestedRecorder(around, name)


def value_type(tensor: Tensor) -> Type:
    """The type that a tensor has as an operand of a node: of a stack, that of the stack."""
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
    """The type of one element of what is mapped."""
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
    """A node that is in no graph: what is to be called on such operands."""
    values = [Value(value_type(x)) for x in operands]
    return Node(op, values, attrs, infer_types(op, values, attrs, graphs), graphs, location)
