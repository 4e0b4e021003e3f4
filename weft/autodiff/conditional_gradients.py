"""Gradients that exist only under a condition, because of branches and loops of a recorded graph.

The backward of an `if` of the graph gives zeros for operands that the taken branch did not use.
Eagerly there is no gradient at all: `.grad` stays None, an optimizer skips the parameter, a hook is
not called. So while a graph is recorded, the engine carries with each gradient the condition (a
`bool[]` tensor, called its doubt) under which it exists, and asks the recorder to decide where that
makes a difference. A gradient without a doubt always exists. The zeros of a missing gradient stay
zeros, whatever ops they pass through: see `ONLY_WHERE`.

The gradient of such a graph may also be differentiated op by op. Its conditions are known there:
the engine turns to all this where a rule says that its condition does not hold (`Absent`).

A result of an `if` has `requires_grad` if it has a history on any side. If the taken side has none,
an eager backward would be refused; here the gradients are zeros.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from weft.autodiff.node import (
    AccumulateGrad,
    Dropped,
    Node,
    OpNode,
    PartNode,
    as_array,
    data_of,
    weft_namespace,
)
from weft.autodiff.save_plan import Absent
from weft.autodiff.transforms.levels import LevelArray
from weft.core.bind import bind, recorder
from weft.core.grad_mode import enable_grad, no_grad
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Value
from weft.ir.op import Trait
from weft.ir.types import TensorType
from weft.ops.elementwise import logical_and, logical_or
from weft.ops.index_cards import Patch
from weft.ops.reduce import any as any_of
from weft.ops.rules import sum_to
from weft.ops.select import CHOOSE, ONLY_WHERE
from weft.ops.shape import reshape

Doubts = dict[Node, Tensor]
Gradients = dict[Node, Any]


def decides(node: Node) -> bool:
    """Whether a gradient of zeros and a missing gradient differ for a node."""
    if node.extra is not None and (node.extra.prehooks or node.extra.hooks):
        return True
    if not isinstance(node, AccumulateGrad):
        return False
    tensor = node.variable
    return bool(node.after) or (tensor is not None and tensor.grad is None)


class Conditions:
    """The conditions of pending gradients in a backward pass, and which still need a mask.

    A mask keeps the zeros of a missing gradient zeros: 0 times the infinite slope of a root is NaN.
    One mask serves a whole chain of ops: it is applied where the gradient would be added to another
    one, or leave the pass.
    """

    def __init__(self, of_roots: Doubts | None, create: bool, keep: bool) -> None:
        self.of: Doubts = dict(of_roots or {})
        self.create = create
        self._may_stand_in = keep and not create  # nobody sees what another node keeps
        self._of_parts: dict[Node, dict[int, Tensor | None]] = {}
        self._unmasked: set[Node] = set()
        self._is_unmasked = False  # of the node that runs now
        self._masked = -1  # the number of its gradient that needs no mask
        self._computes = False  # whether it multiplies by what may be infinite

    def __bool__(self) -> bool:
        return bool(self.of)

    def pop(self, node: Node) -> Tensor | None:
        """The condition of a node's gradient; for several results, that any of them has one.

        If these differ, a node of control flow gets each: it has masks inside.
        """
        parts = self._of_parts.pop(node, None)
        if parts is None:
            return self.of.pop(node, None)
        found = {i: doubt for i, doubt in parts.items() if doubt is not None}
        is_certain = len(found) < len(parts)
        found = {i: _of_all(doubt) for i, doubt in found.items()}
        if found and (is_certain or len(set(map(id, found.values()))) > 1):
            node.arriving(found)
        return None if is_certain else functools.reduce(_either, found.values())

    def pass_to_whole(self, part: PartNode, doubt: Tensor | None) -> None:
        """Note the condition of one of several results; it may get several gradients."""
        parts = self._of_parts.setdefault(part.parent, {})
        before = parts.get(part.index, doubt)
        parts[part.index] = None if doubt is None or before is None else _either(before, doubt)

    def enter(self, node: Node, g: Any, doubt: Tensor, is_end: bool) -> Any:
        """The gradient that a node runs on, masked unless that can be delayed."""
        self._is_unmasked = node in self._unmasked
        self._unmasked.discard(node)
        now = is_end or _grows(node) or not _can_wait(node) or _merges(node, doubt)
        if not self._is_unmasked or not now:
            return g
        self._is_unmasked = False
        return self._mask(g, doubt)

    def stand_in(self, node: Node, doubt: Tensor, g: Any) -> tuple[Node, Any]:
        """The node to run instead, and its gradient: a product with a masked operand.

        Then a large gradient, such as that of a matrix times a vector, needs no mask of its own.
        """
        self._masked = -1
        self._computes = _keeps_floats(node)  # asked now: running it may free what it keeps
        large = _large_factor(node) if self._may_stand_in else -1
        if large < 0 or not isinstance(node, OpNode):
            return node, g
        self._masked = large
        other = copy(node)
        kept = list(node.kept)
        kept[2 - large] = self._mask(kept[2 - large], doubt)
        other.kept = tuple(kept)
        return other, self._mask(g, doubt) if self._is_unmasked else g

    def leave(
        self,
        node: Node,
        grads: Sequence[Any],
        doubt: Tensor | None,
        waiting: Gradients,
        own: Sequence[Tensor | None] | None,
    ) -> Sequence[Any]:
        """Note the conditions of a node's gradients for its inputs; `own` are those it adds."""
        unmasked = False
        if doubt is not None and _can_wait(node):
            unmasked = self._is_unmasked or self._computes
        elif doubt is not None:
            grads = [self._mask(part, doubt) for part in grads]
        parts = list(grads)
        first: dict[Node, int] = {}
        for i, (edge, part) in enumerate(zip(node.edges, grads, strict=False)):
            if edge is None or part is None:
                continue
            here = _both(doubt, None if own is None else own[i])
            later = unmasked and i != self._masked
            if edge in first or edge in waiting:
                self._join(edge, parts, i, first.get(edge), waiting, here, later)
            elif here is not None:
                self.of[edge] = here
                if later:
                    self._unmasked.add(edge)
            first.setdefault(edge, i)
        return parts

    def _join(
        self,
        edge: Node,
        parts: list[Any],
        i: int,
        first: int | None,
        waiting: Gradients,
        here: Tensor | None,
        later: bool,
    ) -> None:
        """Add a gradient of a node; masks can be delayed only if both have the same condition."""
        before = self.of.get(edge)
        if before is here:
            if later:
                self._unmasked.add(edge)
            return
        if edge in self._unmasked:
            assert before is not None
            self._unmasked.discard(edge)
            if edge in waiting:
                waiting[edge] = self._mask(waiting[edge], before)
            if first is not None:
                parts[first] = self._mask(parts[first], before)
        if later:
            assert here is not None
            parts[i] = self._mask(parts[i], here)
        if before is None or here is None:
            self.of.pop(edge, None)
        else:
            self.of[edge] = _either(before, here)

    def _mask(self, part: Any, doubt: Tensor) -> Any:
        if isinstance(part, tuple):
            return tuple([self._mask(each, doubt) for each in part])
        if _is_other(part):
            return part
        if part.__class__ is Patch:
            part = part.array()
        with enable_grad() if self.create else no_grad():
            given = part if isinstance(part, Tensor) else wrap(as_array(part))
            found: Tensor = bind(ONLY_WHERE, _fitted(doubt, given), given)
        return found if self.create else found._data


