"""Backward through `if` and `switch`: a node with the same condition and each branch's backward.

The forward node gets further results: the residuals of the branch that is taken. Branches share
results of the same type, as only one of them runs; a branch that does not fill one gives zeros.
"""

from __future__ import annotations

from weft.autodiff.gradient_flow import needs_box
from weft.autodiff.gradient_reach import has_gaps
from weft.core.tensor import Tensor
from weft.ir.graph import Graph, Value, copy_nodes, keep_names
from weft.ir.types import Type
from weft.record.control.joint import (
    BOOL,
    Halves,
    Residuals,
    boxed,
    differentiate,
    flag_value,
    unboxed,
    zero_value,
)
from weft.record.control.node import ControlNode, emit
from weft.record.recorder import GraphRecorder


class _BranchBackward:
    """One branch, its backward, and which results of the node hold its residuals."""

    def __init__(self, halves: Halves) -> None:
        self.halves = halves
        self.forward = halves.forward
        self.residuals = Residuals(halves, set(self.forward.inputs), set())
        self.places: dict[Value, int] = {}  # saved value -> number of the node's result
        inputs = self.forward.inputs
        self.boxed = {value for value in self.residuals.saved if needs_box(value, inputs)}
        self.given = {
            value: boxed(self.forward, value) if value in self.boxed else value
            for value in self.residuals.saved
        }

    def place(self, kinds: list[Type], first: int) -> dict[int, Value]:
        """Assign a result to each saved value. `kinds` are the types of results from `first` on;
        it grows where none is free. Gives the value for each of these results."""
        filled: dict[int, Value] = {}
        outputs = self.forward.outputs
        for value, given in self.given.items():
            if given in outputs:
                self.places[value] = outputs.index(given)
                continue
            free = (i for i, kind in enumerate(kinds) if kind == given.type and i not in filled)
            slot = next(free, len(kinds))
            if slot == len(kinds):
                kinds.append(given.type)
            filled[slot] = given
            self.places[value] = first + slot
        return filled


def branches_backward(
    call: ControlNode, here: GraphRecorder, g: list[Tensor | None], asked: list[bool]
) -> list[Tensor | None]:
    node = call.node
    given = [part is not None for part in g]
    arrives, values = call.arrives, [None if part is None else here.value_of(part) for part in g]
    gaps = {i for i, v in enumerate(values) if v is not None and has_gaps(v, here.with_gaps)}
    halves = [
        differentiate(call.owner, graph, asked[1:], given, arrives, gaps) for graph in node.graphs
    ]
    wanted = [i for i in range(len(asked) - 1) if any(h.gradients[i] is not None for h in halves)]
    found: list[Tensor | None] = [None] * len(asked)
    if not wanted:
        return found
    branches = [_BranchBackward(each) for each in halves]
    first = len(node.outputs)
    kinds: list[Type] = []
    filled = [branch.place(kinds, first) for branch in branches]
    for branch, slots in zip(branches, filled, strict=True):
        more = [
            slots[i] if i in slots else zero_value(branch.forward, kind, forever=False)
            for i, kind in enumerate(kinds)
        ]
        branch.forward.outputs = (*branch.forward.outputs, *more)
    call.extend([branch.forward for branch in branches], kinds)
    operands = sorted({v.index for b in branches for v in b.residuals.free})
    results = sorted({place for b in branches for place in b.places.values()})
    arriving = [i for i in range(first) if any(h.cotangents[i] is not None for h in halves)]
    tensors = [call.operand(0), *[call.operand(i + 1) for i in operands]]
    tensors += [call.result(i) for i in results]
    for i in arriving:
        part = g[i]
        assert part is not None
        tensors.append(part)
    told = sorted(set().union(*[each.flags for each in halves]))
    tensors += [arrives[i] for i in told]
    doubtful = call.owner.doubtful
    open_ = [i for i in wanted if doubtful and any(_is_open(each, i) for each in halves)]
    graphs = [
        _backward(branch, operands, results, arriving, told, wanted, open_, node.graphs[0].inputs)
        for branch in branches
    ]
    made = emit(here, node.op, tensors, graphs, {})
    doubts: list[Tensor | None] = [None] * len(asked)
    for i, gradient in zip(wanted, made, strict=False):
        found[i + 1] = gradient
        if any(each.gaps[i] for each in halves):
            here.with_gaps.add(here.value_of(gradient))
    for i, flag in zip(open_, made[len(wanted) :], strict=True):
        doubts[i + 1] = flag
    call.doubts = doubts
    return found


def _is_open(halves: Halves, i: int) -> bool:
    """Whether a branch may give no gradient for an operand."""
    return halves.gradients[i] is None or halves.doubts[i] is not None


def _backward(
    branch: _BranchBackward,
    operands: list[int],
    results: list[int],
    arriving: list[int],
    told: list[int],
    wanted: list[int],
    open_: list[int],
    inputs: tuple[Value, ...],
) -> Graph:
    """The backward of one branch as a graph, with a flag output for each of the `open_` ones."""
    halves = branch.halves
    outputs = branch.forward.outputs
    graph = Graph(f"{branch.forward.name}_backward")
    kinds = [inputs[i].type for i in operands] + [outputs[i].type for i in results]
    graph.set_inputs(kinds + [outputs[i].type for i in arriving] + [BOOL] * len(told))
    known: dict[Value, Value] = {}
    of_results = graph.inputs[len(operands) :]
    of_cotangents = of_results[len(results) :]
    for i, value in zip(operands, graph.inputs, strict=False):
        known[branch.forward.inputs[i]] = value
    for value, place in branch.places.items():
        held = of_results[results.index(place)]
        known[value] = unboxed(graph, held) if value in branch.boxed else held
    for i, value in zip(told, of_cotangents[len(arriving) :], strict=True):
        if i in halves.flags:
            known[halves.flags[i]] = value
    for i, value in zip(arriving, of_cotangents, strict=False):
        cotangent = halves.cotangents[i]
        if cotangent is not None:
            known[cotangent] = value
    keep_names(known)
    copy_nodes(graph, [*branch.residuals.again, *halves.nodes], known)
    gradients = [halves.gradients[i] for i in wanted]
    outs = [
        zero_value(graph, inputs[i].type) if value is None else known[value]
        for i, value in zip(wanted, gradients, strict=True)
    ]
    for i in open_:
        doubt = halves.doubts[i]
        there = halves.gradients[i] is not None
        outs.append(flag_value(graph, there) if doubt is None else known[doubt])
    graph.outputs = tuple(outs)
    return graph
