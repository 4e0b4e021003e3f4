"""Where gradients can flow in a graph: from which inputs to which values, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base.asked_sizes import least
from weft.core.bind import quietly
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.op import Op
from weft.ir.sizes import size_names
from weft.ir.types import StackType, TensorType, Type
from weft.ops.cards import ARANGE, IF, SCAN, STOP_GRADIENT, SWITCH, WHILE

#: Values of a graph whose numbers are known while it is recorded.
Known = dict[Value, Any]


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
        active = active_values(chosen, list(operands[1:]), evaluate(chosen, inner))
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


def carried_after(node: Node, operands: list[bool], given: Known | None) -> list[bool]:
    """Which carries of a scan of known length depend on active operands when it is over.

    `given` are values that are known where it stands.
    """
    consts, carries, length = (node.attrs[name] for name in ("consts", "carries", "length"))
    (body,) = node.graphs
    end = consts + carries
    carried = operands[consts:end]
    known = {
        **constants(node.inputs),
        **{v: x for v, x in (given or {}).items() if v in node.inputs},
    }
    rows = {
        i: known.pop(node.inputs[i]) for i in range(end, len(operands)) if node.inputs[i] in known
    }
    chooses = any(part.op is IF for graph in body.walk() for part in graph.nodes)
    counts = bool(rows or known) and length <= MOST_STEPS and chooses
    held = {body.inputs[i]: known[x] for i, x in enumerate(node.inputs[:end]) if x in known}
    seen: list[list[bool]] = []
    for step in range(length):
        if not counts and carried in seen:  # from here on the states repeat
            first = seen.index(carried)
            return seen[first + (length - first) % (len(seen) - first)]
        seen.append(carried)
        now: Known | None = None
        if counts:
            at = length - 1 - step if node.attrs["reverse"] else step
            now = evaluate(body, {**held, **{body.inputs[i]: row[at] for i, row in rows.items()}})
            ends = zip(body.inputs[consts:end], body.outputs, strict=False)
            held = {v: x for v, x in held.items() if v.index < consts}
            held |= {v: now[out] for v, out in ends if out in now}
        active = active_values(body, [*operands[:consts], *carried, *operands[end:]], now)
        carried = [value in active for value in body.outputs[:carries]]
    return carried


def carried_for_long(node: Node, operands: list[bool]) -> list[bool] | None:
    """The same for a length that is not known, where it is the same for all that are possible."""
    consts, carries = node.attrs["consts"], node.attrs["carries"]
    (body,) = node.graphs
    end = consts + carries
    carried = operands[consts:end]
    for _ in range(min(least(node.attrs["length"]), MOST_STEPS) + 1):
        active = active_values(body, [*operands[:consts], *carried, *operands[end:]])
        after = [value in active for value in body.outputs[:carries]]
        if after == carried:
            return carried
        carried = after
    return None


#: Maximum iterations that are analysed one by one.
MOST_STEPS = 32


def constants(values: Iterable[Value]) -> Known:
    """The values that are small constants: numbers, and the range of a `for`."""
    found: Known = {}
    for value in values:
        node, kind = value.node, value.type
        while node is not None and node.op is STOP_GRADIENT:
            node = node.inputs[0].node
        if not isinstance(kind, TensorType) or kind.dtype.kind not in ("bool", "int"):
            continue
        if node is None:
            continue
        if node.op is CONSTANT:
            found[value] = node.attrs["value"].array
        elif node.op is ARANGE and isinstance(kind.shape[0], int):
            found[value] = quietly(node.op.kernels[np.ndarray][kind.dtype.numpy], **node.attrs)
    return found


def evaluate(graph: Graph, known: Known) -> Known:
    """Integers and conditions of a graph that follow from known values."""
    found = {**known, **constants([value for node in graph.nodes for value in node.outputs])}
    for node in graph.nodes:
        kind = node.outputs[0].type if len(node.outputs) == 1 else None
        if not isinstance(kind, TensorType) or kind.shape or not node.inputs or node.graphs:
            continue
        if kind.dtype.kind not in ("bool", "int") or not all(v in found for v in node.inputs):
            continue
        inputs = [found[value] for value in node.inputs]
        try:
            kernel = node.op.kernels[np.ndarray][inputs[node.op.dispatch_on].dtype]
            found[node.out] = np.asarray(quietly(kernel, *inputs, **node.attrs))
        except Exception:
            continue  # it fails when it is run, on the user's line
    return found


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
    if isinstance(node.attrs["length"], int):
        carried = carried_after(node, operands, known)
    else:
        carried = carried_for_long(node, operands) or carried
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
