"""`if` on a tensor: both sides are recorded, and their results and writes are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.base.pytree import tree_flatten
from weft.capture.from_source.dynamic_list import UnknownLength, make_dynamic
from weft.capture.from_source.held import Maybe
from weft.capture.from_source.journal import Journal, Parts, Variable
from weft.capture.from_source.merge import Build, Merge, typed_as
from weft.capture.from_source.merge_entries import EntryMerge, Give, same_parts
from weft.capture.from_source.reach import Reach
from weft.capture.from_source.run import OF_RECORDING, Unreachable, own_work, uncatchable
from weft.capture.from_source.tokens import last_token, tokens
from weft.capture.watch.origin import MISSING
from weft.capture.watch.refusals import NotKept, OneSided
from weft.core.bind import decide
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.ir.types import TOKEN
from weft.ops.control import IF
from weft.record.control.nested import NestedRecorder, graph_recorder
from weft.record.control.recorded_branch import RecordedBranch, assign, emit_branches, states_of
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
        self.journal = Journal(hooks.watch)
        flow.open(self.journal)
        try:
            with self.nested.opened(), flow.aliases.paths.assuming(predicate, name == "then"):
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
                self.token = tokens.get(self.nested)  # None: it had no effects
        finally:
            flow.close()
            self.journal.undo()

    def made(self, parts: Parts) -> bool:
        """Whether parts hold tensors of this side, so that this side must have written them."""
        for leaf in tree_flatten(parts)[0]:
            if isinstance(leaf, Tensor) and leaf._data.__class__ is SymbolicArray:
                recorder = leaf._data.recorder
                while isinstance(recorder, NestedRecorder):
                    if recorder is self.nested:
                        return True
                    recorder = recorder.parent
        return False

    def fails(self, hooks: Hooks, error: Exception) -> None:
        """This side ends in an error; the graph raises it if this side is taken."""
        if hooks.flow.tries:
            raise uncatchable(error, "on one side of a condition on tensors") from error
        self.error = error
        self.value = MISSING
        hooks.flow.fail(error)

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
    hooks.flow.asked += 1
    split: set[int] = set()  # lists of which no graph can hold both contents
    may_ask = may_ask and not isinstance(graph_recorder(), NestedRecorder)
    before = hooks.flow.careful
    for _ in range(MOST_LISTS):
        try:
            hooks.flow.careful = before or may_ask
            return _record_if(hooks, predicate, functions, live, cells, words, split)
        except UnknownLength as found:
            try:
                make_dynamic(hooks, found.items, found.sample)
            except CaptureError:
                split.add(id(found.items))
        except (CaptureError, NotKept) as error:
            asks = may_ask or not isinstance(error, CaptureError) or isinstance(error, OneSided)
            if not asks or isinstance(graph_recorder(), NestedRecorder):
                raise
            # A graph cannot hold that. So the condition is asked: each answer has its own path.
            hooks.flow.careful = before
            return functions[0]() if decide(predicate) else functions[1]()
        finally:
            hooks.flow.careful = before
    raise CaptureError("an `if` appends to too many lists of unknown length", op="if")


def _record_if(
    hooks: Hooks,
    predicate: Tensor,
    functions: Sequence[Function],
    live: Sequence[str],
    cells: frozenset[int],
    words: Sequence[str],
    split: set[int],
) -> Any:
    here = graph_recorder()
    assert here is not None
    names = ("then", "else")
    chosen = here.value_of(predicate)
    branches = [
        Branch(hooks, here, function, name, chosen)
        for function, name in zip(functions, names, strict=True)
    ]
    with own_work():
        return _joined(hooks, here, branches, predicate, live, cells, words, split)


def _joined(
    hooks: Hooks,
    here: GraphRecorder,
    branches: Sequence[Branch],
    predicate: Tensor,
    live: Sequence[str],
    cells: frozenset[int],
    words: Sequence[str],
    split: set[int],
) -> Any:
    """One node for both sides; returns the merged result."""
    chosen = here.value_of(predicate)
    _give_back(hooks, branches)
    _spend(hooks, here, branches, chosen)
    failed = [branch.error is not None for branch in branches]
    merge = Merge([branch.function for branch in branches], words, "if")
    if all(failed):
        build: Build = lambda results: MISSING  # noqa: E731
    elif any(failed):
        side = failed.index(False)
        build = merge.filled(branches[side].value, side)
    else:
        build = merge.value("the value", branches[0].value, branches[1].value)
    gives = _merged_entries(branches, EntryMerge(hooks, merge, live, cells, failed, chosen, split))
    names_end = len(merge.pairs)  # later pairs merge contents of tensors, not names
    states = states_of(branches, "if", OneSided)
    state_builds = []
    for state in states:
        pair = [_end(b.end_of(state), f) for b, f in zip(branches, failed, strict=True)]
        state_builds.append(merge.value(state.title(), pair[0], pair[1]))
    effects = any(branch.token is not None for branch in branches)
    if effects:
        ended = [last_token(here) if b.token is None else b.token for b in branches]
        token_build = merge.result(ended[0], ended[1], TOKEN)
    results: list[Tensor] = []
    if merge.pairs:
        results = emit_branches(
            here,
            IF,
            predicate,
            branches,
            lambda number: [
                typed_as(branches[number].at_end(pair.values[number]), pair.kind)
                for pair in merge.pairs
            ],
        )
    aliases = hooks.flow.aliases
    pairs = merge.pairs[:names_end]
    aliases.decided(chosen, [(r, *p.values) for r, p in zip(results, pairs, strict=False)])
    if effects:
        tokens[here] = token_build(results)
    for give in gives:
        give(results)
    values = [build_state(results) for build_state in state_builds]
    known = [v.value if isinstance(v, Maybe) else v for v in values]
    with aliases.checked():
        assign(states, known, branches)
    if all(failed):
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


def _end(value: Any, failed: bool) -> Any:
    return MISSING if failed else value


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
