"""Recording branches and bodies as nested graphs.

A nested graph is closed. Values that the recorded code uses from outside (values of enclosing
graphs, tensors with numbers) become inputs of the nested graph and operands of its node, at every
level of nesting. What the code writes outside (an existing tensor, a `.grad`, the state of a random
generator) is state: a further result of the node, which is assigned to the tensor afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.autodiff.function import with_hook
from weft.autodiff.node import Node as HistoryNode
from weft.autodiff.node import RemovableHandle, count, tensor_of
from weft.autodiff.transforms.history import Unseen, outer_histories
from weft.autodiff.transforms.levels import Level
from weft.base.dataclass import dataclass
from weft.base.device import CPU
from weft.base.dim_algebra import Dim
from weft.base.dtypes import int64
from weft.base.errors import CaptureError
from weft.base.source import SourceLocation, user_location
from weft.core import bind as binding
from weft.core.bind import recorder, recording
from weft.core.number import Number, number
from weft.core.operands import dim_tensor
from weft.core.symbolic import SymbolicArray, symbolic
from weft.core.tensor import Tensor, labelled
from weft.ir.graph import Graph, Value
from weft.ir.types import Type, undivided
from weft.record.control.borders import Border, CarriedNode
from weft.record.recorder import GraphRecorder, Written


@dataclass(frozen=True, slots=True)
class WrittenState:
    """A tensor from outside, or its gradient, that recorded code writes to."""

    tensor: Tensor
    grad: bool

    @property
    def key(self) -> tuple[int, bool]:
        return id(self.tensor), self.grad

    def now(self) -> Tensor | None:
        """Its current value."""
        if self.grad:
            found: Tensor | None = getattr(self.tensor, "_grad", None)
            return found
        return self.tensor

    def title(self) -> str:
        what = "the gradient of a tensor" if self.grad else "a tensor"
        return f"{what} from outside ({self.tensor.type})"


class NestedRecorder(GraphRecorder):
    """Records one branch or body; `parent` is the recorder of the enclosing graph."""

    title = "a branch or loop body that has ended"
    keeps_histories = True

    def __init__(self, parent: GraphRecorder, name: str) -> None:
        super().__init__(Graph(name))
        self.parent = parent
        self.doubtful = parent.doubtful
        self.marks_all = parent.marks_all
        self.unrolls = parent.unrolls
        self._unknown = parent._unknown  # one counter: names of data-dependent sizes are unique
        self.inputs: list[Value] = []  # its own: carries, slices
        #: (value outside, its history) -> the tensor outside and the value inside.
        self.captured: dict[tuple[Value, Any], tuple[Tensor, Value]] = {}
        self.start = next(count)  # history nodes with higher numbers were made in here
        #: Questions of Python about histories: the nodes that decided the answer, whether it asked
        #: for leaves, and where.
        self.asked: list[tuple[Sequence[HistoryNode], bool, SourceLocation | None]] = []
        self.spent: set[HistoryNode] = set()  # used by a backward pass; eagerly these are freed
        #: By id of the array: histories outside of the `vmap` or `jvp` that runs this code.
        self._unseen: dict[int, tuple[Any, Unseen]] = {}
        self._own: dict[int, Tensor] = {}  # tensors that were made here and written to
        #: By key of a state that is an input here: its (array, history), or its gradient.
        self._held: dict[tuple[int, bool], Any] = {}

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Record op calls; at the end, tensors from outside are restored."""
        try:
            with recording(self):
                yield
            made = [x for x in self._own.values() if x._node is not None and x._node.is_leaf]
            self.graph.leaves = frozenset(self.value_of(x) for x in made)
        finally:
            self.restore()

    def input(self, kind: Type) -> Tensor:
        """A new input of this graph."""
        value = Value(undivided(kind))
        self.inputs.append(value)
        return symbolic(value, self)

    def carried(self, kind: Type, historic: bool) -> Tensor:
        """A new input. A historic one has a history, which is hidden behind a border."""
        made = self.input(kind)
        if historic:
            made._node = Border(made.shape)
        return made

    def argument(self, kind: Type, historic: bool) -> Tensor:
        """A new input for an argument of a function that a transform runs."""
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
            found = self.captured[key] = (stand_in, Value(undivided(outer.type)))
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

    def hold(self, state: WrittenState, kind: Type, historic: bool) -> None:
        """Make a tensor from outside, or its gradient, an input while this recorder is active."""
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
        """Whether a tensor is a state: it is from outside and written in here, or its gradient."""
        return id(tensor) in self.written or any(held is tensor for held in self._held.values())

    def changes(self) -> list[WrittenState]:
        """The states that were written."""
        found: list[WrittenState] = []
        for entry in self.written.values():
            tensor = entry.tensor
            data, node = self._held.get((id(tensor), False), (entry.data, entry.node))
            grad = self._held.get((id(tensor), True), entry.grad)
            if tensor._data is not data:
                found.append(WrittenState(tensor, False))
            elif tensor._node is not node:
                raise CaptureError(
                    f"requires_grad of a tensor from outside ({tensor.type}) is set inside of a "
                    "branch or loop body",
                    hint="set it before",
                )
            if getattr(tensor, "_grad", None) is not grad:
                found.append(WrittenState(tensor, True))
        return found

    def kept_node(self, state: WrittenState) -> bool:
        """Whether a tensor still has its old history: a leaf that was written under no_grad()."""
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
        """The history of a result is found from the ops of the nested graph alone."""
        return target._node is not None or self.marks_all

    def hook(self, tensor: Tensor, hook: Any) -> RemovableHandle:
        """A hook becomes a node: an identity whose backward calls the hook.

        From now on the tensor holds the result of that node.
        """
        data = tensor._data
        inside = data.__class__ is SymbolicArray and data.recorder is self
        if not inside or id(tensor) in self.written:
            raise CaptureError(
                f"a hook is put on a tensor from outside ({tensor.type}), inside of a branch or "
                "loop body",
                op="register_hook",
                hint="register it before, or on a tensor that is made inside: y = x * 1",
            )
        if any(data.value in node.inputs for node in self.graph.nodes):
            raise CaptureError(
                f"a hook is put on a tensor ({tensor.type}) inside of a branch or loop body, where "
                "it has been used already",
                op="register_hook",
                hint="register it as soon as the tensor is made",
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
        """History nodes from outside of this graph that are spent in here."""
        return {node for node in self.spent if node.number < self.start}

    def looked(self, reached: Iterable[Any], targets: Sequence[Any]) -> None:
        for node in reached:
            if isinstance(node, Border):
                # A history from before cannot lead to a node that this iteration made.
                node.asked += [
                    target
                    for target in targets
                    if target is not node
                    and (target.number < node.number or isinstance(target, (Border, CarriedNode)))
                ]
                node.place = user_location()

    # --- questions, and what the outer recorder must know -------------------------------------

    def ask(self, tensor: Tensor, question: str) -> Any:
        data = tensor._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            if question == "repr":
                return super().ask(tensor, question)
            method = "tolist, numpy" if question == "numpy" else question
            raise CaptureError(
                f"Python asks a tensor ({tensor.type}) for its value ({method}), "
                "inside of a loop or branch of the graph, where it has none yet",
                op=question,
                hint="use tensor operations there, or ask before; to run a loop of the graph in "
                "Python, write weft.unroll(range(n))",
            )
        return binding._tell("ask", tensor, question)

    def decide(self, condition: Tensor) -> bool:
        data = condition._data
        if data.__class__ is SymbolicArray and data.recorder is self:
            raise CaptureError(
                "whether a gradient exists depends on a condition that is known only inside of a "
                "loop or branch of the graph",
                op="backward",
                hint="call backward outside of it, or set the gradient before: "
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
        self.read_grad(tensor)  # the gradient after both branches depends on the one before
        super().wrote_grad(tensor)

    def python_effects(self) -> int:
        return self.parent.python_effects()

    def adopt(self, array: np.ndarray[Any, Any]) -> Tensor | None:
        adopted: Tensor | None = binding._tell("adopt", array)
        return adopted

    def refuse(self, reason: str) -> None:
        binding._tell("refuse", reason)


def graph_recorder() -> GraphRecorder | None:
    """The innermost recorder of this thread, if it records a graph."""
    here = recorder()
    return here if isinstance(here, GraphRecorder) else None


def in_nested_graph() -> bool:
    """Whether a branch or the body of a loop is being recorded: it may run never, or many times."""
    return isinstance(recorder(), NestedRecorder)


def recorded_level() -> Level | None:
    """The transform that runs, if its computation is recorded as a graph."""
    level = recorder()
    if not isinstance(level, Level):
        return None
    around = [r for r in binding._thread.recorders if not isinstance(r, Level)]
    return level if around and isinstance(around[-1], GraphRecorder) else None


def check_effects(here: GraphRecorder, before: int, op: str) -> None:
    """Refuse writes to Python objects in a nested graph: it may run never, or many times."""
    if here.python_effects() != before:
        here.refuse(f"a Python object is written to inside of {op}")


def stand_in(here: GraphRecorder, tensor: Tensor) -> Tensor:
    """A tensor as a symbolic tensor of the graph that is recorded, with its history."""
    made = tensor_of(SymbolicArray(here.value_of(tensor), here), here.history(tensor))
    return labelled(made, tensor._result_class)


def known_number(tensor: Tensor) -> Number:
    """A 0-d tensor, of the graph or from outside, as a Python number of the graph."""
    here = graph_recorder()
    return number(tensor if here is None else stand_in(here, tensor))


def size_number(size: Dim) -> Number:
    """A symbolic size as a Python number of the graph."""
    return known_number(dim_tensor(size, int64, CPU))


def close(recorders: Sequence[NestedRecorder]) -> list[Tensor]:
    """Give all nested graphs the same captured inputs, before inputs of their own.

    Returns the operands for these inputs: tensors outside that any of the graphs captured.
    """
    operands: dict[tuple[Value, Any], Tensor] = {}
    for nested in recorders:
        for key, (outer, _) in nested.captured.items():
            operands.setdefault(key, outer)
    for nested in recorders:
        taken: list[Value] = []
        for key in operands:
            known = nested.captured.get(key)
            taken.append(Value(undivided(key[0].type)) if known is None else known[1])
        set_inputs(nested.graph, [*taken, *nested.inputs])
    return list(operands.values())


def set_inputs(graph: Graph, values: Sequence[Value]) -> None:
    """Make these values the inputs of a graph."""
    graph.inputs = tuple(values)
    for index, value in enumerate(values):
        value.index = index


def assign_states(
    states: Sequence[WrittenState], results: Sequence[Tensor], keeps_node: Sequence[bool]
) -> None:
    """Assign the results of a node to the states that its nested graphs wrote."""
    for state, result, keeps in zip(states, results, keeps_node, strict=True):
        tensor = state.tensor
        if state.grad:
            binding.set_grad(tensor, result)
        else:
            binding.written(tensor)
            tensor._data = result._data
            if not keeps:
                tensor._node = result._node
