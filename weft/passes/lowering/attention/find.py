"""Finds attention in a graph: softmax(q kᵀ · scale + mask) v, and its gradients.

The nodes become one node, `attention`, or two, with `attention_grad`. Their kernels never write the
scores. If anything else uses scores or weights, the graph stays as it is. With narrow floats scores
may be cast to float32 on the way, and weights back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.dims import has_dims
from weft.base.dtypes import NARROW_FLOATS
from weft.ir.graph import Builder, Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ops.cards import (
    ADD,
    ALL,
    ARANGE,
    ASTYPE,
    DIVIDE,
    EQUAL,
    GETITEM,
    LESS_EQUAL,
    MATMUL,
    MULTIPLY,
    PERMUTE_DIMS,
    RESHAPE,
    SOFTMAX,
    WHERE,
)
from weft.passes.facts import made_by
from weft.passes.lowering.attention.backward import Backward, gradients
from weft.passes.lowering.attention.cards import (
    ATTENTION,
    ATTENTION_GRAD,
    Axes,
    computed_in,
    turned_back,
)
from weft.passes.lowering.attention.parts import (
    Forward,
    Uses,
    is_number,
    is_rounding,
    number_of,
    swapped,
    uncast,
)

__all__ = ["Fusion", "Known", "attentions"]

FLOATS = (dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16)
#: The most columns of q, k and v, forward and backward: a block of wider ones is too large.
WIDEST, WIDEST_BACK = 1024, 512


@dataclass(frozen=True)
class Fusion:
    """An attention that becomes one node, or with its backward two."""

    forward: Forward
    backward: Backward | None
    inner: frozenset[Node]  # that are left out, without the ends

    @property
    def ends(self) -> tuple[Node, ...]:
        """The nodes that cards replace."""
        back = () if self.backward is None else self.backward.nodes
        return (self.forward.end, *back)

    @property
    def nodes(self) -> frozenset[Node]:
        return self.inner.union(self.ends)

    def replace(self, builder: Builder, end: Node, known: Known) -> None:
        """Put a card in place of one of the last nodes; `known` keeps what the backward needs."""
        if end is self.forward.end:
            self._begin(builder, known)
        elif end.outputs[0] not in builder.map:  # the first of the gradients
            self._back(builder, known)

    def _operands(self, builder: Builder) -> tuple[list[Value], list[Value], dict[str, Any]]:
        at = self.forward
        k = builder.add(PERMUTE_DIMS, builder[at.k_turned], axes=swapped(at.k_turned))
        mask = [builder[at.mask]] if at.mask is not None else []
        attrs = {"scale": at.scale, "causal": at.causal, "blank": at.blank}
        return [builder[at.q], k, builder[at.v]], mask, attrs

    def _begin(self, builder: Builder, known: Known) -> None:
        at = self.forward
        given, mask, attrs = self._operands(builder)
        node = builder.graph.add(
            ATTENTION, *given, *mask, location=at.end.location, axes=at.axes, **attrs
        )
        result, lse = node.outputs
        known[self] = _natural(builder, result, at.axes), lse
        dtype = at.q.tensor_type.dtype
        if result.tensor_type.dtype is dtype:
            made = known[self][0]
        else:  # rounded in registers; the views come after that
            narrow = builder.add(ASTYPE, result, dtype=dtype)
            made = _natural(builder, narrow, at.axes)
        builder.forward(at.end.outputs, [made])

    def _back(self, builder: Builder, known: Known) -> None:
        back = self.backward
        assert back is not None
        given, mask, attrs = self._operands(builder)
        result, lse = known[self]
        more = [result, builder[back.grad], lse]
        axes = tuple(end.axes for end in back.ends)
        first = next(end.node for end in back.ends if end.node is not None)
        node = builder.graph.add(
            ATTENTION_GRAD, *given, *more, *mask, location=first.location, axes=axes, **attrs
        )
        for end, made in zip(back.ends, node.outputs, strict=True):
            if end.node is not None:
                value = _natural(builder, made, end.axes)
                if end.turned:
                    value = builder.add(PERMUTE_DIMS, value, axes=swapped(value))
                builder.forward(end.node.outputs, [value])


#: Of an attention its result, as it was computed, and lse.
Known = dict[Fusion, tuple[Value, Value]]


def _natural(builder: Builder, value: Value, axes: Axes) -> Value:
    if axes == tuple(range(len(axes))):
        return value
    return builder.add(PERMUTE_DIMS, value, axes=turned_back(axes))


def attentions(graph: Graph) -> dict[Node, Fusion]:
    """For each node that a card replaces: the attention it is part of."""
    softmaxes = [node for node in graph.nodes if node.op is SOFTMAX]
    if not softmaxes:
        return {}
    uses = Uses(graph)
    found: dict[Node, Fusion] = {}
    taken: set[Node] = set()  # a product may be the end of one and the scores of another
    for softmax in softmaxes:
        forward = _matched(softmax, uses)
        fusion = None if forward is None else _fusion(forward, uses)
        if fusion is None or not taken.isdisjoint(fusion.nodes):
            continue
        taken |= fusion.nodes
        found.update((end, fusion) for end in fusion.ends)
    return found


def _fusion(forward: Forward, uses: Uses) -> Fusion | None:
    """A forward with its backward, if nothing else uses the values in between."""
    backward = gradients(forward, uses)
    inner = frozenset(forward.inner if backward is None else (*forward.inner, *backward.inner))
    ends = {forward.end} if backward is None else {forward.end, *backward.nodes}
    if not all(uses.only_by(node, inner | ends) for node in inner):
        return None
    if forward.q.tensor_type.dtype not in NARROW_FLOATS and any(map(is_rounding, inner)):
        return None  # what is wide, and rounded on purpose
    if backward is not None:
        widest = max(forward.q.tensor_type.shape[-1], forward.v.tensor_type.shape[-1])
        place = uses.place
        if widest > WIDEST_BACK or any(place[node] < place[forward.end] for node in backward.nodes):
            return None
    return Fusion(forward, backward, inner)


# --- the forward --------------------------------------------------------------------------------


def _matched(softmax: Node, uses: Uses) -> Forward | None:
    """The attention around a softmax. What else uses its values is not checked here."""
    weights = softmax.outputs[0]
    last = weights.tensor_type.ndim - 1
    if softmax.attrs["axis"] != last:
        return None
    inner = [softmax]
    scores, nowhere = uncast(softmax.inputs[0], inner), None
    found = _hidden(scores, last)
    if found is not None:  # where(nowhere, 0, softmax(where(nowhere, 0, scores)))
        choice, every, equal = found
        looked = uses.reach(
            weights, WHERE, inner, lambda node, _: node.inputs[0] is choice.inputs[0]
        )
        if looked is None or not is_number(looked.inputs[1], 0.0):
            return None
        inner += [choice, every, equal, looked]
        scores, nowhere, weights = choice.inputs[2], choice.inputs[0], looked.outputs[0]
    end = uses.reach(weights, MATMUL, inner, lambda node, value: node.inputs[0] is value)
    mask, product, scaling, more = _masked(uncast(scores, inner))
    if product is None or end is None:
        return None
    q, k_turned = product.inputs
    if not _fits(q, k_turned, end.inputs[1], mask, end):
        return None
    causal = mask is not None and _is_causal(mask)
    return Forward(
        end,
        softmax,
        q,
        k_turned,
        end.inputs[1],
        None if causal else mask,
        mask,
        causal,
        nowhere,
        scaling,
        end.inputs[0],
        (*inner, *more, product),
        uses.order(end.outputs[0]),
    )


def _hidden(chosen: Value, last: int) -> tuple[Node, Node, Node] | None:
    """The nodes of where(all(scores == -inf), 0, scores)."""
    choice = made_by(chosen, WHERE)
    every = None if choice is None else made_by(choice.inputs[0], ALL)
    equal = None if every is None else made_by(every.inputs[0], EQUAL)
    if choice is None or every is None or equal is None:
        return None
    if not every.attrs["keepdims"] or tuple(every.attrs["axis"]) != (last,):
        return None
    if not is_number(choice.inputs[1], 0.0) or equal.inputs[0] is not choice.inputs[2]:
        return None
    return (choice, every, equal) if is_number(equal.inputs[1], -np.inf) else None


def _masked(scores: Value) -> tuple[Value | None, Node | None, Node | None, list[Node]]:
    """The mask on scores, the product they come from, what scales it, and the nodes between."""
    product, scaling, more = _scaled(scores)
    if product is not None:
        return None, product, scaling, more
    choice = made_by(scores, WHERE)
    if choice is not None and is_number(choice.inputs[2], -np.inf):
        product, scaling, more = _scaled(choice.inputs[1])
        return choice.inputs[0], product, scaling, [*more, choice]
    added = made_by(scores, ADD)
    if added is not None:
        for mask, other in (added.inputs, reversed(added.inputs)):
            product, scaling, more = _scaled(other)
            if product is not None:
                return mask, product, scaling, [*more, added]
    return None, None, None, []


def _scaled(value: Value) -> tuple[Node | None, Node | None, list[Node]]:
    """A product, the node that multiplies it by a number or divides it by one, or None; and the
    nodes behind the product."""
    more: list[Node] = []
    value = uncast(value, more)
    scaling = made_by(value, MULTIPLY) or made_by(value, DIVIDE)
    if scaling is None:
        return made_by(value, MATMUL), None, more
    if number_of(scaling) is None:
        return None, None, []
    more.append(scaling)
    value = uncast(scaling.inputs[0], more)  # constants stand on the right
    return made_by(value, MATMUL), scaling, more


def _is_causal(mask: Value) -> bool:
    """Whether a mask is a known one that lets a query see only keys no later than itself."""
    kind = mask.tensor_type
    if kind.dtype is not dtypes.bool or kind.ndim != 2:
        return False
    queries, keys = kind.shape
    compared = made_by(mask, LESS_EQUAL)
    if compared is not None:
        one, two = (_counted(value) for value in compared.inputs)
        return one in ((keys,), (1, keys)) and two == (queries, 1)
    known = made_by(mask, CONSTANT)
    if known is None:
        return False
    return bool((known.attrs["value"].array == np.tri(queries, keys, dtype=np.bool)).all())


def _counted(value: Value) -> tuple[int, ...] | None:
    """The shape of a value that holds 0, 1, 2…"""
    node, shape = value.node, value.tensor_type.shape
    if node is not None and (node.op is RESHAPE or _only_adds_axes(node)):
        node = node.inputs[0].node
    if node is None:
        return None
    if node.op is ARANGE:
        return shape if (node.attrs["start"], node.attrs["step"]) == (0, 1) else None
    if node.op is not CONSTANT:
        return None
    array = node.attrs["value"].array
    return shape if (array.reshape(-1) == np.arange(array.size)).all() else None


def _only_adds_axes(node: Node) -> bool:
    """Whether a node indexes a value with `:` and None."""
    return node.op is GETITEM and all(
        part is None or part == slice(None) for part in node.attrs["index"]
    )


def _fits(q: Value, k_turned: Value, v: Value, mask: Value | None, end: Node) -> bool:
    kinds = [value.tensor_type for value in (q, k_turned, v)]
    out = end.outputs[0].tensor_type
    if kinds[0].dtype not in FLOATS or kinds[0].ndim < 2:
        return False
    if any(kind.ndim != out.ndim or kind.dtype is not out.dtype for kind in kinds):
        return False
    if any(kind.size == 0 for kind in kinds) or kinds[0].shape[:-2] != out.shape[:-2]:
        return False
    wide = kinds[0].shape[-1], kinds[2].shape[-1]
    if has_dims(wide) or max(wide) > WIDEST:
        return False
    known = (dtypes.bool, out.dtype, computed_in(out.dtype))
    return mask is None or mask.tensor_type.dtype in known
