"""Branches as a node: each is recorded as a graph; states that any of them writes are results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError
from weft.core.bind import recording
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.record.control.nested import NestedRecorder, WrittenState, assign_states, close
from weft.record.control.node import emit, unfollowed
from weft.record.recorder import GraphRecorder


class RecordedBranch:
    """One branch: its graph, and the tensors from outside that it writes to."""

    def __init__(self, nested: NestedRecorder) -> None:
        self.nested = nested
        #: By key: a state, its value at the end, and whether it keeps its history.
        self.states: dict[tuple[int, bool], tuple[WrittenState, Tensor | None, bool]] = {}
        self.error: BaseException | None = None  # if the branch raises

    def note_states(self) -> None:
        """Note the states that were written; called at the end, while still recording."""
        for state in self.nested.changes():
            held = state.now()
            end = None if held is None else tensor_of(held._data, held._node)
            self.states[state.key] = (state, end, self.nested.kept_node(state))

    def end_of(self, state: WrittenState) -> Tensor | None:
        """The value of a state at the end of this branch."""
        found = self.states.get(state.key)
        return state.now() if found is None else found[1]


def states_of(
    branches: Sequence[RecordedBranch], op: str, error: type[CaptureError] = CaptureError
) -> list[WrittenState]:
    """States that any branch writes. A gradient must be None after all branches, or after none."""
    found: list[WrittenState] = []
    for state, *_ in {k: v for b in branches for k, v in b.states.items()}.values():
        missing = [b.end_of(state) is None for b in branches if b.error is None]
        if not all(missing):
            if any(missing):
                raise error(
                    f"{state.title()} has a value after one branch and is None after another",
                    op=op,
                    hint="set the gradient before, x.grad = weft.zeros_like(x), or in all branches",
                )
            found.append(state)
        elif missing and state.now() is not None:  # all branches remove it
            state.tensor.grad = None
    return found


def emit_branches(
    here: GraphRecorder,
    op: Op,
    chosen: Tensor,
    branches: Sequence[RecordedBranch],
    given: Callable[[int], list[Tensor]],
) -> list[Tensor]:
    """Add the node of a choice. `given(i)` are the outputs of branch i."""
    opaque = ""
    for number, branch in enumerate(branches):
        nested = branch.nested
        with recording(nested):
            outputs = given(number)
        nested.graph.outputs = tuple([nested.value_of(x) for x in outputs])
        opaque = opaque or unfollowed(outputs, nested.start)
    captured = close([branch.nested for branch in branches])
    graphs = [branch.nested.graph for branch in branches]
    return emit(here, op, [chosen, *captured], graphs, {}, opaque=opaque)


def assign(states: Sequence[WrittenState], results: Sequence[Any], branches: Any) -> None:
    """Assign the results of the node to the states.

    A leaf that all branches wrote to under no_grad() keeps its history.
    """
    sides = [branch.states for branch in branches]
    keeps = [all(side[s.key][2] for side in sides if s.key in side) for s in states]
    assign_states(states, results, keeps)