def _merges(node: Node, doubt: Tensor) -> bool:
    """Whether a node adds up what elements have that a doubt tells apart."""
    size = doubt.shape
    return bool(size) and any(edge is not None and edge.shape[:1] != size for edge in node.edges)


def _fitted(doubt: Tensor, part: Tensor) -> Tensor:
    """The condition of a gradient, which may differ from element to element of its first axis."""
    if not doubt.ndim or not part.ndim:
        return _of_all(doubt)
    with no_grad():
        if part.shape[0] != doubt.shape[0]:
            return _of_all(doubt)
        return reshape(doubt, (*doubt.shape, *(1,) * (part.ndim - 1)))


def _of_all(doubt: Tensor) -> Tensor:
    """Whether it holds for any element."""
    with no_grad():
        return any_of(doubt) if doubt.ndim else doubt


def _can_wait(node: Node) -> bool:
    """Whether a node is an op call with one gradient per operand."""
    if not isinstance(node, OpNode) or node.extra is not None or node.outputs != 1:
        return False
    return Trait.STACK not in node.op.traits


def _keeps_floats(node: Node) -> bool:
    """Whether a node computes with more than the gradient and integers, which are finite."""
    if not isinstance(node, OpNode) or not node.plan.keeps:
        return False
    return node.kept.__class__ is Dropped or any(_is_float(data) for data in node.kept)


def _is_float(data: Any) -> bool:
    if isinstance(data, TensorType):
        return False
    return isinstance(data, tuple) or getattr(data, "dtype", _INTEGER).kind not in "biu"


_INTEGER = np.dtype(np.int64)
#: From this ratio of sizes on, a mask on the larger gradient costs more than the product.
_LARGE = 4


def _grows(node: Node) -> bool:
    """Whether a gradient for an input is much larger than the gradient of the result."""
    here = _size(node)
    return any(_size(edge) > _LARGE * here for edge in node.edges if edge is not None)


