"""Branches as a node: each is recorded by itself, and what any of them writes is a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError
from weft.core.bind import recording
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.record.control.nested import NestedRecorder, State, assign_states, close
from weft.record.control.node import emit, unfollowed
from weft.record.recorder import GraphRecorder


class RecordedBranch:
    """One branch: its graph, and the tensors from outside that it writes to."""

    def __init__(self, nested: NestedRecorder) -> None:
        self.nested = nested
        #: By key: a state, what it holds at the end, and whether it keeps its history.
        self.states: dict[tuple[int, bool], tuple[State, Tensor | None, bool]] = {}
        self.error: BaseException | None = None  # in which it ends, if it does

    def note_states(self) -> None:
        """See what was written; at the end, while it is recorded."""
        for state in self.nested.changes():
            held = state.now()
            end = None if held is None else tensor_of(held._data, held._node)
            self.states[state.key] = (state, end, self.nested.kept_node(state))

    def end_of(self, state: State) -> Tensor | None:
        """What a state holds at the end of this branch."""
        found = self.states.get(state.key)
        return state.now() if found is None else found[1]


def states_of(
    branches: Sequence[RecordedBranch], op: str, error: type[CaptureError] = CaptureError
) -> list[State]:
    """What any branch writes. A gradient must be there, or be None, after all of them."""
    found: list[State] = []
    for state, *_ in {k: v for b in branches for k, v in b.states.items()}.values():
        missing = [b.end_of(state) is None for b in branches if b.error is None]
        if not all(missing):
            if any(missing):
                raise error(
                    f"{state.title()} is there after one branch and None after another",
                    op=op,
                    hint="set the gradient before, x.grad = weft.zeros_like(x), or in all branches",
                )
            found.append(state)
        elif missing and state.now() is not None:  # all of them take it away
            state.tensor.grad = None
    return found


def emit_branches(
    here: GraphRecorder,
    op: Op,
    chosen: Tensor,
    branches: Sequence[RecordedBranch],
    given: Callable[[int], list[Tensor]],
) -> list[Tensor]:
    """The node of a choice; `given` tells what the branch of a number gives."""
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


def assign(states: Sequence[State], results: Sequence[Any], branches: Any) -> None:
    """Let what was written hold the results of the node.

    A leaf that all branches wrote to under no_grad() keeps its history.
    """
    sides = [branch.states for branch in branches]
    keeps = [all(side[s.key][2] for side in sides if s.key in side) for s in states]
    assign_states(states, results, keeps)
