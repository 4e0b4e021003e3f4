"""Collectives in two halves: `message_start` sends, `message_finish` waits for the result.

Between the two a program computes (`weft/passes/lowering/messages.py`). Both have the operands, so
that these stay as they are until they have been sent. Tokens keep messages in their order: they are
finished in the order in which they were started, on all ranks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.world import Axes, current_world, group_size
from weft.core.tensor import wrap
from weft.ir.graph import Graph, Node
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import TOKEN, TensorType
from weft.ops.collective import (
    ADDED,
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_EXTREME,
    ALL_TO_ALL,
    BROADCAST_FROM,
    REDUCE_SCATTER,
    SEND,
    SUM_JOINED,
    Over,
    cut_apart,
    joined,
)

__all__ = ["FINISH", "START", "abandon_messages", "direct_call", "has_halves", "raise_undone"]

Attrs = Mapping[str, Any]
#: Card -> the method of groups that computes it, and its argument; None where axes must move.
_DIRECT: dict[Op, Callable[[Attrs], tuple[str, Any] | None]] = {
    ALL_REDUCE: lambda _: ("all_reduce", "sum"),
    ADDED: lambda _: ("all_reduce", "sum"),
    SUM_JOINED: lambda _: ("all_reduce", "sum"),
    ALL_REDUCE_EXTREME: lambda attrs: ("all_reduce", attrs["kind"]),
    ALL_GATHER: lambda attrs: None if attrs["axis"] else ("all_gather", None),
    REDUCE_SCATTER: lambda attrs: None if attrs["axis"] else ("reduce_scatter", "sum"),
    ALL_TO_ALL: lambda attrs: (
        None if attrs["split_axis"] or attrs["concat_axis"] else ("all_to_all", None)
    ),
    BROADCAST_FROM: lambda attrs: ("broadcast", attrs["root"]),
    SEND: lambda attrs: ("send", attrs["pairs"]),
}
#: Those whose operand groups take as one part for each rank.
_IN_PARTS = {REDUCE_SCATTER, ALL_TO_ALL}


def direct_call(node: Node, kinds: Sequence[Any]) -> int:
    """What machine code calls in place of a collective, for operands of these types; 0: nothing."""
    card, attrs, half = node.op, node.attrs, ""
    if card in (START, FINISH):
        half = "start" if card is START else "finish"
        card, attrs, kinds = _card(attrs["card"]), dict(attrs["options"]), kinds[:-1]
    rule = _DIRECT.get(card)
    said = rule(attrs) if rule is not None else None
    if said is None:
        return 0
    group = current_world().group(node.attrs["mesh"], node.attrs["over"])
    parts = [int(kind.size) for kind in kinds]
    shape = tuple(int(size) for size in kinds[0].shape)
    if card is SUM_JOINED:
        shape = (sum(parts),)
    if card in _IN_PARTS:
        shape = (group.size, shape[0] // group.size, *shape[1:])
        parts = [parts[0] // group.size]
    return group.direct(said[0], kinds[0].dtype.numpy, shape, said[1], parts, half)


def raise_undone(node: Node) -> None:
    """Raise the error of a call that machine code made in place of a collective."""
    current_world().group(node.attrs["mesh"], node.attrs["over"]).failed()


# --- halves --------------------------------------------------------------------------------------

#: Card -> the method of groups, its argument, what it takes of the operands of this many ranks, and
#: what becomes of what it gives.
_Halves = tuple[str, Any, Callable[..., Any], Callable[..., Any]]
_HALVES: dict[Op, Callable[[Attrs, int], _Halves]] = {
    **dict.fromkeys((ALL_REDUCE, ADDED), lambda _, _n: ("all_reduce", "sum", _same, _same)),
    SUM_JOINED: lambda _, _n: ("all_reduce", "sum", _flat, _same),
    ALL_REDUCE_EXTREME: lambda attrs, _n: ("all_reduce", attrs["kind"], _same, _same),
    ALL_GATHER: lambda attrs, _n: (
        *("all_gather", None, _same),
        lambda found: joined(np, found, attrs["axis"]),
    ),
    REDUCE_SCATTER: lambda attrs, n: (
        *("reduce_scatter", "sum", lambda x: cut_apart(np, x, attrs["axis"], n)),
        _same,
    ),
    ALL_TO_ALL: lambda attrs, n: (
        *("all_to_all", None, lambda x: cut_apart(np, x, attrs["split_axis"], n)),
        lambda found: joined(np, found, attrs["concat_axis"]),
    ),
    SEND: lambda attrs, _n: ("send", attrs["pairs"], _same, _same),
}


def _same(x: Any) -> Any:
    return x


def _flat(*parts: Any) -> Any:
    return np.concatenate([part.reshape(-1) for part in parts])


def has_halves(node: Node) -> bool:
    """Whether a collective can be started and finished. Sums of what NumPy adds up cannot."""
    if node.op not in _HALVES:
        return False
    dtype = node.inputs[0].tensor_type.dtype
    adds = _HALVES[node.op](node.attrs, 1)[0] in ("all_reduce", "reduce_scatter")
    plain = dtype.kind in ("int", "uint") or (dtype.kind == "float" and dtype.itemsize >= 4)
    return plain or not adds


def _card(name: str) -> Op:
    return SUM_JOINED if name == SUM_JOINED.name else OPS[name]


def _start_type(*operands: Any, mesh: Axes, over: Over, card: str, options: Any) -> Any:
    return TOKEN


def _start(_run: Any, *values: Any, mesh: Axes, over: Over, card: str, options: Any) -> Any:
    group = current_world().group(mesh, over)
    what, argument, before, _ = _HALVES[_card(card)](dict(options), group.size)
    group.start(what, before(*[x._data for x in values[:-1]]), argument)
    return ((),)


def _finish_type(*operands: Any, mesh: Axes, over: Over, card: str, options: Any) -> Any:
    made: TensorType = _card(card).infer(*operands[:-1], mesh=mesh, over=over, **dict(options))
    return made, TOKEN


def _finish(_run: Any, *_values: Any, mesh: Axes, over: Over, card: str, options: Any) -> Any:
    group = current_world().group(mesh, over)
    *_, after = _HALVES[_card(card)](dict(options), group_size(mesh, over))
    return wrap(after(group.finish())), ()


_TRAITS = Trait.STACK | Trait.COLLECTIVE
#: The operands of the card and a token -> a token.
START = Op("message_start", _start_type, _start, traits=_TRAITS, may_fail=True, listed=False)
#: The operands of the card and a token -> the result and a token.
FINISH = Op("message_finish", _finish_type, _finish, traits=_TRAITS, may_fail=True, listed=False)


def abandon_messages(graph: Graph) -> None:
    """Forget what a graph has started and not finished: it failed, on all ranks alike."""
    world = current_world()
    for mesh, over in {
        (node.attrs["mesh"], node.attrs["over"])
        for part in graph.walk()
        for node in part.nodes
        if node.op.collective and "over" in node.attrs
    }:
        world.group(mesh, over).abandon()
