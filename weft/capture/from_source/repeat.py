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

from weft.base.dataclass import dataclass
from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError
from weft.capture.from_source.attempt import Attempt, LoopVariables, State
from weft.capture.from_source.branches import record_if
from weft.capture.from_source.conditions import predicate, side
from weft.capture.from_source.iteration import (
    MANY_NUMBERS,
    IteratorRows,
    LoopRows,
    Unrolled,
    rows_of,
)
from weft.capture.from_source.loop_alias import Aliased
from weft.capture.from_source.loop_state import AlwaysFails, DictGrows
from weft.capture.from_source.run import standing_for
from weft.capture.from_source.source_loop import SourceLoop, unchanged
from weft.capture.notes import place_now
from weft.capture.watch.refusals import NotKept
from weft.convert.lower import is_flag
from weft.core.bind import decide
from weft.core.grad_mode import is_grad_enabled
from weft.core.number import MOST_ITERATIONS, Number
from weft.core.tensor import Tensor
from weft.ops.elementwise import logical_and
from weft.record.control.loop_histories import HistoryDiffers
from weft.record.control.nested import NestedRecorder, graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

FOR_WORDS = ("where the loop goes on", "where it has ended")


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
            pure = unchanged(attempt.journal, {})
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
        begins = entered and not peeled
        record_while(hooks, test, body, variables, begins, pure, peeled)

    def whole() -> None:
        _record_or_peel(hooks, record, lambda number: test(), lambda number: body, variables)

    if going.__class__ is not Number or isinstance(graph_recorder(), NestedRecorder):
        whole()
        return
    try:
        with Attempt(hooks, state) as attempt:
            whole()
    except (
        CaptureError,
        NotKept,
    ):  # a number that Python took from a tensor: Python may decide, too
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
    peeled: bool = False,
) -> None:
    """Record a whole loop.

    entered   the body runs at least once
    pure      the condition writes no variables
    peeled    the first iteration was peeled
    """
    if pure:
        recorded = SourceLoop(hooks, variables, body, "while")
        recorded.python.peeled, recorded.entered = peeled, entered
        recorded.settle(lambda nested: body())
        if recorded.record_condition(test):
            recorded.emit_while(entered)
            return
    # The condition writes something: then the body computes it for the next iteration.
    go = CellType(False)
    go.cell_contents = _as_flag(hooks, test())

    def step(_nested: NestedRecorder) -> None:
        body()
        go.cell_contents = _as_flag(hooks, test())

    rotated = SourceLoop(hooks, variables.plus("__weft_go__", go), body, "while")
    rotated.python.peeled, rotated.entered = peeled, entered
    rotated.settle(step)
    if not rotated.record_condition(lambda: go.cell_contents):
        raise CaptureError("the condition of a loop writes to what it reads", op="while")
    rotated.emit_while(entered)


@dataclass(frozen=True)
class _Trouble:
    """Why the first iteration of a loop must be peeled.

    goes_on   whether the loop follows; else the first iteration must end in an error
    why       the error of the attempt
    hint      how to avoid it, if Python must know whether there is a first iteration
    """

    goes_on: bool
    why: str
    hint: str = ""


def _trouble(record: Callable[[], None]) -> _Trouble | None:
    """Try to record a loop; returns why its first iteration must be peeled, or None.

    Does not keep the error: its traceback would keep everything of the attempt alive.
    """
    try:
        record()
    except (Aliased, AlwaysFails, HistoryDiffers) as reason:
        return _Trouble(not isinstance(reason, AlwaysFails), reason.message)
    except DictGrows as reason:
        return _Trouble(True, reason.message, reason.hint or "")
    return None


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
    trouble = _trouble(lambda: record(False))
    if trouble is None:
        return
    first = iteration(0)
    if trouble.hint:
        if _is_entered(hooks, goes_on(0), trouble):
            first()
            record(True)
        return
    if not trouble.goes_on:
        first = _ends_in_an_error(first, trouble)
    # After the first iteration, the loop carries tensors of its own.
    with _once(hooks, goes_on(0), first, variables):
        if trouble.goes_on:
            trouble = _trouble(lambda: record(True))
            if trouble is not None:  # the second iteration always fails
                second = _ends_in_an_error(iteration(1), trouble)
                _once(hooks, goes_on(1), second, variables)


def _ends_in_an_error(body: Callable[[], Any], trouble: _Trouble) -> Callable[[], Any]:
    """The body of a loop that always raises. If it does not, there are more iterations, which
    cannot be recorded."""

    def run() -> None:
        body()
        raise CaptureError(
            f"an iteration after the first cannot be recorded: {trouble.why}",
            op="loop",
            hint="look at what the body does with values of the previous iteration; cut histories "
            "with x.detach(), or compute a loss and its gradient in one iteration",
        )

    return standing_for(run, body)  # type: ignore[no-any-return]


def _is_entered(hooks: Hooks, going: Any, trouble: _Trouble) -> bool:
    """Whether a loop that fills a dict has an iteration; each answer has its own path."""
    if not hooks.decides(going):
        return bool(hooks.test(going))
    if isinstance(graph_recorder(), NestedRecorder):  # where no tensor can be asked
        raise CaptureError(trouble.why, op="loop", hint=trouble.hint)
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


