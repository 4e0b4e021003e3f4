"""A loop of captured code as a node: its places are variables, attributes and items."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.base.source import user_location
from weft.capture.from_source.attempt import LoopVariables
from weft.capture.from_source.carried_place import (
    AlwaysFails,
    CarriedPlace,
    DictGrows,
    PlaceLeaf,
    sample_of,
)
from weft.capture.from_source.conditions import predicate
from weft.capture.from_source.dynamic_list import DynamicList, UnknownLength, make_dynamic
from weft.capture.from_source.journal import Entry, Journal, Parts, Variable, same_parts
from weft.capture.from_source.loop_alias import Aliased, Carried, LoopAliases
from weft.capture.from_source.may_alias import as_tensors
from weft.capture.from_source.merge import kind_of_container
from weft.capture.from_source.run import OF_RECORDING, Unreachable, uncatchable
from weft.capture.watch.origin import MISSING
from weft.capture.watch.values import same_content
from weft.convert.lower import is_flag
from weft.core.counted import CountedState
from weft.core.number import HELD_AS, as_held
from weft.core.tensor import Tensor
from weft.ir.types import TOKEN
from weft.record.control.agree import line_of
from weft.record.control.borders import BorderError
from weft.record.control.loop_histories import reached_by
from weft.record.control.loop_leaf import CarriedLeaf
from weft.record.control.nested import NestedRecorder, graph_recorder
from weft.record.control.recorded_loop import RecordedLoop
from weft.record.effects import last_token
from weft.record.recorder import GraphRecorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

Step = Callable[[NestedRecorder], None]


class _TokenLeaf(CarriedLeaf):
    """The token that orders effects of the body; carried if there are any."""

    __slots__ = ("here",)

    def __init__(self, here: GraphRecorder) -> None:
        super().__init__("", None)
        self.here = here

    def start(self) -> Tensor:
        return last_token(self.here)


class SourceLoop(RecordedLoop):
    """A recorded loop whose body may write to Python objects."""

    journal: Journal  # of the last recording

    def __init__(
        self,
        hooks: Hooks,
        variables: LoopVariables,
        body: Callable[..., Any],
        name: str,
        *,
        entered: bool,
        peeled: bool = False,
        rows: Sequence[Tensor] = (),
    ) -> None:
        """
        entered   whether the body runs at least once, on the values from before
        peeled    whether the first iteration was peeled
        rows      the tensors that the loop iterates over
        """
        here = graph_recorder()
        assert here is not None
        super().__init__(here, name, body)
        self.hooks = hooks
        self.entered = entered
        self.peeled = peeled
        self.rows = rows
        self.length: Any = None  # the number of iterations, if known
        state = variables.state
        self.variables = [Variable(cell, title, outside) for title, cell, outside in state]
        self._cells = {id(cell) for _, cell, _ in state}
        self.head = frozenset(variables.head)
        self.live = frozenset(variables.live)
        self.places: dict[tuple[int, Any], CarriedPlace] = {}
        self.token = _TokenLeaf(here)
        self.aliases: LoopAliases
        self._even: dict[int, tuple[Entry, int]] = {}  # lists that grow evenly, and their lengths
        self._seen: dict[int, Entry] | None = None  # objects that the last recording wrote to
        self._to_note: list[CarriedPlace] = []
        self._mark = 0  # start of this loop in the log of writes to carried tensors
        self._assumed = contextlib.ExitStack()
        self._entered: dict[int, Any] = {}  # what places held when the condition was asked

    # --- places -------------------------------------------------------------------------------

    def leaves(self) -> list[CarriedLeaf]:
        leaves = [leaf for place in self.places.values() for leaf in place.leaves]
        return [*leaves, self.token]

    def enter_values(self, nested: NestedRecorder) -> None:
        """Set all places to their values inside of the body. The journal is open."""
        flow = self.hooks.flow
        for variable in self.variables:
            flow.save_entry(variable)
        for place in self.places.values():
            place.enter(nested)
            for leaf in place.leaves:
                flow.aliases.entered(leaf.entered, nested)
        if self.token.kind is not None:
            nested.token = self.token.enter(nested)

    def leave_values(self, nested: NestedRecorder) -> bool:
        user_location()  # a debugger reads the variables whenever this is asked: see `step/names`
        try:
            steady = self._leave_places()
        except CaptureError:
            if self.failure:  # it was not completed
                raise self._always_fails() from None
            raise
        if nested.token is not None:
            steady &= self.token.kind is not None
            self.token.kind, self.token.out = TOKEN, nested.token
        return steady

    def _leave_places(self) -> bool:
        """Read all places after the body; whether they are as assumed."""
        steady = True
        changed: dict[int, Entry] = {}
        for key, (entry, before) in self.journal.entries.items():
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
                place = self.places[at] = CarriedPlace(self, entry, key, first)
                if first is not MISSING:
                    self._to_note.append(place)
                steady = False
            steady &= place.leave(out)
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

    # --- recording ----------------------------------------------------------------------------

    def recorder(self, name: str) -> NestedRecorder:
        return self.hooks.flow.nested(self.here, name)

    @contextlib.contextmanager
    def opened(self, nested: NestedRecorder) -> Iterator[None]:
        recording = self.hooks.flow.recording(nested)
        try:
            with recording as self.journal, contextlib.ExitStack() as self._assumed:
                yield
        finally:
            # The recording depends on what carried places hold before the loop. They hold it again:
            # what the body has written is undone.
            for place in self._to_note:
                place.entry.note_whole(self.hooks, place.key, place.initial)
            self._to_note.clear()

    def settle(self, step: Step) -> None:
        self._mark = len(self.hooks.flow.aliases.log)
        super().settle(step)

    def attempt(self, step: Step) -> bool:
        flow = self.hooks.flow
        del flow.aliases.log[self._mark :]
        flow.loops.append(self)
        try:
            return super().attempt(step)
        except Unreachable:
            raise self._always_fails() from None
        except UnknownLength as found:
            unknown = found
        finally:
            flow.loops.pop()
        make_dynamic(self.hooks, unknown.items, unknown.sample)
        self._seen = None  # something outside has changed
        return False

    def run(self, step: Step, nested: NestedRecorder) -> None:
        """Run the body, which may end in an error.

        It may do so only on the values from before the loop, and not on carried ones. And a loop
        without an iteration raises nothing.
        """
        for leaf in self._flags():
            flag = nested.value_of(leaf.entered)
            self._assumed.enter_context(self.hooks.flow.aliases.paths.assuming(flag, False))
        self.failure = ""
        try:
            super().run(step, nested)
        except OF_RECORDING:
            raise
        except Exception as error:
            border = reached_by(self.hooks.flow.loops[:-1])
            if border is not None:
                raise BorderError(border) from error
            if self.entered:
                raise
            if self.hooks.flow.tries:
                raise uncatchable(error, "in a loop of the graph") from error
            self.failure = f": {type(error).__name__}: {getattr(error, 'message', error)}"

    def _always_fails(self) -> AlwaysFails:
        return AlwaysFails(
            f"the body of a loop always ends in an error{line_of(None, self.body)}{self.failure}",
            op=self.name,
            hint="raise under a condition",
        )

    def check(self, nested: NestedRecorder) -> None:
        if self.failure:
            raise self._always_fails()
        if nested.spent_outside():
            # A backward of the first iteration spends a history from outside. Without retain_graph,
            # the one of the second iteration fails.
            kind = CaptureError if self.peeled else Aliased
            raise kind(
                "a backward inside of a loop goes through a history from outside of it, which the "
                f"first iteration frees{line_of(None, self.body)}",
                op=self.name,
                hint="write backward(retain_graph=True), or compute the loss in the loop",
            )
        self.aliases = self._find_aliases(nested)
        log = self.hooks.flow.aliases.log[self._mark :]
        self.aliases.check(log, line_of(None, self.body), self.name, self.peeled)

    def _find_aliases(self, nested: NestedRecorder) -> LoopAliases:
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

    def record_while(self, step: Step, test: Callable[[], Any]) -> bool:
        """Record it as a `while`; False if the condition writes something."""
        self.settle(step)
        pure = self.record_condition(test)
        if pure:
            self.emit_while(self.entered)
        return pure

    def record_condition(self, test: Callable[[], Any]) -> bool:
        def goes_on() -> Tensor:
            self._entered = self.journal.contents()
            going = test()
            if self.hooks.decides(going):
                return predicate(going)
            return as_held(self.hooks.test(going), HELD_AS["bool"])

        return super().record_condition(goes_on)

    def is_pure(self, nested: NestedRecorder) -> bool:
        silent = nested.token is self.token.entered
        return silent and not self.journal.changed(self._entered) and super().is_pure(nested)

    def finish(self, at_least_once: bool) -> None:
        """Set all places to the results of the loop."""
        known: dict[int, PlaceLeaf] = {}
        tensors = [leaf for _, leaf in self._tensors()]
        for leaf in tensors:
            other = known.setdefault(id(leaf.out), leaf)
            if at_least_once or other.initial is leaf.initial:  # two names for one tensor
                leaf.after = other.after
        ends = [self.here.value_of(leaf.after) for leaf in self._flags()]
        self.aliases.finish([leaf.after for leaf in tensors], ends)
        for place in self.places.values():
            place.finish(at_least_once)
        for entry, count in self._even.values():
            entry.give(self.hooks, "count", count)
        for variable in self.variables:
            if not self._matters(variable):
                variable.put({})
        if self.token.kind is not None:
            self.here.token = self.token.after
        with self.hooks.flow.aliases.checked():
            super().finish(at_least_once)
