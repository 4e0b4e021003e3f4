"""A loop as a node: its body is recorded until it gives values of the types that it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.errors import CaptureError, CaptureShapeError, InternalError
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ir.sizes import local_sizes
from weft.ir.types import Type
from weft.ops.control import SCAN, WHILE
from weft.record.control.agree import line_of
from weft.record.control.borders import BorderError
from weft.record.control.loop_histories import Again, CarriedHistories, check_slices
from weft.record.control.loop_leaf import Leaf, StateLeaf
from weft.record.control.nested import NestedRecorder, assign_states, close, stand_in
from weft.record.control.node import emit, unfollowed
from weft.record.recorder import GraphRecorder

#: How often a body is recorded before its types count as not settling.
MOST_RECORDINGS = 16


class RecordedLoop:
    """A loop whose body is recorded.

    It carries the values of places (`leaves`), what their histories need (`histories`), and the
    tensors that the body writes to in place (`states`). A subclass says what the places are: it
    lets them hold values of the body (`enter_values`) and sees what the body leaves in them
    (`leave_values`). Its `ys`, one of each iteration, are set by the step that it records.
    """

    def __init__(self, here: GraphRecorder, name: str, body: Callable[..., Any]) -> None:
        self.here = here
        self.name = name
        self.body = body  # the user's function, for the lines in errors
        self.histories = CarriedHistories(self)
        self.states: list[StateLeaf] = []
        self.ys: Sequence[Tensor] = ()
        self.failure = ""  # what the body raised when it was last recorded
        self.opaque = ""  # why gradients cannot pass, if they cannot
        self.nested: NestedRecorder
        self.condition: NestedRecorder
        self._slices: list[tuple[Tensor, Tensor]] = []  # rows in the body, and what they are of

    # --- what a kind of loops says ------------------------------------------------------------

    def leaves(self) -> list[Leaf]:
        """The values of all places, in the order in which they are entered."""
        raise NotImplementedError

    def enter_values(self, nested: NestedRecorder) -> None:
        """Let all places hold what they are inside of the body."""
        raise NotImplementedError

    def leave_values(self, nested: NestedRecorder) -> bool:
        """See what the body left in the places; whether that was as assumed."""
        raise NotImplementedError

    def recorder(self, name: str) -> NestedRecorder:
        return NestedRecorder(self.here, name)

    def opened(self, nested: NestedRecorder) -> contextlib.AbstractContextManager[None]:
        """Record; afterwards all is as before."""
        return nested.opened()

    def check(self, nested: NestedRecorder) -> None:
        """Look at a body that has settled."""

    # --- recording ----------------------------------------------------------------------------

    def carried(self) -> list[Leaf]:
        """All that the node carries, in the order of the inputs of the body."""
        found = [*self.leaves(), *self.histories.leaves(), *self.states]
        return [leaf for leaf in found if leaf.kind is not None]

    def settle(self, step: Callable[[NestedRecorder], None]) -> None:
        """Record the body until it gives what it is given."""
        for _ in range(MOST_RECORDINGS):
            with contextlib.suppress(Again):
                if self.attempt(step):
                    return
        raise CaptureError(
            f"what a loop carries does not settle{line_of(None, self.body)}",
            op=self.name,
            hint="start with tensors of the dtypes that the body gives",
        )

    def attempt(self, step: Callable[[NestedRecorder], None]) -> bool:
        """Record the body once; whether it has settled."""
        nested = self.nested = self.recorder("body")
        with self.opened(nested):
            self.enter(nested)
            self.run(step, nested)
            steady = self.leave(nested)
            if not self.failure:
                self.histories.check(self.states)
                check_slices(self._slices, self.name)
            if steady:
                if not self.failure:
                    self.histories.check_asked(nested, self.states)
                self.check(nested)
                ends = [*[leaf.end() for leaf in self.carried()], *self.ys]
                self.opaque = unfollowed(ends, nested.start)
                nested.graph.outputs = tuple([nested.value_of(x) for x in ends])
        return steady

    def enter(self, nested: NestedRecorder) -> None:
        self.enter_values(nested)
        self.histories.enter(nested)
        for leaf in self.states:
            leaf.enter(nested)

    def run(self, step: Callable[[NestedRecorder], None], nested: NestedRecorder) -> None:
        """Run the body. If it fails for want of a hidden history, that is carried from now on."""
        try:
            step(nested)
        except BorderError as error:
            if self.histories.reached(error.border):
                raise Again from None
            raise
        except (CaptureError, InternalError, RecursionError):
            raise
        except Exception:
            if self.histories.reached():
                raise Again from None
            raise

    def leave(self, nested: NestedRecorder) -> bool:
        """See what the body left behind; whether it was as assumed."""
        steady = self.leave_values(nested)
        steady &= self.histories.leave(nested)
        known = {leaf.state.key for leaf in self.states}
        for leaf in self.states:
            steady &= leaf.leave(nested, self.name)
        more = [state for state in nested.changes() if state.key not in known]
        self.states += [StateLeaf(state, nested, self.name) for state in more]
        return steady and not more

    def slices(
        self, nested: NestedRecorder, xs: Sequence[Tensor], kinds: Sequence[Type]
    ) -> list[Tensor]:
        """The rows of an iteration, for the step."""
        seen = [self.here.history(x) is not None for x in xs]
        made = [nested.carried(kind, has) for kind, has in zip(kinds, seen, strict=True)]
        self._slices = list(zip(made, xs, strict=True))
        return made

    def check_sizes(self, nested: NestedRecorder, paths: Sequence[str], op: str, hint: str) -> None:
        """All ys of one place must have one shape."""
        local = local_sizes(nested.graph)
        for y, path in zip(self.ys, paths, strict=True):
            for size in y.shape:
                if local.intersection(getattr(size, "names", ())):
                    raise CaptureShapeError(
                        f"{path} is {y.type}{line_of(y, self.body)}: its size depends on values, "
                        "and may differ from one iteration to the next",
                        op=op,
                        hint=hint,
                    )

    def record_condition(self, test: Callable[[], Tensor]) -> bool:
        """Record when to go on; False where that writes something: then the body must do it."""
        nested = self.condition = self.recorder("condition")
        with self.opened(nested):
            self.enter(nested)
            nested.graph.outputs = (nested.value_of(test()),)
            self.histories.check_asked(nested, self.states)
            return self.is_pure(nested)

    def is_pure(self, nested: NestedRecorder) -> bool:
        """Whether a condition that was recorded writes nothing."""
        return not nested.changes()

    # --- the node -----------------------------------------------------------------------------

    def emit_while(self, at_least_once: bool = False) -> None:
        self._emit(WHILE, [self.condition, self.nested], {"counted": False})
        self.finish(at_least_once)

    def emit_scan(self, xs: Sequence[Tensor], length: Any, reverse: bool = False) -> list[Tensor]:
        """Gives the ys of all iterations."""
        attrs = {"carries": len(self.carried()), "length": length, "reverse": reverse}
        ys = self._emit(SCAN, [self.nested], attrs, xs)
        self.finish(isinstance(length, int) and length > 0)
        return ys

    def _emit(
        self,
        op: Op,
        recorders: Sequence[NestedRecorder],
        attrs: dict[str, Any],
        xs: Sequence[Tensor] = (),
    ) -> list[Tensor]:
        captured = close(recorders)
        consts, carried = len(captured), self.carried()
        starts = [leaf.start() for leaf in carried]
        operands = [*captured, *[stand_in(self.here, x) for x in (*starts, *xs)]]
        pinned = frozenset(consts + i for i, leaf in enumerate(carried) if leaf.pinned)
        graphs = [nested.graph for nested in recorders]
        given = {"consts": consts, **attrs}
        results = emit(self.here, op, operands, graphs, given, pinned, self.opaque)
        for leaf, result in zip(carried, results, strict=False):
            leaf.after = result
        return results[len(carried) :]

    def finish(self, at_least_once: bool) -> None:
        """Let everything hold what the loop gives."""
        states = [leaf.state for leaf in self.states]
        keeps = [leaf.keeps for leaf in self.states]
        assign_states(states, [leaf.after for leaf in self.states], keeps)
