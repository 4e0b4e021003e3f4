"""Collectives: what all ranks of a group do together, each with tensors of its own.

All ranks must call the same collectives in the same order. `over` names axes of the mesh (one name,
several, or None for all), `mesh` is that of `with mesh:` by default. Gradients are those of the sum
of what all ranks compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from weft.base.errors import DistributedError, RangeError
from weft.core.bind import bind
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor
from weft.distributed.mesh import Mesh, current_mesh
from weft.ir.op import Op
from weft.ops.arguments import axis_of, integer
from weft.ops.collective import (
    ADDED,
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_EXTREME,
    ALL_TO_ALL,
    BROADCAST_FROM,
    COPIED,
    REDUCE_SCATTER,
    SEND,
)

__all__ = [
    "added",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "copied",
    "reduce_scatter",
    "send",
]

Over = str | Sequence[str] | None
Reduction = Literal["sum", "mean", "max", "min", "prod"]


def _call(card: Op, x: Any, over: Over, mesh: Mesh | None, **attrs: Any) -> Tensor:
    on = mesh or current_mesh()
    out: Tensor = bind(card, as_tensor(x, card.name), mesh=on.axes, over=on.names(over), **attrs)
    return out


def all_reduce(
    x: Tensor, over: Over = None, op: Reduction = "sum", *, mesh: Mesh | None = None
) -> Tensor:
    """The sum, mean, maximum, minimum or product of x over ranks, on each of them.

    >>> from weft import distributed
    >>> def largest():
    ...     return distributed.all_reduce(weft.tensor([1, -distributed.rank()]), op="max")
    >>> distributed.run_virtual(2, largest)
    [tensor([1, 0]), tensor([1, 0])]
    """
    if op == "sum":
        return _call(ALL_REDUCE, x, over, mesh)
    if op == "mean":
        on = mesh or current_mesh()
        return _call(ALL_REDUCE, x, over, on) / on.group_size(over)
    if op not in ("max", "min", "prod"):
        raise RangeError(f"all_reduce: op is {op!r}", hint='"sum", "mean", "max", "min" or "prod"')
    return _call(ALL_REDUCE_EXTREME, x, over, mesh, kind=op)


def all_gather(x: Tensor, over: Over = None, *, axis: int = 0, mesh: Mesh | None = None) -> Tensor:
    """The tensors of all ranks, joined along an axis.

    >>> from weft import distributed
    >>> def both():
    ...     return distributed.all_gather(weft.tensor([distributed.rank()]))
    >>> distributed.run_virtual(2, both)
    [tensor([0, 1]), tensor([0, 1])]
    """
    tensor = as_tensor(x, "all_gather")
    return _call(ALL_GATHER, tensor, over, mesh, axis=axis_of(tensor, axis, "all_gather"))


def reduce_scatter(
    x: Tensor, over: Over = None, *, axis: int = 0, mesh: Mesh | None = None
) -> Tensor:
    """The sum over ranks, of which each rank keeps its part along an axis."""
    tensor = as_tensor(x, "reduce_scatter")
    return _call(REDUCE_SCATTER, tensor, over, mesh, axis=axis_of(tensor, axis, "reduce_scatter"))


def all_to_all(
    x: Tensor,
    over: Over = None,
    *,
    split_axis: int = 0,
    concat_axis: int = 0,
    mesh: Mesh | None = None,
) -> Tensor:
    """Cut x along an axis and send a part to each rank; join what comes along another axis."""
    tensor = as_tensor(x, "all_to_all")
    axes = {
        "split_axis": axis_of(tensor, split_axis, "all_to_all"),
        "concat_axis": axis_of(tensor, concat_axis, "all_to_all"),
    }
    return _call(ALL_TO_ALL, tensor, over, mesh, **axes)


def _member(rank: Any, what: str, x: Tensor, over: Over, mesh: Mesh, op: str) -> int:
    size = mesh.group_size(over)
    number = integer(rank, what, op, x)
    if not 0 <= number < size:
        raise RangeError(f"{op}: {what} is {number}, but there are {size} ranks over {over!r}")
    return number


def broadcast(x: Tensor, over: Over = None, *, root: int = 0, mesh: Mesh | None = None) -> Tensor:
    """x of one rank, on all of them; shape and dtype are the same on all."""
    tensor, on = as_tensor(x, "broadcast"), mesh or current_mesh()
    number = _member(root, "root", tensor, over, on, "broadcast")
    return _call(BROADCAST_FROM, tensor, over, on, root=number)


def send(
    x: Tensor,
    pairs: Sequence[tuple[int, int]],
    over: Over = None,
    *,
    mesh: Mesh | None = None,
) -> Tensor:
    """For each pair (a, b), x of rank a on rank b; zeros on ranks that nobody sends to.

    All ranks call it, also those that neither send nor receive.

    >>> from weft import distributed
    >>> def ring():
    ...     mine = weft.tensor([distributed.rank()])
    ...     return distributed.send(mine, [(0, 1), (1, 2), (2, 0)])
    >>> distributed.run_virtual(3, ring)
    [tensor([2]), tensor([0]), tensor([1])]
    """
    tensor, on = as_tensor(x, "send"), mesh or current_mesh()
    known = [
        tuple(_member(rank, "a rank", tensor, over, on, "send") for rank in pair) for pair in pairs
    ]
    sources, targets = zip(*known, strict=True) if known else ((), ())
    if len(set(sources)) < len(known) or len(set(targets)) < len(known):
        raise DistributedError(f"send: a rank sends or receives twice in {list(pairs)}")
    return _call(SEND, tensor, over, on, pairs=tuple(known))


def copied(x: Tensor, over: Over = None, *, mesh: Mesh | None = None) -> Tensor:
    """x, which is the same on all ranks, for each rank to use on its own: gradients are added."""
    return _call(COPIED, x, over, mesh)


def added(x: Tensor, over: Over = None, *, mesh: Mesh | None = None) -> Tensor:
    """The sum over ranks, with which all go on alike: unlike `all_reduce`, it counts once in
    gradients."""
    return _call(ADDED, x, over, mesh)
