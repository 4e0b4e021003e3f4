"""Backward through `while` and `scan`: a loop over the iterations in reverse order.

It carries the cotangents of the forward loop's carries and the summed gradients of its constants.
The forward loop saves the residuals of each iteration: a scan as further ys, a while on stacks,
together with the number of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.autodiff.gradient_flow import active_values, carried_active, needs_box
from weft.autodiff.gradient_reach import flowing_carries, has_gaps
from weft.base import dtypes
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Value, copy_nodes, keep_names
from weft.ir.types import StackType, TensorType, Type
from weft.ops.cards import ADD, FULL, GREATER, LOGICAL_OR, SUBTRACT
from weft.ops.control import SCAN, WHILE
from weft.ops.creation import full
from weft.ops.elementwise import greater, logical_not
from weft.ops.stacks import STACK_ADD, STACK_POP, zero_of
from weft.record.control.joint import (
    BOOL,
    Halves,
    Residuals,
    boxed,
    differentiate,
    flag_value,
    hoist,
    invariant_values,
    unboxed,
    zero_value,
)
from weft.record.control.node import ControlNode, emit
from weft.record.recorder import GraphRecorder


class _Backward:
    """What both kinds of loop share: the halves of the body, and which cotangents are carried.

    carried     carries that have a cotangent
    consts      constants that get a gradient, which is asked for
    """

    def __init__(
        self,
        call: ControlNode,
        here: GraphRecorder,
        body: Graph,
        consts: int,
        carries: int,
        g: Sequence[Tensor | None],
        asked: list[bool],
        arrives: dict[int, Tensor],
    ) -> None:
        """`g` are the cotangents of the body's outputs: carries, then ys.

        `arrives` has the conditions under which some of them exist; otherwise they are zeros.
        """
        self.arrives = arrives
        self.call, self.here, self.first, self.last = call, here, consts, consts + carries
        inner = carried_active(body, asked, consts, carries)
        inputs = [*asked[:consts], *inner, *asked[self.last :]]
        active = active_values(body, inputs)
        given = [part is not None for part in g]
        ys = given[carries:]
        flowing = flowing_carries(body, active, consts, inner, given[:carries], ys)
        self.carried = [j for j, on in enumerate(flowing) if on]
        self.halves: Halves = self._differentiate(body, inputs, [*flowing, *ys], g)
        self.forward = self.halves.forward
        gradients = self.halves.gradients
        self.consts = [i for i in range(consts) if asked[i] and gradients[i] is not None]
        self.fixed = set(self.forward.inputs[:consts])
        #: Inputs of the body that have a gradient only in some iterations.
        self.open = [self.first + j for j in self.carried if j in self.unsure]
        self.open += [i for i in self.consts if i in self.partial]

    def _differentiate(
        self, body: Graph, inputs: list[bool], outputs: list[bool], g: Sequence[Tensor | None]
    ) -> Halves:
        """Both halves of the body, with a flag for each carry whose cotangent may be missing.

        It is missing if the carry of an iteration is never used: not after the loop, or because a
        later iteration overwrites it. The cotangent is zeros then.
        """
        halves = differentiate(self.call.owner, body, inputs, outputs)
        #: Inputs without a gradient in some iterations, even if all cotangents exist.
        self.partial = {i for i, doubt in enumerate(halves.doubts) if doubt is not None}
        values = {i: self.here.value_of(part) for i, part in enumerate(g) if part is not None}
        gaps = {i for i, value in values.items() if has_gaps(value, self.here.with_gaps)}
        found = {j for j in self.carried if g[j] is None} | self._missing(halves)
        found |= {i for i in self.arrives if outputs[i]}
        self.unsure: set[int] = set()
        again = bool(gaps)
        while again or found - self.unsure:
            self.unsure |= found
            halves = differentiate(self.call.owner, body, inputs, outputs, self.unsure, gaps)
            found = self._missing(halves)  # carries that get their cotangent from these
            again = False
        if self.arrives:
            self.partial |= {i for i, doubt in enumerate(halves.doubts) if doubt is not None}
            self.partial |= {self.first + i for i in self.arrives}
        return halves

    def _missing(self, halves: Halves) -> set[int]:
        """Carries to which some iterations give no gradient."""
        gradients, doubts = halves.gradients, halves.doubts
        numbers = [(j, self.first + j) for j in self.carried]
        return {j for j, i in numbers if gradients[i] is None or doubts[i] is not None}

    def _numbers(self) -> list[int]:
        return [self.first + j for j in self.carried]

    def residuals(self, free: set[Value]) -> Residuals:
        invariant = invariant_values(self.forward, self.fixed)
        return Residuals(self.halves, self.fixed | free, invariant)

    def start(self, g: Sequence[Tensor | None]) -> list[Tensor]:
        """Initial values of the carried cotangents, the sums and the flags."""
        found = []
        for j in self.carried:
            part = g[j]
            found.append(self._zero(self.first + j) if part is None else part)
        flags = [self._starts_open(i, g) for i in self.open]
        return [*found, *[self._zero(i) for i in self.consts], *flags]

    def _starts_open(self, i: int, g: Sequence[Tensor | None]) -> Tensor:
        """Whether an input has a gradient before the first iteration of the backward loop."""
        if i >= self.first and i - self.first in self.arrives:
            return self.arrives[i - self.first]
        return full((), i >= self.first and g[i - self.first] is not None)

    def _zero(self, i: int) -> Tensor:
        kind = self.forward.inputs[i].type
        assert isinstance(kind, (TensorType, StackType))
        return zero_of(kind)

    def kinds(self) -> list[Type]:
        """The types of the values of `start`."""
        numbers = self._numbers() + self.consts
        return [self.forward.inputs[i].type for i in numbers] + [BOOL] * len(self.open)

    def enter(self, known: dict[Value, Value], values: Sequence[Value]) -> None:
        """Map the cotangents and flags of the carries to these inputs of the backward body."""
        for j, value in zip(self.carried, values, strict=False):
            cotangent = self.halves.cotangents[j]
            if cotangent is not None:
                known[cotangent] = value
        flags = values[len(values) - len(self.open) :]
        for i, value in zip(self.open, flags, strict=True):
            if i - self.first in self.halves.flags:
                known[self.halves.flags[i - self.first]] = value

    def ends(self, graph: Graph, known: dict[Value, Value], values: Sequence[Value]) -> list[Value]:
        """Outputs of the backward body for `values`: next cotangents, sums and flags."""
        gradients = self.halves.gradients
        found = []
        for j in self.carried:
            value = gradients[self.first + j]
            kind = self.forward.inputs[self.first + j].type
            found.append(zero_value(graph, kind) if value is None else known[value])
        for i, total in zip(self.consts, values[len(self.carried) :], strict=False):
            value = gradients[i]
            assert value is not None
            add = STACK_ADD if isinstance(total.type, StackType) else ADD
            found.append(graph.add(add, total, known[value]).out)
        for i, flag in zip(self.open, values[len(found) :], strict=True):
            doubt = self.halves.doubts[i]
            there = gradients[i] is not None
            now = flag_value(graph, there) if doubt is None else known[doubt]
            is_sum = i < self.first
            found.append(graph.add(LOGICAL_OR, flag, now).out if is_sum else now)
        return found

    def constants(self, residuals: Residuals) -> tuple[list[Value], list[Tensor]]:
        """Constants of the backward loop: values of the forward half, and tensors for them."""
        free = [value for value in residuals.free if value in self.fixed]
        tensors = [self.call.operand(value.index) for value in free]
        if residuals.hoisted:
            operands = {v: self.call.operand(v.index) for v in self.forward.inputs[: self.first]}
            tensors += hoist(self.here, self.forward, operands, residuals.hoisted)
        told = [i for i in self.halves.flags if i >= self.last - self.first]  # of ys
        tensors += [self.arrives[i] for i in told]
        return [*free, *residuals.hoisted, *[self.halves.flags[i] for i in told]], tensors

    def place(
        self,
        found: list[Tensor | None],
        results: Sequence[Tensor],
        g: Sequence[Tensor | None],
        entered: Tensor | None,
    ) -> None:
        """Store the final cotangents and sums in `found`, the gradients of the operands.

        `entered` says whether there was an iteration; None means that there was.
        """
        numbers = self._numbers() + self.consts
        doubts: list[Tensor | None] = [None] * len(found)
        for i, made in zip(numbers, results, strict=False):
            found[i] = made
            self.mark(i, made)
            if i >= self.first and self.halves.gradients[i] is None:  # the first one overwrites it
                if entered is None:
                    found[i] = None
                else:
                    doubts[i] = logical_not(entered)
            elif i < self.first or g[i - self.first] is None:
                doubts[i] = entered
        for i, flag in zip(self.open, results[len(numbers) :], strict=True):
            if i in self.partial:
                doubts[i] = flag
        if self.call.owner.doubtful:
            self.call.doubts = doubts

    def mark(self, i: int, made: Tensor) -> None:
        """Note a gradient that has one part per iteration, of which some may be only zeros."""
        value, doubts = self.here.value_of(made), self.halves.doubts
        if isinstance(value.type, StackType):
            gaps = i < self.first or bool(self.unsure) or any(x is not None for x in doubts)
        else:
            gaps = i >= self.last and (doubts[i] is not None or self.halves.gaps[i])
        if gaps:
            self.here.with_gaps.add(value)


def while_backward(
    call: ControlNode, here: GraphRecorder, g: list[Tensor | None], asked: list[bool]
) -> list[Tensor | None]:
    node = call.node
    consts = node.attrs["consts"]
    condition, body = node.graphs
    carries = len(asked) - consts
    arrives = {i - (i > carries): doubt for i, doubt in call.arrives.items()}
    parts = [*g[:carries], *g[carries + 1 :]]
    loop = _Backward(call, here, body, consts, carries, parts, asked, arrives)
    found: list[Tensor | None] = [None] * len(asked)
    if not loop.carried and not loop.consts:
        return found
    residuals = loop.residuals(set())
    pushed = list(loop.forward.outputs[carries:])
    more = [value for value in residuals.saved if value not in pushed]
    _extend_while(call, condition, loop.forward, more)
    pushed += more
    fixed, tensors = loop.constants(residuals)
    stacks = [carries + 1 + pushed.index(value) for value in residuals.saved]
    arriving = [k for k, v in enumerate(loop.halves.cotangents[carries:]) if v is not None]
    starts = [call.result(carries), *[call.result(i) for i in stacks]]
    for k in arriving:
        part = g[carries + 1 + k]
        assert part is not None
        starts.append(part)
    starts += loop.start(g)

    graph = Graph(f"{body.name}_backward")
    kinds: list[Type] = [value.type for value in fixed]
    kinds += [node.outputs[i].type for i in (carries, *stacks)]
    kinds += [node.outputs[carries + 1 + k].type for k in arriving]
    kinds += loop.kinds()
    graph.set_inputs(kinds)
    known = dict(zip(fixed, graph.inputs, strict=False))
    number, *rest = graph.inputs[len(fixed) :]
    outputs = [_less_one(graph, number)]
    popped = [*residuals.saved, *[loop.halves.cotangents[carries + k] for k in arriving]]
    for value, stack in zip(popped, rest, strict=False):
        below, top = graph.add(STACK_POP, stack).outputs
        assert value is not None
        known[value] = top
        outputs.append(below)
    flowing = rest[len(popped) :]
    loop.enter(known, flowing)
    keep_names(known)
    copy_nodes(graph, [*residuals.again, *loop.halves.nodes], known)
    graph.outputs = (*outputs, *loop.ends(graph, known, flowing))
    attrs = {"consts": len(fixed), "counted": False}
    graphs = [_more_to_come(kinds, len(fixed)), graph]
    results = emit(here, WHILE, [*tensors, *starts], graphs, attrs)
    entered = greater(call.result(carries), 0) if call.owner.doubtful else None
    loop.place(found, results[1 + len(popped) :], g, entered)
    return found


def _extend_while(
    call: ControlNode, condition: Graph, forward: Graph, more: Sequence[Value]
) -> None:
    """Make a while also return its number of iterations, and `more` values on stacks."""
    forward.outputs = (*forward.outputs, *more)
    kinds: list[Type] = []
    if not call.node.attrs["counted"]:
        kinds.append(condition.outputs[0].tensor_type.like(dtype=dtypes.int64))
    for value in more:
        assert isinstance(value.type, (TensorType, StackType))
        kinds.append(StackType(value.type))
    call.extend([condition, forward], kinds, counted=True)


def _number(graph: Graph, like: Value, value: int) -> Value:
    kind = like.tensor_type
    return graph.add(FULL, shape=(), value=value, dtype=kind.dtype, device=kind.device).out


def _less_one(graph: Graph, number: Value) -> Value:
    return graph.add(SUBTRACT, number, _number(graph, number, 1)).out


def _more_to_come(kinds: Sequence[Type], place: int) -> Graph:
    """The condition of a loop that counts down."""
    graph = Graph("condition")
    graph.set_inputs(kinds)
    number = graph.inputs[place]
    graph.outputs = (graph.add(GREATER, number, _number(graph, number, 0)).out,)
    return graph


def scan_backward(
    call: ControlNode, here: GraphRecorder, g: list[Tensor | None], asked: list[bool]
) -> list[Tensor | None]:
    node = call.node
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    (body,) = node.graphs
    last = consts + carries
    loop = _Backward(call, here, body, consts, carries, g, asked, call.arrives)
    gradients = loop.halves.gradients
    wanted = [i for i in range(last, len(asked)) if asked[i] and gradients[i] is not None]
    found: list[Tensor | None] = [None] * len(asked)
    if not loop.carried and not loop.consts and not wanted:
        return found
    forward = loop.forward
    # The slice of an array can be read again; an element of a stack was popped.
    slices = {v for v in forward.inputs[last:] if isinstance(node.inputs[v.index].type, TensorType)}
    residuals = loop.residuals(slices)
    boxes = {value for value in residuals.saved if needs_box(value, node.inputs)}
    ys = {v: boxed(forward, v) if v in boxes else v for v in residuals.saved}
    kept = list(forward.outputs[carries:])
    more = [value for value in ys.values() if value not in kept]
    _extend_scan(call, forward, more)
    kept += more
    fixed, tensors = loop.constants(residuals)
    again = [value for value in residuals.free if value in slices]
    arriving = [k for k, v in enumerate(loop.halves.cotangents[carries:]) if v is not None]
    places = [carries + kept.index(ys[value]) for value in ys]
    xs = [call.operand(value.index) for value in again] + [call.result(i) for i in places]
    for k in arriving:
        part = g[carries + k]
        assert part is not None
        xs.append(part)
    starts = loop.start(g)

    graph = Graph(f"{body.name}_backward")
    kinds = [value.type for value in fixed] + loop.kinds()
    kinds += [value.type for value in [*again, *ys.values()]]
    kinds += [forward.outputs[carries + k].type for k in arriving]
    graph.set_inputs(kinds)
    known = dict(zip(fixed, graph.inputs, strict=False))
    flowing = graph.inputs[len(fixed) : len(fixed) + len(starts)]
    loop.enter(known, flowing)
    taken = iter(graph.inputs[len(fixed) + len(starts) :])
    for value in again:
        known[value] = next(taken)
    for value in ys:
        held = next(taken)
        known[value] = unboxed(graph, held) if value in boxes else held
    for k in arriving:
        cotangent = loop.halves.cotangents[carries + k]
        assert cotangent is not None
        known[cotangent] = next(taken)
    keep_names(known)
    copy_nodes(graph, [*residuals.again, *loop.halves.nodes], known)
    parts = [gradients[i] for i in wanted]
    of_xs = [known[value] for value in parts if value is not None]
    graph.outputs = (*loop.ends(graph, known, flowing), *of_xs)
    attrs = {
        "consts": len(fixed),
        "carries": len(starts),
        "length": node.attrs["length"],
        "reverse": not node.attrs["reverse"],
    }
    results = emit(here, SCAN, [*tensors, *starts, *xs], [graph], attrs)
    loop.place(found, results[: len(starts)], g, None)
    for i, made in zip(wanted, results[len(starts) :], strict=True):
        found[i] = made
        loop.mark(i, made)
    return found


def _extend_scan(call: ControlNode, forward: Graph, more: Sequence[Value]) -> None:
    """Make a scan return further ys."""
    forward.outputs = (*forward.outputs, *more)
    length = call.node.attrs["length"]
    kinds: list[Type] = []
    for value in more:
        kind = value.type
        assert isinstance(kind, (TensorType, StackType))
        stacked = isinstance(kind, StackType)
        kinds.append(StackType(kind) if stacked else kind.like(shape=(length, *kind.shape)))  # type: ignore[union-attr]
    call.extend([forward], kinds)
