"""Composite cards taken apart: their evaluation rules, run on symbolic values, say what of.

What is left are elementwise ops, reductions, products and views, which fuse with what stands
around them. A rule that computes narrow floats in float32 (WIDEN) still does, and rounds once.
Attention goes the other way: many nodes become one.
"""

from __future__ import annotations

from typing import Any

from weft.autodiff.node import weft_namespace
from weft.base import dtypes
from weft.capture.make_graph import make_graph
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.ir.attributes import attrs_key
from weft.ir.graph import Builder, Graph, Node
from weft.ir.op import OPS, Trait
from weft.ir.types import TensorType
from weft.passes.dead_code import DeadCode
from weft.passes.nesting import inline
from weft.passes.stop_gradient import DropStopGradient
from weft.schedule.attention import Known, attentions

__all__ = ["COMPOSITES", "decompose"]

COMPOSITES = frozenset(
    (
        *("softmax", "log_softmax", "logsumexp", "standardize", "cross_entropy", "linear"),
        *("lstm_gates", "gru_gates"),
    )
)

_known: dict[Any, Graph] = {}


def is_composite(node: Node) -> bool:
    name = node.op.name
    return name in COMPOSITES or name.endswith("_update")


def decompose(graph: Graph) -> Graph:
    """The graph without composite nodes; nested graphs too."""
    if not any(is_composite(node) for part in graph.walk() for node in part.nodes):
        return graph
    builder = Builder(graph, nested=decompose)
    whole = attentions(graph)
    known: Known = {}
    left_out = {node for fusion in whole.values() for node in fusion.inner}
    for node in graph.nodes:
        if node in left_out:
            continue
        if node in whole:
            whole[node].replace(builder, node, known)
            continue
        inner = _inner(node) if is_composite(node) else None
        if inner is None:
            builder.copy(node)
            continue
        first = len(builder.graph.nodes)
        builder.forward(node.outputs, inline(builder, inner, builder.inputs_of(node)))
        for made in builder.graph.nodes[first:]:
            made.location = node.location
    return builder.finish()


def _inner(node: Node) -> Graph | None:
    types = tuple(value.type for value in node.inputs)
    key = (node.op.name, types, attrs_key(node.attrs))
    found = _known.get(key)
    if found is None:
        if len(_known) > 1000:
            _known.clear()
        found = _known[key] = _recorded(node, types)
    return found


def _cross_entropy(
    xp: Any, x: Any, target: Any, *, axis: int, ignore_index: int, reduction: str
) -> Any:
    """As the card has it, but `nll` stays one node: its kernel checks the targets."""
    shifted = x - xp.max(x, axis=axis, keepdims=True)
    logp = shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))
    losses = bind(OPS["nll"], logp, target, axis=axis, ignore_index=ignore_index)
    count = xp.sum(xp.astype(target != ignore_index, x.dtype))
    if reduction != "none":
        losses = xp.sum(losses) / count if reduction == "mean" else xp.sum(losses)
    return losses, logp, count


#: Rules that differ from those of the cards.
RULES = {"cross_entropy": _cross_entropy}


def _recorded(node: Node, types: tuple[Any, ...]) -> Graph:
    evaluate: Any = RULES.get(node.op.name, node.op.eval)
    narrow = (dtypes.float16, dtypes.bfloat16)
    widens = Trait.WIDEN in node.op.traits or node.op.name.endswith("_update")

    def rule(*inputs: Any) -> Any:
        given = [x.astype(dtypes.float32) if widens and x.dtype in narrow else x for x in inputs]
        with no_grad():
            out = evaluate(weft_namespace(), *given, **node.attrs)
        outs = out if isinstance(out, tuple) else (out,)
        return tuple(
            made.astype(_dtype(value.type)) if _dtype(value.type) is not made.dtype else made
            for made, value in zip(outs, node.outputs, strict=True)
        )

    return DeadCode().run(DropStopGradient().run(make_graph(rule, *types)))


def _dtype(kind: Any) -> Any:
    assert isinstance(kind, TensorType)
    return kind.dtype
