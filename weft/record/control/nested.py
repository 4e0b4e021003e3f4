"""Recording branches and bodies as nested graphs.

A nested graph is closed. What the recorded code uses from outside (values of the graphs around it,
tensors with numbers) becomes an input of the nested graph and an operand of its node, through as
many levels as there are. What it writes outside (a tensor that was there before, a `.grad`, the
state of a random generator) is state: a further result of the node, which the tensor holds
afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.autodiff.function import with_hook
from weft.autodiff.node import Node as HistoryNode
from weft.autodiff.node import RemovableHandle, count, tensor_of
from weft.autodiff.transforms.history import Unseen, outer_histories
from weft.autodiff.transforms.levels import Level
from weft.base.errors import CaptureError
from weft.base.source import SourceLocation, user_location
from weft.core import bind as binding
from weft.core.bind import recorder, recording
from weft.core.number import Number, number
from weft.core.symbolic import SymbolicArray, symbolic
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Value
from weft.ir.types import Type
from weft.record.control.borders import Border, CarriedNode
from weft.record.recorder import GraphRecorder, Written


@dataclass(frozen=True, slots=True)
class State:
    """Something outside that recorded code gives another value: a tensor, or its gradient."""

    tensor: Tensor
    grad: bool

    @property
    def key(self) -> tuple[int, bool]:
        return id(self.tensor), self.grad

    def now(self) -> Tensor | None:
        """What it holds."""
        if self.grad:
            found: Tensor | None = getattr(self.tensor, "_grad", None)
            return found
        return self.tensor

    def title(self) -> str:
        what = "the gradient of a tensor" if self.grad else "a tensor"
        return f"{what} from outside ({self.tensor.type})"


class NestedRecorder(GraphRecorder):
    """Records one branch or body; `parent` records what is around it."""

    title = "a branch or loop body that has ended"
    keeps_histories = True

    def __init__(self, parent: GraphRecorder, name: str) -> None:
        super().__init__(Graph(name))
        self.parent = parent
        self.doubtful = parent.doubtful
        self.marks_all = parent.marks_all
        self.unrolls = parent.unrolls
        self._unknown = parent._unknown  # sizes that depend on values are named apart everywhere
        self.inputs: list[Value] = []  # its own: carries, slices
        #: By value outside and its history: what stands for it outside and inside.
        self.captured: dict[tuple[Value, Any], tuple[Tensor, Value]] = {}
        self.start = next(count)  # histories with higher numbers began in here
        #: What Python learned of histories in here: the nodes that say so, whether it asked for
        #: leaves, and where.
        self.asked: list[tuple[Sequence[HistoryNode], bool, SourceLocation | None]] = []
        self.spent: set[HistoryNode] = set()  # by backward passes: eagerly these are freed
        #: By id of the array: histories outside of the `vmap` or `jvp` whose control flow this is.
        self._unseen: dict[int, tuple[Any, Unseen]] = {}
        self._own: dict[int, Tensor] = {}  # tensors that were made here and written to
        #: What states hold that are inputs in here, (array, history) or the gradient, by their key.
        self._held: dict[tuple[int, bool], Any] = {}

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Record; tensors from outside hold what they held before when it is over."""
        try:
            with recording(self):
                yield
            made = [x for x in self._own.values() if x._node is not None and x._node.is_leaf]
            self.graph.leaves = frozenset(self.value_of(x) for x in made)
        finally:
            self.restore()

    def input(self, kind: Type) -> Tensor:
        """One more input of its own."""
        value = Value(kind)
        self.inputs.append(value)
        return symbolic(value, self)

    def carried(self, kind: Type, historic: bool) -> Tensor:
        """An input; a historic one has a history, of which nothing is seen in here."""
        made = self.input(kind)
        if historic:
            made._node = Border(made.shape)
        return made

    def argument(self, kind: Type, historic: bool) -> Tensor:
        """An input for an argument of a function that a transform runs."""
        made = self.input(kind)
        if historic:
            made._node = Unseen(made.shape)
        return made

    def value_of(self, tensor: Tensor) -> Value:
        data = tensor._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            value: Value = data.value
            return value
        outer = self.parent.value_of(tensor)
        key = (outer, tensor._node)
        found = self.captured.get(key)
        if found is None:
            stand_in = tensor_of(SymbolicArray(outer, self.parent), self.history(tensor))
            found = self.captured[key] = (stand_in, Value(outer.type))
        return found[1]

    def _stand_in(self, tensor: Tensor, value: Value) -> Tensor:
        data = tensor._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            return tensor
        return tensor_of(SymbolicArray(value, self), self.history(tensor))

    def history(self, tensor: Tensor) -> Any:
        if tensor._node is not None or not outer_histories(tensor):
            return tensor._node
        if isinstance(self.parent, NestedRecorder):
            return self.parent.history(tensor)
        data = tensor._data
        _, found = self._unseen.setdefault(id(data), (data, Unseen(tensor.shape)))
        return found

    # --- state --------------------------------------------------------------------------------

    def hold(self, state: State, kind: Type, historic: bool) -> None:
        """Let a tensor from outside, or its gradient, be an input while this one records."""
        tensor = state.tensor
        self.written.setdefault(id(tensor), Written(tensor))
        made = self.carried(kind, historic)
        if state.grad:
            tensor._grad = self._held[state.key] = made
        else:
            tensor._data = made._data
            if tensor._node is None or not tensor._node.is_leaf:
                tensor._node = made._node
            self._held[state.key] = (tensor._data, tensor._node)

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor was there before: it is written in here, or a gradient from before."""
        return id(tensor) in self.written or any(held is tensor for held in self._held.values())

    def changes(self) -> list[State]:
        """What was written outside."""
        found: list[State] = []
        for entry in self.written.values():
            tensor = entry.tensor
            data, node = self._held.get((id(tensor), False), (entry.data, entry.node))
            grad = self._held.get((id(tensor), True), entry.grad)
            if tensor._data is not data:
                found.append(State(tensor, False))
            elif tensor._node is not node:
                raise CaptureError(
                    f"requires_grad of a tensor from outside ({tensor.type}) is set inside of a "
                    "branch or loop body",
                    hint="set it before",
                )
            if getattr(tensor, "_grad", None) is not grad:
                found.append(State(tensor, True))
        return found

    def kept_node(self, state: State) -> bool:
        """Whether a tensor has its history of before: a leaf that was written under no_grad()."""
        entry = self.written[id(state.tensor)]
        node: Any = state.tensor._node
        return node is entry.node

    def write(self, target: Tensor) -> None:
        key = id(target)
        if key in self.written or key in self._own:
            return
        data = target._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            self._own[key] = target
        else:
            self.written[key] = Written(target)

    def keeps_gradient(self, target: Tensor) -> bool:
        """The history of a result is found by the ops in the nested graph alone."""
        return target._node is not None or self.marks_all

    def hook(self, tensor: Tensor, hook: Any) -> RemovableHandle:
        """A hook in here is a step of the graph: it gives its argument, and hooks its gradient.

        The tensor holds what the step gives from now on.
        """
        data = tensor._data
        inside = data.__class__ is SymbolicArray and data.recorder is self
        if not inside or id(tensor) in self.written:
            raise CaptureError(
                f"a hook is put on a tensor from outside ({tensor.type}), inside of a branch or "
                "loop body",
                op="register_hook",
                hint="put it there before, or on a tensor that is made inside: y = x * 1",
            )
        if any(data.value in node.inputs for node in self.graph.nodes):
            raise CaptureError(
                f"a hook is put on a tensor ({tensor.type}) inside of a branch or loop body, where "
                "it has been used already",
                op="register_hook",
                hint="put it there as soon as the tensor is made",
            )
        made, handle = with_hook(tensor, hook)
        tensor._data, tensor._node = made._data, made._node
        return handle

    def spend(self, node: HistoryNode, keep: bool) -> bool:
        around: Any = self
        while isinstance(around, NestedRecorder):
            if node in around.spent:
                return True
            around = around.parent
        if not keep and node.frees():
            self.spent.add(node)
        return False

    def read_history(self, nodes: Sequence[Any], of_leaves: bool) -> None:
        around: Any = self
        while isinstance(around, NestedRecorder):
            around.asked.append((nodes, of_leaves, user_location()))
            around = around.parent

    def spent_outside(self) -> set[HistoryNode]:
        """What began outside of this graph, and is spent in here."""
        return {node for node in self.spent if node.number < self.start}

    def looked(self, reached: Iterable[Any], targets: Sequence[Any]) -> None:
        for node in reached:
            if isinstance(node, Border):
                # What this iteration has made itself, no history from before leads to.
                node.asked += [
                    target
                    for target in targets
                    if target is not node
                    and (target.number < node.number or isinstance(target, (Border, CarriedNode)))
                ]
                node.place = user_location()

    # --- questions, and what the outer recorder is to know ------------------------------------

    def ask(self, tensor: Tensor, question: str) -> Any:
        data = tensor._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            if question == "repr":
                return super().ask(tensor, question)
            raise CaptureError(
                f"Python asks a tensor ({tensor.type}) for its value ({question}), "
                "inside of a loop or branch of the graph, where it has none yet",
                op=question,
                hint="keep to tensors there, or ask before; to run a loop of the graph in Python, "
                "write weft.unroll(range(n))",
            )
        return binding._tell("ask", tensor, question)

    def decide(self, condition: Tensor) -> bool:
        data = condition._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            raise CaptureError(
                "a gradient arrives only if a condition holds that is known inside of a loop or "
                "branch of the graph: is there a gradient, or none?",
                op="backward",
                hint="go backward outside of it, or set the gradient before: "
                "x.grad = weft.zeros_like(x)",
            )
        return binding.decide(condition)

    def read_grad(self, tensor: Tensor) -> None:
        if (id(tensor), True) in self._held or id(tensor) in self.grads_set:
            return
        data = tensor._data
        inside = data.__class__ is SymbolicArray and data.recorder is self
        if id(tensor) in self.written or not (inside or id(tensor) in self._own):
            binding._tell("read_grad", tensor)

    def wrote_grad(self, tensor: Tensor) -> None:
        self.read_grad(tensor)  # what both ways leave behind depends on what was there
        super().wrote_grad(tensor)

    def python_effects(self) -> int:
        return self.parent.python_effects()

    def adopt(self, array: np.ndarray[Any, Any]) -> Tensor | None:
        adopted: Tensor | None = binding._tell("adopt", array)
        return adopted

    def refuse(self, reason: str) -> None:
        binding._tell("refuse", reason)


def graph_recorder() -> GraphRecorder | None:
    """The innermost recorder of this thread, if it makes a graph."""
    here = recorder()
    return here if isinstance(here, GraphRecorder) else None


def recorded_level() -> Level | None:
    """The transform whose function runs, if what it computes is recorded as a graph."""
    level = recorder()
    if not isinstance(level, Level):
        return None
    around = [r for r in binding._thread.recorders if not isinstance(r, Level)]
    return level if around and isinstance(around[-1], GraphRecorder) else None


def check_effects(here: GraphRecorder, before: int, op: str) -> None:
    """Refuse writes to Python objects in a nested graph: it may run not at all, or often."""
    if here.python_effects() != before:
        here.refuse(f"a Python object is written to inside of {op}")


def stand_in(here: GraphRecorder, tensor: Tensor) -> Tensor:
    """A tensor as a value of the graph that is being recorded, with its history."""
    return tensor_of(SymbolicArray(here.value_of(tensor), here), here.history(tensor))


def known_number(tensor: Tensor) -> Number:
    """A 0-d tensor, perhaps one with numbers from outside, as a Python number of the graph."""
    here = graph_recorder()
    return number(tensor if here is None else stand_in(here, tensor))


def close(recorders: Sequence[NestedRecorder]) -> list[Tensor]:
    """Let all nested graphs take what any of them captured, before inputs of their own.

    Gives the tensors outside that they are to be given.
    """
    operands: dict[tuple[Value, Any], Tensor] = {}
    for nested in recorders:
        for key, (outer, _) in nested.captured.items():
            operands.setdefault(key, outer)
    for nested in recorders:
        taken: list[Value] = []
        for key in operands:
            known = nested.captured.get(key)
            taken.append(Value(key[0].type) if known is None else known[1])
        set_inputs(nested.graph, [*taken, *nested.inputs])
    return list(operands.values())


def set_inputs(graph: Graph, values: Sequence[Value]) -> None:
    """Make values that no node makes the inputs of a graph."""
    graph.inputs = tuple(values)
    for index, value in enumerate(values):
        value.index = index


def assign_states(
    states: Sequence[State], results: Sequence[Tensor], keeps_node: Sequence[bool]
) -> None:
    """Let what was written in a nested graph hold the results of the node."""
    for state, result, keeps in zip(states, results, keeps_node, strict=True):
        tensor = state.tensor
        if state.grad:
            binding.set_grad(tensor, result)
        else:
            binding.written(tensor)
            tensor._data = result._data
            if not keeps:
                tensor._node = result._node
