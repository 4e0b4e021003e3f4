"""The kernels of the attention nodes of a graph."""

from __future__ import annotations

from weft.codegen.arguments import places as places_of
from weft.codegen.attention_nodes import leaves_of, operand_of, spec_of, strides_of
from weft.codegen.cuda.attention.backward import BYTES_OF_ROW, Places, emit_backward
from weft.codegen.cuda.attention.forward import emit_forward
from weft.codegen.cuda.loops import Launch
from weft.codegen.elementwise import memory_type
from weft.codegen.epilogue import Epilogue
from weft.codegen.index import Ptr
from weft.codegen.loops.access import dtype_of
from weft.codegen.text import Function, Module
from weft.ir.graph import Value
from weft.passes.lowering.attention.cards import ATTENTION_GRAD_JOINED, turned_back
from weft.schedule.groups import Group
from weft.schedule.layouts import LINE

__all__ = ["emit_attention", "emit_attention_grad"]


class _Epilogue(Epilogue):
    """Elementwise ops on the result, in registers: buffers are the kernel's parameters."""

    aligned = LINE

    def _pointer(self, f: Function, root: Value) -> Ptr:
        return f.ptr(f"%a{self.places[root]}", memory_type(dtype_of(root)))


def emit_attention(
    module: Module, name: str, group: Group, *, gated: bool
) -> tuple[list[Launch], int]:
    """The kernels of attention with its fused epilogue, and the bytes of scratch memory that they
    need. `gated`: the program's flag is one more buffer, and they do nothing if it is set."""
    node = group.nodes[0]
    given = leaves_of(group)
    spec = spec_of(group, given, given[3:])
    places, count = places_of(group)
    place = group.places[node]
    axes = [place[i] for i in turned_back(node.attrs["axes"])]
    lse = node.outputs[1]
    made = emit_forward(
        module,
        name,
        spec,
        count + gated,
        (places[given[0].root], places[given[1].root], places[given[2].root]),
        _Epilogue(group, places, axes),
        mask=places[given[3].root] if given[3:] else None,
        lse=places[lse] if lse in group.outputs else None,
        flag=count if gated else None,
    )
    return made, 0


def emit_attention_grad(
    module: Module, name: str, group: Group, *, gated: bool
) -> tuple[list[Launch], int]:
    """The kernels of attention's gradients, and the bytes of scratch memory that they need."""
    node = group.nodes[0]
    given = leaves_of(group)
    mask = given[6:]
    spec = spec_of(group, given, mask)
    places, count = places_of(group)
    shape = (*spec.batch, spec.queries, spec.values)
    q, k, v, out, grad, lse = (places[leaf.root] for leaf in given[:6])
    if node.op is ATTENTION_GRAD_JOINED:
        lies = node.attrs["lies"]
    else:
        pairs = zip(node.outputs, node.attrs["axes"], strict=True)
        lies = tuple((0, strides_of(value, axes)) for value, axes in pairs)
    dq, dk, dv = (places[node.outputs[i % len(node.outputs)]] for i in range(3))
    found = Places(
        *(q, k, v, out, grad, lse),
        places[mask[0].root] if mask else None,
        *(dq, dk, dv),
        scratch=len(node.inputs) + len(node.outputs),
        flag=count if gated else None,
        out_lies=operand_of(given[3].view, shape),
        grad_lies=operand_of(given[4].view, shape),
        lies=lies,
        joined=node.op is ATTENTION_GRAD_JOINED,
    )
    made = emit_backward(module, name, spec, count + gated, found)
    return made, spec.stacks * spec.queries * BYTES_OF_ROW
