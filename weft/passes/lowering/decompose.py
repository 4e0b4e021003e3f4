"""Replaces composite ops by the ops they consist of: their evaluation rules are recorded.

What remains are elementwise ops, reductions, products and views, which can be fused with their
neighbours. Narrow floats are computed in float32 and rounded once, as the cards do it. Attention
goes the other way: many nodes become one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autodiff.node import weft_namespace
from weft.base.asked_sizes import AskedSizes, NotEmpty, asking
from weft.base.dim_algebra import names_of
from weft.base.dims import dims_in
from weft.base.dtypes import NARROW_FLOATS, float32
from weft.core.grad_mode import no_grad
from weft.ir.attributes import attrs_key
from weft.ir.dispatch import is_replaced
from weft.ir.graph import Builder, Graph, Node
from weft.ir.types import TensorType
from weft.ops.cards import UNIQUE_ALL
from weft.passes.dead_code import DeadCode
from weft.passes.lowering.attention import Fusion, Known, attentions
from weft.passes.lowering.unique import unique_graph
from weft.passes.nesting import inline
from weft.passes.stop_gradient import DropStopGradient
from weft.record.make_graph import make_graph

__all__ = ["decompose"]

_known: dict[Any, Graph] = {}


def is_composite(node: Node) -> bool:
    return node.op.composite or node.op is UNIQUE_ALL


def _replaced(node: Node) -> bool:
    """Whether a user's kernel computes a node: it is called as it is."""
    kinds = [v.type.dtype for v in node.inputs if isinstance(v.type, TensorType)]
    return node.op.kernels.overridden and is_replaced(node.op, kinds)


def decompose(
    graph: Graph,
    attends: Callable[[Fusion], bool] | None = None,
    keeps: Callable[[Node], bool] | None = None,
) -> Graph:
    """The graph without composite nodes; nested graphs too. `attends`: which attentions become one
    node; by default all. `keeps`: which composite nodes stay; by default none."""
    if not any(is_composite(node) for part in graph.walk() for node in part.nodes):
        return graph
    builder = Builder(graph, nested=lambda inner: decompose(inner, attends, keeps))
    whole = {
        node: fusion
        for node, fusion in attentions(graph).items()
        if not any(_replaced(inner) for inner in (node, *fusion.inner))
    }
    if attends is not None:
        whole = {node: fusion for node, fusion in whole.items() if attends(fusion)}
    known: Known = {}
    left_out = {node for fusion in whole.values() for node in fusion.inner}
    for node in graph.nodes:
        if node in left_out:
            continue
        if node in whole:
            whole[node].replace(builder, node, known)
            continue
        stays = _replaced(node) or (keeps is not None and keeps(node))
        taken_apart = is_composite(node) and not stays
        inner = _inner(node) if taken_apart else None
        if inner is None:
            builder.copy(node)
            continue
        first = len(builder.graph.nodes)
        builder.forward(node.outputs, inline(builder, inner, builder.inputs_of(node)))
        for made in builder.graph.nodes[first:]:
            made.location = node.location
    return builder.finish()


def _inner(node: Node) -> Graph | None:
    if node.op is UNIQUE_ALL:
        return unique_graph(node)
    types = tuple(value.type for value in node.inputs)
    key = (node.op, types, attrs_key(node.attrs), _bounds(types, node.attrs))
    found = _known.get(key)
    if found is None:
        if len(_known) > 1000:
            _known.clear()
        found = _known[key] = _recorded(node, types)
    return found


def _bounds(types: tuple[Any, ...], attrs: Any) -> tuple[Any, ...]:
    """The bounds of the named sizes: names are equal also where theirs differ, and what is recorded
    relies on them."""
    shapes = [kind.shape for kind in types if isinstance(kind, TensorType)]
    sizes = dims_in([shapes, attrs])
    return tuple([(atom.low, atom.high) for size in sizes for atom in names_of(size)])


def _recorded(node: Node, types: tuple[Any, ...]) -> Graph:
    evaluate: Any = node.op.eval

    def rule(*inputs: Any) -> Any:
        given = [x.astype(float32) if x.dtype in NARROW_FLOATS else x for x in inputs]
        with no_grad():
            out = evaluate(weft_namespace(), *given, **node.attrs)
        outs = out if isinstance(out, tuple) else (out,)
        return tuple(
            made.astype(_dtype(value.type)) if _dtype(value.type) is not made.dtype else made
            for made, value in zip(outs, node.outputs, strict=True)
        )

    with asking(AskedSizes({}, data=NotEmpty())):
        graph = make_graph(rule, *types)
    return DeadCode().run(DropStopGradient().run(graph))


def _dtype(kind: Any) -> Any:
    assert isinstance(kind, TensorType)
    return kind.dtype
