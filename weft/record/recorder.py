"""The graph recorder: each op call becomes a node.

Tensors that the recorded code computes are symbolic. A tensor with numbers comes from outside, or
is a constant: `lift` says which value of the graph it is. Each kind of capture has its own `lift`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Set
from typing import Any

from weft.autodiff.node import PartNode, hooks_of, locate
from weft.autodiff.transforms.trees import FLOATS
from weft.base.dim_algebra import Dim
from weft.base.dims import dim, dims_in
from weft.base.errors import CaptureError, WeftError
from weft.base.source import user_location
from weft.core import bind as binding
from weft.core.bind import Recorder
from weft.core.grad_mode import mode
from weft.core.placement import common_place
from weft.core.private_state import make_private, make_shared
from weft.core.symbolic import SymbolicArray, symbolic
from weft.core.tensor import UNASKED, Tensor
from weft.ir.attributes import attrs_key
from weft.ir.dispatch import family_of, how_to_bring_together
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Op, Trait
from weft.ir.types import StackType, TensorType
from weft.ops.cards import TO_DEVICE
from weft.ops.identity import FENCE, STOP_GRADIENT
from weft.ops.stacks import stack_form


class Written:
    """What a tensor from outside held before the recorded code wrote to it.

    What is written to it until it is restored is seen by this thread alone.
    """

    __slots__ = ("data", "grad", "had_grad", "node", "private", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.private = make_private(tensor)
        self.tensor = tensor
        self.data: Any = tensor._data
        self.node: Any = tensor._node
        self.had_grad = hasattr(tensor, "_grad")
        self.grad = tensor._grad if self.had_grad else None

    def restore(self) -> None:
        self.tensor._data = self.data
        self.tensor._node = self.node
        if self.had_grad:
            self.tensor._grad = self.grad
        elif hasattr(self.tensor, "_grad"):
            del self.tensor._grad
        if self.private:
            self.private = False
            make_shared(self.tensor)

    def release(self) -> None:
        """Let go of what it held: the recording may live on, and arrays that it held could not be
        written in place."""
        self.data = self.node = self.grad = None


#: Equal operands do not mean equal results for these ops: they have effects, or change a stack.
_NEVER_EQUAL = Trait.EFFECT | Trait.STACK


class GraphRecorder(Recorder):
    """Adds a node to `graph` for each op call."""

    #: How errors of other recorders name this one, when they meet a symbolic tensor of it.
    title = "another recording"
    #: Whether a missing gradient (None) must be told apart from one that is zeros.
    doubtful = False
    #: Whether gradients popped off a stack may be zeros because the element was never used.
    has_gaps = False

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.written: dict[int, Written] = {}  # by id of the tensor, which the entry keeps alive
        self.grads_set: set[int] = set()  # ids in `written` of tensors whose gradient was set
        self._lifted: dict[int, tuple[Tensor, Value]] = {}  # tensors from outside, by id
        self.token: Tensor | None = None  # the last token, which the next effect takes
        self._stopped: dict[Value, Value] = {}
        self._unknown = itertools.count()
        self.memo = {}
        #: Gradients with one part per iteration, where iterations without a gradient have zeros.
        self.with_gaps: set[Value] = set()
        self._sized: dict[Any, Node] = {}  # calls whose result's size depends on values
        #: While a checkpoint is recomputed: each value of before -> its copy behind a fence.
        self._fences: dict[Value, Value] | None = None
        self._outer_fences: list[dict[Value, Value] | None] = []

    # --- op calls -----------------------------------------------------------------------------

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        values = [self.value_of(x) for x in inputs]
        if values and values[0].type.__class__ is StackType:
            op = stack_form(op)  # the sum of two gradients, where they are stacks
        if op.elementwise and len(values) > 1:
            values = self._brought_together(op, values)
        stops = False  # whether results are cut instead of the stack: its elements keep histories
        if not mode.enabled and op is not STOP_GRADIENT:
            for i, x in enumerate(inputs):
                if values[i].type.__class__ is StackType:
                    stops = stops or x._node is not None or self.marks_all
                elif x._node is not None or (self.marks_all and x.dtype.kind in FLOATS):
                    values[i] = self._stop(values[i])
        outputs = self.emit(op, values, attrs)
        if stops:
            outputs = tuple([self._stopped_result(x) for x in outputs])
        out = outputs if op.outputs > 1 or len(outputs) != 1 else outputs[0]
        taped = binding.tape(op, tuple(map(self._stand_in, inputs, values)), attrs, out)
        locate_histories(outputs)
        return taped

    def taped(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], out: Any) -> Any:
        values = [self.value_of(x) for x in inputs]
        return binding.tape(op, tuple(map(self._stand_in, inputs, values)), attrs, out)

    def _stand_in(self, tensor: Tensor, value: Value) -> Tensor:
        """An input as the tape keeps it: the value of the graph, without numbers of this run."""
        if tensor._data.__class__ is SymbolicArray:
            return tensor
        made = symbolic(value, self)
        made._node = tensor._node
        return made

    def history(self, tensor: Tensor) -> Any:
        """The history of a tensor, as the recorded code sees it."""
        return tensor._node

    def emit(self, op: Op, values: list[Value], attrs: dict[str, Any]) -> tuple[Tensor, ...]:
        """Add a node; its results are symbolic tensors."""
        if self._fences is not None and not op.data_shape:
            values = [self._fenced(value) for value in values]
        types = [value.type for value in values]
        self._check_places(op, types)
        try:
            inferred = op.infer(*types, **attrs)
        except WeftError as error:
            raise error.about(op.name, types) from None
        results = inferred if isinstance(inferred, tuple) else (inferred,)
        if op.data_shape:
            # An equal call gives the same sizes, so they must have the same names.
            call = (op.name, tuple(map(_value_number, values)), attrs_key(attrs))
            known = self._sized.get(call)
            if known is not None:
                return self.settle(known)
            taken = {name for kind in types for name in _names_in(kind)}
            results = self._named(results, taken)
        node = Node(op, values, attrs, results, (), user_location())
        self.graph.nodes.append(node)
        if op.data_shape:
            self._sized[call] = node
        if self._fences is not None:
            self._fences.update((value, value) for value in node.outputs)
        return self.settle(node)

    def settle(self, node: Node) -> tuple[Tensor, ...]:
        """The results of a new node as tensors."""
        return tuple([symbolic(value, self) for value in node.outputs])

    def value_of(self, tensor: Tensor) -> Value:
        """The value of the graph that a tensor stands for."""
        data = tensor._data
        if data.__class__ is SymbolicArray:
            if data.recorder is not self:
                return self.foreign(data)
            value: Value = data.value
            return value
        known = self._lifted.get(id(tensor))
        if known is None:
            known = self._lifted[id(tensor)] = (tensor, self.lift(tensor))
        return known[1]

    def lifted(self) -> list[tuple[Tensor, Value]]:
        """The tensors from outside that op calls used, each with its value."""
        return list(self._lifted.values())

    def lift(self, tensor: Tensor) -> Value:
        """The value of a tensor with numbers, which was not used before."""
        raise NotImplementedError

    def foreign(self, array: SymbolicArray) -> Value:
        """The value of a symbolic tensor of another recorder."""
        raise CaptureError(
            f"a symbolic tensor ({array.type}) of {array.recorder.title} is used here",
            hint="give it to the function as an argument, or return it",
        )

    def again(self, begins: bool) -> None:
        if begins:
            self._outer_fences.append(self._fences)
            self._fences = {}
        else:
            self._fences = self._outer_fences.pop()

    def _fenced(self, value: Value) -> Value:
        """A value from before the recomputation, behind a fence that no pass merges through."""
        assert self._fences is not None
        found = self._fences.get(value)
        if found is None:
            node = Node(FENCE, [value], {}, [value.type], (), user_location())
            self.graph.nodes.append(node)
            found = self._fences[value] = node.out
        return found

    def _stop(self, value: Value) -> Value:
        """The value cut off from gradients, as an operand of code under no_grad()."""
        made = value.node
        if made is not None and made.op is STOP_GRADIENT:
            return value
        found = self._stopped.get(value)
        if found is None:
            node = Node(STOP_GRADIENT, [value], {}, [value.type], (), user_location())
            self.graph.nodes.append(node)
            found = self._stopped[value] = node.out
        return found

    def _stopped_result(self, x: Tensor) -> Tensor:
        value = self.value_of(x)
        if value.type.__class__ is StackType or x.dtype.kind not in FLOATS:
            return x
        return symbolic(self._stop(value), self)

    def _named(self, types: tuple[Any, ...], taken: Set[str]) -> tuple[Any, ...]:
        """Give each size that depends on values a name of its own; type rules call them `_n`."""
        unknown = {d for t in types for d in dims_in(t.shape) if str(d).startswith("_")}
        names = (name for name in map("n{}".format, self._unknown) if name not in taken)
        fresh = {str(d): dim(next(names)) for d in sorted(unknown, key=str)}
        return tuple([t.like(shape=_renamed(t.shape, fresh)) for t in types])

    def _brought_together(self, op: Op, values: list[Value]) -> list[Value]:
        """Operands of an elementwise op, single numbers on the CPU where the others are."""
        types = [value.type for value in values if isinstance(value.type, TensorType)]
        if len(types) < len(values) or all(kind.device == types[0].device for kind in types):
            return values
        place = common_place(op, types)
        if place is None:
            return values  # an error will say so
        return [
            value
            if kind.device == place
            else self.value_of(self.emit(TO_DEVICE, [value], {"device": place})[0])
            for value, kind in zip(values, types, strict=True)
        ]

    def _check_places(self, op: Op, types: list[Any]) -> None:
        places = {(t.device, t.layout) for t in types}
        if len(places) > 1:
            listed = ", ".join(sorted(f"{device} ({layout})" for device, layout in places))
            raise CaptureError(
                f"operands are on different devices or in different layouts: {listed}",
                op=op.name,
                operands=types,
                hint=how_to_bring_together(device for device, _ in places),
            )

    # --- questions and writes -----------------------------------------------------------------

    def ask(self, tensor: Tensor, question: str) -> Any:
        if tensor._data.__class__ is not SymbolicArray or question == "repr":
            return UNASKED
        raise CaptureError(
            f"Python asks a symbolic tensor ({tensor.type}) for its value ({question})",
            op=question,
            hint="weft.trace turns the answer into a guard, weft.compile makes it part of the "
            "graph; here, use tensor operations (weft.where instead of if)",
        )

    def decide(self, condition: Tensor) -> bool:
        return True

    def write(self, target: Tensor) -> None:
        if self.is_from_outside(target) and id(target) not in self.written:
            self.written[id(target)] = Written(target)

    def is_from_outside(self, tensor: Tensor) -> bool:
        """Whether a tensor was there before: what is written to it is an output."""
        return tensor._data.__class__ is not SymbolicArray or id(tensor) in self.written

    def adopt_value(self, value: Tensor) -> Any:
        """The value of the graph for a tensor from outside that is assigned to another tensor.

        The numbers of this run must not become those of other runs.
        """
        data = value._data
        if data.__class__ is SymbolicArray or family_of(data).refusal:
            return data
        return symbolic(self.value_of(value), self)._data

    def keeps_gradient(self, target: Tensor) -> bool:
        """Whether a write under no_grad() needs an op that keeps the target's history.

        A tensor from outside keeps its history without one: the graph gives it only a value.
        """
        return (target._node is not None or self.marks_all) and id(target) not in self.written

    def leaf_before(self, target: Tensor) -> Any:
        entry = self.written.get(id(target))
        node = None if entry is None else entry.node
        return node if node is not None and node.is_leaf and not hooks_of(node) else None

    def wrote_grad(self, tensor: Tensor) -> None:
        self.grads_set.add(id(tensor))

    def python_effects(self) -> int:
        """The number of writes to Python objects so far; a nested graph cannot hold any."""
        return 0

    def forget_nodes(self, start: int) -> bool:
        """Remove all nodes from this number on; False if some of them cannot be removed."""
        gone = set(self.graph.nodes[start:])
        del self.graph.nodes[start:]
        self._stopped = {k: v for k, v in self._stopped.items() if v.node not in gone}
        self._sized = {k: v for k, v in self._sized.items() if v not in gone}
        self.memo = {}
        return True

    def restore(self) -> None:
        """Restore all tensors from outside to what they held before."""
        for entry in self.written.values():
            entry.restore()


def locate_histories(results: Iterable[Tensor]) -> None:
    """Give the histories of these results their source line: ops of the backward report it."""
    for result in results:
        history, data = result._node, result._data
        if history is not None and data.__class__ is SymbolicArray and data.value.node is not None:
            whole = history.parent if isinstance(history, PartNode) else history
            locate(whole, data.value.node.location)


#: How many nodes back values are compared: `(y.abs() - 1) > 0` is equal wherever y is the same.
_DEPTH = 6


def _value_number(value: Value, depth: int = _DEPTH) -> Any:
    """A key that is the same only for values that are equal: the expression, or the value."""
    node = value.node
    if node is None or depth == 0 or node.graphs or node.op.traits & _NEVER_EQUAL:
        return value
    inputs = tuple([_value_number(x, depth - 1) for x in node.inputs])
    return node.op.name, value.index, inputs, attrs_key(node.attrs)


def _names_in(kind: Any) -> set[str]:
    shape = kind.shape if isinstance(kind, TensorType) else ()
    return {name for size in dims_in(shape) for name in size.names}


def _renamed(shape: Any, fresh: dict[str, Dim]) -> Any:
    return tuple([fresh.get(str(size), size) if isinstance(size, Dim) else size for size in shape])