def _size(node: Node) -> int:
    """The number of elements; 0 if it depends on data."""
    size = math.prod(node.shape)
    return size if type(size) is int else 0


def _large_factor(node: Node) -> int:
    """The number of the factor of a product that is much larger than all else; else -1."""
    if not isinstance(node, OpNode) or Trait.PRODUCT not in node.op.traits:
        return -1
    if node.kept.__class__ is Dropped or len(node.edges) != 2:
        return -1
    _, *kept = node.kept
    for i, edge in enumerate(node.edges):
        other = kept[1 - i]
        if edge is None or not isinstance(other, SymbolicArray):
            continue
        size = math.prod(other.shape)
        if type(size) is int and _size(edge) > _LARGE * max(size, _size(node)):
            return i
    return -1


def _is_other(part: Any) -> bool:
    """Whether a gradient is None, or a stack of gradients."""
    data = data_of(part)
    while isinstance(data, LevelArray):
        data = data.tensor._data
    value = getattr(data, "value", None)
    return part is None or (isinstance(value, Value) and not isinstance(value.type, TensorType))


def own_doubts(
    node: Node, grads: Sequence[Any], kept: Any, doubt: Tensor | None
) -> Sequence[Tensor | None] | None:
    """The conditions that a node adds to its gradients, or None.

    A list that a loop filled has one gradient, a stack, with zeros for elements that were not used.
    So a gradient popped off it exists if it is not zero.
    """
    if node.doubts is not None or not isinstance(node, OpNode):
        return node.doubts  # type: ignore[no-any-return]
    if Trait.CONDITIONAL in node.op.traits:
        condition = wrap(kept[1])  # under `vmap`, it has been one for each element
        with no_grad():
            return [None, any_of(condition) if condition.ndim else condition]
    if node.op is CHOOSE:
        if doubt is None and not _overwrites(node):
            return None
        return [None, *[_elements_used(part, kept[1]) for part in grads[1:]]]
    if Trait.STACK not in node.op.traits or not getattr(recorder(), "has_gaps", False):
        return None
    return [None if _is_other(part) else is_used(part) for part in grads]


def gradients_of(node: Node, absent: Absent, create: bool) -> list[Any]:
    """What a node gives of which a rule said that its gradient is not there."""
    grads: list[Any] = [None] * len(node.edges)
    edge = node.edges[absent.number]
    assert edge is not None
    part = absent.part
    xp = weft_namespace() if isinstance(part, Tensor) else np
    part = part if part.shape == edge.shape else sum_to(xp, part, edge.shape)
    grads[absent.number] = part if create else data_of(part)  # rules of narrow floats give tensors
    return grads


def is_there(doubt: Tensor, g: Any) -> Tensor:
    """Whether a leaf gets a gradient: if it is there, or is not zero at all.

    A gradient that is not there only because it is 0 at this point may have a derivative.
    """
    return doubt if _is_other(g) else _either(doubt, is_used(g))


def _overwrites(node: Node) -> bool:
    """Whether a choice has two sides that do not depend on each other: an iteration whose result a
    later one replaces has no gradient, though the loop as a whole has one."""
    _, new, old = node.edges
    if new is None or old is None:
        return new is not old
    seen: set[Node] = set()
    waiting = [new]
    while waiting:
        one = waiting.pop()
        if one is old:
            return False
        if one not in seen and one.number > old.number:
            seen.add(one)
            waiting.extend([edge for edge in one.edges if edge is not None])
    return True


def _elements_used(part: Any, condition: Any) -> Tensor | None:
    """For which elements of a `vmap` a gradient is not zero, where they go different ways.

    None if the choice is one between whole tensors. It says nothing of the whole gradient.
    """
    if _is_other(part) or not condition.ndim or part.shape[:1] != condition.shape[:1]:
        return None
    with no_grad():
        used = (part if isinstance(part, Tensor) else wrap(as_array(part))) != 0
        return any_of(used, axis=tuple(range(1, used.ndim))) if used.ndim > 1 else used


def is_used(part: Any) -> Tensor:
    """Whether a gradient exists, for one that is zeros if its value was not used."""
    with no_grad():
        return any_of((part if isinstance(part, Tensor) else wrap(as_array(part))) != 0)


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    with no_grad():
        return logical_and(*_alike(a, b))


def _either(a: Tensor, b: Tensor) -> Tensor:
    with no_grad():
        return a if a is b else logical_or(*_alike(a, b))


def _alike(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Conditions that can be joined: of nested `vmap`s, those of the whole."""
    if a.ndim and b.ndim and a.shape != b.shape:
        return _of_all(a), _of_all(b)
    return a, b
