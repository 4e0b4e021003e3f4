"""`if` on a tensor: both sides are recorded, and what they leave behind is merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError
from weft.capture.control.nested import NestedRecorder, State, assign_states, close, graph_recorder
from weft.capture.control.node import emit, unfollowed
from weft.capture.from_source.grown import Mark, Regrow, grow
from weft.capture.from_source.journal import Journal, Parts
from weft.capture.from_source.loop_state import sample_of
from weft.capture.from_source.merge import Build, Maybe, Merge, typed_as
from weft.capture.from_source.run import OneSided, Unreachable, is_own
from weft.capture.from_source.tokens import last_token, tokens
from weft.capture.recorder import GraphRecorder
from weft.capture.watch.origin import MISSING
from weft.core.bind import decide, recording
from weft.core.number import Number
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor
from weft.ir.types import TOKEN
from weft.ops.control import IF

if TYPE_CHECKING:
    from weft.capture.from_source.hooks import SourceHooks

Function = Callable[[], Any]
MOST_LISTS = 16  # that one `if` may append to
WORDS = ("where the condition holds", "where the condition does not hold")


class Branch:
    """One recorded side: what it returned, what it wrote, and the tensors it changed."""

    def __init__(
        self, hooks: SourceHooks, here: GraphRecorder, function: Function, name: str
    ) -> None:
        self.function = function
        self.nested = hooks.flow.nested(here, name)
        self.states: dict[tuple[int, bool], tuple[State, Tensor | None, bool]] = {}
        self.error: BaseException | None = None
        flow = hooks.flow
        self.journal = Journal(hooks.watch)
        flow.open(self.journal)
        try:
            with self.nested.opened():
                try:
                    self.value = function()
                except CaptureError:
                    raise
                except Unreachable as error:
                    self.error, self.value = error, MISSING
                except Exception as error:
                    self.fails(hooks, error)
                self.contents = self.journal.contents()
                for state in self.nested.changes():
                    held = state.now()
                    end = None if held is None else tensor_of(held._data, held._node)
                    self.states[state.key] = (state, end, self.nested.kept_node(state))
                self.token = tokens.get(self.nested)  # None: it had no effects
        finally:
            flow.close()
            self.journal.undo()

    def fails(self, hooks: SourceHooks, error: Exception) -> None:
        """This side ends in an error: then the graph raises it where it is taken."""
        if is_own(error):
            raise error
        if hooks.flow.tries:
            raise CaptureError(
                f"a {type(error).__name__} is raised on one side of a condition on tensors, inside "
                "of `try`, which cannot catch it in a graph",
                hint="raise outside of try, or decide by a Python value",
            ) from error
        self.error = error
        self.value = MISSING
        hooks.flow.fail(error)

    def is_old(self, value: Any) -> bool:
        """Whether a tensor was there before this side."""
        if not isinstance(value, Tensor) or isinstance(value, Number):
            return False
        data = value._data
        inside = data.__class__ is SymbolicArray and data.recorder is self.nested
        return not inside or (id(value), False) in self.states

    def at_end(self, value: Any) -> Any:
        """What a tensor held at the end of this side, which may have written to it."""
        found = self.states.get((id(value), False)) if isinstance(value, Tensor) else None
        return value if found is None or found[1] is None else found[1]

    def end_of(self, state: State) -> Tensor | None:
        found = self.states.get(state.key)
        return state.now() if found is None else found[1]


def record_if(
    hooks: SourceHooks,
    predicate: Tensor,
    functions: Sequence[Function],
    live: Sequence[str],
    cells: frozenset[int] = frozenset(),
    words: Sequence[str] = WORDS,
) -> Any:
    """Record both sides of an `if`; gives what their values merge to.

    Of the variables `cells`, only those that are `live` are used afterwards.
    """
    for _ in range(MOST_LISTS):
        try:
            return _record_if(hooks, predicate, functions, live, cells, words)
        except Regrow as found:
            grow(hooks, found.items, found.sample)
        except OneSided:
            if isinstance(graph_recorder(), NestedRecorder):
                raise
            # A graph cannot hold that. So the condition is asked: each side is a path of its own.
            return functions[0]() if decide(predicate) else functions[1]()
    raise CaptureError("the lengths of lists do not settle", op="if")


def _record_if(
    hooks: SourceHooks,
    predicate: Tensor,
    functions: Sequence[Function],
    live: Sequence[str],
    cells: frozenset[int],
    words: Sequence[str],
) -> Any:
    here = graph_recorder()
    assert here is not None
    names = ("then", "else")
    branches = [Branch(hooks, here, f, name) for f, name in zip(functions, names, strict=True)]
    failed = [branch.error is not None for branch in branches]
    merge = Merge(functions, words, "if")
    if all(failed):
        build: Build = lambda results: MISSING  # noqa: E731
    elif any(failed):
        ends = [MISSING if f else b.value for b, f in zip(branches, failed, strict=True)]
        build = merge.filled(ends) if any(e is not MISSING for e in ends) else lambda r: MISSING
    else:
        build = merge.value("the value", branches[0].value, branches[1].value)
    gives = _merged_entries(hooks, branches, merge, live, cells)
    names_end = len(merge.pairs)  # what follows is only what tensors hold, not which they are
    states = _states(branches)
    state_builds = []
    for state in states:
        pair = [_end(b.end_of(state), f) for b, f in zip(branches, failed, strict=True)]
        state_builds.append(merge.value(state.title(), pair[0], pair[1]))
    effects = any(branch.token is not None for branch in branches)
    if effects:
        ended = [last_token(here) if b.token is None else b.token for b in branches]
        token_build = merge.result(ended[0], ended[1], TOKEN)
    opaque = ""
    for number, branch in enumerate(branches):
        with recording(branch.nested):
            ends = [branch.at_end(pair.values[number]) for pair in merge.pairs]
            given = [typed_as(x, pair.kind) for x, pair in zip(ends, merge.pairs, strict=True)]
        branch.nested.graph.outputs = tuple([branch.nested.value_of(x) for x in given])
        opaque = opaque or unfollowed(given, branch.nested.start)
    results: list[Tensor] = []
    if merge.pairs:
        captured = close([branch.nested for branch in branches])
        graphs = [branch.nested.graph for branch in branches]
        results = emit(here, IF, [predicate, *captured], graphs, {}, opaque=opaque)
    hooks.flow.mixed.add(
        [
            (result, [v if b.is_old(v) else None for v, b in zip(p.values, branches, strict=True)])
            for result, p in zip(results, merge.pairs[:names_end], strict=False)
        ]
    )
    if effects:
        tokens[here] = token_build(results)
    for give in gives:
        give(results)
    keeps = [_keeps_node(state, branches) for state in states]
    values = [build_state(results) for build_state in state_builds]
    known = [v.value if isinstance(v, Maybe) else v for v in values]
    assign_states(states, known, keeps)
    if all(failed):
        raise Unreachable
    return build(results)


def _end(value: Any, failed: bool) -> Any:
    return MISSING if failed else value


def _merged_entries(
    hooks: SourceHooks,
    branches: Sequence[Branch],
    merge: Merge,
    live: Sequence[str],
    cells: frozenset[int],
) -> list[Callable[[list[Tensor]], None]]:
    """How everything that a side wrote gets its merged value."""
    entries = {}
    for branch in branches:
        for key, (entry, _) in branch.journal.entries.items():
            entries[key] = entry
    gives: list[Callable[[list[Tensor]], None]] = []
    for key, entry in entries.items():
        now = entry.parts()
        sides = [branch.contents.get(key, now) for branch in branches]
        if all(same_parts(side, now) for side in sides):
            continue
        gone = [branch.error is not None for branch in branches]
        gives += _merge_entry(hooks, entry, sides, now, merge, live, gone, cells)
    return gives


def same_parts(a: Parts, b: Parts) -> bool:
    return len(a) == len(b) and all(
        x == y and a[x] is b[y] if type(x) is type(y) else False for x, y in zip(a, b, strict=True)
    )


def _merge_entry(
    hooks: SourceHooks,
    entry: Any,
    sides: list[Parts],
    now: Parts,
    merge: Merge,
    live: Sequence[str],
    gone: Sequence[bool],
    cells: frozenset[int],
) -> list[Callable[[list[Tensor]], None]]:
    variable = id(entry.obj) in cells
    if variable and entry.outside is None and entry.name not in live:
        return [lambda results: entry.put({})]
    taken = [side for side, none in zip(sides, gone, strict=True) if not none]
    is_list = entry.obj.__class__ is list and entry.known(hooks.watch) is None
    if is_list and len(taken) == 2 and _lengths_differ(*taken):
        raise Regrow(entry.obj, sample_of(*taken))
    if entry.whole and len(taken) == 2 and list(taken[0]) != list(taken[1]):
        hooks.flow.unmergeable(
            entry,
            f"{_what(entry)} holds {_size(taken[0])} {merge.words[0]}, "
            f"and {_size(taken[1])} {merge.words[1]}",
        )
        return []
    gives = []
    for key in dict.fromkeys([*(taken[0] if taken else ()), *(taken[-1] if taken else ())]):
        pair = [
            MISSING if none else side.get(key, MISSING)
            for side, none in zip(sides, gone, strict=True)
        ]
        if pair[0] is pair[1] is now.get(key, MISSING):
            continue
        if any(gone):
            value = pair[gone.index(False)]
            build = merge.filled([MISSING if n else value for n in gone])
        elif not variable and MISSING in pair:
            why = merge.words[pair.index(MISSING)]
            if entry.known(hooks.watch) is not None:
                raise OneSided(f"{entry.title(key)} is not there {why}")
            build = _constant(Maybe(MISSING, why))
        else:
            try:
                build = merge.value(entry.title(key), *pair)
            except CaptureError as error:
                if entry.known(hooks.watch) is not None:
                    raise OneSided(error.message, op=error.op, hint=error.hint) from None
                if variable:
                    raise
                hooks.flow.unmergeable(entry, error.message)
                return []
        if any(v is now.get(key, MISSING) for v in pair) and key in now:
            entry.note(hooks, key)
        gives.append(_giver(hooks, entry, key, build))
    return gives


def _lengths_differ(a: Parts, b: Parts) -> bool:
    marks = [any(v.__class__ is Mark for v in side.values()) for side in (a, b)]
    if all(marks):
        return a[0] is not b[0]
    return any(marks) or len(a) != len(b)


def _constant(value: Any) -> Build:
    return lambda results: value


def _giver(
    hooks: SourceHooks, entry: Any, key: Any, build: Build
) -> Callable[[list[Tensor]], None]:
    return lambda results: entry.give(hooks, key, build(results))


def _what(entry: Any) -> str:
    return f"a {type(entry.obj).__name__}"


def _size(parts: Parts) -> str:
    return f"{len(parts)} item{'s' if len(parts) != 1 else ''}"


def _states(branches: Sequence[Branch]) -> list[State]:
    """What any side writes to. A gradient must be there, or be None, after both of them."""
    found: list[State] = []
    for state, *_ in {k: v for b in branches for k, v in b.states.items()}.values():
        ends = [branch.end_of(state) for branch in branches if branch.error is None]
        missing = [end is None for end in ends]
        if all(missing):
            if ends and state.now() is not None:  # both take it away
                state.tensor.grad = None
            continue
        if any(missing):
            raise OneSided(
                f"{state.title()} is there after one side and None after the other",
                op="if",
                hint="set the gradient before, x.grad = weft.zeros_like(x), or on both sides",
            )
        found.append(state)
    return found


def _keeps_node(state: State, branches: Sequence[Branch]) -> bool:
    known = [branch.states[state.key] for branch in branches if state.key in branch.states]
    return all(keeps for _, _, keeps in known)
