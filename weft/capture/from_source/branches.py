"""`if` on a tensor: both sides are recorded, and their results and writes are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.base.errors import CaptureError
from weft.base.pytree import tree_flatten
from weft.capture.from_source.dynamic_list import UnknownLength, make_dynamic
from weft.capture.from_source.journal import Parts, Variable, same_parts
from weft.capture.from_source.may_alias import is_made_in
from weft.capture.from_source.merge import Merge, typed_as
from weft.capture.from_source.merge_entries import EntryMerge, Give
from weft.capture.from_source.reach import Reach
from weft.capture.from_source.run import OF_RECORDING, Unreachable, own_work, uncatchable
from weft.capture.watch.origin import MISSING
from weft.capture.watch.refusals import NotKept, OneSided
from weft.core.bind import decide
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.ir.types import TOKEN
from weft.ops.control import IF
from weft.record.control.nested import NestedRecorder, WrittenState, graph_recorder
from weft.record.control.recorded_branch import RecordedBranch, assign, emit_branches, states_of
from weft.record.effects import last_token
from weft.record.recorder import GraphRecorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

Function = Callable[[], Any]
MOST_LISTS = 16  # maximum lists that one `if` may append to
WORDS = ("where the condition holds", "where the condition does not hold")


class Branch(RecordedBranch):
    """One recorded side: its result, its writes to Python objects, the tensors it changed."""

    def __init__(
        self,
        hooks: Hooks,
        here: GraphRecorder,
        function: Function,
        name: str,
        predicate: Value,
    ) -> None:
        flow = hooks.flow
        super().__init__(flow.nested(here, name))
        self.function = function
        assumed = flow.aliases.paths.assuming(predicate, name == "then")
        with flow.recording(self.nested) as self.journal, assumed:
            try:
                self.value = function()
            except OF_RECORDING:
                raise
            except Unreachable as error:
                self.error, self.value = error, MISSING
            except Exception as error:
                self.fails(hooks, error)
            self.contents = self.journal.contents()
            self.note_states()

    def made(self, parts: Parts) -> bool:
        """Whether parts hold tensors of this side, so that this side must have written them."""
        leaves = tree_flatten(parts)[0]
        return any(isinstance(x, Tensor) and is_made_in(x, self.nested) for x in leaves)

    def fails(self, hooks: Hooks, error: Exception) -> None:
        """This side ends in an error; the graph raises it if this side is taken."""
        if hooks.flow.tries:
            raise uncatchable(error, "on one side of a condition on tensors") from error
        self.error = error
        self.value = MISSING
        hooks.flow.fail(error)

    def left_in(self, state: WrittenState) -> Any:
        """What this side leaves in a tensor from outside."""
        return MISSING if self.error is not None else self.end_of(state)

    def at_end(self, value: Any) -> Any:
        """The value of a tensor at the end of this side, which may have written to it."""
        found = self.states.get((id(value), False)) if isinstance(value, Tensor) else None
        return value if found is None or found[1] is None else found[1]


def record_if(
    hooks: Hooks,
    predicate: Tensor,
    functions: Sequence[Function],
    live: Sequence[str],
    cells: frozenset[int] = frozenset(),
    words: Sequence[str] = WORDS,
    may_ask: bool = False,
) -> Any:
    """Record both sides of an `if`; returns the merged result.

    Of the variables `cells`, only those that are `live` are used afterwards. With `may_ask`, Python
    decides where the sides do not agree: each answer is a path of its own.
    """
    here = graph_recorder()
    assert here is not None
    hooks.flow.asked += 1
    may_ask = may_ask and not isinstance(here, NestedRecorder)
    before = hooks.flow.careful
    made = _If(hooks, here, predicate, live, cells, words)
    for _ in range(MOST_LISTS):
        try:
            hooks.flow.careful = before or may_ask
            return made.record(functions)
        except UnknownLength as found:
            try:
                make_dynamic(hooks, found.items, found.sample)
            except CaptureError:
                made.apart.add(id(found.items))
        except (CaptureError, NotKept) as error:
            asks = may_ask or not isinstance(error, CaptureError) or isinstance(error, OneSided)
            if not asks or isinstance(here, NestedRecorder):
                raise
            # A graph cannot hold that. So the condition is asked: each answer has its own path.
            hooks.flow.careful = before
            return functions[0]() if decide(predicate) else functions[1]()
        finally:
            hooks.flow.careful = before
    raise CaptureError("an `if` appends to too many lists of unknown length", op="if")


@dataclass
class _If:
    """An `if` as one node.

    apart   ids of lists of which no graph can hold both contents
    """

    hooks: Hooks
    here: GraphRecorder
    predicate: Tensor
    live: Sequence[str]
    cells: frozenset[int]
    words: Sequence[str]
    apart: set[int] = field(default_factory=set)

    def record(self, functions: Sequence[Function]) -> Any:
        """Record both sides; returns the merged result."""
        chosen = self.here.value_of(self.predicate)
        branches = [
            Branch(self.hooks, self.here, function, name, chosen)
            for function, name in zip(functions, ("then", "else"), strict=True)
        ]
        with own_work():
            return self._joined(branches, chosen)

    def _joined(self, branches: Sequence[Branch], chosen: Value) -> Any:
        hooks, here = self.hooks, self.here
        _give_back(hooks, branches)
        _spend(hooks, here, branches, chosen)
        ends = [side for side, branch in enumerate(branches) if branch.error is None]
        merge = Merge([branch.function for branch in branches], self.words, "if")
        if ends:
            build = merge.value("the value", [branch.value for branch in branches], ends)
        entries = EntryMerge(hooks, merge, self.live, self.cells, ends, chosen, self.apart)
        gives = _merged_entries(branches, entries)
        names_end = len(merge.merged)  # what comes after merges contents of tensors, not names
        states = states_of(branches, "if", OneSided)
        state_builds = [
            merge.value(state.title(), [branch.left_in(state) for branch in branches], ends)
            for state in states
        ]
        effects = any(branch.nested.token is not None for branch in branches)
        if effects:
            ended = [last_token(branch.nested) for branch in branches]
            token_build = merge.result("", ended, TOKEN)
        results: list[Any] = []
        if merge.merged:
            made = emit_branches(
                here,
                IF,
                self.predicate,
                branches,
                lambda number: [
                    typed_as(branches[number].at_end(one.values[number]), one.kind)
                    for one in merge.merged
                ],
            )
            results = [one.seen(result) for one, result in zip(merge.merged, made, strict=True)]
        aliases = hooks.flow.aliases
        names = merge.merged[:names_end]
        aliases.decided(chosen, [(r, *one.values) for r, one in zip(results, names, strict=False)])
        if effects:
            here.token = token_build(results)
        for give in gives:
            give(results)
        with aliases.checked():
            assign(states, [build_state(results) for build_state in state_builds], branches)
        if not ends:
            raise Unreachable
        return build(results)


def _spend(hooks: Hooks, here: GraphRecorder, branches: Sequence[Branch], chosen: Value) -> None:
    """Note histories from before the `if` that a backward on one or both sides has spent."""
    sides = [branch.nested.spent_outside() for branch in branches]
    if isinstance(here, NestedRecorder):
        here.spent |= sides[0] & sides[1]
    for side, truth in zip(sides, (True, False), strict=True):
        for node in side - (sides[0] & sides[1]):
            hooks.flow.aliases.spent[node] = (chosen, truth)


def _give_back(hooks: Hooks, branches: Sequence[Branch]) -> None:
    """Restore objects that a side made to their contents at the end of that side.

    Nothing from before the `if` refers to them, only results of that side, which are merged.
    """
    reach: Reach | None = None
    for branch in branches:
        for key, (entry, before) in list(branch.journal.entries.items()):
            after = branch.contents.get(key, before)
            if isinstance(entry, Variable):
                if entry.outside is None and branch.made(before):  # of a function it called
                    entry.put(after)
                    del branch.journal.entries[key]
                continue
            if same_parts(before, after):
                continue
            if entry.known(hooks.watch) is None:
                reach = reach or Reach(hooks.watch)
                if not reach.holds(entry.obj):
                    entry.put(after)


def _merged_entries(branches: Sequence[Branch], merge: EntryMerge) -> list[Give]:
    """Functions that write the merged values of everything that a side wrote."""
    entries = {}
    for branch in branches:
        for key, (entry, _) in branch.journal.entries.items():
            entries[key] = entry
    gives: list[Give] = []
    for key, entry in entries.items():
        now = entry.parts()
        sides = [branch.contents.get(key, now) for branch in branches]
        if all(same_parts(side, now) for side in sides):
            continue
        gives += merge.gives(entry, sides, now)
    return gives
