"""Writing by index: setitem, scatter_add, row_sums, add_at and the like.

An index may select a position twice, so the order of writes matters. Work is therefore cut along
what cannot overlap: positions on axes of slices, or ranges of columns of the blocks that are
written. Within an item the positions of index tensors are processed in order, so results do not
depend on the number of threads. All indices are checked before anything is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

from weft.base.dim_algebra import dim_max, dim_min
from weft.base.dims import has_dims, is_zero, typical
from weft.base.dtypes import NARROW_FLOATS, DType
from weft.codegen.cancel import cancellable_loop, loop_to_poll, pollable_run
from weft.codegen.index import Index, Ptr, Size, minimum, offset, unravel
from weft.codegen.indexing.access import copy_block, copy_bytes, load_index, raw_type, wrapped
from weft.codegen.indexing.blocks import (
    accumulator,
    clear_kernel,
    combine_block,
    copy_kernel,
    fill_block,
    round_kernel,
    widen_kernel,
)
from weft.codegen.indexing.plan import Part, dense_steps, indexed, merged
from weft.codegen.indexing.read import check_tensors
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import supported
from weft.codegen.text import Function, Module
from weft.ir.graph import Node
from weft.ops.cards import ROW_SUMS
from weft.ops.index_shape import TENSOR

__all__ = ["combining", "row_sums", "scatter_add", "setitem"]


@dataclass(frozen=True, slots=True)
class Writing:
    """What is written, and where.

    part     where in the target
    steps    in the values, for each axis of the part
    dtype    of the values
    combine  how they are combined with the target, in their accumulator's dtype: "add"…; "" if
             they replace its elements
    target   the position of the target in `%args`, and so on
    skipped  an index whose values are left out
    """

    part: Part
    steps: tuple[int, ...]
    dtype: DType
    combine: str
    target: int
    values: int
    first_tensor: int
    kinds: tuple[DType, ...]
    skipped: int | None = None
    scratch: int = 0


def setitem(module: Module, name: str, node: Node) -> list[Kernel] | None:
    x, value, *tensors = (v.tensor_type for v in node.inputs)
    if x.dtype is not value.dtype:
        return None
    part = indexed(x.shape, node.attrs["index"], [t.shape for t in tensors])
    kinds = tuple(t.dtype for t in tensors)
    out = len(node.inputs)
    kernels = check_tensors(module, name, part, list(kinds), first=2)
    kernels.append(copy_kernel(module, f"{name}.copy", 0, out, x.nbytes))
    steps = dense_steps(value.shape, part.shape)
    writing = Writing(part, steps, x.dtype, "", out, 1, 2, kinds)
    kernels += _written(module, name, writing, out + 2)
    return kernels


def scatter_add(module: Module, name: str, node: Node) -> list[Kernel] | None:
    _, *tensors = (v.tensor_type for v in node.inputs)
    part = indexed(node.attrs["shape"], node.attrs["index"], [t.shape for t in tensors])
    return _sums(module, name, node, part)


def row_sums(module: Module, name: str, node: Node) -> list[Kernel] | None:
    g, indices = (v.tensor_type for v in node.inputs)
    rows, padding = node.attrs["rows"], node.attrs["padding_idx"]
    if padding is not None:
        if not -rows <= padding < rows:
            return None
        padding %= rows
    part = indexed((rows, g.shape[-1]), (TENSOR,), [indices.shape])
    return _sums(module, name, node, part, padding)


def _sums(
    module: Module, name: str, node: Node, part: Part, skipped: int | None = None
) -> list[Kernel] | None:
    """Zeros, with the values of the first input added at the positions of a part."""
    value, *tensors = (v.tensor_type for v in node.inputs)
    out = node.out.tensor_type
    if value.dtype.kind == "bool" or not supported(accumulator(value.dtype)):
        return None
    kinds = tuple(t.dtype for t in tensors)
    place = len(node.inputs)
    # Narrow floats are summed in float32 scratch memory, and rounded once.
    narrow = bool(tensors) and value.dtype in NARROW_FLOATS
    scratch = 4 * out.size if narrow else 0
    target = place + narrow
    steps = dense_steps(value.shape)
    # the card does not check indices of empty rows
    looked_at = node.op is not ROW_SUMS or not is_zero(out.shape[-1])
    kernels = check_tensors(module, name, part, list(kinds)) if looked_at else []
    size = scratch if narrow else out.nbytes
    kernels.append(clear_kernel(module, f"{name}.clear", target, size, scratch))
    writing = Writing(
        part, steps, value.dtype, "add" if tensors else "", target, 0, 1, kinds, skipped, scratch
    )
    kernels += _written(module, name, writing, place + 2)
    if narrow:
        kernels.append(
            round_kernel(module, f"{name}.round", target, place, value.dtype, out.size, scratch)
        )
    return kernels


def combining(op: str) -> Callable[..., list[Kernel] | None]:
    """The emitter of add_at and the like: x, with values combined at the positions of a part."""

    def emit(module: Module, name: str, node: Node) -> list[Kernel] | None:
        x, value, *tensors = (v.tensor_type for v in node.inputs)
        dtype = x.dtype
        by_parts = dtype.kind == "complex" and op == "add"
        if not (supported(dtype) or by_parts) or not supported(accumulator(dtype)):
            return None
        part = indexed(x.shape, node.attrs["index"], [t.shape for t in tensors])
        kinds = tuple(t.dtype for t in tensors)
        out = len(node.inputs)
        narrow = dtype in NARROW_FLOATS
        scratch = 4 * x.size if narrow else 0
        kernels = check_tensors(module, name, part, list(kinds), first=2)
        if narrow:
            begin = widen_kernel(module, f"{name}.widen", 0, out + 1, dtype, x.size, scratch)
        else:
            begin = copy_kernel(module, f"{name}.copy", 0, out, x.nbytes)
        steps = dense_steps(value.shape, part.shape)
        writing = Writing(part, steps, dtype, op, out + narrow, 1, 2, kinds, scratch=scratch)
        kernels += [begin, *_written(module, name, writing, out + 2)]
        if narrow:
            kernels.append(
                round_kernel(module, f"{name}.round", out + 1, out, dtype, x.size, scratch)
            )
        return kernels

    return emit


# --- the walk ------------------------------------------------------------------------------------

_COLUMNS = 128  # bytes of a block that make one item


def _written(module: Module, name: str, w: Writing, run_at: int) -> list[Kernel]:
    """`run_at`: the position of the run in `%args`, for long items."""
    part = w.part
    if is_zero(math.prod(part.shape)):
        return []
    sizes, (steps, own, *others) = merged(
        part.shape, part.steps, w.steps, *(t.steps for t in part.tensors)
    )
    block, fills = 1, False
    dense = (1,) if w.combine else (0, 1)
    if sizes and steps[-1] == 1 and own[-1] in dense and all(is_zero(o[-1]) for o in others):
        block, fills = sizes[-1], own[-1] == 0
        sizes, steps, own = sizes[:-1], steps[:-1], own[:-1]
        others = [o[:-1] for o in others]
    axes = range(len(sizes))
    free = [axis for axis in axes if all(is_zero(o[axis]) for o in others)]
    turns = [axis for axis in axes if axis not in free]
    size = w.dtype.itemsize
    wide = accumulator(w.dtype).itemsize * (2 if w.dtype.kind == "complex" else 1)
    room = wide if w.combine else size  # bytes of an element of the target

    f = module.function(name, "i32", PARAMS)
    target, values = argument(f, w.target, raw_type(room)), argument(f, w.values, raw_type(size))
    pointers = [argument(f, w.first_tensor + i) for i in range(len(w.kinds))]
    each = math.prod(sizes[axis] for axis in turns)
    columns = dim_min(module.machine.piece(max(_COLUMNS // size, 1), size), block)
    columns = dim_max(columns, 1)  # the block may be empty
    items = math.prod(sizes[axis] for axis in free) if free else -(-block // columns)
    share = typical(block) / (1 if free else max(typical(items), 1))
    cost = typical(each) * (0.4 + 0.3 * len(w.kinds) + share * size / 30)
    run = pollable_run(f, run_at, cost)
    slow, round_ = loop_to_poll([typical(sizes[axis]) for axis in turns], cost)
    work = 0
    if has_dims((each, block)):
        work = each * items * round(400 + 300 * len(w.kinds)) + each * block * (size * 33)
    with ExitStack() as stack:
        at: dict[int, Size] = {}
        first: Size = 0
        count: Size = block
        if free:
            item = stack.enter_context(each_item(f))
            at |= zip(free, unravel(item, [sizes[axis] for axis in free]), strict=True)
        elif items != 1:
            first = f.index("%begin") * columns
            count = minimum(f.index("%end") * columns, block) - first
        for number, axis in enumerate(turns):
            asking = run if number == slow else None
            loop = cancellable_loop(f, asking, 0, sizes[axis], each=round_)
            at[axis] = stack.enter_context(loop)
        place = offset(part.start, [(at[axis], steps[axis]) for axis in axes]) + first
        value = offset(0, [(at[axis], own[axis]) for axis in axes]) + (0 if fills else first)
        keep = None
        for tensor, pointer, kind, own_steps in zip(
            part.tensors, pointers, w.kinds, others, strict=True
        ):
            where = offset(0, [(at[axis], own_steps[axis]) for axis in axes])
            index, _ = wrapped(f, load_index(f, kind, pointer, where), tensor.size)
            place = index * tensor.step + place
            if w.skipped is not None:
                keep = f(f"icmp ne i64 {index}, {w.skipped}")
        stack.enter_context(nullcontext() if keep is None else f.when(keep))
        _write_block(f, w, target + place, values + value, count, fills, run)
    f.do("ret i32 0")
    return [Kernel(name, items, cost, w.scratch, stops=run is not None, work=work)]


def _write_block(
    f: Function,
    w: Writing,
    target: Ptr,
    value: Ptr,
    count: Size,
    fills: bool,
    run: Ptr | None,
) -> None:
    size = w.dtype.itemsize
    if w.combine:
        if w.dtype.kind == "complex":
            count = count * 2
        combine_block(f, w.combine, accumulator_source(w.dtype), target, value, count)
    elif fills:
        fill_block(f, target, value.load(1), count, size)
    elif isinstance(count, Index):
        copy_bytes(f, target, value, count * size)
    else:
        copy_block(f, target, value, count * size, run)


def accumulator_source(dtype: DType) -> DType:
    """What `add_block` reads for values of a dtype: the parts of complex ones."""
    return dtype if dtype in NARROW_FLOATS else accumulator(dtype)
