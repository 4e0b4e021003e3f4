"""The Python state that a recorded loop carries: variables, attributes, items.

The body is recorded until this is stable. A place whose value changes in the body becomes carried:
in the next recording it holds an input of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.capture.from_source.attempt import LoopVariables
from weft.capture.from_source.dynamic_list import DynamicList, UnknownLength
from weft.capture.from_source.held import HINT as SPLIT_HINT
from weft.capture.from_source.held import Maybe, Split, flag_of
from weft.capture.from_source.journal import Entry, Journal, Parts, Variable
from weft.capture.from_source.loop_alias import Carried, LoopAliases
from weft.capture.from_source.may_alias import as_tensors
from weft.capture.from_source.merge import kind_of_container, shown
from weft.capture.from_source.place_leaf import PlaceLeaf
from weft.capture.watch.origin import MISSING
from weft.capture.watch.values import same_content
from weft.convert.lower import is_flag
from weft.core.counted import CountedState
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.record.control.agree import line_of
from weft.record.control.nested import NestedRecorder
from weft.record.recorder import GraphRecorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

HINT = "a loop keeps dtypes and shapes: start with a value of the type that the body gives"


class AlwaysFails(CaptureError):
    """The body of a loop always ends in an error."""


class DictGrows(CaptureError):
    """The body of a loop adds entries to a dict, so its first iteration differs from the others."""


class CarriedPlace:
    """A variable, attribute or item, with the tree of values that it holds."""

    def __init__(self, entry: Entry, key: Any, initial: Any) -> None:
        self.entry = entry
        self.key = key
        self.why = ""  # which path leaves it without a value, if one does
        given = initial
        if isinstance(initial, Maybe):
            self.why, initial = initial.why, initial.value
        self.initial = initial
        self.missing = initial is MISSING
        self.entered: Any = initial
        self.flag: PlaceLeaf | None = None  # whether it has a value, if the graph knows that
        if isinstance(given, Maybe) and given.flag is not None:
            self.flag = PlaceLeaf(self.title, given.flag)
        self.sure = not self.why and not self.missing  # whether it certainly has a value
        self.leaves: list[PlaceLeaf] = []
        self.structure: TreeSpec | None = None
        if not self.missing:
            values, self.structure = _flat(initial)
            self.leaves = self._leaves(values)

    def _leaves(self, values: Sequence[Any]) -> list[PlaceLeaf]:
        assert self.structure is not None
        paths = self.structure.paths()
        return [PlaceLeaf(self.title + p, value) for p, value in zip(paths, values, strict=True)]

    @property
    def carried(self) -> bool:
        return any(leaf.kind is not None for leaf in self.all_leaves())

    @property
    def title(self) -> str:
        return self.entry.title(self.key)

    def enter(self, nested: NestedRecorder) -> Any:
        assert self.structure is not None
        tree = tree_unflatten(self.structure, [leaf.enter(nested) for leaf in self.leaves])
        self.entered = tree
        if not self.why:
            return tree
        return Maybe(tree, self.why, None if self.flag is None else self.flag.enter(nested))

    def leave(self, out: Any, loop: LoopState) -> bool:
        """Note the value after the body; whether its type is as assumed."""
        sure = not isinstance(out, Maybe) and out is not MISSING
        flag = flag_of(out)
        if isinstance(out, Maybe):
            self.why, out = self.why or out.why, out.value
        if isinstance(out, Split):
            raise CaptureError(out.message, hint=SPLIT_HINT)
        if out is MISSING:  # deleted, or never assigned
            if self.missing and self.structure is None:
                return True
            raise loop.error(self.title, self.initial, "nothing")
        values, structure = _flat(out)
        if self.structure is None:  # it gets its first value in the loop
            self.structure = structure
            self.leaves = self._leaves([MISSING] * len(values))
            self.why = self.why or loop.missing_words
            if flag is not None:
                self.flag = PlaceLeaf(self.title, False)
        self.sure = sure
        if structure != self.structure:
            raise loop.error(self.title, self.initial, out)
        steady = self._leave_flag(flag, loop)
        for leaf, value in zip(self.leaves, values, strict=True):
            steady &= leaf.leave(value, partial(loop.error, leaf.title, leaf.initial, value))
        return steady

    def _leave_flag(self, flag: Any, loop: LoopState) -> bool:
        if self.flag is None:
            return True
        if flag is None:  # from now on it is not known
            self.flag = None
            return False
        return self.flag.leave(flag, partial(loop.error, self.title, False, flag))

    def all_leaves(self) -> list[PlaceLeaf]:
        return self.leaves if self.flag is None else [*self.leaves, self.flag]

    def finish(self, at_least_once: bool) -> Any:
        """Its value after the loop."""
        assert self.structure is not None
        tree = tree_unflatten(self.structure, [leaf.result() for leaf in self.leaves])
        if not self.why or (at_least_once and self.sure):
            return tree
        return Maybe(tree, self.why, None if self.flag is None else self.flag.result())


def _flat(value: Any) -> tuple[list[Any], TreeSpec]:
    return tree_flatten(value, lambda part: isinstance(part, (Tensor, Maybe)))


class LoopState:
    """All places of one loop."""

    def __init__(
        self,
        hooks: Hooks,
        here: GraphRecorder,
        variables: LoopVariables,
        body: Callable[..., Any],
        name: str,
    ) -> None:
        self.hooks = hooks
        self.here = here
        state = variables.state
        self.variables = [Variable(cell, title, outside) for title, cell, outside in state]
        self._cells = {id(cell) for _, cell, _ in state}
        self.head = frozenset(variables.head)
        self.live = frozenset(variables.live)
        self.body = body
        self.name = name
        self.length: int | None = None  # the number of iterations, if known
        self.missing_words = f"where the loop ends before{line_of(None, body)}"
        self.places: dict[tuple[int, Any], CarriedPlace] = {}
        self.rows: Sequence[Tensor] = ()  # the tensors that it iterates over
        self.peeled = False  # whether the first iteration was peeled
        self._even: dict[int, tuple[Entry, int]] = {}
        self._seen: dict[int, Entry] | None = None  # objects that the last recording wrote to
        self._to_note: list[CarriedPlace] = []

    def error(self, title: str, initial: Any, out: Any) -> CaptureError:
        before = "without a value" if initial is MISSING else shown(initial)
        after = out if isinstance(out, str) else shown(out)
        return CaptureError(
            f"{title} is {before} before the loop, and {after} after the body"
            f"{line_of(out, self.body)}",
            op=self.name,
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
            if place.carried or place.why:
                flow.save_entry(place.entry)
                if place.structure is not None:
                    place.entry.give(self.hooks, place.key, place.enter(nested))
                    for leaf in place.leaves:
                        if leaf.kind is not None:
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
            elif any(now.get(k, MISSING) is not before.get(k, MISSING) for k in {**before, **now}):
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
        return LoopAliases(self.hooks.flow.aliases, nested, found, goes_on, self.rows)

    def flags_inside(self, nested: NestedRecorder) -> list[Value]:
        """Flags in the body that tell that the loop has ended; false when an iteration begins."""
        return [nested.value_of(leaf.entered) for leaf in self._flags()]

    def _flags(self) -> list[PlaceLeaf]:
        return [
            leaf
            for place in self.places.values()
            if id(place.entry.obj) in self._cells and is_flag(place.key) and place.key in self.head
            for leaf in place.leaves
            if leaf.kind is not None
        ]

    def _tensors(self) -> list[tuple[CarriedPlace, PlaceLeaf]]:
        """Leaves that are tensors before and after the body, and so can be written to."""
        return [
            (place, leaf)
            for place in self.places.values()
            for leaf in place.leaves
            if leaf.kind is not None and as_tensors(leaf.entered) and as_tensors(leaf.out)
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
                f"after the body of a loop{line_of(None, self.body)}",
                op=self.name,
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
                place = self.places[at] = CarriedPlace(entry, key, first)
                if not place.missing:
                    self._to_note.append(place)
                place.leave(out, self)
                steady = False
            else:
                steady &= place.leave(out, self)
        return steady

    def _filled(self, obj: Any, more: int) -> CaptureError:
        is_state = isinstance(obj, CountedState)
        first = "take one step of the optimizer" if is_state else "put them there"
        return (CaptureError if self.peeled else DictGrows)(
            f"{kind_of_container(obj)} gets {more} new entries in the body of a loop"
            f"{line_of(None, self.body)}",
            op=self.name,
            hint=f"{first} before the loop, or loop over Python values: weft.unroll(...)",
        )

    def _grows_evenly(self, entry: Entry, key: Any, first: Any, out: Any) -> bool:
        """Whether a list gets the same number of elements in each iteration, and that number of
        iterations is known."""
        if key != "count" or self.length is None or entry.obj.counted:
            return False
        if not (isinstance(first, (int, Dim)) and isinstance(out, (int, Dim))):
            return False
        self._even[id(entry.obj)] = (entry, first + self.length * (out - first))
        return True

    # --- the node -----------------------------------------------------------------------------

    def leaves(self) -> list[PlaceLeaf]:
        return [leaf for place in self.places.values() for leaf in place.all_leaves()]

    def finish(self, at_least_once: bool, aliases: LoopAliases) -> None:
        """Set all places to the results of the loop."""
        known: dict[int, PlaceLeaf] = {}
        tensors = [leaf for _, leaf in self._tensors()]
        for leaf in tensors:
            other = known.setdefault(id(leaf.out), leaf)
            if at_least_once or other.initial is leaf.initial:  # two names for one tensor
                leaf.after = other.after
        ends = [self.here.value_of(leaf.after) for leaf in self._flags()]
        aliases.finish([leaf.after for leaf in tensors], ends)
        for place in self.places.values():
            if place.structure is not None:
                place.entry.give(self.hooks, place.key, place.finish(at_least_once))
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
