"""Leaves that a run creates and that outlive it: `x.detach().requires_grad_()`, a new Parameter.

Also leaves from outside whose value it replaces before it reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from weft.autodiff.node import hooks_of
from weft.core.number import Number
from weft.core.private_state import class_of
from weft.core.tensor import Tensor
from weft.ir.signature import Given, NewLeaf
from weft.record.recorder import Written


def is_new_leaf(tensor: Tensor) -> bool:
    return tensor._node is not None and tensor._node.is_leaf


def new_leaves(
    kept: list[Tensor],
    output: Callable[[Tensor], int],
    outside: Callable[[Tensor], Given | None],
) -> list[NewLeaf]:
    """The new leaves among the tensors of a run; adds their gradients to `kept`."""
    found: list[NewLeaf] = []
    for number, tensor in enumerate(kept):
        learns, cls = is_new_leaf(tensor), class_of(tensor)
        if not learns and cls in (Tensor, Number):
            continue
        grad = getattr(tensor, "_grad", None)
        given = None if grad is None else outside(grad)
        where = None if grad is None else output(grad) if given is None else given
        found.append(NewLeaf(number, Tensor if cls is Number else cls, learns, where))
    return found


def make_leaves(
    leaves: Sequence[NewLeaf], made: list[Tensor], outside: Callable[[int], Any]
) -> None:
    """Make tensors of a replay leaves, as in the recorded run. `outside(i)` is the object at place
    i."""
    for leaf in leaves:
        tensor, cls = made[leaf.output], leaf.cls
        if type(tensor) is not cls:
            assert issubclass(cls, Tensor)
            data = tensor._data
            tensor = made[leaf.output] = Tensor.__new__(cls)
            tensor._data, tensor._node = data, None
        if leaf.learns:
            tensor.requires_grad = True
    for leaf in leaves:
        grad = leaf.grad
        if grad is not None:
            made[leaf.output]._grad = made[grad] if isinstance(grad, int) else outside(grad.place)


def sets_requires_grad(entry: Written) -> bool:
    """Whether requires_grad of a tensor from outside was set or cleared.

    Assigning a computed value does neither: the tensor stays a leaf, or gets the value's history.
    """
    tensor, before = entry.tensor, entry.node
    now = tensor._node
    if now is before:
        return False
    if now is not None:
        return bool(now.is_leaf)
    return before is not None and (before.is_leaf or tensor._data is entry.data)


def begins_to_learn(entry: Written) -> bool:
    """Whether all that was done to a tensor from outside is that it requires a gradient now."""
    tensor = entry.tensor
    now = tensor._node
    if entry.node is not None or now is None or not now.is_leaf:
        return False
    return tensor._data is entry.data and not hooks_of(now)


def unread_leaves(written: dict[int, Written], read: Container[int]) -> list[Written]:
    """Leaves from outside that were written before anything read them. `read` has the ids of
    those that were read."""
    return [
        entry
        for key, entry in written.items()
        if key not in read and entry.node is not None and entry.node.is_leaf
    ]
