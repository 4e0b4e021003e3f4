"""Kernels of single nodes: parts side by side, the element of each class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import DType, float32
from weft.codegen.contract import Status
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.loops import Launch
from weft.codegen.elementwise import emit, literal, load, memory_type, store
from weft.codegen.index import Index, Size, maximum, minimum
from weft.codegen.indexing.blocks import accumulator
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["FAILING_NODES", "NODES", "emit_check", "rounded"]


#: Elements that a thread of a copy of parts moves.
COPIED = 4


def _each(module: Module, name: str, buffers: int, count: int, body: Callable[..., None]) -> Launch:
    """A kernel with a thread for each of `count` elements: body(function, builder, number)."""
    builder = KernelBuilder(module, name, buffers)
    f, threads = builder.f, module.machine.threads
    item = builder.block() * threads + builder.thread()
    with f.when(f(f"icmp ult i64 {item}, {count}")):
        body(f, builder, item)
    builder.end(threads)
    return Launch(name, -(-count // threads), threads)


def concat(module: Module, name: str, node: Node) -> list[Launch]:
    """Each block copies a piece of one part."""
    shape = node.outputs[0].tensor_type.shape
    axis, dtype = node.attrs["axis"] % len(shape), node.outputs[0].tensor_type.dtype
    inner, out = math.prod(shape[axis + 1 :]), len(node.inputs)
    kind, builder = memory_type(dtype), KernelBuilder(module, name, out + 2)
    f, threads, block = builder.f, module.machine.threads, builder.block()
    sizes = [value.tensor_type.shape[axis] * inner for value in node.inputs]
    counts = [math.prod(value.tensor_type.shape) for value in node.inputs]
    blocks = [-(-count // (threads * COPIED)) for count in counts]
    first = [*itertools.accumulate([0, *blocks])]
    # Of the block's part: its buffer, its first block, its elements, those of a row, and where in a
    # row of the result they go.
    found = ["%a0", "0", str(counts[0]), str(sizes[0]), "0"]
    starts = itertools.accumulate([0, *sizes])
    known = zip(first, counts, sizes, starts, strict=False)
    for number, facts in enumerate(itertools.islice(known, 1, None), 1):
        here = f(f"icmp uge i64 {block}, {facts[0]}")
        kinds = ["ptr", *["i64"] * len(facts)]
        mine = [f"%a{number}", *map(str, facts)]
        found = [
            old if old == new else f(f"select i1 {here}, {word} {new}, {word} {old}")
            for word, new, old in zip(kinds, mine, found, strict=True)
        ]
    source, begin, count, own, start = found
    row: Size = int(own) if own.isdigit() else f.index(own)
    item = (block - f.index(begin)) * (threads * COPIED) + builder.thread()
    for number in range(COPIED):
        at = item + number * threads
        with f.when(f(f"icmp ult i64 {at}, {count}")):
            one = (f.ptr(source, kind) + at).load()
            place = at // row * (shape[axis] * inner) + at % row + f.index(start)
            (builder.buffer(out, kind) + place).store(one)
    builder.end(threads)
    return [Launch(name, max(1, first[-1]), threads)]


def nll(module: Module, name: str, node: Node) -> list[Launch]:
    """Minus the element of the target's class; 0 for ignored ones. Targets were checked before."""
    logp, target = (value.tensor_type for value in node.inputs)
    axis = node.attrs["axis"] % len(logp.shape)
    inner, classes = math.prod(logp.shape[axis + 1 :]), logp.shape[axis]

    def pick(f: Function, builder: KernelBuilder, item: Index) -> None:
        number = _class(f, builder, 1, target.dtype, item)
        ignored = f(f"icmp eq i64 {number}, {node.attrs['ignore_index']}")
        at = f.index(f(f"select i1 {ignored}, i64 0, i64 {number}"))
        place = item // inner * (classes * inner) + at * inner + item % inner
        one = load(f, logp.dtype, builder.buffer(0, memory_type(logp.dtype)) + place, 1)
        less = emit(f, "negative", [(logp.dtype, one)], logp.dtype, 1, {})
        zero = literal(logp.dtype, 0.0, 1)
        kind = "double" if logp.dtype.itemsize == 8 else "float"
        found = f(f"select i1 {ignored}, {kind} {zero}, {kind} {less}")
        out = builder.buffer(2, memory_type(logp.dtype)) + item
        store(f, logp.dtype, out, found, 1)

    return [_each(module, name, 4, math.prod(target.shape), pick)]


def emit_check(module: Module, name: str, node: Node) -> Launch:
    """A kernel that sets a flag, its second buffer, if a target is none of the classes."""
    logp, target = (value.tensor_type for value in node.inputs)
    classes = logp.shape[node.attrs["axis"] % len(logp.shape)]

    def check(f: Function, builder: KernelBuilder, item: Index) -> None:
        number = _class(f, builder, 0, target.dtype, item)
        ignored = f(f"icmp eq i64 {number}, {node.attrs['ignore_index']}")
        outside = f(f"icmp uge i64 {number}, {classes}")
        wrong = f(f"select i1 {ignored}, i1 false, i1 {outside}")
        with f.when(wrong):
            builder.buffer(1, "i32").store(1)

    return _each(module, name, 2, math.prod(target.shape), check)


