"""Lists whose length the graph decides, because recorded loops or branches append to them.

The user's list then holds a single `DynamicList`. If Python needs the elements, outside of all
loops and branches of the graph, the length is asked for and becomes a guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec
from weft.capture.from_source.held import Undecided
from weft.core.number import Number, kind_of
from weft.core.tensor import Tensor
from weft.ir.types import TensorType
from weft.record.control.graph_list import GraphList, flat, kind_of_leaf

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


class DynamicList(GraphList, Undecided):
    """A list of the graph in the place of its elements. `stacks` and `count` change; journals save
    them as attributes."""

    def __init__(
        self, structure: TreeSpec, kinds: list[TensorType], numbers: list[bool], aliases: Aliases
    ) -> None:
        super().__init__(structure, kinds, numbers)
        #: The tensors that were appended; the list holds the values they had then.
        self.held: list[Tensor] = []
        self.aliases = aliases

    def push(self, element: Any) -> None:
        super().push(element)
        for leaf in flat(element)[0]:
            if isinstance(leaf, Tensor) and not isinstance(leaf, Number):
                self.held.append(leaf)
                self.aliases.appended(leaf)

    def element(self, tensors: list[Tensor]) -> Any:
        made = super().element(tensors)
        for leaf in flat(made)[0]:
            self.aliases.add(leaf, [(tensor, ()) for tensor in self.held])
        return made

    def settle(self, flow: Flow, obj: Any) -> None:
        flow.save(obj)
        obj[:] = self.elements()


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
        leaves, structure = flat(sample)
        kinds = [kind_of_leaf(leaf) for leaf in leaves]
        numbers = [kind_of(leaf) is not None for leaf in leaves]
        dynamic = DynamicList(structure, kinds, numbers, aliases)
    for element in items:
        dynamic.push(element)
    hooks.flow.save(items)
    hooks.flow.undecided = True
    items[:] = [dynamic]
