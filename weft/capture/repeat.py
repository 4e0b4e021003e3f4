"""Loops: run by Python where Python knows how often, recorded as one node where tensors decide.

A `for` over a range or over the rows of a tensor is recorded as one node, too, if its body allows
it: if Python does not need the number of the iteration, and what is carried keeps its type. If not,
all that the attempt did is undone, and the loop runs in Python: it is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CellType
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.agree import line_of
from weft.capture.branches import record_if
from weft.capture.carry import Loop
from weft.capture.control_grad import emit, unfollowed
from weft.capture.grown import Regrow, grow
from weft.capture.iteration import Rows, Unrolled, rows_of
from weft.capture.journal import Journal
from weft.capture.loop_state import Aliased, LoopState
from weft.capture.nested import NestedRecorder, close, graph_recorder, stand_in
from weft.capture.recorder import GraphRecorder
from weft.capture.source_flow import standing_for
from weft.capture.tokens import last_token, tokens
from weft.core.bind import recording
from weft.core.number import HELD_AS, Number, as_held
from weft.core.tensor import Tensor
from weft.ir.types import TOKEN
from weft.ops.control import SCAN, WHILE
from weft.ops.elementwise import logical_and

if TYPE_CHECKING:
    from weft.capture.source_hooks import SourceHooks

#: How often a body is recorded before its types count as not settling.
MOST_RECORDINGS = 16
FOR_WORDS = ("where the loop goes on", "where it has ended")
State = Sequence[tuple[str, Any, Any]]

# --- attempts ------------------------------------------------------------------------------------


class Attempt:
    """Something that is done for now: it can be undone as if it had never been."""

    def __init__(self, hooks: SourceHooks, state: State) -> None:
        self.hooks = hooks
        self.state = state
        here = graph_recorder()
        assert here is not None
        self.here = here
        self.mark = len(here.graph.nodes)
        self.token = tokens.get(here)
        self.journal = Journal(hooks.watch)
        self.tensors: dict[int, tuple[Tensor, Any, Any, Any]] = {}
        self._write = here.write

    def __enter__(self) -> Attempt:
        self.hooks.flow.open(self.journal)
        for name, cell, outside in self.state:
            self.hooks.flow.touch_variable(cell, name, outside)
        write = self._write

        def noted(target: Tensor) -> None:
            if id(target) not in self.tensors:
                grad = getattr(target, "_grad", None)
                self.tensors[id(target)] = (target, target._data, target._node, grad)
            write(target)

        self.here.write = noted  # type: ignore[method-assign]
        return self

    def __exit__(self, *_exc: object) -> None:
        self.here.write = self._write  # type: ignore[method-assign]
        self.hooks.flow.close()

    def undo(self) -> None:
        self.journal.undo()
        for tensor, data, node, grad in self.tensors.values():
            tensor._data, tensor._node = data, node
            if getattr(tensor, "_grad", None) is not grad:
                tensor._grad = grad
        here = self.here
        if self.token is None:
            tokens.pop(here, None)
        else:
            tokens[here] = self.token
        if getattr(here, "_start", 0) > self.mark:  # Python has asked something meanwhile
            return
        gone = set(here.graph.nodes[self.mark :])
        del here.graph.nodes[self.mark :]
        here._stopped = {k: v for k, v in here._stopped.items() if v.node not in gone}
        here._sized = {k: v for k, v in here._sized.items() if v not in gone}


# --- while ---------------------------------------------------------------------------------------


def while_(
    hooks: SourceHooks,
    test: Callable[[], Any],
    body: Callable[[], Any],
    state: State,
    head: Sequence[str],
    after: Sequence[str],
) -> None:
    flags = [cell for name, cell, _ in state if name.startswith("__weft_") and name in head]
    entered = False
    while True:
        if graph_recorder() is None:
            going = test()
            if not hooks.test(going):
                return
            body()
            continue
        with Attempt(hooks, state) as attempt:
            going = test()
            pure = _unchanged(attempt.journal, {})
            entered = not hooks.asks(going)
            if entered:
                if not hooks.test(going):
                    return
                body()
                if not any(isinstance(cell.cell_contents, Tensor) for cell in flags):
                    continue
                # Whether the loop goes on is a tensor by now: then all of it belongs in the graph.
        attempt.undo()
        try:
            record_while(hooks, test, body, state, head, after, entered, pure)
        except Aliased:
            # The first iteration by itself: after it, the loop has tensors of its own.
            sides = [hooks._side(body, list(state)), hooks._side(lambda: None, list(state))]
            cells = frozenset(id(cell) for _, cell, _ in state)
            live = tuple({*head, *after})
            record_if(hooks, hooks.predicate(test()), sides, live, cells, FOR_WORDS)
            record_while(hooks, test, body, state, head, after, entered, pure, fresh=True)
        return


def record_while(
    hooks: SourceHooks,
    test: Callable[[], Any],
    body: Callable[[], Any],
    state: State,
    head: Sequence[str],
    after: Sequence[str],
    entered: bool,
    pure: bool,
    fresh: bool = False,
) -> None:
    """`entered`: the body is run once at least. `pure`: the condition writes no variables."""
    if pure:
        recorded = _Recorded(hooks, state, head, after, body, "while")
        recorded.python.fresh = fresh
        recorded.settle(lambda nested: body())
        if recorded.record_condition(test):
            recorded.emit_while(entered)
            return
    # The condition itself writes something: then the body computes it, for the next time.
    go = CellType(False)
    with_go = [*state, ("__weft_go__", go, None)]
    go.cell_contents = _as_flag(hooks, test())

    def step(_nested: NestedRecorder) -> None:
        body()
        go.cell_contents = _as_flag(hooks, test())

    live = ("__weft_go__",)
    rotated = _Recorded(hooks, with_go, [*head, *live], after, body, "while")
    rotated.python.fresh = fresh
    rotated.settle(step)
    if not rotated.record_condition(lambda: go.cell_contents):
        raise CaptureError("the condition of a loop writes to what it reads", op="while")
    rotated.emit_while(entered)


def _as_flag(hooks: SourceHooks, value: Any) -> Any:
    return hooks.predicate(value) if hooks.asks(value) else hooks.test(value)


class _Recorded:
    """A loop whose body is recorded."""

    def __init__(
        self,
        hooks: SourceHooks,
        state: State,
        head: Sequence[str],
        after: Sequence[str],
        body: Callable[..., Any],
        name: str,
    ) -> None:
        here = graph_recorder()
        assert here is not None
        self.hooks = hooks
        self.here: GraphRecorder = here
        self.name = name
        self.body = body
        self.python = LoopState(hooks, here, state, frozenset((*head, *after)), body, name)
        self.tensors = Loop(here, name, (), body)  # of those that are written in place
        self.nested = NestedRecorder(here, "body")
        self.condition = NestedRecorder(here, "condition")
        self.has_effects = False
        self.opaque = ""

    def open(self, nested: NestedRecorder) -> Journal:
        journal = Journal(self.hooks.watch)
        self.hooks.flow.open(journal)
        return journal

    def enter(self, nested: NestedRecorder) -> None:
        self.python.enter(nested)
        if self.has_effects:
            tokens[nested] = nested.input(TOKEN)
        self.tensors.enter(nested)

    def settle(self, step: Callable[[NestedRecorder], None]) -> None:
        """Record the body until it gives what it is given."""
        flow = self.hooks.flow
        for _ in range(MOST_RECORDINGS):
            nested = NestedRecorder(self.here, "body")
            journal = self.open(nested)
            regrow: Regrow | None = None
            try:
                with nested.opened():
                    self.enter(nested)
                    step(nested)
                    steady = self.python.leave(journal, nested)
                    steady &= self.tensors.leave(nested, ())
                    effects = nested in tokens
                    steady &= effects == self.has_effects
                    self.has_effects = effects
                    if steady:
                        self._set_outputs(nested)
            except Regrow as found:
                steady, regrow = False, found
            finally:
                flow.close()
                journal.undo()
            if steady:
                self.nested = nested
                return
            if regrow is not None:
                grow(self.hooks, regrow.items, regrow.sample)
                self.python.again()
        raise CaptureError(
            f"what a loop carries does not settle{line_of(None, self.body)}",
            op=self.name,
            hint="start with tensors of the dtypes that the body gives",
        )

    def _set_outputs(self, nested: NestedRecorder) -> None:
        carried = self.python.outputs()
        if self.has_effects:
            carried.append(tokens[nested])
        self.opaque = unfollowed(carried, nested.start)
        values = [nested.value_of(x) for x in carried]
        nested.graph.outputs = (*values, *self.tensors.outputs(nested))
        self.opaque = self.opaque or self.tensors.opaque

    def record_condition(self, test: Callable[[], Any]) -> bool:
        """Record when to go on; False where that writes something."""
        nested = self.condition = NestedRecorder(self.here, "condition")
        flow = self.hooks.flow
        journal = self.open(nested)
        try:
            with nested.opened():
                self.enter(nested)
                entered = journal.contents()
                token = tokens.get(nested)
                going = test()
                if self.hooks.asks(going):
                    predicate = self.hooks.predicate(going)
                else:
                    predicate = as_held(self.hooks.test(going), HELD_AS["bool"])
                nested.graph.outputs = (nested.value_of(predicate),)
                held = {state.key for state in self.tensors.states}
                pure = tokens.get(nested) is token and _unchanged(journal, entered)
                pure &= all(change.key in held for change in nested.changes())
                pure &= all(_is_input(change) for change in nested.changes())
        finally:
            flow.close()
            journal.undo()
        return pure

    def _operands(self) -> tuple[list[Tensor], frozenset[int], int]:
        recorders = [self.nested] if self.name == "for" else [self.condition, self.nested]
        captured = close(recorders)
        starts = self.python.starts()
        if self.has_effects:
            starts.append(last_token(self.here))
        first = len(captured) + len(starts)
        starts += self.tensors.starts()
        return [*captured, *starts], self.tensors.pinned(first), len(captured)

    def emit_while(self, at_least_once: bool = False) -> None:
        self.name = "while"
        operands, pinned, consts = self._operands()
        graphs = [self.condition.graph, self.nested.graph]
        attrs = {"consts": consts, "counted": False}
        results = emit(self.here, WHILE, operands, graphs, attrs, pinned, self.opaque)
        self.finish(results, at_least_once)

    def emit_scan(self, xs: list[Tensor], length: int) -> None:
        self.name = "for"
        operands, pinned, consts = self._operands()
        carries = len(operands) - consts
        attrs = {"consts": consts, "carries": carries, "length": length, "reverse": False}
        operands += [stand_in(self.here, x) for x in xs]
        graphs = [self.nested.graph]
        results = emit(self.here, SCAN, operands, graphs, attrs, pinned, self.opaque)
        self.finish(results, length > 0)

    def finish(self, results: list[Tensor], at_least_once: bool) -> None:
        count = len(self.python.carried())
        self.python.finish(results[:count], at_least_once)
        if self.has_effects:
            tokens[self.here] = results[count]
            count += 1
        self.tensors.finish(results[count:])


def _unchanged(journal: Journal, entered: dict[int, Any]) -> bool:
    for key, parts in journal.contents().items():
        before = entered.get(key, journal.entries[key][1])
        if list(before) != list(parts) or any(parts[k] is not before[k] for k in parts):
            return False
    return True


def _is_input(change: Any) -> bool:
    held = change.now()
    return held is None or held._data.value.node is None


# --- for -----------------------------------------------------------------------------------------


def for_(
    hooks: SourceHooks,
    iterable: Any,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    state: State,
    head: Sequence[str],
    after: Sequence[str],
) -> None:
    rows = None if graph_recorder() is None else rows_of(hooks, iterable)
    if rows is not None and not rows.is_short:
        if isinstance(rows.count, Tensor):
            _for_as_while(hooks, rows, body, going, state, head, after)
            return
        try:
            with Attempt(hooks, state) as attempt:
                if going is None:
                    _for_as_scan(hooks, rows, body, state, head, after)
                else:
                    _for_as_while(hooks, rows, body, going, state, head, after)
            return
        except Exception as error:
            attempt.undo()
            hooks.flow.unrolled.append((line_of(None, body), error))
    if isinstance(iterable, Unrolled):
        iterable = iterable.iterable
    live = tuple({*head, *after})
    for item in hooks.iter(iterable if rows is None else rows):
        if going is not None:
            still = going()
            if hooks.asks(still):
                _guarded(hooks, still, body, item, state, live)
                continue
            if not still:
                return
        body(item)


def _guarded(
    hooks: SourceHooks,
    still: Any,
    body: Callable[[Any], Any],
    item: Any,
    state: State,
    live: Sequence[str],
) -> None:
    """One more iteration in Python, if the graph has not stopped before."""

    def run() -> None:
        body(item)

    standing_for(run, body)
    sides = [hooks._side(run, list(state)), hooks._side(lambda: None, list(state))]
    cells = frozenset(id(cell) for _, cell, _ in state)
    record_if(hooks, hooks.predicate(still), sides, live, cells, FOR_WORDS)


def _for_as_scan(
    hooks: SourceHooks,
    rows: Rows,
    body: Callable[[Any], Any],
    state: State,
    head: Sequence[str],
    after: Sequence[str],
) -> None:
    recorded = _Recorded(hooks, state, head, after, body, "for")
    recorded.python.length = rows.count
    streams = rows.tensors()

    def step(nested: NestedRecorder) -> None:
        kinds = rows.slice_kinds(streams)
        slices = [
            nested.carried(kind, x._node is not None)
            for kind, x in zip(kinds, streams, strict=True)
        ]
        parts = [s.as_item(x) for s, x in zip(rows.streams, slices, strict=True)]
        body(rows.item(parts))

    recorded.settle(step)
    recorded.emit_scan(streams, rows.count)


def _for_as_while(
    hooks: SourceHooks,
    rows: Rows,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    state: State,
    head: Sequence[str],
    after: Sequence[str],
) -> None:
    counter = CellType(0)
    name = "__weft_step__"
    with_counter = [*state, (name, counter, None)]
    count = rows.count_number()
    recorded = _Recorded(hooks, with_counter, [*head, name], after, body, "while")

    def step(_nested: NestedRecorder) -> None:
        at: Number = counter.cell_contents
        body(rows.at(at))
        counter.cell_contents = at + 1

    def test() -> Any:
        more = counter.cell_contents < count
        still = True if going is None else going()
        if not hooks.asks(still):
            return more if hooks.test(still) else False
        return logical_and(hooks.predicate(more), hooks.predicate(still))

    recorded.settle(step)
    if not recorded.record_condition(test):
        raise CaptureError("the condition of a loop writes something", op="for")
    recorded.emit_while(isinstance(rows.count, int) and rows.count > 0)


__all__ = ["for_", "recording", "while_"]
