"""A loop as a node: its body is recorded until the types of the carried values are stable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.asked_sizes import is_less
from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError, CaptureShapeError, InternalError
from weft.core.tensor import Tensor, labelled
from weft.ir.op import Op
from weft.ir.sizes import local_sizes
from weft.ir.types import Type
from weft.ops.control import SCAN, WHILE
from weft.record.control.agree import line_of
from weft.record.control.borders import BorderError
from weft.record.control.loop_histories import Again, CarriedHistories, check_slices
from weft.record.control.loop_leaf import CarriedLeaf, StateLeaf
from weft.record.control.nested import NestedRecorder, assign_states, close, stand_in
from weft.record.control.node import emit, unfollowed
from weft.record.recorder import GraphRecorder

#: Maximum recordings of a body; if its types still change, the loop is refused.
MOST_RECORDINGS = 16


class RecordedLoop:
    """A loop whose body is recorded.

    It carries the values of places (`leaves`), arrays that their histories need (`histories`), and
    tensors that the body writes to in place (`states`). A subclass defines the places: it sets them
    to values of the body (`enter_values`) and reads them afterwards (`leave_values`). The recorded
    step sets `ys`, the outputs of each iteration.
    """

    def __init__(self, here: GraphRecorder, name: str, body: Callable[..., Any]) -> None:
        self.here = here
        self.name = name
        self.body = body  # the user's function, for the lines in errors
        self.histories = CarriedHistories(self)
        self.states: list[StateLeaf] = []
        self.ys: Sequence[Tensor] = ()
        self.failure = ""  # the error of the last recording, or ""
        self.opaque = ""  # why gradients cannot pass, or ""
        self.nested: NestedRecorder
        self.condition: NestedRecorder
        self._slices: list[tuple[Tensor, Tensor]] = []  # (row in the body, the tensor it is of)

    # --- to be defined by subclasses ----------------------------------------------------------

    def leaves(self) -> list[CarriedLeaf]:
        """The values of all places, in the order in which they are entered."""
        raise NotImplementedError

    def enter_values(self, nested: NestedRecorder) -> None:
        """Set all places to their values inside of the body."""
        raise NotImplementedError

    def leave_values(self, nested: NestedRecorder) -> bool:
        """Read the places after the body; whether their types are as assumed."""
        raise NotImplementedError

    def recorder(self, name: str) -> NestedRecorder:
        return NestedRecorder(self.here, name)

    def opened(self, nested: NestedRecorder) -> contextlib.AbstractContextManager[None]:
        """Record op calls; at the end, everything outside is restored."""
        return nested.opened()

    def check(self, nested: NestedRecorder) -> None:
        """Check a body whose types are stable."""

    # --- recording ----------------------------------------------------------------------------

    def carried(self) -> list[CarriedLeaf]:
        """All values that the node carries, in the order of the body's inputs."""
        found = [*self.leaves(), *self.histories.leaves(), *self.states]
        return [leaf for leaf in found if leaf.kind is not None]

    def settle(self, step: Callable[[NestedRecorder], None]) -> None:
        """Record the body until its outputs have the types of its inputs."""
        for _ in range(MOST_RECORDINGS):
            with contextlib.suppress(Again):
                if self.attempt(step):
                    return
        raise CaptureError(
            f"the types of the carried values do not become stable{line_of(None, self.body)}",
            op=self.name,
            hint="start with tensors of the dtypes that the body returns",
        )

    def attempt(self, step: Callable[[NestedRecorder], None]) -> bool:
        """Record the body once; whether its types are stable."""
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
        """Run the body. If it fails because a history is hidden, carry that and record again."""
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
        """Read all carried values after the body; whether they are as assumed."""
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
        """The row of each of `xs` in one iteration, as inputs of the body."""
        seen = [self.here.history(x) is not None for x in xs]
        made = [
            labelled(nested.carried(kind, has), x._result_class)
            for x, kind, has in zip(xs, kinds, seen, strict=True)
        ]
        self._slices = list(zip(made, xs, strict=True))
        return made

    def check_sizes(self, nested: NestedRecorder, paths: Sequence[str], op: str, hint: str) -> None:
        """Refuse ys whose size depends on values: each iteration must give the same shape."""
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
        """Record the condition; False if it writes something, so that the body must compute it."""
        nested = self.condition = self.recorder("condition")
        with self.opened(nested):
            self.enter(nested)
            nested.graph.outputs = (nested.value_of(test()),)
            self.histories.check_asked(nested, self.states)
            return self.is_pure(nested)

    def is_pure(self, nested: NestedRecorder) -> bool:
        """Whether a recorded condition writes nothing."""
        return not nested.changes()

    # --- the node -----------------------------------------------------------------------------

    def emit_while(self, at_least_once: bool = False) -> None:
        self._emit(WHILE, [self.condition, self.nested], {"counted": False})
        self.finish(at_least_once)

    def emit_scan(self, xs: Sequence[Tensor], length: Any, reverse: bool = False) -> list[Tensor]:
        """Add the node; returns the ys of all iterations."""
        attrs = {"carries": len(self.carried()), "length": length, "reverse": reverse}
        ys = self._emit(SCAN, [self.nested], attrs, xs)
        self.finish(isinstance(length, (int, Dim)) and is_less(0, length))
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
            leaf.after = labelled(result, leaf.cls)
        ys = zip(results[len(carried) :], self.ys, strict=True)
        return [labelled(result, y._result_class) for result, y in ys]

    def finish(self, at_least_once: bool) -> None:
        """Assign the results of the loop."""
        states = [leaf.state for leaf in self.states]
        keeps = [leaf.keeps for leaf in self.states]
        assign_states(states, [leaf.after for leaf in self.states], keeps)
