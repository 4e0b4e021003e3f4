"""Loops: recorded as one node if tensors decide the number of iterations, else run by Python.

A `for` over a range or the rows of a tensor is also recorded as one node, if Python does not need
the number of the iteration and carried values keep their types. Otherwise the attempt is undone and
the loop is unrolled: it runs in Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import CellType
from typing import TYPE_CHECKING, Any

from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.capture.from_source.attempt import Attempt, LoopVariables, State
from weft.capture.from_source.branches import record_if
from weft.capture.from_source.carried_place import AlwaysFails, DictGrows
from weft.capture.from_source.conditions import predicate, side
from weft.capture.from_source.iteration import (
    MANY_NUMBERS,
    IteratorRows,
    Unrolled,
    rows_of,
)
from weft.capture.from_source.loop_alias import Aliased
from weft.capture.from_source.run import standing_for
from weft.capture.from_source.source_loop import SourceLoop
from weft.capture.notes import place_now
from weft.capture.watch.refusals import NotKept
from weft.convert.lower import is_flag
from weft.core.bind import decide
from weft.core.grad_mode import is_grad_enabled
from weft.core.number import MOST_ITERATIONS, Number
from weft.core.tensor import Tensor
from weft.ops.elementwise import logical_and
from weft.record.control.loop_histories import HistoryDiffers
from weft.record.control.loop_rows import LoopRows
from weft.record.control.nested import NestedRecorder, graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

FOR_WORDS = ("where the loop goes on", "where it has ended")
#: Errors of a loop that can be recorded once its first iteration is peeled.
PEELED = (Aliased, AlwaysFails, HistoryDiffers, DictGrows)


# --- while ---------------------------------------------------------------------------------------


def while_(
    hooks: Hooks,
    test: Callable[[], Any],
    body: Callable[[], Any],
    state: State,
    head: Sequence[str],
    after: Sequence[str],
) -> None:
    variables = LoopVariables(state, head, after)
    flags = [cell for name, cell, _ in state if is_flag(name) and name in head]
    place, rounds = place_now(), 0
    entered = False
    while True:
        if not hooks.records():
            going = test()
            if not hooks.test(going):
                return
            body()
            continue
        with Attempt(hooks, state) as attempt:
            going = test()
            pure = not attempt.journal.changed()
            entered = not hooks.decides(going)
            if entered:
                if not hooks.test(going):
                    hooks.watch.notes.unroll(place, rounds, "its condition is a Python value")
                    return
                body()
                rounds += 1
                if not any(isinstance(cell.cell_contents, Tensor) for cell in flags):
                    continue
                # The condition has become a tensor: then all of the loop belongs in the graph.
        attempt.undo()
        break

    def record(peeled: bool) -> None:
        record_while(hooks, test, body, variables, entered and not peeled, pure, peeled)

    def whole() -> None:
        _record_or_peel(hooks, record, lambda number: test(), lambda number: body, variables)

    if going.__class__ is not Number or isinstance(graph_recorder(), NestedRecorder):
        whole()
        return
    try:
        with Attempt(hooks, state) as attempt:
            whole()
    except (CaptureError, NotKept):  # Python took the number from a tensor, and may decide, too
        attempt.undo()
        while hooks.test(test()):
            body()


def record_while(
    hooks: Hooks,
    test: Callable[[], Any],
    body: Callable[[], Any],
    variables: LoopVariables,
    entered: bool,
    pure: bool,
    peeled: bool,
) -> None:
    """Record a whole loop.

    entered   the body runs at least once
    pure      the condition writes no variables
    peeled    the first iteration was peeled
    """

    def recorded(variables: LoopVariables, step: Callable[[Any], None], test: Any) -> bool:
        loop = SourceLoop(hooks, variables, body, "while", entered=entered, peeled=peeled)
        return loop.record_while(step, test)

    if pure and recorded(variables, lambda nested: body(), test):
        return
    # The condition writes something: then the body computes it for the next iteration.
    go = CellType(_as_flag(hooks, test()))

    def step(_nested: NestedRecorder) -> None:
        body()
        go.cell_contents = _as_flag(hooks, test())

    if not recorded(variables.plus("__weft_go__", go), step, lambda: go.cell_contents):
        raise CaptureError("the condition of a loop writes to what it reads", op="while")


def _as_flag(hooks: Hooks, value: Any) -> Any:
    return predicate(value) if hooks.decides(value) else hooks.test(value)


# --- peeled iterations ---------------------------------------------------------------------------


def _record_or_peel(
    hooks: Hooks,
    record: Callable[[bool], None],
    goes_on: Callable[[int], Any],
    iteration: Callable[[int], Callable[[], Any]],
    variables: LoopVariables,
) -> None:
    """Record a loop; if need be with its first iteration peeled.

    record      records the loop; with True, without its first iteration
    goes_on     whether there is an iteration i
    iteration   the function that runs iteration i
    """
    trouble = _trouble(record, False)
    if trouble is None:
        return
    if isinstance(trouble, DictGrows):
        if _is_entered(hooks, goes_on(0), trouble):
            iteration(0)()
            record(True)
        return
    if isinstance(trouble, AlwaysFails):
        with _once(hooks, goes_on(0), _ends_in_an_error(iteration(0), trouble), variables):
            return
    # After the first iteration, the loop carries tensors of its own.
    with _once(hooks, goes_on(0), iteration(0), variables):
        trouble = _trouble(record, True)
        if trouble is not None:  # the second iteration always fails
            _once(hooks, goes_on(1), _ends_in_an_error(iteration(1), trouble), variables)


def _trouble(record: Callable[[bool], None], peeled: bool) -> CaptureError | None:
    """Try to record a loop; returns why its first iteration must be peeled, or None."""
    try:
        record(peeled)
    except PEELED as error:
        # Its traceback would keep everything of the attempt alive.
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)
    return None


def _ends_in_an_error(body: Callable[[], Any], trouble: CaptureError) -> Callable[[], Any]:
    """The body of a loop that always raises. If it does not, there are more iterations, which
    cannot be recorded."""

    def run() -> None:
        body()
        raise CaptureError(
            f"an iteration after the first cannot be recorded: {trouble.message}",
            op="loop",
            hint="look at what the body does with values of the previous iteration; cut histories "
            "with x.detach(), or compute a loss and its gradient in one iteration",
        )

    return standing_for(run, body)  # type: ignore[no-any-return]


def _is_entered(hooks: Hooks, going: Any, trouble: CaptureError) -> bool:
    """Whether a loop that fills a dict has an iteration; each answer has its own path."""
    if not hooks.decides(going):
        return bool(hooks.test(going))
    if isinstance(graph_recorder(), NestedRecorder):  # where no tensor can be asked
        raise CaptureError(trouble.message, op="loop", hint=trouble.hint)
    return decide(predicate(going))


def _once(
    hooks: Hooks, going: Any, body: Callable[[], Any], variables: LoopVariables
) -> contextlib.AbstractContextManager[None]:
    """if going: body(). In the context that it returns, it is a fact that the body was run."""
    if not hooks.decides(going):
        if hooks.test(going):
            body()
        return contextlib.nullcontext()
    state = list(variables.state)
    sides = [side(hooks, body, state), side(hooks, lambda: None, state)]
    cells = frozenset(id(cell) for _, cell, _ in state)
    entered = predicate(going)
    record_if(hooks, entered, sides, tuple({*variables.live}), cells, FOR_WORDS)
    here = graph_recorder()
    assert here is not None
    return hooks.flow.aliases.paths.assuming(here.value_of(entered), True)


# --- for -----------------------------------------------------------------------------------------


def for_(
    hooks: Hooks,
    iterable: Any,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    state: State,
    head: Sequence[str],
    after: Sequence[str],
) -> None:
    if isinstance(iterable, IteratorRows) and iterable.depth < hooks.flow.depth:
        raise CaptureError(
            "an iterator from outside is advanced inside of a branch or loop of the graph, which "
            "is recorded once and run any number of times",
            hint="make it in there, or unroll the loop: weft.unroll(range(n))",
        )
    rows = rows_of(hooks, iterable) if hooks.records() else None
    over = rows if not isinstance(iterable, Unrolled) else rows_of(hooks, iterable.iterable)
    variables = LoopVariables(state, head, after)
    with hooks.flow.aliases.going_over([] if over is None else over.live_tensors()):
        why = _why_python(iterable, rows)
        place = place_now()
        if not why and rows is not None:
            why = _ForLoop(hooks, rows, body, going, variables).record()
            if not why:
                if isinstance(rows, IteratorRows):
                    rows.spend(going is None)
                return
        if isinstance(iterable, Unrolled):
            iterable = iterable.iterable
        items = hooks.iter(iterable if rows is None else rows)
        rounds = _run(hooks, items, body, going, variables)
        if hooks.records():
            hooks.watch.notes.unroll(place, rounds, why)


def _run(
    hooks: Hooks,
    items: Any,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    variables: LoopVariables,
) -> int:
    """Run a loop in Python; returns the number of iterations."""
    rounds = 0
    for item in items:
        still = True if going is None else going()
        if hooks.decides(still):
            _once(hooks, still, _iteration(body, item), variables)
        elif still:
            body(item)
        else:
            break
        rounds += 1
    return rounds


def _why_python(iterable: Any, rows: LoopRows | None) -> str:
    """Why Python runs a loop without an attempt to record it; "" if it may be recorded."""
    if isinstance(iterable, Unrolled):
        return "it is unrolled by weft.unroll"
    if rows is not None:
        return "it has less than two iterations" if rows.is_short else ""
    return f"it iterates over a Python {type(iterable).__name__}"


def _iteration(body: Callable[[Any], Any], item: Any) -> Callable[[], Any]:
    return standing_for(lambda: body(item), body)  # type: ignore[no-any-return]


class _ForLoop:
    """A `for` over rows, as one node. `going` is the condition of a loop with jumps out of it."""

    def __init__(
        self,
        hooks: Hooks,
        rows: LoopRows,
        body: Callable[[Any], Any],
        going: Callable[[], Any] | None,
        variables: LoopVariables,
    ) -> None:
        self.hooks = hooks
        self.rows = rows
        self.body = body
        self.going = going
        self.variables = variables

    def record(self) -> str:
        """Record it; returns why it must be unrolled, or ""."""
        rows = self.rows
        if isinstance(rows.count, Tensor):
            _record_or_peel(
                self.hooks,
                self.as_while,
                lambda number: rows.count > number,
                lambda number: standing_for(lambda: self.body(rows.at(number)), self.body),
                self.variables,
            )
            return ""
        short = isinstance(rows.count, int) and rows.count < MANY_NUMBERS
        why = self._attempted(self.as_scan if self.going is None else self.as_while, short)
        if why and not short and self.going is None and not self._attempted(self.peeled_scan):
            return ""
        return why

    def _attempted(self, record: Callable[[], None], unrolls: bool = False) -> str:
        """Record it, or undo all of it; returns why, or ""."""
        try:
            with Attempt(self.hooks, self.variables.state, unrolls) as attempt:
                record()
        except (Exception, NotKept) as error:
            attempt.undo()
            return f"it cannot be one node of the graph: {error}"
        return ""

    def peeled_scan(self) -> None:
        """Run the first iteration in Python, and record the others: `total = 0` before a loop that
        adds tensors is a tensor from then on."""
        self.body(self.rows.at(0))
        self.rows = self.rows.rest()
        self.as_scan()

    def as_scan(self) -> None:
        rows = self.rows
        loop = self._loop("for", self.variables)
        loop.length = rows.count
        streams = rows.tensors()
        if not is_grad_enabled():  # rows that Python reads have no history either
            streams = [x.detach() for x in streams]

        def step(nested: NestedRecorder) -> None:
            slices = loop.slices(nested, streams, rows.slice_kinds(streams))
            parts = [s.as_item(x) for s, x in zip(rows.streams, slices, strict=True)]
            self.body(rows.item(parts))

        loop.settle(step)
        written = {id(leaf.state.tensor) for leaf in loop.states}
        if any(id(getattr(stream, "rows", None)) in written for stream in rows.streams):
            raise CaptureError("a loop iterates over a tensor that its body writes to", op="for")
        loop.emit_scan(streams, rows.count)

    def as_while(self, peeled: bool = False) -> None:
        hooks, count = self.hooks, self.rows.count_number()
        counter = CellType(int(peeled))
        loop = self._loop("while", self.variables.plus("__weft_step__", counter), peeled)

        def step(_nested: NestedRecorder) -> None:
            at: Number | int = counter.cell_contents
            if isinstance(at, Number):
                at.bound = count if isinstance(count, int) else MOST_ITERATIONS
            self.body(self.rows.at(at))
            counter.cell_contents = at + 1

        def test() -> Any:
            more = counter.cell_contents < count
            still = True if self.going is None else self.going()
            if not hooks.decides(still):
                return more if hooks.test(still) else False
            return logical_and(predicate(more), predicate(still))

        if not loop.record_while(step, test):
            raise CaptureError("the condition of a loop writes something", op="for")

    def _loop(self, name: str, variables: LoopVariables, peeled: bool = False) -> SourceLoop:
        entered = isinstance(self.rows.count, (int, Dim))  # two rounds at least
        over = self.rows.live_tensors()
        return SourceLoop(
            self.hooks, variables, self.body, name, entered=entered, peeled=peeled, rows=over
        )
