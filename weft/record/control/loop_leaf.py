"""One value that a recorded loop carries: before the loop, in the body and after it."""

from __future__ import annotations

from typing import Any

from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError
from weft.core.bind import get_grad
from weft.core.tensor import Tensor, class_among, labelled, type_of
from weft.ir.types import Type
from weft.ops.stacks import zero_of
from weft.record.control.agree import typed
from weft.record.control.nested import NestedRecorder, WrittenState


def node_of(value: Any) -> Any:
    """The history of a value; None where it has none, or is not a tensor."""
    return value._node if isinstance(value, Tensor) else None


class CarriedLeaf:
    """One value that a loop carries.

    cls        the class of its tensors: where iterations differ, the one that is not Weft's own
    kind       its type; None while it is not carried: the body sees the value from outside
    historic   whether it has a history when an iteration begins
    entered    the tensor for it in the body, and `border` the history of that
    out        the value for the next iteration
    after      the result of the node
    """

    __slots__ = ("after", "border", "cls", "entered", "historic", "initial", "kind", "out", "title")

    is_number = False
    kind: Type | None

    def __init__(self, title: str, initial: Any) -> None:
        self.title = title
        self.initial = self.out = initial
        self.entered: Any = None
        self.border: Any = None
        self.after: Any = None
        self.kind = None
        self.cls = class_among([initial])
        self.historic = node_of(initial) is not None

    @property
    def began(self) -> Any:
        """Its history before the loop."""
        return node_of(self.initial)

    @property
    def pinned(self) -> bool:
        """Whether it is a leaf of autograd that the body writes to."""
        return False

    def enter(self, nested: NestedRecorder) -> Any:
        """Its value inside of the body."""
        if self.kind is None:
            return self.initial
        self.entered = labelled(nested.carried(self.kind, self.historic), self.cls)
        self.border = self.entered._node
        return self.entered

    def gains(self) -> bool:
        """Whether the body gave it a first history, or another class of tensors; the next recording
        begins with that."""
        before = self.historic, self.cls
        self.historic |= node_of(self.out) is not None
        self.cls = class_among([self.initial, self.out])
        return before != (self.historic, self.cls)

    def start(self) -> Tensor:
        """Its value before the loop, as a tensor of its type."""
        assert self.kind is not None
        return typed(self.initial, self.kind)

    def end(self) -> Tensor:
        """Its value after the body, as a tensor of its type."""
        assert self.kind is not None
        return typed(self.out, self.kind)

    def result(self) -> Any:
        """Its value after the loop."""
        return self.initial if self.kind is None else self.after


class StateLeaf(CarriedLeaf):
    """A tensor from outside that the body writes to in place, or its gradient."""

    __slots__ = ("_began", "keeps", "state")

    def __init__(self, state: WrittenState, nested: NestedRecorder, loop: str) -> None:
        super().__init__(state.title(), None)
        entry = nested.written[id(state.tensor)]
        self.state = state
        self._began = entry.node
        self.historic = entry.node is not None
        self.leave(nested, loop)
        self.kind = type_of(self.out if state.grad else tensor_of(entry.data, None))

    @property
    def began(self) -> Any:
        return self._began

    @property
    def pinned(self) -> bool:
        return self.keeps and not self.state.grad and self.state.tensor._node is not None

    def enter(self, nested: NestedRecorder) -> None:
        assert self.kind is not None
        nested.hold(self.state, self.kind, self.historic)
        self.border = self.state.tensor._node

    def leave(self, nested: NestedRecorder, loop: str) -> bool:
        """Note its value after the body; whether its history is as assumed."""
        held = self.state.now()
        if held is None:
            raise CaptureError(
                f"{self.title} has a value before the loop and is None after the body",
                op=loop,
                hint="set it to None before the loop, too",
            )
        self.out = labelled(tensor_of(held._data, held._node), held._result_class)
        self.keeps = nested.kept_node(self.state)  # whether it keeps its history
        return not self.gains()

    def start(self) -> Tensor:
        tensor = self.state.tensor
        held = get_grad(tensor) if self.state.grad else tensor
        # A gradient that is still None counts as zeros.
        return zero_of(self.kind) if held is None else held  # type: ignore[arg-type]