def _moves(width: int, dtype: DType) -> tuple[str, int]:
    """What a thread moves of a row at once, up to 16 bytes, and how many of them a row has."""
    size = width * dtype.itemsize
    piece = next(one for one in (16, 8, 4, 2, 1) if size % one == 0)
    return {16: "<4 x i32>"}.get(piece, f"i{8 * piece}"), size // piece


def _threads_of_row(module: Module, count: int) -> int:
    """Threads of a block that goes over a row of so many elements."""
    threads, most = int(module.machine.warp), int(module.machine.threads)
    while threads < min(count, most):
        threads *= 2
    return min(threads, most)


def embedding(module: Module, name: str, node: Node) -> tuple[list[Launch], int]:
    """A block for each row that is read."""
    weight, indices = (value.tensor_type for value in node.inputs)
    rows, width = weight.shape
    kind, pieces = _moves(width, weight.dtype)
    threads, count = _threads_of_row(module, pieces), math.prod(indices.shape)
    builder = KernelBuilder(module, name, 5)
    f, own = builder.f, builder.block()
    builder.stop_if(builder.buffer(4, "i32"))
    number = _class(f, builder, 1, indices.dtype, own)
    with f.when(f(f"icmp uge i64 {number}, {rows}")):
        builder.buffer(4, "i32").store(int(Status.FAILED))
        f.do("ret void")
        f.block(f.fresh("never"))
    with f.loop(builder.thread(), pieces, threads) as at:
        one = (builder.buffer(0, kind) + (f.index(number) * pieces + at)).load()
        (builder.buffer(2, kind) + (own * pieces + at)).store(one)
    builder.end(threads)
    return [Launch(name, count, threads)], 0


#: Indices that are compared with each other, all pairs.
MOST_ROWS = 1 << 15
#: Indices that a thread loads before it compares the first; pieces of memory that it clears.
COMPARED, CLEARED = 8, 4


def row_sums(module: Module, name: str, node: Node) -> tuple[list[Launch], int] | None:
    """Clears all rows; finds for each index the next of its like; and adds the rows of alike ones
    in their order: by a block for the first of them."""
    g, indices = (value.tensor_type for value in node.inputs)
    rows = node.attrs["rows"]
    count, width = math.prod(indices.shape), g.shape[-1]
    dtype = node.out.tensor_type.dtype
    if count > MOST_ROWS or dtype.kind != "float" or (node.attrs["padding_idx"] or 0) < 0:
        return None
    launches = [
        _clear(module, f"{name}_clear", rows * width, dtype),
        _links(module, f"{name}_links", node),
        _sums(module, name, node),
    ]
    return launches, 8 * count


