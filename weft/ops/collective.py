"""The cards of collectives: what ranks do together. The public functions are in `weft.distributed`.

All ranks of a group run the same program, each on tensors of its own, and call the same collectives
in the same order. The gradient is that of the sum of what all ranks compute: so the derivative of a
sum over ranks is a sum over ranks, and gathering and scattering are each other's.

The attributes `mesh` and `over` name the group, see `weft/base/world.py`. No graph says which rank
it runs on, so all ranks have the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.base.asked_sizes import is_less
from weft.base.errors import ShapeError
from weft.base.world import Axes, Group, compare_lines, current_world, group_size
from weft.ir.dispatch import family_of
from weft.ir.graph import Graph, Node
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ops.batching import Attrs, Inputs, Mapped, all_mapped, shifted
from weft.ops.rules import apply, check_kind

__all__: list[str] = []

Over = tuple[str, ...]
Pairs = tuple[tuple[int, int], ...]


def _group(mesh: Axes, over: Over) -> Group:
    return current_world().group(mesh, over)


def _for(x: Any, mesh: Axes, over: Over) -> Group:
    """The group that carries x: arrays on a GPU travel by NCCL."""
    near = current_world().group(mesh, over)
    if isinstance(x, np.ndarray):
        return near
    make = family_of(x).group
    return near if make is None else make(near, x)


# --- parts along an axis -------------------------------------------------------------------------


def part_size(x: TensorType, axis: int, parts: int) -> int:
    """The size of one of `parts` equal parts of an axis."""
    size = x.shape[axis]
    if is_less(0, size % parts):  # where it is not known, the run tells
        raise ShapeError(
            f"axis {axis} has size {size}, which {parts} ranks do not divide",
            hint="pad it, or choose another axis or mesh",
        )
    return size // parts


def _resized(x: TensorType, axis: int, size: int) -> TensorType:
    return x.like(shape=(*x.shape[:axis], size, *x.shape[axis + 1 :]))


def cut_apart(xp: Any, x: Any, axis: int, parts: int) -> Any:
    """Equal parts along an axis, stacked in front."""
    size, rest = divmod(x.shape[axis], parts)
    if rest:
        raise ValueError(f"axis {axis} of {x.shape} does not fall into {parts} equal parts")
    before = (slice(None),) * axis
    return xp.stack([x[(*before, slice(i * size, (i + 1) * size))] for i in range(parts)])


def joined(xp: Any, parts: Any, axis: int) -> Any:
    """The inverse of `cut_apart`."""
    if axis == 0 and parts.size:
        return parts.reshape(-1, *parts.shape[2:])
    return xp.concatenate([parts[i] for i in range(len(parts))], axis=axis)


# --- reductions ----------------------------------------------------------------------------------


def _sum_type(x: TensorType, *, mesh: Axes, over: Over) -> TensorType:
    check_kind(x, "numeric")
    return x


def _sum(_xp: Any, x: Any, *, mesh: Axes, over: Over) -> Any:
    return _for(x, mesh, over).all_reduce(x, "sum")


def _sum_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over) -> Any:
    return apply(ALL_REDUCE, g, mesh=mesh, over=over)


def _same(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """The batching rule of what treats all elements alike."""
    return apply(op, *all_mapped(size, mapped, inputs), **attrs)


def _collective(
    name: str,
    rule: Callable[..., TensorType],
    evaluate: Callable[..., Any],
    vjp: Callable[..., Any],
    batch: Any = _same,
    traits: Trait = Trait.LINEAR,
    kinds: str = "all",
) -> Op:
    return Op(
        name,
        rule,
        evaluate,
        kinds=kinds,
        vjp=(vjp,),
        batch=batch,
        traits=traits | Trait.COLLECTIVE,
        may_fail=True,
    )


ALL_REDUCE = _collective(
    "all_reduce",
    _sum_type,
    _sum,
    _sum_vjp,
    traits=Trait.LINEAR | Trait.BUNDLED,
    kinds="numeric",
)


def _extreme_type(x: TensorType, *, mesh: Axes, over: Over, kind: str) -> TensorType:
    check_kind(x, "real")
    return x


def _extreme(_xp: Any, x: Any, *, mesh: Axes, over: Over, kind: str) -> Any:
    return _for(x, mesh, over).all_reduce(x, kind)


def _extreme_vjp(xp: Any, g: Any, out: Any, x: Any, *, mesh: Axes, over: Over, kind: str) -> Any:
    """Ranks that have the extreme value share its gradient."""
    mine = (x == out).astype(g.dtype)
    total = apply(ALL_REDUCE, g, mesh=mesh, over=over)
    return mine * (total / apply(ALL_REDUCE, mine, mesh=mesh, over=over))


ALL_REDUCE_EXTREME = _collective(
    "all_reduce_extreme", _extreme_type, _extreme, _extreme_vjp, traits=Trait.NONE, kinds="real"
)


def _joined_type(*parts: TensorType, mesh: Axes, over: Over) -> TensorType:
    return parts[0].like(shape=(sum(part.size for part in parts),))


def _joined_sum(xp: Any, *parts: Any, mesh: Axes, over: Over) -> Any:
    whole = xp.concatenate([part.reshape(-1) for part in parts])
    return _for(whole, mesh, over).all_reduce(whole, "sum")


#: The sum over ranks of all elements of several tensors, one after the other. The pass `bundles`
#: makes it of several sums.
SUM_JOINED = Op(
    "sum_joined",
    _joined_type,
    _joined_sum,
    kinds="numeric",
    traits=Trait.LINEAR | Trait.COLLECTIVE,
    may_fail=True,
    listed=False,
)


# --- gathering and scattering --------------------------------------------------------------------


def _gather_type(x: TensorType, *, mesh: Axes, over: Over, axis: int) -> TensorType:
    return _resized(x, axis, x.shape[axis] * group_size(mesh, over))


def _gather(xp: Any, x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    return joined(xp, _for(x, mesh, over).all_gather(x), axis)


def _gather_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    return apply(REDUCE_SCATTER, g, mesh=mesh, over=over, axis=axis)


ALL_GATHER = _collective("all_gather", _gather_type, _gather, _gather_vjp, shifted("axis"))


def _scatter_type(x: TensorType, *, mesh: Axes, over: Over, axis: int) -> TensorType:
    check_kind(x, "numeric")
    return _resized(x, axis, part_size(x, axis, group_size(mesh, over)))


def _scatter(xp: Any, x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    group = _for(x, mesh, over)
    return group.reduce_scatter(cut_apart(xp, x, axis, group.size), "sum")


def _scatter_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    return apply(ALL_GATHER, g, mesh=mesh, over=over, axis=axis)


REDUCE_SCATTER = _collective(
    "reduce_scatter", _scatter_type, _scatter, _scatter_vjp, shifted("axis"), kinds="numeric"
)


def _exchange_type(
    x: TensorType, *, mesh: Axes, over: Over, split_axis: int, concat_axis: int
) -> TensorType:
    parts = group_size(mesh, over)
    cut = _resized(x, split_axis, part_size(x, split_axis, parts))
    return _resized(cut, concat_axis, cut.shape[concat_axis] * parts)


def _exchange(xp: Any, x: Any, *, mesh: Axes, over: Over, split_axis: int, concat_axis: int) -> Any:
    group = _for(x, mesh, over)
    return joined(xp, group.all_to_all(cut_apart(xp, x, split_axis, group.size)), concat_axis)


def _exchange_vjp(
    _xp: Any,
    g: Any,
    _out: Any,
    _x: Any,
    *,
    mesh: Axes,
    over: Over,
    split_axis: int,
    concat_axis: int,
) -> Any:
    back = {"split_axis": concat_axis, "concat_axis": split_axis}
    return apply(ALL_TO_ALL, g, mesh=mesh, over=over, **back)


ALL_TO_ALL = _collective(
    "all_to_all",
    _exchange_type,
    _exchange,
    _exchange_vjp,
    shifted("split_axis", "concat_axis"),
)


# --- from one rank to others ---------------------------------------------------------------------


def _from_type(x: TensorType, *, mesh: Axes, over: Over, root: int) -> TensorType:
    return x


def _from(_xp: Any, x: Any, *, mesh: Axes, over: Over, root: int) -> Any:
    return _for(x, mesh, over).broadcast(x, root)


def _from_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, root: int) -> Any:
    return apply(REDUCE_TO, g, mesh=mesh, over=over, root=root)


BROADCAST_FROM = _collective("broadcast_from", _from_type, _from, _from_vjp)


def _to_type(x: TensorType, *, mesh: Axes, over: Over, root: int) -> TensorType:
    check_kind(x, "numeric")
    return x


def _to(xp: Any, x: Any, *, mesh: Axes, over: Over, root: int) -> Any:
    """The sum on one rank, and zeros on the others."""
    group = _for(x, mesh, over)
    total = group.all_reduce(x, "sum")
    return total if group.rank == root else xp.zeros_like(total)


def _to_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, root: int) -> Any:
    return apply(BROADCAST_FROM, g, mesh=mesh, over=over, root=root)


REDUCE_TO = _collective("reduce_to", _to_type, _to, _to_vjp, kinds="numeric")


def _sent_type(x: TensorType, *, mesh: Axes, over: Over, pairs: Pairs) -> TensorType:
    return x


def _sent(_xp: Any, x: Any, *, mesh: Axes, over: Over, pairs: Pairs) -> Any:
    return _for(x, mesh, over).permute(x, pairs)


def _sent_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, pairs: Pairs) -> Any:
    back = tuple((b, a) for a, b in pairs)
    return apply(SEND, g, mesh=mesh, over=over, pairs=back)


SEND = _collective("send", _sent_type, _sent, _sent_vjp)


# --- the part of one rank ------------------------------------------------------------------------


def _own_type(x: TensorType, *, mesh: Axes, over: Over, axis: int) -> TensorType:
    return _resized(x, axis, part_size(x, axis, group_size(mesh, over)))


def _own(_xp: Any, x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    group = _group(mesh, over)
    size = x.shape[axis] // group.size
    part = x[(slice(None),) * axis + (slice(group.rank * size, (group.rank + 1) * size),)]
    return part.copy()  # the whole need not stay


def _own_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    return apply(PLACED_PART, g, mesh=mesh, over=over, axis=axis)


#: Of a value that is the same on all ranks, the part of this one.
OWN_PART = _collective("own_part", _own_type, _own, _own_vjp, shifted("axis"))


def _placed_type(x: TensorType, *, mesh: Axes, over: Over, axis: int) -> TensorType:
    check_kind(x, "numeric")
    return _resized(x, axis, x.shape[axis] * group_size(mesh, over))


def _placed(xp: Any, x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    group = _group(mesh, over)
    size = x.shape[axis]
    out = xp.zeros((*x.shape[:axis], size * group.size, *x.shape[axis + 1 :]), dtype=x.dtype)
    out[(slice(None),) * axis + (slice(group.rank * size, (group.rank + 1) * size),)] = x
    return out


def _placed_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over, axis: int) -> Any:
    return apply(OWN_PART, g, mesh=mesh, over=over, axis=axis)


#: The part of this rank among zeros: the sum over ranks is all of them, joined.
PLACED_PART = _collective(
    "placed_part", _placed_type, _placed, _placed_vjp, shifted("axis"), kinds="numeric"
)


def _first_type(x: TensorType, *, mesh: Axes, over: Over) -> TensorType:
    check_kind(x, "numeric")
    return x


def _first(xp: Any, x: Any, *, mesh: Axes, over: Over) -> Any:
    return x.copy() if _group(mesh, over).rank == 0 else xp.zeros_like(x)


def _first_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over) -> Any:
    return apply(FIRST_ONLY, g, mesh=mesh, over=over)


#: The value on the first rank and zeros on the others: of what is the same on all, terms of a sum.
FIRST_ONLY = _collective("first_only", _first_type, _first, _first_vjp, kinds="numeric")


# --- what is the same on all ranks ---------------------------------------------------------------


def _copy_type(x: TensorType, *, mesh: Axes, over: Over) -> TensorType:
    return x


def _copy(_xp: Any, x: Any, *, mesh: Axes, over: Over) -> Any:
    return x.copy()


def _copy_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over) -> Any:
    return apply(ADDED, g, mesh=mesh, over=over)


def _added_vjp(_xp: Any, g: Any, _out: Any, _x: Any, *, mesh: Axes, over: Over) -> Any:
    return apply(COPIED, g, mesh=mesh, over=over)


#: A value that is the same on all ranks, from here on used by each for itself.
COPIED = _collective("copied", _copy_type, _copy, _copy_vjp)
#: The sum over ranks as a value that is the same on all of them, and counts once.
ADDED = _collective(
    "added", _sum_type, _sum, _added_vjp, traits=Trait.LINEAR | Trait.BUNDLED, kinds="numeric"
)


# --- whether ranks have the same program ---------------------------------------------------------


def compare_graphs(node: Node, graph: Graph) -> None:
    """Before the first collective of a graph in a group: whether its ranks will make the same
    calls. What else ranks compute may differ."""
    mesh, over = node.attrs["mesh"], node.attrs["over"]
    group = _group(mesh, over)
    if not group.compared:
        compare_lines(group, list(_calls(graph, mesh, over, "")))


def first_collectives(graph: Graph) -> list[Node]:
    """The first collective of each group."""
    found: dict[Any, Node] = {}
    for part in graph.walk():
        for node in part.nodes:
            if node.op.collective:
                found.setdefault((node.attrs["mesh"], node.attrs["over"]), node)
    return list(found.values())


def _calls(graph: Graph, mesh: Axes, over: Over, inside: str) -> Iterator[str]:
    """The calls of a group, as lines of text."""
    for node in graph.nodes:
        if node.op.collective and (node.attrs["mesh"], node.attrs["over"]) == (mesh, over):
            attrs = {name: x for name, x in node.attrs.items() if name not in ("mesh", "over")}
            said = f"[{', '.join(f'{name}={x!r}' for name, x in attrs.items())}]" if attrs else ""
            kinds = ", ".join(str(value.type) for value in node.inputs)
            yield f"{inside}{node.op.name}{said} of {kinds}"
        for number, part in enumerate(node.graphs):
            yield from _calls(part, mesh, over, f"{inside}in {node.op.name} {number}: ")
