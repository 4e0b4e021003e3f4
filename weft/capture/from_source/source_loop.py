"""A loop of captured code as a node: its places are variables, attributes and items."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.base.source import user_location
from weft.capture.from_source.attempt import LoopVariables
from weft.capture.from_source.conditions import predicate
from weft.capture.from_source.dynamic_list import UnknownLength, make_dynamic
from weft.capture.from_source.journal import Journal
from weft.capture.from_source.loop_alias import Aliased, LoopAliases
from weft.capture.from_source.loop_state import AlwaysFails, LoopState
from weft.capture.from_source.run import OF_RECORDING, Unreachable, uncatchable
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
        self.python = LoopState(self, variables)
        self.token = _TokenLeaf(here)
        self.aliases: LoopAliases
        self._mark = 0  # start of this loop in the log of writes to carried tensors
        self._assumed = contextlib.ExitStack()
        self._entered: dict[int, Any] = {}  # what places held when the condition was asked

    # --- places -------------------------------------------------------------------------------

    def leaves(self) -> list[CarriedLeaf]:
        return [*self.python.leaves(), self.token]

    def enter_values(self, nested: NestedRecorder) -> None:
        self.python.enter(nested)
        if self.token.kind is not None:
            nested.token = self.token.enter(nested)

    def leave_values(self, nested: NestedRecorder) -> bool:
        user_location()  # a debugger reads the variables whenever this is asked: see `step/names`
        try:
            steady = self.python.leave(self.journal)
        except CaptureError:
            if self.failure:  # it was not completed
                raise self._always_fails() from None
            raise
        if nested.token is not None:
            steady &= self.token.kind is not None
            self.token.kind, self.token.out = TOKEN, nested.token
        return steady

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
            self.python.note_initial()

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
        self.python.again()
        return False

    def run(self, step: Step, nested: NestedRecorder) -> None:
        """Run the body, which may end in an error.

        It may do so only on the values from before the loop, and not on carried ones. And a loop
        without an iteration raises nothing.
        """
        for flag in self.python.flags_inside(nested):
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
        self.aliases = self.python.aliases(nested)
        log = self.hooks.flow.aliases.log[self._mark :]
        self.aliases.check(log, line_of(None, self.body), self.name, self.peeled)

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
        self.python.finish(at_least_once, self.aliases)
        if self.token.kind is not None:
            self.here.token = self.token.after
        with self.hooks.flow.aliases.checked():
            super().finish(at_least_once)
