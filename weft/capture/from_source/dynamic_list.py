"""Lists whose length the graph decides, because recorded loops or branches append to them.

The user's list then holds a single `DynamicList`: a stack of the graph for each leaf of the
elements, and a count. If Python needs the elements, outside of all loops and branches of the graph,
the length is asked for and becomes a guard.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.capture.from_source.held import Undecided
from weft.capture.from_source.merge import kind_of_tensor, shown
from weft.core.bind import bind
from weft.core.grad_mode import enable_grad
from weft.core.number import HELD_AS, Number, as_held, kind_of, number, plain
from weft.core.tensor import Tensor
from weft.ir.types import StackType, TensorType, Type
from weft.ops.lists import LIST_ALL, LIST_ITEM, LIST_ROWS
from weft.ops.stacks import STACK_NEW, STACK_POP, STACK_PUSH, stack_attrs
from weft.record.control.nested import NestedRecorder, graph_recorder, size_number

if TYPE_CHECKING:
    from weft.capture.from_source.may_alias import Aliases
    from weft.capture.from_source.run import Flow
    from weft.capture.hooks import Hooks


class UnknownLength(CaptureError):
    """The length of a list depends on tensors; the construct must be recorded again."""

    def __init__(self, items: list[Any], sample: Any) -> None:
        super().__init__("the length of a list depends on tensors")
        self.items = items
        self.sample = sample


class DynamicList(Undecided):
    """A list of the graph. `stacks` and `count` change; journals save them as attributes.

    Elements keep their histories, also if they are appended or read under `no_grad`.
    """

    def __init__(
        self, structure: TreeSpec, kinds: list[TensorType], numbers: list[bool], aliases: Aliases
    ) -> None:
        self.structure = structure
        self.kinds = kinds
        self.numbers = numbers
        self.count: Any = 0
        self.stacks: tuple[Tensor, ...] = tuple(
            [bind(STACK_NEW, **stack_attrs(StackType(kind))) for kind in kinds]
        )
        #: The tensors that were appended; the list holds the values they had then.
        self.held: list[Tensor] = []
        self.aliases = aliases
        self.counted = False  # whether the code asked for the length

    # --- changes ------------------------------------------------------------------------------

    @enable_grad()
    def push(self, element: Any) -> None:
        leaves, structure = _flat(element)
        if structure != self.structure:
            raise CaptureError(
                f"a list that a loop of the graph appends to holds {self.structure}, and gets "
                f"{structure}",
                hint="append elements of one structure",
            )
        pushed = []
        pairs = zip(leaves, self.kinds, self.numbers, self.stacks, strict=True)
        for leaf, kind, is_number, stack in pairs:
            pushed.append(bind(STACK_PUSH, stack, _fitting(leaf, kind, is_number)))
            if isinstance(leaf, Tensor) and not isinstance(leaf, Number):
                self.held.append(leaf)
                self.aliases.appended(leaf)
        self.stacks = tuple(pushed)
        self.count = self.count + 1

    @enable_grad()
    def pop(self) -> Any:
        pairs = [bind(STACK_POP, stack) for stack in self.stacks]
        self.stacks = tuple([below for below, _ in pairs])
        self.count = self.count - 1
        return self._element([top for _, top in pairs])

    def settle(self, flow: Flow, obj: Any) -> None:
        flow.save(obj)
        obj[:] = self.elements()

    # --- reads --------------------------------------------------------------------------------

    def length(self) -> Any:
        self.counted = True
        return self.count

    def _counted(self) -> Any:
        count = self.length()
        return size_number(count) if count.__class__ is Dim else count

    @enable_grad()
    def item(self, index: Any) -> Any:
        if isinstance(index, int) and index < 0:
            place: Any = -index - 1
        elif isinstance(index, int):
            place = self._counted() - 1 - index
        else:
            at = index if isinstance(index, Number) else number(index)
            negative = as_held(at < 0, HELD_AS["int"])
            last = as_held(self._counted() - 1 - at, HELD_AS["int"])
            place = number(negative * as_held(-at - 1, HELD_AS["int"]) + (1 - negative) * last)
        held = as_held(place, HELD_AS["int"])
        return self._element([bind(LIST_ITEM, stack, held) for stack in self.stacks])

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
        return [self._element([column[i] for column in columns]) for i in range(count)]

    @enable_grad()
    def total(self) -> Tensor | None:
        """The sum of the elements, at least one; None if they are not single tensors."""
        (kind, *others), (is_number, *_) = self.kinds, self.numbers
        if others or is_number or kind.dtype.kind not in ("float", "complex"):
            return None
        return self.tensors()[0].sum(axis=0)

    def _element(self, tensors: list[Tensor]) -> Any:
        pairs = zip(tensors, self.numbers, strict=True)
        leaves = [number(x) if is_number else x for x, is_number in pairs]
        for leaf in leaves:
            self.aliases.element(leaf, self.held)
        return tree_unflatten(self.structure, leaves)


def _flat(value: Any) -> tuple[list[Any], TreeSpec]:
    return tree_flatten(value, lambda part: isinstance(part, Tensor))


def _fitting(leaf: Any, kind: TensorType, is_number: bool) -> Tensor:
    weak = kind_of(leaf)
    if weak is not None and (is_number or not kind.shape):
        return as_held(leaf, kind.dtype, kind.device)
    if not isinstance(leaf, Tensor) or kind_of_tensor(leaf) != kind:
        raise CaptureError(
            f"a list that a loop of the graph appends to holds {kind}, and gets {shown(leaf)}",
            hint="append elements of one dtype and shape",
        )
    return leaf


def dynamic_list_of(items: Any) -> DynamicList | None:
    """The `DynamicList` in a list, or None if it is a plain one."""
    if items.__class__ is list and len(items) == 1 and items[0].__class__ is DynamicList:
        found: DynamicList = items[0]
        return found
    return None


def make_dynamic(hooks: Hooks, items: list[Any], sample: Any) -> None:
    """Convert a list to a dynamic list. `sample` is an element that it gets later."""
    known = dynamic_list_of(sample) if isinstance(sample, list) else None
    aliases = hooks.flow.aliases
    if known is not None:
        dynamic = DynamicList(known.structure, known.kinds, known.numbers, aliases)
    else:
        leaves, structure = _flat(sample)
        kinds = [_leaf_kind(leaf) for leaf in leaves]
        numbers = [kind_of(leaf) is not None for leaf in leaves]
        dynamic = DynamicList(structure, kinds, numbers, aliases)
    for element in items:
        dynamic.push(element)
    hooks.flow.save(items)
    hooks.flow.undecided = True
    items[:] = [dynamic]


def _leaf_kind(leaf: Any) -> TensorType:
    weak = kind_of(leaf)
    kind: Type | None
    if weak is not None:
        kind = TensorType(HELD_AS[weak], ())
    else:
        kind = kind_of_tensor(leaf) if isinstance(leaf, Tensor) else None
    if not isinstance(kind, TensorType):
        raise CaptureError(
            f"a list that a loop of the graph appends to gets {shown(leaf)}",
            hint="append tensors or numbers",
        )
    return kind