def _clear(module: Module, name: str, count: int, dtype: DType) -> Launch:
    kind, pieces = _moves(count, dtype)
    builder = KernelBuilder(module, name, 5)
    builder.stop_if(builder.buffer(4, "i32"))
    f, threads = builder.f, module.machine.threads
    first = builder.block() * (threads * CLEARED) + builder.thread()
    for part in range(CLEARED):
        at = first + part * threads
        with f.when(f(f"icmp ult i64 {at}, {pieces}")):
            (builder.buffer(2, kind) + at).store("zeroinitializer" if kind[0] == "<" else "0")
    builder.end(threads)
    return Launch(name, -(-pieces // (threads * CLEARED)), threads)


def _links(module: Module, name: str, node: Node) -> Launch:
    """For each index the place of the next one that is alike, or -1, and behind those whether it is
    the first of its like. A warp has an index for each thread; the warps of a block compare it with
    different ones."""
    indices = node.inputs[1].tensor_type
    rows, padding = node.attrs["rows"], node.attrs["padding_idx"]
    count, warp = math.prod(indices.shape), module.machine.warp
    threads = max(warp, module.machine.threads)
    warps = threads // warp
    builder = KernelBuilder(module, name, 5)
    f, thread = builder.f, builder.thread()
    lane, part = thread % warp, thread // warp
    own = builder.block() * warp + lane
    inside = f(f"icmp ult i64 {own}, {count}")
    row = f.var("i64", 0)
    with f.when(inside):
        row.store(_class(f, builder, 1, indices.dtype, own))
        with f.when(f(f"icmp uge i64 {row.load()}, {rows}")):
            builder.buffer(4, "i32").store(int(Status.FAILED))
    mine, place = f(f"trunc i64 {row.load()} to i32"), f(f"trunc i64 {own} to i32")
    nearest, earlier = f.var("i32", count), f.var("i32", 0)

    def compare(places: Sequence[Index]) -> None:
        others = [_class(f, builder, 1, indices.dtype, at) for at in places]
        same = [f(f"icmp eq i32 {f(f'trunc i64 {x} to i32')}, {mine}") for x in others]
        some = same[0]
        for one in same[1:]:
            some = f(f"or i1 {some}, {one}")
        with f.when(some):  # most are not alike
            for at, alike in zip(places, same, strict=True):
                number, found = f(f"trunc i64 {at} to i32"), nearest.load()
                behind = f(f"and i1 {alike}, {f(f'icmp sgt i32 {number}, {place}')}")
                nearer = f(f"and i1 {behind}, {f(f'icmp slt i32 {number}, {found}')}")
                nearest.store(f(f"select i1 {nearer}, i32 {number}, i32 {found}"))
                before = f(f"and i1 {alike}, {f(f'icmp slt i32 {number}, {place}')}")
                earlier.store(f(f"select i1 {before}, i32 1, i32 {earlier.load()}"))

    share = -(-count // warps)
    share += -share % COMPARED
    start = part * share
    stop = minimum(start + share, count)
    rest = count % COMPARED  # of the last share that has any
    with f.loop(start, stop - (COMPARED - 1), COMPARED) as first:
        compare([first + k for k in range(COMPARED)])
    if rest:
        with f.loop(maximum(start, stop - rest), stop) as last:
            compare([last])
    # All warps leave what they found; the first one joins it.
    shared = builder.shared("i32", 2 * threads)
    (shared + thread).store(nearest.load())
    (shared + (thread + threads)).store(earlier.load())
    builder.wait()
    with f.when(f(f"icmp ult i64 {thread}, {warp}")), f.when(inside):
        least, some = str(count), "0"
        for number in range(warps):
            one = (shared + (thread + number * warp)).load()
            least = f(f"select i1 {f(f'icmp slt i32 {one}, {least}')}, i32 {one}, i32 {least}")
            some = f(f"or i32 {some}, {(shared + (thread + (threads + number * warp))).load()}")
        none = f(f"icmp eq i32 {least}, {count}")
        (builder.buffer(3, "i32") + own).store(f(f"select i1 {none}, i32 -1, i32 {least}"))
        is_first = f(f"icmp eq i32 {some}, 0")
        if padding is not None:
            summed = f(f"icmp ne i64 {row.load()}, {padding}")
            is_first = f(f"and i1 {is_first}, {summed}")
        firsts = builder.buffer(3, "i32") + (own + count)
        firsts.store(f(f"zext i1 {is_first} to i32"))
    builder.end(threads)
    return Launch(name, -(-count // warp), threads)


def _sums(module: Module, name: str, node: Node) -> Launch:
    """A block for each index that is the first of its like."""
    g, indices = (value.tensor_type for value in node.inputs)
    dtype, width = node.out.tensor_type.dtype, g.shape[-1]
    kind, wide = memory_type(dtype), accumulator(dtype)
    builder = KernelBuilder(module, name, 5)
    threads = _threads_of_row(module, width)
    f, own = builder.f, builder.block()
    builder.stop_if(builder.buffer(4, "i32"))
    links = builder.buffer(3, "i32")
    with f.when(f(f"icmp eq i32 {(links + (own + math.prod(indices.shape))).load()}, 0")):
        f.do("ret void")
        f.block(f.fresh("never"))
    row = _class(f, builder, 1, indices.dtype, own)
    with f.loop(builder.thread(), width, threads) as column:
        total = f.var(memory_type(wide), literal(wide, 0.0, 1))
        at = f.var("i64", own)
        again, done = f.fresh("again"), f.fresh("done")
        f.do(f"br label %{again}")
        f.block(again)
        here = at.load_index()
        one = load(f, dtype, builder.buffer(0, kind) + (here * width + column), 1)
        made = emit(f, "add", [(wide, total.load()), (wide, one)], wide, 1, {})
        assert made is not None
        total.store(made)
        following = f(f"sext i32 {(links + here).load()} to i64")
        at.store(following)
        f.do(f"br i1 {f(f'icmp slt i64 {following}, 0')}, label %{done}, label %{again}")
        f.block(done)
        place = builder.buffer(2, kind) + (f.index(row) * width + column)
        store(f, dtype, place, rounded(f, total.load(), dtype), 1)
    builder.end(threads)
    return Launch(name, math.prod(indices.shape), threads)


def rounded(f: Function, value: str, dtype: DType) -> str:
    """A sum in its own dtype: narrow floats are summed in float32."""
    if dtype.itemsize >= 4:
        return value
    made = emit(f, "astype", [(float32, value)], dtype, 1, {"dtype": dtype})
    assert made is not None
    return made


def _class(f: Function, builder: KernelBuilder, place: int, dtype: DType, item: Index) -> str:
    """The class of an item, as an i64."""
    kind = memory_type(dtype)
    one = (builder.buffer(place, kind) + item).load()
    if kind == "i64":
        return one
    return f(f"{'sext' if dtype.kind == 'int' else 'zext'} {kind} {one} to i64")


#: (module, name, node) -> launches; buffers are the operands, the result, and scratch memory.
NODES: dict[str, Any] = {"concat": concat, "nll": nll}
#: Those that may fail: the flag follows. They give their scratch memory, too, or None where another
#: kernel is to be taken.
FAILING_NODES: dict[str, Any] = {"embedding": embedding, "row_sums": row_sums}
