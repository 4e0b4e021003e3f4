"""A loop as a node: its body recorded until it settles, its condition, and what it carries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.control.agree import line_of
from weft.capture.control.borders import BorderError
from weft.capture.control.carry import Loop
from weft.capture.control.nested import (
    NestedRecorder,
    close,
    graph_recorder,
    stand_in,
)
from weft.capture.control.node import emit, unfollowed
from weft.capture.from_source.attempt import State
from weft.capture.from_source.conditions import predicate
from weft.capture.from_source.dynamic_list import UnknownLength, make_dynamic
from weft.capture.from_source.journal import Journal
from weft.capture.from_source.loop_alias import Aliased, LoopAliases
from weft.capture.from_source.loop_histories import Again, reached_by
from weft.capture.from_source.loop_state import AlwaysFails, LoopState
from weft.capture.from_source.run import OF_RECORDING, Unreachable, uncatchable
from weft.capture.from_source.tokens import last_token, tokens
from weft.capture.recorder import GraphRecorder
from weft.capture.watch.values import same_keys
from weft.core.number import HELD_AS, as_held
from weft.core.tensor import Tensor
from weft.ir.types import TOKEN
from weft.ops.control import SCAN, WHILE

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: How often a body is recorded before its types count as not settling.
MOST_RECORDINGS = 16


class RecordedLoop:
    """A loop whose body is recorded."""

    def __init__(
        self,
        hooks: Hooks,
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
        self.python = LoopState(hooks, here, state, frozenset(head), frozenset(after), body, name)
        self.tensors = Loop(here, name, (), body)  # of those that are written in place
        self.nested: NestedRecorder = hooks.flow.nested(here, "body")
        self.condition: NestedRecorder = self.nested
        self.entered = False  # is the body run once at least, on the values from before?
        self.aliases: LoopAliases
        self.has_effects = False
        self.opaque = ""
        self.failure = ""  # what the body raised when it was last recorded

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
        mark = len(flow.aliases.log)
        for _ in range(MOST_RECORDINGS):
            del flow.aliases.log[mark:]
            nested = flow.nested(self.here, "body")
            journal = self.open(nested)
            flow.loops.append(self.python)
            unknown: UnknownLength | None = None
            try:
                with nested.opened(), contextlib.ExitStack() as going:
                    self.enter(nested)
                    for flag in self.python.flags_inside(nested):
                        going.enter_context(flow.aliases.paths.assuming(flag, False))
                    failed = self._fails(step, nested)
                    steady = self._left(journal, nested, failed)
                    steady &= self.tensors.leave(nested, ())
                    if not failed:
                        self.python.histories.check(self.tensors, nested)
                    effects = nested in tokens
                    steady &= effects == self.has_effects
                    self.has_effects = effects
                    if steady and failed:
                        raise self._always_fails()
                    if steady:
                        self._check_spent(nested)
                        self._check_writes(nested, flow.aliases.log[mark:])
                        self._set_outputs(nested)
            except Unreachable:
                raise self._always_fails() from None
            except UnknownLength as found:
                steady, unknown = False, found
            except Again:
                steady = False
            finally:
                flow.loops.pop()
                flow.close()
                journal.undo()
            if steady:
                self.nested = nested
                return
            if unknown is not None:
                make_dynamic(self.hooks, unknown.items, unknown.sample)
                self.python.again()
        raise CaptureError(
            f"what a loop carries does not settle{line_of(None, self.body)}",
            op=self.name,
            hint="start with tensors of the dtypes that the body gives",
        )

    def _fails(self, step: Callable[[NestedRecorder], None], nested: NestedRecorder) -> bool:
        """Run the body; whether it ends in an error.

        It does so on the values from before the loop, perhaps: on carried ones the graph may find
        out. And where the loop ends at once, nothing is raised.
        """
        try:
            step(nested)
        except BorderError as error:
            if self.python.histories.reached(error.border):
                raise Again from None
            raise
        except OF_RECORDING:
            raise
        except Exception as error:
            if self.python.histories.reached():
                raise Again from None
            border = reached_by(self.hooks.flow.loops[:-1])
            if border is not None:
                raise BorderError(border) from error
            if self.entered:
                raise
            if self.hooks.flow.tries:
                raise uncatchable(error, "in a loop that tensors decide about") from error
            self.failure = f": {type(error).__name__}: {getattr(error, 'message', error)}"
            return True
        return False

    def _left(self, journal: Journal, nested: NestedRecorder, failed: bool) -> bool:
        """Whether Python's state after the body is as assumed."""
        try:
            return self.python.leave(journal, nested)
        except CaptureError:
            if failed:  # it has stopped half-way
                raise self._always_fails() from None
            raise

    def _always_fails(self) -> AlwaysFails:
        return AlwaysFails(
            f"the body of a loop always ends in an error{line_of(None, self.body)}{self.failure}",
            op=self.name,
            hint="raise on some condition",
        )

    def _check_spent(self, nested: NestedRecorder) -> None:
        """A history from outside that the body goes back through is spent in the first iteration:
        without retain_graph, the second one fails."""
        if nested.spent_outside():
            kind = CaptureError if self.python.peeled else Aliased
            raise kind(
                "a backward inside of a loop goes through a history from outside of it, which the "
                f"first iteration frees{line_of(None, self.body)}",
                op=self.name,
                hint="say backward(retain_graph=True), or compute the loss in the loop",
            )

    def _check_writes(self, nested: NestedRecorder, log: Sequence[tuple[Tensor, Any]]) -> None:
        self.aliases = self.python.aliases(nested)
        self.aliases.check(log, line_of(None, self.body), self.name, self.python.peeled)

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
        flow = self.hooks.flow
        nested = self.condition = flow.nested(self.here, "condition")
        journal = self.open(nested)
        try:
            with nested.opened():
                self.enter(nested)
                entered = journal.contents()
                token = tokens.get(nested)
                going = test()
                if self.hooks.asks(going):
                    goes_on = predicate(going)
                else:
                    goes_on = as_held(self.hooks.test(going), HELD_AS["bool"])
                nested.graph.outputs = (nested.value_of(goes_on),)
                held = {state.key for state in self.tensors.states}
                pure = tokens.get(nested) is token and unchanged(journal, entered)
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
        self.python.finish(results[:count], at_least_once, self.aliases)
        if self.has_effects:
            tokens[self.here] = results[count]
            count += 1
        with self.hooks.flow.aliases.checked():
            self.tensors.finish(results[count:])


def unchanged(journal: Journal, entered: dict[int, Any]) -> bool:
    for key, parts in journal.contents().items():
        before = entered.get(key, journal.entries[key][1])
        if not same_keys(tuple(before), tuple(parts)):
            return False
        if any(parts[k] is not before[k] for k in parts):
            return False
    return True


def _is_input(change: Any) -> bool:
    held = change.now()
    return held is None or held._data.value.node is None
