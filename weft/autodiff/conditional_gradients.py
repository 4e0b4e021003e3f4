"""Gradients that are there or not: what a recorded branch or loop leaves open.

Where a graph chooses between branches, the backward of the choice gives zeros for what the branch
that was taken did not use. Eagerly there is no gradient at all: `.grad` stays None, an optimizer
passes the parameter by, a hook is not called. So while a graph is recorded, the engine carries
along under which condition a gradient is there, a `bool[]` tensor of the graph, and has the
recorder decide where that makes a difference. A gradient without a doubt is there for certain. The
zeros themselves stay zeros, whatever they pass through.

What a branch gives has `requires_grad` if it has a history on any side. Where the side that was
taken has none at all, an eager backward would be refused; here the gradients are the zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from weft.autodiff.node import AccumulateGrad, Node, OpNode, PartNode, data_of
from weft.core.bind import recorder
from weft.core.grad_mode import enable_grad, no_grad
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Value
from weft.ir.op import Trait
from weft.ir.types import TensorType
from weft.ops.elementwise import logical_and, logical_or
from weft.ops.reduce import any as any_of
from weft.ops.select import where

Doubts = dict[Node, Tensor]
Choice = Callable[[Tensor, Tensor], Tensor]


def decides(node: Node) -> bool:
    """Whether it makes a difference if a node gets zeros, or nothing."""
    if node.extra is not None and (node.extra.prehooks or node.extra.hooks):
        return True
    if not isinstance(node, AccumulateGrad):
        return False
    tensor = node.variable
    return bool(node.after) or (tensor is not None and tensor.grad is None)


def masked(node: Node, grads: Sequence[Any], doubt: Tensor, create: bool) -> Sequence[Any]:
    """Zeros where there is no gradient: 0 times the infinite slope of a root would not be zero."""
    choose = _choose
    if isinstance(node, OpNode):
        if not node.plan.keeps:
            return grads  # it computes with nothing but the gradient
        if node.op.traits & (Trait.LINEAR | Trait.FINITE):
            choose = _where  # the cheaper one: its slope is finite, and so are those of that
    return [part if _is_other(part) else _masked(part, doubt, create, choose) for part in grads]


def _masked(part: Any, doubt: Tensor, create: bool, choose: Choice) -> Any:
    with enable_grad() if create else no_grad():
        found = choose(doubt, part if isinstance(part, Tensor) else wrap(part))
    return found if create else found._data


def _where(doubt: Tensor, part: Tensor) -> Tensor:
    return where(doubt, part, 0)


_choose: Choice = _where


def use_choice(choose: Choice) -> None:
    """How to have a gradient where a condition holds, and zeros elsewhere.

    Set by the recording of control flow, which lies below this layer: a choice between branches has
    doubts of its own when it is differentiated again, which `where` has not.
    """
    global _choose
    _choose = choose


def _is_other(part: Any) -> bool:
    """Whether a gradient is none, or a stack of gradients."""
    value = getattr(data_of(part), "value", None)
    return part is None or (isinstance(value, Value) and not isinstance(value.type, TensorType))


def own_doubts(node: Node, grads: Sequence[Any]) -> Sequence[Tensor | None] | None:
    """The doubts that a node itself adds about what it gives; None: none.

    A list that a loop grew has one gradient, a stack. Elements that nobody used are zeros in it: so
    a gradient that is taken off it is there if it is not zero.
    """
    if node.doubts is not None or not isinstance(node, OpNode):
        return node.doubts  # type: ignore[no-any-return]
    if Trait.STACK not in node.op.traits or not getattr(recorder(), "has_gaps", False):
        return None
    return [None if _is_other(part) else _is_used(part) for part in grads]


def _is_used(part: Any) -> Tensor:
    with no_grad():
        return any_of((part if isinstance(part, Tensor) else wrap(part)) != 0)


def pass_on(
    doubts: Doubts,
    node: Node,
    grads: Sequence[Any],
    doubt: Tensor | None,
    waiting: Container[Node],
    own: Sequence[Tensor | None] | None,
) -> None:
    """Note the doubts about what a node gives to those before it; `own` are those it adds."""
    own = own or [None] * len(grads)
    certain: set[Node] = set()
    for edge, part, more in zip(node.edges, grads, own, strict=False):
        if edge is None or part is None:
            continue
        here = _both(doubt, more)
        if here is None or edge in certain:
            certain.add(edge)
            doubts.pop(edge, None)
        elif edge in doubts:
            doubts[edge] = _either(doubts[edge], here)
        elif edge not in waiting:
            doubts[edge] = here


def pass_to_whole(doubts: Doubts, part: PartNode, doubt: Tensor | None, known: bool) -> None:
    """Note the doubt about one of several results: one that is certain makes all of them so."""
    whole = part.parent
    if doubt is None:
        doubts.pop(whole, None)
    elif not known:
        doubts[whole] = doubt
    elif whole in doubts:
        doubts[whole] = _either(doubts[whole], doubt)


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    with no_grad():
        return logical_and(a, b)


def _either(a: Tensor, b: Tensor) -> Tensor:
    with no_grad():
        return a if a is b else logical_or(a, b)
