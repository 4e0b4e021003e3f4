"""A place that a recorded loop carries: a variable, an attribute, an item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.from_source.dynamic_list import DynamicList
from weft.capture.from_source.held import HINT as SPLIT_HINT
from weft.capture.from_source.held import Maybe, Split
from weft.capture.from_source.journal import Entry, Parts
from weft.capture.from_source.merge import Build, Merge, shown, typed_as
from weft.capture.watch.origin import MISSING
from weft.core.number import kind_of, may_count, number
from weft.core.tensor import Tensor
from weft.record.control.agree import line_of
from weft.record.control.loop_leaf import CarriedLeaf
from weft.record.control.nested import NestedRecorder

if TYPE_CHECKING:
    from weft.capture.from_source.source_loop import SourceLoop

HINT = "a loop keeps dtypes and shapes: start with a value of the type that the body gives"


class AlwaysFails(CaptureError):
    """The body of a loop always ends in an error."""


class DictGrows(CaptureError):
    """The body of a loop adds entries to a dict, so its first iteration differs from the others."""


class PlaceLeaf(CarriedLeaf):
    """A value of the graph in a place that a loop carries."""

    __slots__ = ("is_number",)

    def enter(self, nested: NestedRecorder) -> Any:
        made = super().enter(nested)
        if self.is_number:
            counts = kind_of(self.initial) in ("bool", "int") and may_count(self.initial)
            self.entered = number(made, counts=counts)
        return self.entered

    def start(self) -> Tensor:
        assert self.kind is not None
        return typed_as(self.initial, self.kind)

    def end(self) -> Tensor:
        assert self.kind is not None
        return typed_as(self.out, self.kind)

    def result(self) -> Any:
        return number(self.after) if self.is_number else self.after


class _LoopMerge(Merge):
    """Merges the values from before the loop, when an iteration begins, and after it."""

    def __init__(self, body: Callable[..., Any], name: str) -> None:
        super().__init__((), (), name)
        self.body = body

    def differ(self, title: str, values: Sequence[Any], reached: Sequence[int]) -> CaptureError:
        return self.changes(title, values[0], values[-1])

    def changes(self, title: str, initial: Any, out: Any) -> CaptureError:
        """The error for a place that does not keep its type."""
        if isinstance(initial, Maybe):
            initial = initial.value
        before = "without a value" if initial is MISSING else shown(initial)
        after = out if isinstance(out, str) else shown(out)
        return CaptureError(
            f"{title} is {before} before the loop, and {after} after the body"
            f"{line_of(out, self.body)}",
            op=self.op,
            hint=HINT,
        )


class CarriedPlace:
    """A variable, attribute or item that a loop carries.

    An iteration finds in it the value from before the loop, or the one that the previous iteration
    left. Each recording of the body merges both, and what the recording assumed.
    """

    def __init__(self, loop: SourceLoop, entry: Entry, key: Any, initial: Any) -> None:
        self.loop = loop
        self.entry = entry
        self.key = key
        self.initial = initial
        why = f"where the loop ends before{line_of(None, loop.body)}"
        self.begins = Maybe(MISSING, why, False) if initial is MISSING else initial
        self.entered = self.begins
        self.merge = _LoopMerge(loop.body, loop.name)
        self.build: Build | None = None  # None until it gets a value
        self.leaves: list[PlaceLeaf] = []
        self.sure = False  # whether the body certainly leaves a value

    @property
    def title(self) -> str:
        return self.entry.title(self.key)

    def enter(self, nested: NestedRecorder) -> None:
        """Set it to its value inside of the body."""
        if self.build is None:
            return
        entered = self.build([leaf.enter(nested) for leaf in self.leaves])
        if self.leaves or isinstance(entered, Maybe):
            self.entered = entered
            self.loop.hooks.flow.save_entry(self.entry)
            self.entry.give(self.loop.hooks, self.key, entered)

    def leave(self, out: Any) -> bool:
        """Note the value after the body; whether type and history are as assumed."""
        value = out.value if isinstance(out, Maybe) else out
        if isinstance(value, Split):
            raise CaptureError(value.message, hint=SPLIT_HINT)
        if value is MISSING:  # deleted, or never assigned
            if self.build is None and self.initial is MISSING:
                return True
            raise self.merge.changes(self.title, self.initial, "nothing")
        self.sure = not isinstance(out, Maybe)
        before, self.merge = self.merge.shape, _LoopMerge(self.loop.body, self.loop.name)
        self.build = self.merge.value(self.title, (self.begins, self.entered, out))
        steady = self.merge.shape == before
        known = {leaf.title: leaf for leaf in self.leaves}
        self.leaves = []
        for merged in self.merge.merged:
            leaf = known.pop(merged.title, None) or PlaceLeaf(merged.title, merged.values[0])
            leaf.kind, leaf.is_number, leaf.out = merged.kind, merged.is_number, merged.values[-1]
            steady &= not leaf.gains()
            self.leaves.append(leaf)
        return steady

    def finish(self, at_least_once: bool) -> None:
        """Set it to its value after the loop."""
        if self.build is not None:
            value = self.build([leaf.result() for leaf in self.leaves])
            if isinstance(value, Maybe) and at_least_once and self.sure:
                value = value.value
            self.entry.give(self.loop.hooks, self.key, value)


def sample_of(before: Parts, now: Parts) -> Any:
    """An element of a list that grew or shrank."""
    for value in (*before.values(), *now.values()):
        if value.__class__ is DynamicList:
            return [value]
    longer = now if len(now) > len(before) else before
    return list(longer.values())[-1]
