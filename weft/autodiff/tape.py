"""The tape: notes each op call whose inputs want a gradient, while the program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autodiff.node import LargeOpNode, OpNode, PartNode, count, locate, part_of
from weft.autodiff.save_plan import ARRAY, ArrayType, SavePlan, make_plan
from weft.base.errors import GradientError, WeftError
from weft.core.grad_mode import mode
from weft.core.tensor import Tensor
from weft.ir.op import Op

__all__ = ["record", "record_large"]


class _Anomaly:
    """Whether nodes note where they were made, and gradients are looked at.

    inf     an inf counts as well as a NaN
    error   what is raised
    look    looks at them instead: (node, its gradients, the gradient that arrived)
    """

    on = False
    inf = False
    error: type[WeftError] = GradientError
    look: Callable[[Any, Any, Any], None] | None = None


anomaly = _Anomaly()


def record(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], out: Any) -> Any:
    """Give the result of an op call its node, if gradients are on and anyone wants one."""
    if not mode.enabled:
        return out
    if len(inputs) == 1:  # the common cases without loops
        edges: tuple[Any, ...] = (inputs[0]._node,)
        if edges[0] is None:
            return out
        key: Any = 4  # no key of two inputs: a variadic op has plans for both
    elif len(inputs) == 2:
        x, y = inputs
        one, two = x._node, y._node
        if one is None and two is None:
            return out
        edges = (one, two)
        key = 3 if one is not None and two is not None else 1 if two is None else 2
    else:
        edges = tuple([x._node for x in inputs])
        key = tuple([edge is not None for edge in edges])
    plan = op.plans.get(key)
    if plan is None:
        wanted = tuple(edge is not None for edge in edges)
        if True not in wanted:
            return out
        plan = op.plans[key] = make_plan(op, wanted)
    if plan.passes_nothing:
        return out
    node = OpNode()
    node.plan = plan
    node.attrs = attrs
    node.edges = edges
    node.extra = None
    if out.__class__ is tuple:
        return _several(node, inputs, out)
    data = out._data
    if plan.checks_dtype and data.dtype.kind in "biu":
        return out
    node.shape = data.shape
    kept = plan.nothing
    if kept is None:
        saved = data if plan.out == 1 else ArrayType(data) if plan.out else None
        if len(edges) == 1:
            need = plan.inputs[0]
            array = inputs[0]._data
            kept = (saved, array if need == 1 else ArrayType(array) if need else None)
        elif plan.arrays_only:  # two inputs
            first, second = plan.inputs
            kept = (saved, x._data if first else None, y._data if second else None)
        else:
            kept = (saved, *_kept(inputs, plan))
    node.kept = kept
    if anomaly.on:
        locate(node)
    node.number = next(count)
    out._node = node
    return out


def record_large(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], out: Any) -> Any:
    """`record` for a call on large arrays."""
    record(op, inputs, attrs, out)
    for part in out if out.__class__ is tuple else (out,):
        node = part._node
        if node.__class__ is PartNode:
            node = node.parent
        if node.__class__ is OpNode:
            node.__class__ = LargeOpNode
    return out


def _several(node: OpNode, inputs: tuple[Tensor, ...], out: tuple[Tensor, ...]) -> Any:
    """The same for an op with several results: each is a part of one node."""
    plan = node.plan
    results = tuple(_keep(o._data, plan.out) for o in out) if plan.out else None
    node.kept = (results, *_kept(inputs, plan))
    node.shape = ()
    if anomaly.on:
        locate(node)
    node.number = next(count)
    for index, part in enumerate(out):
        if part._data.dtype.kind not in "biu":
            part._node = part_of(node, index, part._data.shape)
    return out


def _keep(data: Any, need: int) -> Any:
    return data if need == ARRAY else ArrayType(data) if need else None


def _kept(inputs: tuple[Tensor, ...], plan: SavePlan) -> list[Any]:
    return [_keep(x._data, need) for x, need in zip(inputs, plan.inputs, strict=True)]