def _as_flag(hooks: Hooks, value: Any) -> Any:
    return predicate(value) if hooks.decides(value) else hooks.test(value)


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
    with hooks.flow.aliases.going_over([] if over is None else over.live_tensors()):
        _for(hooks, iterable, rows, body, going, LoopVariables(state, head, after))


def _for(
    hooks: Hooks,
    iterable: Any,
    rows: LoopRows | None,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    variables: LoopVariables,
) -> None:
    place, why, rounds = place_now(), _why_python(iterable, rows), 0
    if rows is not None and not rows.is_short:
        if isinstance(rows.count, Tensor):
            _record_or_peel(
                hooks,
                lambda peeled: _for_as_while(hooks, rows, body, going, variables, int(peeled)),
                lambda number: rows.count > number,
                lambda number: standing_for(lambda: body(rows.at(number)), body),
                variables,
            )
            _spend(rows, going)
            return
        try:
            short = isinstance(rows.count, int) and rows.count < MANY_NUMBERS
            with Attempt(hooks, variables.state, unrolls=short) as attempt:
                if going is None:
                    _for_as_scan(hooks, rows, body, variables)
                else:
                    _for_as_while(hooks, rows, body, going, variables)
            _spend(rows, going)
            return
        except (Exception, NotKept) as error:
            attempt.undo()
            why = f"it cannot be one node of the graph: {error}"
        if not short and going is None and _peeled(hooks, rows, body, variables):
            _spend(rows, going)
            return
    if isinstance(iterable, Unrolled):
        iterable = iterable.iterable
    for item in hooks.iter(iterable if rows is None else rows):
        if going is not None:
            still = going()
            if hooks.decides(still):
                _once(hooks, still, _one(body, item), variables)
                rounds += 1
                continue
            if not still:
                break
        body(item)
        rounds += 1
    if hooks.records():
        hooks.watch.notes.unroll(place, rounds, why)


def _peeled(
    hooks: Hooks, rows: LoopRows, body: Callable[[Any], Any], variables: LoopVariables
) -> bool:
    """Run the first iteration in Python, and record the others: `total = 0` before a loop that
    adds tensors is a tensor from then on. Whether that can be done."""
    try:
        with Attempt(hooks, variables.state) as attempt:
            body(rows.at(0))
            _for_as_scan(hooks, rows.rest(), body, variables)
    except Exception:
        attempt.undo()
        return False
    return True


def _spend(rows: LoopRows, going: Callable[[], Any] | None) -> None:
    if isinstance(rows, IteratorRows):
        rows.spend(going is None)


def _why_python(iterable: Any, rows: LoopRows | None) -> str:
    """Why Python runs a loop without an attempt to record it; "" if it may be recorded."""
    if isinstance(iterable, Unrolled):
        return "it is unrolled by weft.unroll"
    if rows is not None:
        return "it has less than two iterations" if rows.is_short else ""
    return f"it iterates over a Python {type(iterable).__name__}"


def _one(body: Callable[[Any], Any], item: Any) -> Callable[[], Any]:
    """One iteration."""
    return standing_for(lambda: body(item), body)  # type: ignore[no-any-return]


def _for_as_scan(
    hooks: Hooks,
    rows: LoopRows,
    body: Callable[[Any], Any],
    variables: LoopVariables,
) -> None:
    recorded = SourceLoop(hooks, variables, body, "for")
    recorded.python.length = rows.count
    recorded.entered = True
    recorded.python.rows = rows.live_tensors()
    streams = rows.tensors()
    if not is_grad_enabled():  # rows that Python reads have no history either
        streams = [x.detach() for x in streams]

    def step(nested: NestedRecorder) -> None:
        slices = recorded.slices(nested, streams, rows.slice_kinds(streams))
        parts = [s.as_item(x) for s, x in zip(rows.streams, slices, strict=True)]
        body(rows.item(parts))

    recorded.settle(step)
    written = {id(leaf.state.tensor) for leaf in recorded.states}
    if any(id(getattr(stream, "rows", None)) in written for stream in rows.streams):
        raise CaptureError("a loop iterates over a tensor that its body writes to", op="for")
    recorded.emit_scan(streams, rows.count)


def _for_as_while(
    hooks: Hooks,
    rows: LoopRows,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    variables: LoopVariables,
    first: int = 0,
) -> None:
    counter = CellType(first)
    count = rows.count_number()
    recorded = SourceLoop(hooks, variables.plus("__weft_step__", counter), body, "while")

    def step(_nested: NestedRecorder) -> None:
        at: Number | int = counter.cell_contents
        if isinstance(at, Number):
            at.bound = count if isinstance(count, int) else MOST_ITERATIONS
        body(rows.at(at))
        counter.cell_contents = at + 1

    def test() -> Any:
        more = counter.cell_contents < count
        still = True if going is None else going()
        if not hooks.decides(still):
            return more if hooks.test(still) else False
        return logical_and(predicate(more), predicate(still))

    recorded.python.peeled = first > 0
    recorded.entered = isinstance(rows.count, (int, Dim))  # two rounds at least
    recorded.python.rows = rows.live_tensors()
    recorded.settle(step)
    if not recorded.record_condition(test):
        raise CaptureError("the condition of a loop writes something", op="for")
    recorded.emit_while(recorded.entered)
