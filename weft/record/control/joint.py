"""Differentiates a nested graph into a forward and a backward half.

The nodes of the graph are recorded again on inputs that want gradients, and autograd runs on the
results: the nodes it records are the backward half. Values of the forward half that the backward
half uses are residuals: they are saved, unless they are available anyway or cheap to recompute.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from weft.autodiff import engine
from weft.autodiff.conditional_gradients import Doubts, is_used
from weft.autodiff.gradient_flow import is_smooth
from weft.autodiff.gradient_reach import has_gaps
from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.device import CPU
from weft.base.errors import CaptureGradientError
from weft.core.bind import recording
from weft.core.grad_mode import enable_grad
from weft.core.operands import cast
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor, wrap
from weft.ir.failing import cannot_fail
from weft.ir.graph import Graph, Node, Value
from weft.ir.sizes import bare_names, local_sizes, sizes_named
from weft.ir.types import TOKEN, StackType, TensorType, Type
from weft.ops.cards import FULL, STACK_ZEROS
from weft.ops.elementwise import logical_and, logical_or
from weft.ops.stacks import STACK_NEW, STACK_POP, STACK_PUSH, stack_attrs
from weft.record.control.borders import Border
from weft.record.control.nested import NestedRecorder, check_effects, set_inputs
from weft.record.control.node import replay, replay_node
from weft.record.recorder import GraphRecorder

BOOL = TensorType(dtypes.bool, ())


@dataclass(slots=True)
class Halves:
    """The two halves of a graph.

    forward      a copy of the graph, with inputs and outputs of the same types
    nodes        the backward half; it uses values of the forward half and the cotangents
    cotangents   for each output a value, or None if it has no cotangent
    flags        by number of an output: a bool value, False if its cotangent is only zeros
    gradients    for each input a value, or None if it gets no gradient
    doubts       for each input the condition under which it has a gradient; None: always
    gaps         for each input whether its gradient is zeros for iterations without a gradient
    """

    forward: Graph
    nodes: list[Node]
    cotangents: list[Value | None]
    flags: dict[int, Value]
    gradients: list[Value | None]
    doubts: list[Value | None]
    gaps: list[bool]

    def needed(self) -> list[Value]:
        """Values of the forward half that the backward half uses, in order of use."""
        made = {value for node in self.nodes for value in node.outputs}
        made.update(value for value in self.cotangents if value is not None)
        made.update(self.flags.values())
        used = [value for node in self.nodes for value in node.inputs]
        used += [value for value in (*self.gradients, *self.doubts) if value is not None]
        found = [value for value in dict.fromkeys(used) if value not in made]
        given = [value for value in self.cotangents if value is not None]
        told = [bare_names(value) for value in (*found, *given)]
        return found + self._sized(set().union(*told))

    def _sized(self, known: set[str]) -> list[Value]:
        """Values that define the sizes which the backward half names and no `known` one tells."""
        wanted = local_sizes(self.forward) & sizes_named(self.nodes) - known
        found: list[Value] = []
        for node in self.forward.nodes if wanted else ():
            for value in node.outputs:
                told = wanted & bare_names(value)
                if told:
                    found.append(value)
                    wanted -= told
        return found


def differentiate(
    owner: GraphRecorder,
    graph: Graph,
    inputs: Sequence[bool],
    outputs: Sequence[bool],
    unsure: Container[int] = (),
    gaps: Container[int] = (),
) -> Halves:
    """Both halves, for the gradients of `inputs` from the cotangents of `outputs`.

    unsure   outputs whose cotangent exists only if a flag is set
    gaps     outputs whose cotangent is zeros where it is missing: in some iterations, or for
             elements of a list that were never used
    """
    nested = NestedRecorder(owner, graph.name)
    nested.marks_all = False  # the engine runs without a tape; that does not mean no_grad() here
    given: list[Tensor] = []
    for value, wanted in zip(graph.inputs, inputs, strict=True):
        tensor = nested.input(value.type)
        nested.inputs[-1].name = value.name
        if wanted and is_smooth(value.type):
            tensor._node = Border(tensor.shape)
        given.append(tensor)
    targets = [x._node for x in given if x._node is not None]
    roots: list[tuple[Any, Any]] = []
    cotangents: list[Value | None] = [None] * len(outputs)
    gradients: list[Value | None] = []
    flags: dict[int, Value] = {}
    conditions: Doubts = {}
    doubts: list[Value | None] = []
    effects = nested.python_effects()
    with recording(nested), enable_grad():
        results = replay(nested, graph, given)
        split = len(nested.graph.nodes)
        for i, (result, on) in enumerate(zip(results, outputs, strict=True)):
            if on and result._node is not None:
                start = cotangents[i] = Value(nested.value_of(result).type)
                roots.append((result._node, symbolic(start, nested)._data))
                if i in unsure:
                    flags[i] = Value(BOOL)
                if i in gaps:
                    nested.with_gaps.add(start)
        nested.has_gaps = any(isinstance(value.type, StackType) for value in nested.with_gaps)
        caught = engine.run(
            roots,
            keep=True,
            create=False,
            targets=targets,
            cut=True,
            doubts=conditions,
            of_roots=_of_roots(nested, results, cotangents, flags),
        )
        for x in given:
            doubt = None if x._node is None else conditions.get(x._node)
            doubts.append(None if doubt is None else nested.value_of(doubt))
            g = None if x._node is None else caught.get(x._node)
            gradients.append(None if g is None else nested.value_of(cast(wrap(g), x.dtype)))
    check_effects(nested, effects, "the backward of a branch or loop body")
    _check_closed(nested, split)
    forward = Graph(graph.name)
    set_inputs(forward, nested.inputs)
    forward.nodes = nested.graph.nodes[:split]
    forward.outputs = tuple([nested.value_of(x) for x in results])
    backward = live_nodes(nested.graph.nodes[split:], [*gradients, *doubts])
    gappy = [value is not None and has_gaps(value, nested.with_gaps) for value in gradients]
    return Halves(forward, backward, cotangents, flags, gradients, doubts, gappy)


def _of_roots(
    nested: NestedRecorder,
    results: Sequence[Tensor],
    cotangents: Sequence[Value | None],
    flags: dict[int, Value],
) -> Doubts:
    """Conditions of the cotangents. A value that is returned several times gets their sum."""
    found: Doubts = {}
    certain = set()
    for i, (result, cotangent) in enumerate(zip(results, cotangents, strict=True)):
        node = result._node
        if node is None or cotangent is None:
            continue
        now = symbolic(flags[i], nested) if i in flags else None
        if cotangent in nested.with_gaps and isinstance(cotangent.type, TensorType):
            used = is_used(symbolic(cotangent, nested))
            now = used if now is None else logical_and(now, used)
        if now is None:
            certain.add(node)
        else:
            found[node] = logical_or(found[node], now) if node in found else now
    return {node: doubt for node, doubt in found.items() if node not in certain}


def _check_closed(nested: NestedRecorder, split: int) -> None:
    """Refuse hooks and custom backwards that call Python or use tensors from outside."""
    where = "inside of a branch or loop body"
    if any(value.type is TOKEN for node in nested.graph.nodes[split:] for value in node.outputs):
        raise CaptureGradientError(
            f"a hook or the backward of a Function prints or calls Python {where}",
            hint="print what goes forward: weft.print(x); or write weft.unroll(range(n))",
        )
    if nested.captured:
        raise CaptureGradientError(
            f"a hook or the backward of a Function uses a tensor from outside {where}",
            hint="hand it to forward and keep it: ctx.save_for_backward(...)",
        )


def live_nodes(nodes: Sequence[Node], wanted: Iterable[Value | None]) -> list[Node]:
    """The nodes that wanted values depend on, in order."""
    needed = {value for value in wanted if value is not None}
    kept = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    return kept[::-1]


# --- residuals ---------------------------------------------------------------------------------

_DEEPEST = 20  # longest chain of cheap ops to recompute


class Residuals:
    """How the backward half gets the values that it needs of the forward half.

    free      available without saving: inputs of the forward half that it is given, too
    hoisted   loop-invariant: computed once outside of the loop
    again     cheap nodes that are recomputed
    saved     all others: saved by the forward half
    """

    def __init__(self, halves: Halves, free: set[Value], invariant: set[Value]) -> None:
        self.forward = halves.forward
        self.free: dict[Value, None] = {}
        self.hoisted: dict[Value, None] = {}
        self.saved: dict[Value, None] = {}
        self._again: set[Node] = set()
        self._free, self._invariant = free, invariant
        needed = halves.needed()
        self._needed = set(needed)
        told: set[str] = set().union(*map(bare_names, needed))
        self._untold = local_sizes(self.forward) - told  # the backward half cannot name these
        for value in needed:
            self._resolve(value, 0)

    @property
    def again(self) -> list[Node]:
        return [node for node in self.forward.nodes if node in self._again]

    def _resolve(self, value: Value, depth: int) -> None:
        node = value.node
        if value in self._free:
            self.free[value] = None
        elif node is not None and depth < _DEEPEST and self._is_cheap(node):
            if node not in self._again:
                self._again.add(node)
                for used in node.inputs:
                    self._resolve(used, depth + 1)
        elif value in self._invariant:
            self.hoisted[value] = None
        else:
            self.saved[value] = None

    def _is_cheap(self, node: Node) -> bool:
        """Whether a node can be recomputed, and that costs less than saving its result."""
        if self._untold and not self._untold.isdisjoint(sizes_named([node])):
            return False
        if node.op.creation:
            return True
        if not node.op.cheap and not node.op.view:
            return False
        return all(self._is_there(value, node) for value in node.inputs)

    def _is_there(self, value: Value, user: Node) -> bool:
        known = self._free | self._invariant
        if value in known or value in self._needed or value in self.saved:
            return True
        made = value.node
        if made is not None and made.op.creation:
            return True
        return len(user.inputs) == 1 and _no_larger(value.type, user.outputs[0].type)


def _no_larger(one: Type, two: Type) -> bool:
    if not isinstance(one, TensorType) or not isinstance(two, TensorType):
        return False
    if one.shape == two.shape:
        return one.dtype.itemsize <= two.dtype.itemsize
    sizes = (one.nbytes, two.nbytes)
    return all(type(n) is int for n in sizes) and sizes[0] <= sizes[1]


def invariant_values(graph: Graph, consts: set[Value]) -> set[Value]:
    """Values that depend only on constants of a loop.

    Without nodes that may fail, since there may be no iteration, and without values whose size is
    known only inside of an iteration.
    """
    found = set(consts)
    hidden = local_sizes(graph)
    for node in graph.nodes:
        same = all(value in found for value in node.inputs) and cannot_fail(node)
        if same and (not hidden or hidden.isdisjoint(sizes_named([node]))):
            found.update(node.outputs)
    return found


def hoist(
    here: GraphRecorder, graph: Graph, known: dict[Value, Tensor], wanted: Iterable[Value]
) -> list[Tensor]:
    """Compute loop-invariant values of a body outside of the loop."""
    values = list(wanted)
    made = dict(known)
    for node in live_nodes(graph.nodes, values):
        results = replay_node(here, node, [made[value] for value in node.inputs])
        made.update(zip(node.outputs, results, strict=True))
    return [made[value] for value in values]


# --- helpers to build graphs -------------------------------------------------------------------


def zero_value(graph: Graph, kind: Type, *, forever: bool = True) -> Value:
    """A zero of a type. For a stack: one that pops zeros forever, or an empty one."""
    if isinstance(kind, StackType):
        op = STACK_ZEROS if forever else STACK_NEW
        return graph.add(op, **stack_attrs(kind)).out
    assert isinstance(kind, TensorType)
    made = graph.add(FULL, shape=kind.shape, value=0, dtype=kind.dtype, device=kind.device)
    return made.out


def flag_value(graph: Graph, flag: bool) -> Value:
    return graph.add(FULL, shape=(), value=flag, dtype=dtypes.bool, device=CPU).out


def boxed(graph: Graph, value: Value) -> Value:
    """A stack that holds only this value, whose shape is not known outside."""
    assert isinstance(value.type, (TensorType, StackType))
    empty = zero_value(graph, StackType(value.type), forever=False)
    return graph.add(STACK_PUSH, empty, value).out


def unboxed(graph: Graph, value: Value) -> Value:
    return graph.add(STACK_POP, value).outputs[1]
