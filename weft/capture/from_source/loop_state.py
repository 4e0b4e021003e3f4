"""The Python state that a recorded loop carries: variables, attributes, items.

The body is recorded until this is stable. A place whose value changes in the body becomes carried:
in the next recording it holds an input of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.capture.from_source.attempt import LoopVariables
from weft.capture.from_source.dynamic_list import DynamicList, UnknownLength
from weft.capture.from_source.held import HINT as SPLIT_HINT
from weft.capture.from_source.held import Maybe, Split
from weft.capture.from_source.journal import Entry, Journal, Parts, Variable, same_parts
from weft.capture.from_source.loop_alias import Carried, LoopAliases
from weft.capture.from_source.may_alias import as_tensors
from weft.capture.from_source.merge import Build, Merge, kind_of_container, shown, typed_as
from weft.capture.watch.origin import MISSING
from weft.capture.watch.values import same_content
from weft.convert.lower import is_flag
from weft.core.counted import CountedState
from weft.core.number import kind_of, may_count, number
from weft.core.tensor import Tensor
from weft.ir.graph import Value
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

    def __init__(self, loop: LoopState) -> None:
        super().__init__((), (), loop.loop.name)
        self.loop = loop

    def differ(self, title: str, values: Sequence[Any], reached: Sequence[int]) -> CaptureError:
        return self.loop.error(title, values[0], values[-1])


class CarriedPlace:
    """A variable, attribute or item that a loop carries.

    An iteration finds in it the value from before the loop, or the one that the previous iteration
    left. Each recording of the body merges both, and what the recording assumed.
    """

    def __init__(self, loop: LoopState, entry: Entry, key: Any, initial: Any) -> None:
        self.loop = loop
        self.entry = entry
        self.key = key
        self.initial = initial
        begins = Maybe(MISSING, loop.missing_words, False) if initial is MISSING else initial
        self.begins = self.entered = begins
        self.merge = _LoopMerge(loop)
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
            raise self.loop.error(self.title, self.initial, "nothing")
        self.sure = not isinstance(out, Maybe)
        before, self.merge = self.merge.shape, _LoopMerge(self.loop)
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


class LoopState:
    """All places of one loop."""

    def __init__(self, loop: SourceLoop, variables: LoopVariables) -> None:
        self.loop = loop
        self.hooks = loop.hooks
        state = variables.state
        self.variables = [Variable(cell, title, outside) for title, cell, outside in state]
        self._cells = {id(cell) for _, cell, _ in state}
        self.head = frozenset(variables.head)
        self.live = frozenset(variables.live)
        self.missing_words = f"where the loop ends before{line_of(None, loop.body)}"
        self.places: dict[tuple[int, Any], CarriedPlace] = {}
        self._even: dict[int, tuple[Entry, int]] = {}
        self._seen: dict[int, Entry] | None = None  # objects that the last recording wrote to
        self._to_note: list[CarriedPlace] = []

    def error(self, title: str, initial: Any, out: Any) -> CaptureError:
        if isinstance(initial, Maybe):
            initial = initial.value
        before = "without a value" if initial is MISSING else shown(initial)
        after = out if isinstance(out, str) else shown(out)
        return CaptureError(
            f"{title} is {before} before the loop, and {after} after the body"
            f"{line_of(out, self.loop.body)}",
            op=self.loop.name,
            hint=HINT,
        )

    def again(self) -> None:
        """Forget what the body writes to, since something outside has changed."""
        self._seen = None

    def enter(self, nested: NestedRecorder) -> None:
        """Set all places to their values inside of the body. The journal is open."""
        flow = self.hooks.flow
        for variable in self.variables:
            flow.save_entry(variable)
        for place in self.places.values():
            place.enter(nested)
            for leaf in place.leaves:
                flow.aliases.entered(leaf.entered, nested)

    def leave(self, journal: Journal) -> bool:
        """Read all places after the body; whether they are as assumed."""
        steady = True
        changed: dict[int, Entry] = {}
        for key, (entry, before) in journal.entries.items():
            now = entry.parts()
            if not self._matters(entry):
                continue
            if self._is_ours(entry):
                steady &= self._compare(entry, before, now)
            elif self._seen is not None:
                if key in self._seen:  # not an object that the body makes
                    steady &= self._compare(entry, before, now)
            elif not same_parts(before, now):
                changed[key] = entry
        if self._seen is None:
            self._seen = changed
            steady &= not changed
        return steady

    def note_initial(self) -> None:
        """Note that the recording depends on what carried places hold before the loop. They hold it
        again: what the body has written is undone."""
        for place in self._to_note:
            place.entry.note_whole(self.hooks, place.key, place.initial)
        self._to_note.clear()

    def aliases(self, nested: NestedRecorder) -> LoopAliases:
        """Which carried tensors may alias."""
        found = []
        for place, leaf in self._tensors():
            local = id(place.entry.obj) in self._cells and place.key in self.live
            is_read = not local or place.key in self.head
            first = leaf.initial if isinstance(leaf.initial, Tensor) else None
            title = place.title
            found.append(Carried(title, first, leaf.entered, leaf.out, is_read))
        goes_on = tuple([(nested.value_of(leaf.end()), False) for leaf in self._flags()])
        return LoopAliases(self.hooks.flow.aliases, nested, found, goes_on, self.loop.rows)

    def flags_inside(self, nested: NestedRecorder) -> list[Value]:
        """Flags in the body that tell that the loop has ended; false when an iteration begins."""
        return [nested.value_of(leaf.entered) for leaf in self._flags()]

    def _flags(self) -> list[PlaceLeaf]:
        return [
            leaf
            for place in self.places.values()
            if id(place.entry.obj) in self._cells and is_flag(place.key) and place.key in self.head
            for leaf in place.leaves
        ]

    def _tensors(self) -> list[tuple[CarriedPlace, PlaceLeaf]]:
        """Leaves that are tensors before and after the body, and so can be written to."""
        return [
            (place, leaf)
            for place in self.places.values()
            for leaf in place.leaves
            if as_tensors(leaf.entered) and as_tensors(leaf.out)
        ]

    def _matters(self, entry: Entry) -> bool:
        """Whether to carry an entry: locals that are never read again are not carried."""
        if id(entry.obj) not in self._cells:
            return True
        assert isinstance(entry, Variable)
        return entry.outside is not None or entry.name in self.live

    def _is_ours(self, entry: Entry) -> bool:
        """Whether an object existed before the body."""
        if id(entry.obj) in self._cells or getattr(entry, "outside", None) is not None:
            return True
        return not isinstance(entry, Variable) and entry.known(self.hooks.watch) is not None

    def _compare(self, entry: Entry, before: Parts, now: Parts) -> bool:
        if entry.whole and not same_content(entry.obj, before, now):
            if entry.obj.__class__ is list and entry.known(self.hooks.watch) is None:
                raise UnknownLength(entry.obj, sample_of(before, now))
            if isinstance(entry.obj, dict) and before.keys() < now.keys():
                raise self._filled(entry.obj, len(now) - len(before))
            raise CaptureError(
                f"{kind_of_container(entry.obj)} holds {len(before)} items before and {len(now)} "
                f"after the body of a loop{line_of(None, self.loop.body)}",
                op=self.loop.name,
                hint="keep its size, or loop over Python values: weft.unroll(...)",
            )
        steady = True
        for key in {**before, **now}:
            at = (id(entry.obj), key)
            place = self.places.get(at)
            first, out = before.get(key, MISSING), now.get(key, MISSING)
            if place is None:
                if first is out:
                    continue
                if isinstance(entry.obj, DynamicList) and self._grows_evenly(
                    entry, key, first, out
                ):
                    continue
                if out.__class__ is DynamicList:
                    raise UnknownLength(entry.obj, [out])
                place = self.places[at] = CarriedPlace(self, entry, key, first)
                if first is not MISSING:
                    self._to_note.append(place)
                steady = False
            steady &= place.leave(out)
        return steady

    def _filled(self, obj: Any, more: int) -> CaptureError:
        is_state = isinstance(obj, CountedState)
        first = "take one step of the optimizer" if is_state else "put them there"
        return (CaptureError if self.loop.peeled else DictGrows)(
            f"{kind_of_container(obj)} gets {more} new entries in the body of a loop"
            f"{line_of(None, self.loop.body)}",
            op=self.loop.name,
            hint=f"{first} before the loop, or loop over Python values: weft.unroll(...)",
        )

    def _grows_evenly(self, entry: Entry, key: Any, first: Any, out: Any) -> bool:
        """Whether a list gets the same number of elements in each iteration, and that number of
        iterations is known."""
        if key != "count" or self.loop.length is None or entry.obj.counted:
            return False
        if not (isinstance(first, (int, Dim)) and isinstance(out, (int, Dim))):
            return False
        self._even[id(entry.obj)] = (entry, first + self.loop.length * (out - first))
        return True

    # --- the node -----------------------------------------------------------------------------

    def leaves(self) -> list[PlaceLeaf]:
        return [leaf for place in self.places.values() for leaf in place.leaves]

    def finish(self, at_least_once: bool, aliases: LoopAliases) -> None:
        """Set all places to the results of the loop."""
        known: dict[int, PlaceLeaf] = {}
        tensors = [leaf for _, leaf in self._tensors()]
        for leaf in tensors:
            other = known.setdefault(id(leaf.out), leaf)
            if at_least_once or other.initial is leaf.initial:  # two names for one tensor
                leaf.after = other.after
        ends = [self.loop.here.value_of(leaf.after) for leaf in self._flags()]
        aliases.finish([leaf.after for leaf in tensors], ends)
        for place in self.places.values():
            place.finish(at_least_once)
        for entry, count in self._even.values():
            entry.give(self.hooks, "count", count)
        for variable in self.variables:
            if not self._matters(variable):
                variable.put({})


def sample_of(before: Parts, now: Parts) -> Any:
    """An element of a list that grew or shrank."""
    for value in (*before.values(), *now.values()):
        if value.__class__ is DynamicList:
            return [value]
    longer = now if len(now) > len(before) else before
    return list(longer.values())[-1]
