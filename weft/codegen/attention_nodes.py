"""Kernels of the attention nodes of a graph, forward and backward, for operands of any strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.base.dtypes import DType
from weft.codegen.attention import Attention, Backward, emit_backward, emit_forward
from weft.codegen.epilogue import Epilogue
from weft.codegen.index import Ptr, Size, offset
from weft.codegen.kernel import Kernel, argument
from weft.codegen.loops.access import dtype_of
from weft.codegen.matmul import Operand
from weft.codegen.scalar.forms import compute_kind, memory_type, rounded, store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module
from weft.ir.graph import Value
from weft.passes.lowering.attention.cards import turned_back
from weft.schedule.groups import Group, Leaf
from weft.schedule.views import View, broadcast_view, dense

__all__ = [
    "emit_attention",
    "emit_attention_grad",
    "leaves_of",
    "operand_of",
    "spec_of",
    "strides_of",
]


def emit_attention(
    module: Module, name: str, group: Group, places: Mapping[Value, int], run: int
) -> list[Kernel] | None:
    """The kernels of attention with its fused epilogue. The run is at position `run` of `%args`."""
    node = group.nodes[0]
    given = leaves_of(group)
    spec = spec_of(group, given, given[3:])
    # The kernel indexes axes in natural order, the group's loops in the order of the result.
    place = group.places[node]
    axes = [place[i] for i in turned_back(node.attrs["axes"])]
    lse = node.outputs[1]
    return emit_forward(
        module,
        name,
        spec,
        places[given[0].root],
        places[given[1].root],
        places[given[2].root],
        Epilogue(group, places, axes),
        mask=places[given[3].root] if given[3:] else None,
        lse=places[lse] if lse in group.outputs else None,
        run=run,
    )


def emit_attention_grad(
    module: Module, name: str, group: Group, places: Mapping[Value, int], run: int
) -> list[Kernel] | None:
    """The kernels of attention's backward."""
    node = group.nodes[0]
    given = leaves_of(group)
    mask = given[6:]
    spec = spec_of(group, given, mask)
    shape = (*spec.batch, spec.queries, spec.values)
    out, grad, lse = given[3:6]
    stores = tuple(
        _StridedStore(places[value], spec.dtype, strides_of(value, axes))
        for value, axes in zip(node.outputs, node.attrs["axes"], strict=True)
    )
    return emit_backward(
        module,
        name,
        spec,
        places[given[0].root],
        places[given[1].root],
        places[given[2].root],
        Backward(
            places[out.root],
            operand_of(out.view, shape),
            places[grad.root],
            operand_of(grad.view, shape),
            places[lse.root],
        ),
        (stores[0], stores[1], stores[2]),
        mask=places[mask[0].root] if mask else None,
        scratch=len(node.inputs) + len(node.outputs),
        run=run,
    )


def leaves_of(group: Group) -> list[Leaf]:
    return [op for op in group.operands[group.nodes[0]] if isinstance(op, Leaf)]


def spec_of(group: Group, given: Sequence[Leaf], mask: Sequence[Leaf]) -> Attention:
    node = group.nodes[0]
    q, k, v = (leaf.view for leaf in given[:3])
    *batch, queries, features = q.shape
    keys, values = v.shape[-2:]
    return Attention(
        queries,
        keys,
        features,
        values,
        dtype_of(node.inputs[0]),
        operand_of(q, q.shape),
        operand_of(k, (*batch, keys, features)),
        operand_of(v, (*batch, keys, values)),
        tuple(batch),
        scale=node.attrs["scale"],
        causal=node.attrs["causal"],
        mask=operand_of(mask[0].view, (*batch, queries, keys)) if mask else None,
        mask_dtype=dtype_of(mask[0].root) if mask else None,
        blank=node.attrs["blank"],
    )


def operand_of(view: View, shape: Sequence[int]) -> Operand:
    whole = broadcast_view(view, tuple(shape))
    assert whole is not None
    *batch, row, column = whole.strides
    return Operand(tuple(batch), row, column, whole.offset)


def strides_of(value: Value, axes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a value's axes, in natural order; `axes` is the order in which they are
    stored."""
    strides = dense(value.tensor_type.shape).strides
    return tuple(strides[i] for i in turned_back(tuple(axes)))


@dataclass(slots=True)
class _StridedStore:
    """A store that writes the result with given strides."""

    place: int
    dtype: DType
    strides: tuple[int, ...]
    out: Ptr | None = None

    def begin(self, f: Function) -> None:
        self.out = argument(f, self.place, memory_type(self.dtype))

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        assert self.out is not None
        address = self.out + offset(0, zip(index, self.strides, strict=True))
        value = rounded(Vec(f, compute_kind(self.dtype), lanes, value), self.dtype).name
        store(f, self.dtype, address, value, lanes, mask)
