"""What the kernels of a step are given: the buffers behind `%args`, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.codegen.contract import RUN
from weft.ir.graph import Value
from weft.schedule.groups import Group, Leaf
from weft.schedule.plan import Kernel

__all__ = ["OF_GROUPS", "arguments", "places"]

#: Kinds of groups whose emitters take the whole group: the first node and its fused epilogue.
OF_GROUPS = ("product", "attention", "attention_grad")


def arguments(group: Group, kernels: Sequence[Kernel]) -> list[Any]:
    """Values, None for the kernels' scratch memory, and `RUN` if one of them polls the run for
    cancellation."""
    found = _buffers(group)
    return [*found, RUN] if any(kernel.stops for kernel in kernels) else found


def places(group: Group) -> tuple[dict[Value, int], int]:
    """The position of each value in `%args`, and the position after all of them."""
    found: dict[Value, int] = {}
    buffers = _buffers(group)
    for place, value in enumerate(buffers):
        if value is not None:
            found.setdefault(value, place)
    return found, len(buffers)


def _buffers(group: Group) -> list[Any]:
    node = group.nodes[0]
    if group.kind == "loop":
        return [*dict.fromkeys((*group.reads(), *group.outputs)), None]
    buffers: list[Any] = [op.root for op in group.operands[node] if isinstance(op, Leaf)]
    buffers += node.outputs
    if group.kind in ("call", "stack"):
        return buffers
    buffers.append(None)
    if group.kind not in OF_GROUPS:
        return buffers
    for number in group.prologues:
        buffers[number] = None  # computed while it is packed
    seen = set(buffers)
    others = [leaf.root for member, _, leaf in group.leaves() if member is not node]
    for value in (*others, *group.outputs, *group.written):
        if value not in seen:
            seen.add(value)
            buffers.append(value)
    return buffers
