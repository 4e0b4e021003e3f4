"""Checks that the loops of a group compute what its nodes say.

A value inside a group exists at each point of the loops. A node that uses it must run along the
same axes, and must not use what exists only after the loops: a sum of columns, a total. A node that
reads memory must see all elements of the view, each at its own point. How the plan was made does
not matter here, only what the group says.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from weft.base.errors import InternalError
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.schedule.axes import Map, Space
from weft.schedule.groups import IN_REGISTERS, Group, Leaf, Operand, Scalar
from weft.schedule.nodes import is_view, literal_of, tensor_type
from weft.schedule.views import View, dense, viewed

__all__ = ["PlanError", "same_elements", "verify_group"]


class PlanError(InternalError):
    """A plan that would read or write the wrong memory: a mistake in Weft's scheduler."""


def verify_group(group: Group) -> None:
    """Raise `PlanError` where the loops of a group cannot compute its nodes."""
    for node, place, leaf in group.leaves():
        _verify_view(node, place, leaf)
    for loops in group.prologues.values():
        _verify_loops(loops, loops.nodes)
        _verify_written(loops)
    if group.kind == "loop":
        _verify_loops(group, group.nodes)
    elif group.kind in IN_REGISTERS:
        _verify_loops(group, group.nodes[1:])
    _verify_written(group)


# --- what is read from memory ---------------------------------------------------------------------


def _verify_view(node: Node, place: int, leaf: Leaf) -> None:
    """The strides of an operand are those of the views between its buffer and the node."""
    value, root = node.inputs[place], leaf.root
    if not isinstance(root.type, TensorType):
        return
    copied = root.node.inputs[0] if root.node is not None and is_view(root.node) else None
    chain: list[Node] = []
    while value is not root and value is not copied:
        if value.node is None or not is_view(value.node):
            raise PlanError(f"{_named(node)} reads {root}, which is not its operand {place}")
        chain.append(value.node)
        value = value.node.inputs[0]
    found: View | None = dense(tensor_type(root).shape)
    for view in reversed(chain):
        if found is not None:
            shape = tensor_type(view.outputs[0]).shape
            found = viewed(found, view.op, view.attrs, shape)
    if found is None or not same_elements(found, leaf.view):
        raise PlanError(
            f"{_named(node)} reads operand {place} as {leaf.view}, and it lies as {found}"
        )


def same_elements(one: View, two: View) -> bool:
    """Whether two views look at the same elements, in the same order."""
    if one.shape != two.shape:
        return False
    if 0 in one.shape:
        return True
    return one.offset == two.offset and all(
        size == 1 or a == b for size, a, b in zip(one.shape, one.strides, two.strides, strict=True)
    )


# --- what is computed in loops --------------------------------------------------------------------


def _verify_loops(group: Group, nodes: Sequence[Node]) -> None:
    space = copy.copy(group.space)
    space.may_split = False  # axes are not split any more
    known = set() if group.kind == "loop" else set(group.nodes[0].outputs)
    for node in nodes:
        place = group.places[node]
        for number, operand in enumerate(group.operands[node]):
            if isinstance(operand, Value) and operand not in known:
                raise PlanError(f"{_named(node)} takes {operand} from loops that do not have it")
            _verify_operand(group, space, node, number, operand, place)
        _verify_result(group, space, node, place)
        known.update(node.outputs)


def _verify_operand(
    group: Group, space: Space, node: Node, number: int, operand: Operand, place: Map
) -> None:
    value = node.inputs[number]
    if isinstance(operand, Scalar):
        while value.node is not None and is_view(value.node):
            value = value.node.inputs[0]
        if literal_of(value) is None:
            raise PlanError(f"{_named(node)} takes operand {number} for a known number")
        return
    shape = tensor_type(value).shape
    if len(shape) > len(place):
        raise PlanError(f"{_named(node)} runs along {place}, its operand {number} is {value.type}")
    if isinstance(operand, Leaf):
        sizes = [space.size_of(place[len(place) - len(shape) + i]) for i in range(len(shape))]
        steps = operand.view.strides
        for size, step, count in zip(shape, steps, sizes, strict=True):
            if size not in (1, count) and step:
                raise PlanError(
                    f"{_named(node)} reads {count} of the {size} elements of operand {number}"
                )
        return
    if operand in group.after:
        raise PlanError(f"{_named(node)} takes {operand} before the loops are done that sum it up")
    found = _seen(group, space, value, operand)
    for back, size in enumerate(reversed(shape), start=1):
        if size != 1 and found[-back] and found[-back] != place[-back]:
            raise PlanError(
                f"{_named(node)} runs along {place}, and its operand {number} along {found}"
            )


def _seen(group: Group, space: Space, value: Value, root: Value) -> Map:
    """The axes of a view of what the loops compute."""
    chain: list[Node] = []
    while value is not root:
        if value.node is None or not is_view(value.node):
            raise PlanError(f"{value} is no view of {root}")
        chain.append(value.node)
        value = value.node.inputs[0]
    found, shape = group.maps[root], tensor_type(root).shape
    for node in reversed(chain):
        new = tensor_type(node.outputs[0]).shape
        seen = space.viewed(found, shape, node.op, node.attrs, new)
        if seen is None:
            raise PlanError(f"loops cannot follow {_named(node)} of {root}")
        found, shape = seen, new
    return found


def _verify_result(group: Group, space: Space, node: Node, place: Map) -> None:
    """A result runs along the axes of its operands; a reduction's, without the reduced ones."""
    wanted = place
    if node.op.reduction:
        axes, keep = node.attrs["axis"], node.attrs["keepdims"]
        wanted = tuple(
            () if i in axes else part for i, part in enumerate(place) if keep or i not in axes
        )
        over = {axis for i in axes for axis in place[i]}
        late = node.outputs[0] in group.after
        marked = group.columns if late else group.row
        if group.kind == "loop" and over != set(marked or ()):
            raise PlanError(f"{_named(node)} sums along {over}, the loops along {marked}")
        if {axis for part in place for axis in part} != set(space.order):
            raise PlanError(f"{_named(node)} does not go over all points of its loops")
    value = node.outputs[0]
    if group.maps[value] != wanted:
        raise PlanError(f"{value} lies along {group.maps[value]}, and is computed along {wanted}")
    for size, axes in zip(tensor_type(value).shape, wanted, strict=True):
        if space.size_of(axes) != size:
            raise PlanError(f"of {value}: {value.type}, loops compute {wanted}")


# --- what is written ------------------------------------------------------------------------------


def _verify_written(group: Group) -> None:
    """A group computes what it writes to memory, at each point of its loops or once a row."""
    made = {value for node in group.in_order() for value in node.outputs}
    for value in group.outputs:
        if value not in made:
            raise PlanError(f"a group leaves {value}, which it does not compute")
    if group.kind != "loop" and group.kind not in IN_REGISTERS:
        return
    for value in group.written:
        if value in group.after:
            continue
        axes = [axis for part in group.maps[value] for axis in part]
        missing = set(group.space.order) - set(axes)
        if len(set(axes)) != len(axes) or (missing and missing != set(group.row or ())):
            raise PlanError(f"{value} is written along {group.maps[value]} of {group.space.sizes}")


def _named(node: Node) -> str:
    return f"{node.op.name} ({node.outputs[0] if node.outputs else 'no result'})"
