"""Where gradients can flow in a graph: from which inputs to which values, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.autodiff.scan_steps import MOST_STEPS, Known, Scalars, ScanSteps
from weft.base.asked_sizes import active as active_sizes
from weft.base.asked_sizes import least
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Op
from weft.ir.sizes import size_names
from weft.ir.types import StackType, TensorType, Type
from weft.ops.cards import IF, SCAN, SWITCH, WHILE


def is_smooth(kind: Type) -> bool:
    """Whether values of a type have gradients: floats and complex numbers, and stacks of them."""
    if isinstance(kind, StackType):
        kind = kind.innermost
    return isinstance(kind, TensorType) and kind.dtype.kind in ("float", "complex")


def active_values(graph: Graph, inputs: Sequence[bool], known: Known | None = None) -> set[Value]:
    """The values that depend differentiably on the active inputs.

    If `known` has the value of a condition, only the branch that it chooses counts.
    """
    active = {v for v, on in zip(graph.inputs, inputs, strict=True) if on and is_smooth(v.type)}
    active |= graph.leaves
    for node in graph.nodes:
        flags = [value in active for value in node.inputs]
        if True in flags or has_leaves(node):
            found = active_results(node, flags, known)
            active.update(v for v, on in zip(node.outputs, found, strict=True) if on)
    return active


def has_leaves(node: Node) -> bool:
    """Whether the nested graphs of a node make leaves."""
    return any(part.leaves for graph in node.graphs for part in graph.walk())


def active_results(node: Node, operands: Sequence[bool], known: Known | None = None) -> list[bool]:
    """Which results of a node depend differentiably on the operands that are active."""
    if known and node.op is IF and node.inputs[0] in known:
        chosen = node.graphs[0 if known[node.inputs[0]] else 1]
        inner = {
            v: known[x] for v, x in zip(chosen.inputs, node.inputs[1:], strict=True) if x in known
        }
        active = active_values(chosen, list(operands[1:]), Scalars(chosen).values(inner))
        return [value in active for value in chosen.outputs]
    if known and node.op is SCAN:
        return _scan(node, list(operands), known)
    rule = _CONTROL.get(node.op)
    if rule is not None:
        return rule(node, list(operands))
    if not _passes(node.op, operands):
        return [False] * len(node.outputs)
    return [is_smooth(value.type) for value in node.outputs]


def _passes(op: Op, operands: Sequence[bool]) -> bool:
    if op.vjp is None:
        return True
    fixed = len(op.inputs) - op.variadic
    rules = op.vjp
    return any(on and rules[min(i, fixed)] is not None for i, on in enumerate(operands) if rules)


def _branches(node: Node, operands: list[bool]) -> list[bool]:
    found = [active_values(graph, operands[1:]) for graph in node.graphs]
    return [
        any(graph.outputs[i] in active for graph, active in zip(node.graphs, found, strict=True))
        for i in range(len(node.outputs))
    ]


def carried_active(body: Graph, operands: list[bool], consts: int, carries: int) -> list[bool]:
    """Which carries depend on active operands, in any iteration."""
    end = consts + carries
    carried = operands[consts:end]
    while True:
        active = active_values(body, [*operands[:consts], *carried, *operands[end:]])
        after = [
            on or value in active for on, value in zip(carried, body.outputs[:carries], strict=True)
        ]
        if after == carried:
            return carried
        carried = after


def carried_after(node: Node, operands: list[bool], given: Known | None) -> list[bool] | None:
    """Which carries of a scan depend on active operands when it is over.

    `given` are values that are known where it stands. If the length is symbolic, a recording is
    asked what the answer depends on: that there is an iteration, or an even number of them. Where
    nobody can be asked, it is None unless it is the same for all lengths that are possible.
    """
    length, steps = node.attrs["length"], ScanSteps(node, operands, given, active_values)
    if isinstance(length, int):
        return steps.state(length)
    sizes = active_sizes()
    now = None if sizes is None else sizes.hint(length)
    if sizes is None or now is None:
        return steps.settled(least(length))
    if now > MOST_STEPS:
        steps.counts = False
    low, high, every = steps.alike(now)
    if low == high:
        sizes.compare(length, low, "==")
    else:
        if low:
            sizes.compare(length, low, ">=")
        if high is not None:
            sizes.compare(length, high, "<=")
        if every > 1:
            sizes.compare((length - low) % every, (now - low) % every, "==")
    return steps.state(now)


def _while(node: Node, operands: list[bool]) -> list[bool]:
    consts = node.attrs["consts"]
    body = node.graphs[1]
    carried = carried_active(body, operands, consts, len(operands) - consts)
    if not node.attrs["counted"]:
        return carried
    active = active_values(body, [*operands[:consts], *carried])
    return [*carried, False, *[value in active for value in body.outputs[len(carried) :]]]


def _scan(node: Node, operands: list[bool], known: Known | None = None) -> list[bool]:
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    (body,) = node.graphs
    carried = carried_active(body, operands, consts, carries)
    active = active_values(body, [*operands[:consts], *carried, *operands[consts + carries :]])
    carried = carried_after(node, operands, known) or carried
    return [*carried, *[value in active for value in body.outputs[carries:]]]


_CONTROL: dict[Op, Callable[[Node, list[bool]], list[bool]]] = {
    IF: _branches,
    SWITCH: _branches,
    WHILE: _while,
    SCAN: _scan,
}


def needs_box(value: Value, operands: Sequence[Value]) -> bool:
    """Whether the shape of a value in a nested graph does not follow from the node's operands."""
    names = size_names([value])
    return bool(names) and not names <= size_names([v for v in operands if _is_tensor(v)])


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)
