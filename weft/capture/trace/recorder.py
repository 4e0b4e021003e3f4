"""Records one run of a function along one path, and answers questions of Python on the way.

The function runs on the user's own objects, watched (`Watch`); its op calls become nodes. If Python
asks a tensor for its value, the nodes so far are computed on the numbers of this call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.autodiff import engine
from weft.autodiff.node import Node as HistoryNode
from weft.autodiff.node import count, hooks_of, with_shape
from weft.autodiff.transforms.levels import check_open
from weft.base.asked_sizes import AskedSizes
from weft.base.device import CPU
from weft.base.dim_algebra import Dim
from weft.base.dims import bind_dims, dims_in
from weft.base.dtypes import int64
from weft.base.errors import WeftError
from weft.base.pytree import tree_flatten
from weft.base.source import user_location
from weft.capture.from_source.held import Maybe, undefined, use_all
from weft.capture.from_source.run import Flow
from weft.capture.hooks import Hooks
from weft.capture.trace.binding import Binding
from weft.capture.trace.data_sizes import COMPARISONS, RecordedDataSizes
from weft.capture.trace.new_leaves import (
    begins_to_learn,
    new_leaves,
    sets_requires_grad,
)
from weft.capture.trace.recorded_backward import NoNumbers, record_backward
from weft.capture.trace.result_leaves import as_result, is_plain, with_plain_keys
from weft.capture.trace.segments import Ending, Question, Segment, array_tensor
from weft.capture.trace.sizes import RecordedSizes, may_vary
from weft.capture.watch.calls import callable_for
from weft.capture.watch.effects import tensors_in
from weft.capture.watch.origin import Origin, PlaceKey, input_name, pinned, place_key
from weft.capture.watch.refusals import NotKept
from weft.capture.watch.texts import TextParts
from weft.capture.watch.values import TensorFacts
from weft.capture.watch.watch import Watch
from weft.core.bind import bind, recorder
from weft.core.grad_mode import no_grad
from weft.core.number import Number
from weft.core.symbolic import SymbolicArray, symbolic
from weft.core.tensor import StateTensor, Tensor, type_of, wrap
from weft.core.unrecorded import unrecorded
from weft.ir.graph import Graph, Node, Value
from weft.ir.infer import infer_types
from weft.ir.interpret import located, run_node
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import OPS, Op
from weft.ir.signature import NONE, SAME, Constant, Given, Made, Signature, Write
from weft.ir.types import TensorType
from weft.ops.cards import DIM_SIZE
from weft.ops.effects import apart, drawn_by, silently
from weft.ops.identity import ASSUME_SHAPE
from weft.record.recorder import GraphRecorder, Written


class TraceRecorder(GraphRecorder):
    """Records one run of a function.

    records    whether control flow on tensors becomes part of the graph (see `Watch`)
    fallback   how to call foreign code that gets tensors of the graph
    """

    doubtful = True

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        records: bool = False,
        fallback: str = "error",
    ) -> None:
        super().__init__(Graph("trace"))
        self._began = next(count)  # histories with lower numbers are from outside
        self.watch = Watch(self, records)
        self.flow = Flow(self.watch)
        self.flow.fallback = fallback
        self.args = args
        self.kwargs = kwargs
        self.segments: list[Segment] = []
        self.refusals: list[str] = []
        #: By id: the place of a tensor from outside that begins to require a gradient.
        self.learns: dict[int, int] = {}
        self.differentiated = True  # whether to record a backward of the result
        self.name = "trace"  # the name of the function
        self._inputs: list[tuple[Value, Origin]] = []
        self._origins: dict[Value, Origin] = {}
        self._start = 0  # first node of the current segment
        self._numbers: dict[Value, Tensor] = {}  # values that are computed so far
        self._computed = 0  # number of nodes that are computed
        self._known_sizes: dict[str, int] = {}  # of the nodes that are computed
        self._answers: dict[tuple[Value, str], Any] = {}
        self._arrays: dict[int, tuple[Any, Tensor]] = {}
        self._inputs_of_numbers: dict[int, Tensor] = {}  # by id of the origin, which is kept alive
        self.sizes: RecordedSizes | None = None  # which are symbolic, if any are
        self.data_sizes = RecordedDataSizes(self._compute, self._holds)
        #: The sizes of tensors from outside that are no parameters, and where those are found.
        self.seen_sizes: dict[PlaceKey, tuple[Origin, tuple[int, ...]]] = {}
        self._all_nodes: list[Node] = []  # at the end, with those of the backward
        self._place_keys: dict[int, PlaceKey] = {}
        self._stand_ins: list[Written] = []  # tensors from outside with symbolic sizes
        self._passes = engine.passes.count
        self._backward_at: int | None = None  # the first node of a backward pass

    def emit(self, op: Op, values: list[Value], attrs: dict[str, Any]) -> tuple[Tensor, ...]:
        if self._backward_at is None and engine.passes.count != self._passes:
            self._backward_at = len(self.graph.nodes)
        before, self.data_sizes.infers = self.data_sizes.infers, True
        try:
            return super().emit(op, values, attrs)
        finally:
            self.data_sizes.infers = before

    # --- tensors from outside -----------------------------------------------------------------

    def lift(self, tensor: Tensor) -> Value:
        check_open(tensor)
        origin = self.watch.origin_of(tensor)
        if origin is None and isinstance(tensor, StateTensor):
            # The state of a generator that the function creates: the same in each call.
            attrs = constant_attrs(tensor.numpy(), tensor.device)
            return self.value_of(self.emit(CONSTANT, [], attrs)[0])
        if origin is None:
            self.refuse(
                f"a tensor ({tensor.type}) was used that was not reached through arguments, "
                "closures, globals or attributes"
            )
            origin = pinned(tensor, "a tensor")
        return self._input(type_of(tensor), origin, wrap(tensor._data))

    def _input(self, kind: TensorType, origin: Origin, numbers: Tensor) -> Value:
        value = Value(kind, input_name(origin.text))
        self._inputs.append((value, origin))
        self._origins[value] = origin
        self._numbers[value] = numbers
        return value

    def sized(
        self, tensor: Tensor, origin: Origin, facts: TensorFacts, in_module: bool
    ) -> tuple[int, ...] | None:
        """A tensor with symbolic sizes stands for its value from now on, until the run is over."""
        if not may_vary(tensor._data) or id(tensor) in self.written:
            return None
        if not (in_module and facts.leaf):
            key = place_key(origin, self._place_keys)
            self.seen_sizes[key] = (origin, facts.shape)
        if self.sizes is None or isinstance(tensor, StateTensor):
            return None
        shape = self.sizes.shape_of(origin, facts, in_module)
        if shape is None:
            return None
        kind = type_of(tensor)
        value = self._input(kind.like(shape=shape).cut(kind.cuts), origin, wrap(tensor._data))
        self._lifted[id(tensor)] = (tensor, value)
        self._stand_ins.append(Written(tensor))
        if tensor._node is not None:
            tensor._node = with_shape(tensor._node, shape)  # gradients are summed to it
        tensor._data = SymbolicArray(value, self)
        return shape

    def restore(self) -> None:
        super().restore()
        for entry in self.written.values():
            entry.release()
        self._numbers.clear()  # they hold arrays of inputs, which could not be written in place
        for held in self._stand_ins:
            held.restore()
        self._stand_ins.clear()

    def holds_together(self) -> bool:
        """Whether the graph is right without the answers of this run.

        Sizes that are equal only by an answer, as in min(T,4) == 4, are not equal to the passes.
        """
        if self.sizes is None or not self.sizes.asked.unsolved:
            return True
        try:
            return all(map(_is_typed, self._all_nodes))
        except WeftError:
            return False

    def is_from_outside(self, tensor: Tensor) -> bool:
        return super().is_from_outside(tensor) or self.is_stand_in(tensor)

    def is_stand_in(self, tensor: Tensor) -> bool:
        """Whether a tensor from outside with symbolic sizes still is what it was."""
        known, data = self._lifted.get(id(tensor)), tensor._data
        return known is not None and getattr(data, "value", None) is known[1]

    def adopt(self, array: np.ndarray[Any, Any]) -> Tensor | None:
        known = self._arrays.get(id(array))
        if known is None:
            origin = self.watch.origin_of(array)
            if origin is None:
                return None
            numbers = array_tensor(array)
            value = self._input(type_of(numbers), origin, numbers)
            known = self._arrays[id(array)] = (array, symbolic(value, self))
        return known[1]

    def number(self, origin: Origin, value: float) -> Tensor:
        """An input for a Python number, which may differ in later calls."""
        found = self._inputs_of_numbers.get(id(origin))
        if found is None:
            numbers = wrap(np.asarray(value))
            found = symbolic(self._input(type_of(numbers), origin, numbers), self)
            self._inputs_of_numbers[id(origin)] = found
        return found

    def size(self, origin: Origin, value: int) -> int | None:
        """A symbolic size for a number from outside; None where it is to be a number."""
        return None if self.sizes is None else self.sizes.number(origin, value, self._input)

    def read_grad(self, tensor: Tensor) -> None:
        if id(tensor) in self.grads_set:
            return  # the run itself set it
        origin = self.watch.origin_of(tensor)
        if origin is not None:
            self.watch.note(getattr(tensor, "_grad", None), origin.attr("grad"))
        elif self.is_from_outside(tensor):
            self.refuse("the gradient was read of a tensor that was not reached from outside")

    def input_of(self, tensor: Tensor) -> Value | None:
        """The input for a tensor from outside; None if the run did not use it."""
        found = self._lifted.get(id(tensor))
        return None if found is None else found[1]

    # --- histories from outside ---------------------------------------------------------------
    # Hooks of a tensor from outside are guarded and followed like other user code. A backward that
    # continues into ops from outside depends on how these were computed, which no guard can check:
    # such a run is refused.

    def met(self, node: HistoryNode, goes_on: bool) -> None:
        if node.number > self._began:
            return
        if goes_on:
            # Before it frees them: then Python runs the call.
            raise NotKept("a backward pass continues into ops from outside")
        tensor = self._tensor_of(node)
        if (tensor is None or not self.watch.hooks(tensor, node)) and hooks_of(node):
            self.refuse("a tensor that was not reached from outside has a hook")

    def _tensor_of(self, node: Any) -> Tensor | None:
        """The tensor from outside that has this history."""
        if node.is_leaf:
            found: Tensor | None = node.variable
            return found
        return next((x for x, _ in self._lifted.values() if x._node is node), None)

    def followed(self, function: Any) -> Any:
        if not self.watch.active:
            return function
        return callable_for(Hooks(self.watch, None), function)

    # --- questions ----------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        where = user_location()
        self.refusals.append(f"{reason} at {where}" if where else reason)

    def python_effects(self) -> int:
        return len(self.watch.effects)

    def ask(self, tensor: Tensor, question: str) -> Any:
        return self._ask(self.value_of(tensor), "numpy" if question == "repr" else question)

    def decide(self, condition: Tensor) -> bool:
        return bool(self._ask(self.value_of(condition), "bool"))

    def _ask(self, value: Value, kind: str) -> Any:
        known = self._answers.get((value, kind))
        if known is not None:
            return known[0]
        drawn = drawn_by(value) if kind != "bool" else ""
        if drawn:  # the answer would be another one in each call
            reason = f"Python needs the number that {drawn} gives"
            self.watch.refuse(reason)  # ends the run, unless it is over
            self.refuse(reason)
        question = Question(value, kind, user_location())
        answer = question.answer(self._compute(value))
        self._answers[value, kind] = (answer,)
        self._cut(question, answer)
        return answer

    def _compute(self, value: Value) -> Tensor:
        """The numbers of a value in this call; computes all nodes so far."""
        numbers = self._numbers
        nodes = self.graph.nodes
        with no_grad(), self._unwatched():
            if self.sizes is not None:
                self._known_sizes.update(self.sizes.asked.hints)
            while self._computed < len(nodes):
                node = nodes[self._computed]
                for missing in [v.node for v in node.inputs if v not in numbers]:
                    if missing is None:
                        raise NoNumbers
                    with apart():
                        self._compute_node(missing)  # a backward has extended it since
                self._compute_node(node)
                self._computed += 1
        if value not in numbers:
            raise NoNumbers
        return numbers[value]

    @contextlib.contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Compute nodes without watching and without their effects.

        Effects that are nodes run when the graph is replayed. Reads and writes of calls into Python
        are not part of the recording.
        """
        watch = self.watch
        if not watch.records:
            yield
            return
        before, watch.active = watch.active, False
        noted = set(watch._noted)  # what is not guarded now gets a guard at its next read
        try:
            with silently():
                yield
        finally:
            watch.active, watch._noted = before, noted

    def write(self, target: Tensor) -> None:
        self.flow.aliases.check(target)
        super().write(target)

    def _compute_node(self, node: Any) -> None:
        try:
            parts = run_node(node, [self._numbers[v] for v in node.inputs], bind, self._known_sizes)
        except WeftError as error:
            raise located(error, node) from error.__cause__
        self._numbers.update(zip(node.outputs, parts, strict=True))
        if node.op.data_shape:
            for value, part in zip(node.outputs, parts, strict=True):
                bind_dims(value.tensor_type.shape, part.shape, self._known_sizes)

    def _holds(self, gap: Dim, sign: str) -> bool | None:
        """Whether a size that depends on data compares to 0 like this: a question to the run."""
        if recorder() is not self:
            return None  # in a branch or the body of a loop, which cannot ask
        with unrecorded():
            size = self.emit(DIM_SIZE, [], {"size": gap, "dtype": int64, "device": CPU})[0]
            zero = self.emit(CONSTANT, [], constant_attrs(np.asarray(0), CPU))[0]
            values = [self.value_of(size), self.value_of(zero)]
            (held,) = self.emit(OPS[COMPARISONS[sign]], values, {})
            return bool(self._ask(self.value_of(held), "bool"))

    def forget_nodes(self, start: int) -> bool:
        # What Python asked for has been answered.
        return start >= self._start and super().forget_nodes(start)

    def _cut(self, question: Question | None, answer: Any) -> None:
        nodes = self.graph.nodes[self._start :]
        guards = self.watch.take_guards()
        self.segments.append(Segment(guards, self._inputs, nodes, question, answer))
        self._start = len(self.graph.nodes)
        self._inputs = []

    def settle(self, node: Node) -> tuple[Tensor, ...]:
        if not node.op.data_shape:
            return super().settle(node)
        if not self.data_sizes.fixes(node):
            self.data_sizes.add(node)
            return super().settle(node)
        settled: list[Tensor] = []
        for value in node.outputs:
            if self._depends_on_data(value.tensor_type.shape):
                shape = self._ask(value, "shape")
                settled += self.emit(ASSUME_SHAPE, [value], {"shape": shape})
            else:
                settled.append(symbolic(value, self))
        return tuple(settled)

    def _depends_on_data(self, shape: Any) -> bool:
        """Whether a shape has sizes that inputs do not tell."""
        told = {} if self.sizes is None else self.sizes.asked.hints
        return any(name not in told for size in dims_in(shape) for name in size.names)

    @property
    def asked(self) -> AskedSizes:
        """What answers questions about sizes."""
        return self.data_sizes.asked if self.sizes is None else self.sizes.asked

    # --- the end ------------------------------------------------------------------------------

    def finish(self, result: Any) -> Ending:
        """End the last segment and note the results of the run."""
        if isinstance(result, Maybe):
            raise undefined("the result", result.why)
        use_all(self.flow, result, lists=False)
        use_all(self.flow, result, lists=True)
        binding = Binding(self.value_of, self._outside)
        made, keep, output = binding.made, binding.kept, binding.output
        for origin in self._origins.values():  # those that are read come first
            binding.place(origin)
        leaves, structure = tree_flatten(with_plain_keys(result))
        leaves = [as_result(leaf) for leaf in leaves]
        stands: list[Any] = []
        for leaf in leaves:
            given = None if is_plain(leaf) else binding.given(leaf)
            if given is not None:
                stands.append(given)
            elif isinstance(leaf, Tensor):
                stands.append(Made(output(leaf), leaf.__class__ is Number))
            else:
                if not is_plain(leaf):
                    self.refuse(f"the result holds a new {type(leaf).__name__}")
                stands.append(Constant(leaf))
        written = self.written.values()
        writes = [write for entry in written for write in self._writes(entry, binding)]
        places: dict[int, int | Given] = {}
        in_effects = tensors_in(self.watch.effects, self.args, self.kwargs)
        for tensor in in_effects:
            found = binding.given(tensor)
            places[id(tensor)] = output(tensor) if found is None else found
        leaves_made = new_leaves(keep, output, binding.given)
        own = {made[leaf.output]: leaf.output for leaf in leaves_made if leaf.learns}
        tracked = [
            i
            for i, tensor in enumerate(keep)
            if self.differentiated and tensor._node is not None and made[i] not in own
        ]
        forward = len(self.graph.nodes)
        backward_at = self._backward_at
        leaves_kept = [keep[i] for i in own.values()]
        results = [keep[i] for i in tracked]
        backward = record_backward(self, results, forward, leaves_kept) if tracked else None
        if backward is None:
            tracked = []
        self._all_nodes = list(self.graph.nodes)
        del self.graph.nodes[forward:]
        self._cut(None, None)
        inputs = self._origins.items()
        read = {binding.place(origin): value.tensor_type for value, origin in inputs}
        named = binding.places(read, self.watch.parameters, self.watch.names())
        for value, origin in inputs:
            value.name = input_name(named[binding.place(origin)].name)
        signature = Signature(
            self.name,
            named,
            tuple([binding.place(origin) for _, origin in inputs]),
            tuple([value.tensor_type for value in made]),
            tuple(tracked),
            structure,
            tuple(stands),
            tuple(writes),
            tuple(leaves_made),
            tuple([effect.description for effect in self.watch.effects]),
        )
        return Ending(
            signature,
            binding.origins,
            made,
            list(self.watch.effects),
            places,
            in_effects,
            backward,
            backward_at,
            learns=list(self.learns.values()),
        )

    def _outside(self, obj: Any) -> Origin | None:
        """The origin of an object from outside; None for one that the run made."""
        if obj.__class__ is Number and obj.outside is not None:
            return obj.outside.given  # type: ignore[attr-defined,no-any-return]
        if obj.__class__ is TextParts:
            return obj.origin
        if isinstance(obj, Tensor) and obj._data.__class__ is SymbolicArray:
            if not self.is_from_outside(obj):
                return None
        elif isinstance(obj, Tensor):
            self.value_of(obj)  # a constant, or one that is refused, is known from now on
        origin: Origin | None = self.watch.origin_of(obj)
        return origin

    def _writes(self, entry: Any, binding: Binding) -> list[Write]:
        tensor = entry.tensor
        origin = self.watch.origin_of(tensor)
        if origin is None:
            if isinstance(tensor, StateTensor):
                return []  # the state of a generator that the function creates
            self.refuse(f"a tensor ({tensor.type}) was written that was not found outside")
            origin = pinned(tensor, "a tensor")
        if begins_to_learn(entry) and self.differentiated:
            self.learns[id(tensor)] = binding.place(origin)
        elif sets_requires_grad(entry):
            self.refuse("requires_grad was set on a tensor from outside")
        value = None
        if tensor._data is not entry.data:
            # Its value is a tensor of its own here: the target is assigned at the end.
            held = wrap(tensor._data)
            if tensor._node is not entry.node:  # a leaf stays a leaf: its value has no history
                held._node = tensor._node
            value = binding.output(held)
        now = getattr(tensor, "_grad", None)
        grad: Any = SAME
        if now is not entry.grad or id(tensor) in self.grads_set:
            found = None if now is None else binding.given(now)
            grad = NONE if now is None else found if found is not None else binding.output(now)
        history = value is not None and tensor._node is not entry.node
        if value is None and grad == SAME:
            return []
        return [Write(binding.place(origin), value, history, grad)]


def _is_typed(node: Node) -> bool:
    """Whether the types of a node, and of those in its graphs, follow from their operands."""
    types = infer_types(node.op, node.inputs, node.attrs, node.graphs)
    found = node.op.data_shape or list(types) == [value.type for value in node.outputs]
    return found and all(_is_typed(inner) for graph in node.graphs for inner in graph.nodes)
