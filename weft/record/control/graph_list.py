"""Lists of a graph: stacks of equal elements, and a length that may be known only when it runs."""

from __future__ import annotations

import operator
from typing import Any

from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.core.bind import bind
from weft.core.grad_mode import enable_grad
from weft.core.number import HELD_AS, Number, as_held, kind_of, number, plain
from weft.core.tensor import Tensor
from weft.ir.types import StackType, TensorType
from weft.ops.lists import LIST_ALL, LIST_ITEM, LIST_ROWS
from weft.ops.stacks import STACK_NEW, STACK_POP, STACK_PUSH, stack_attrs
from weft.record.control.agree import kind_of_tensor, shown
from weft.record.control.nested import NestedRecorder, graph_recorder, size_number

_HOLDS = "a list that a loop of the graph appends to"


class GraphList:
    """A list of the graph: a stack for each leaf of its elements, and a count.

    Elements keep their histories, also if they are appended or read under `no_grad`.
    """

    def __init__(self, structure: TreeSpec, kinds: list[TensorType], numbers: list[bool]) -> None:
        self.structure = structure
        self.kinds = kinds
        self.numbers = numbers  # which leaves are Python numbers
        self.count: Any = 0
        self.stacks: tuple[Tensor, ...] = tuple(
            [bind(STACK_NEW, **stack_attrs(StackType(kind))) for kind in kinds]
        )
        self.counted = False  # whether the code asked for the length

    # --- changes ------------------------------------------------------------------------------

    @enable_grad()
    def push(self, element: Any) -> None:
        leaves, structure = flat(element)
        if structure != self.structure:
            raise CaptureError(
                f"{_HOLDS} holds {self.structure}, and gets {structure}",
                hint="append elements of one structure",
            )
        given = zip(self.stacks, leaves, self.kinds, self.numbers, strict=True)
        self.stacks = tuple([bind(STACK_PUSH, stack, _fitting(*leaf)) for stack, *leaf in given])
        self.count = self.count + 1

    @enable_grad()
    def pop(self) -> Any:
        pairs = [bind(STACK_POP, stack) for stack in self.stacks]
        self.stacks = tuple([below for below, _ in pairs])
        self.count = self.count - 1
        return self.element([top for _, top in pairs])

    # --- reads --------------------------------------------------------------------------------

    def length(self) -> Any:
        self.counted = True
        return self.count

    @enable_grad()
    def item(self, index: Any) -> Any:
        held = as_held(self._from_the_end(index), HELD_AS["int"])
        return self.element([bind(LIST_ITEM, stack, held) for stack in self.stacks])

    def _from_the_end(self, index: Any) -> Any:
        if isinstance(index, int) and index < 0:
            return -index - 1
        count = self.length()
        last = (size_number(count) if count.__class__ is Dim else count) - 1
        if isinstance(index, int):
            return last - index
        at = index if isinstance(index, Number) else number(index)
        negative = as_held(at < 0, HELD_AS["int"])
        forward = as_held(last - at, HELD_AS["int"])
        return number(negative * as_held(-at - 1, HELD_AS["int"]) + (1 - negative) * forward)

    def tensors(self) -> list[Tensor]:
        """All elements along a new first axis, leaf by leaf."""
        count = self.length()
        if isinstance(count, (int, Dim)):
            return self.columns(count)
        held = as_held(count, HELD_AS["int"])
        return [bind(LIST_ALL, stack, held) for stack in self.stacks]

    def asked_length(self) -> int:
        """The length as a Python int; the answer becomes a guard."""
        count = self.length()
        if isinstance(count, (int, Dim)):
            return operator.index(count)
        if isinstance(graph_recorder(), NestedRecorder):
            raise CaptureError(
                "Python needs a list whose length depends on tensors, inside of a loop or "
                "branch of the graph",
                hint="use weft.stack(items), items[i], len(items), or use it afterwards",
            )
        return int(plain(count).item())

    def columns(self, count: int) -> list[Tensor]:
        """All `count` elements along a new first axis, leaf by leaf."""
        return [bind(LIST_ROWS, stack, size=count) for stack in self.stacks]

    @enable_grad()
    def elements(self) -> list[Any]:
        """The elements one by one; this asks for the length."""
        count = self.asked_length()
        if not count:
            return []
        columns = self.columns(count)
        return [self.element([column[i] for column in columns]) for i in range(count)]

    @enable_grad()
    def total(self) -> Tensor | None:
        """The sum of the elements, at least one; None if they are not single tensors."""
        (kind, *others), (is_number, *_) = self.kinds, self.numbers
        if others or is_number or kind.dtype.kind not in ("float", "complex"):
            return None
        return self.tensors()[0].sum(axis=0)

    def element(self, tensors: list[Tensor]) -> Any:
        """An element made of its leaves."""
        pairs = zip(tensors, self.numbers, strict=True)
        leaves = [number(x) if is_number else x for x, is_number in pairs]
        return tree_unflatten(self.structure, leaves)


def flat(element: Any) -> tuple[list[Any], TreeSpec]:
    return tree_flatten(element, lambda part: isinstance(part, Tensor))


def kind_of_leaf(leaf: Any) -> TensorType:
    """The type in which a list holds a leaf of its elements."""
    weak = kind_of(leaf)
    if weak is not None:
        return TensorType(HELD_AS[weak], ())
    kind = kind_of_tensor(leaf) if isinstance(leaf, Tensor) else None
    if not isinstance(kind, TensorType):
        raise CaptureError(f"{_HOLDS} gets {shown(leaf)}", hint="append tensors or numbers")
    return kind


def _fitting(leaf: Any, kind: TensorType, is_number: bool) -> Tensor:
    if kind_of(leaf) is not None and (is_number or not kind.shape):
        return as_held(leaf, kind.dtype, kind.device)
    if not isinstance(leaf, Tensor) or kind_of_tensor(leaf) != kind:
        raise CaptureError(
            f"{_HOLDS} holds {kind}, and gets {shown(leaf)}",
            hint="append elements of one dtype and shape",
        )
    return leaf
