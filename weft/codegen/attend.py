"""Attention of a graph as attention over matrices that lie somewhere."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.attention import Attention, emit_forward
from weft.codegen.epilogue import Epilogue
from weft.codegen.kernel import Kernel
from weft.codegen.loops.access import dtype_of
from weft.codegen.matmul import Operand
from weft.codegen.text import Module
from weft.ir.graph import Value
from weft.schedule.groups import Group, Leaf
from weft.schedule.views import View, viewed

__all__ = ["emit_attention"]


def emit_attention(
    module: Module, name: str, group: Group, places: Mapping[Value, int]
) -> list[Kernel] | None:
    """The kernels of an attention and of what follows it in registers."""
    end = group.nodes[0]
    leaves = [operand for operand in group.operands[end] if isinstance(operand, Leaf)]
    q, k, v = leaves[:3]
    mask = leaves[3] if len(leaves) > 3 else None
    shape = end.outputs[0].tensor_type.shape
    batch = tuple(shape[:-2])
    queries, features = q.view.shape[-2:]
    keys, values = v.view.shape[-2:]
    spec = Attention(
        queries,
        keys,
        features,
        values,
        dtype_of(end.outputs[0]),
        _operand(q.view, (*batch, queries, features)),
        _operand(_turned(k.view), (*batch, keys, features)),
        _operand(v.view, (*batch, keys, values)),
        batch,
        mask=None if mask is None else _operand(mask.view, (*batch, queries, keys)),
        mask_dtype=None if mask is None else dtype_of(mask.root),
        blank=group.blank,
    )
    store = Epilogue(group, places, group.places[end])
    at = None if mask is None else places[mask.root]
    return emit_forward(
        module, name, spec, places[q.root], places[k.root], places[v.root], store, mask=at
    )


def _turned(view: View) -> View:
    swap = (*range(len(view.shape) - 2), len(view.shape) - 1, len(view.shape) - 2)
    return View(
        tuple(view.shape[i] for i in swap), tuple(view.strides[i] for i in swap), view.offset
    )


def _operand(view: View, shape: tuple[int, ...]) -> Operand:
    whole = viewed(view, "broadcast_to", {}, shape)
    assert whole is not None
    *batch, row, column = whole.strides
    return Operand(tuple(batch), row, column, whole.offset)
