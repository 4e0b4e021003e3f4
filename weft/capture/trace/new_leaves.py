"""Leaves that a run makes and leaves behind: `x.detach().requires_grad_()`, a new Parameter.

Also those from outside that it gives another value before it reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from weft.core.number import Number
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
    """Those among the tensors that a run made; `kept` grows by their gradients."""
    found: list[NewLeaf] = []
    for number, tensor in enumerate(kept):
        learns, cls = is_new_leaf(tensor), type(tensor)
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
    """Let tensors of a call be what those of the recorded run were. `outside` gives what is at a
    place."""
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
    """Whether a tensor from outside was made a leaf that learns, or one that does not.

    A computed value makes neither: it leaves a leaf one, or brings its own history.
    """
    tensor, before = entry.tensor, entry.node
    now = tensor._node
    if now is before:
        return False
    if now is not None:
        return bool(now.is_leaf)
    return before is not None and (before.is_leaf or tensor._data is entry.data)


def unread_leaves(written: dict[int, Written], read: Container[int]) -> list[Written]:
    """Leaves from outside whose first value nobody read: they were written to before. `read` has
    the ids of those that were read."""
    return [
        entry
        for key, entry in written.items()
        if key not in read and entry.node is not None and entry.node.is_leaf
    ]
