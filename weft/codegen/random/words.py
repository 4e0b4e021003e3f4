"""Random bits: Philox 4×32-10, many blocks at once (see `weft.ops.philox`).

One function of the module, shared by all draws, writes the words of blocks to memory in the order
in which elements use them: 32-bit words as elements of <n x i32>, 64-bit words as elements of <n x
i64>. Converting them is then a plain loop over vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.base.dims import has_dims
from weft.base.dtypes import int64
from weft.codegen.index import Ptr, Size, minimum
from weft.codegen.indexing.access import copy_bytes
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.scalar.forms import splat
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module
from weft.ops.philox import CONSTANTS, KEY_STEPS, ROUNDS

__all__ = ["Chunk", "draw_kernel", "interleaved"]

_BLOCKS = 64  # blocks of one item of work: 1 KiB of words
_BLOCK_COST = 1.2  # nanoseconds


def interleaved(a: Vec, b: Vec) -> Vec:
    """a0 b0 a1 b1 …"""
    order = ", ".join(f"i32 {i}, i32 {i + a.lanes}" for i in range(a.lanes))
    lanes = 2 * a.lanes
    name = a.f(f"shufflevector {a.type} {a}, {b.type} {b}, <{lanes} x i32> <{order}>")
    return Vec(a.f, a.kind, lanes, name)


def _add_words(module: Module) -> None:
    """The words of blocks `first` … `first` + `count` - 1, a multiple of the lane count.

    Words are in the low halves of lanes; the high halves are ignored.
    """
    params = [("ptr", "to"), ("i64", "key"), ("i64", "first"), ("i64", "count")]
    f = module.function("weft.philox", "void", params, "nounwind noinline")
    lanes = module.machine.lanes(8)
    whole = f"<{lanes} x i64>"
    m0, m1, half, low = CONSTANTS
    halves = ("%key", f("lshr i64 %key, 32"))
    first_keys = [Vec(f, "i64", lanes, splat(f, int64, half, lanes)) for half in halves]
    numbers = ", ".join(f"i64 {i}" for i in range(lanes))
    rooms = [f.var(whole) for _ in range(6)]  # the four words of the counter, two of the key
    with f.loop(0, f.index("%count"), lanes) as i:
        begin = splat(f, int64, f(f"add i64 %first, {i}"), lanes)
        index = Vec(f, "i64", lanes, f(f"add {whole} {begin}, <{numbers}>"))
        none = index.make(0)
        for room, value in zip(
            rooms, (index, index.op("lshr", 32), none, none, *first_keys), strict=True
        ):
            room.store(value.name)
        with f.loop(0, ROUNDS):
            c0, c1, c2, c3, k0, k1 = (Vec(f, "i64", lanes, room.load()) for room in rooms)
            product0, product1 = (c0 & low) * m0, (c2 & low) * m1
            now = (
                product1.op("lshr", half) ^ c1 ^ k0,
                product1,
                product0.op("lshr", half) ^ c3 ^ k1,
                product0,
                k0 + KEY_STEPS[0][1],
                k1 + KEY_STEPS[1][1],
            )
            for room, value in zip(rooms, now, strict=True):
                room.store(value.name)
        c = [Vec(f, "i64", lanes, room.load()) for room in rooms[:4]]
        words = interleaved(*[(c[j] & low) | (c[j + 1] << half) for j in (0, 2)])
        to = f.ptr("%to", "i128") + i
        f.do(f"store {words.type} {words}, ptr {to}, align 16")
    f.do("ret void")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The elements that one item of work draws.

    words   a pointer to their words
    target  where to store them
    start   the index of the first
    count   how many are valid; there is space for `size`, which is known
    """

    words: Ptr
    target: Ptr
    start: Size
    count: Size
    size: int


def draw_kernel(
    module: Module,
    name: str,
    total: int,
    itemsize: int,
    per_block: int,
    target: int,
    fill: Callable[[Function, Chunk], None],
    cost: float,
) -> Kernel:
    """A kernel that draws `total` elements; the state is its first argument.

    `fill` writes whole chunks. If the last one extends beyond the end, its elements are drawn to
    local memory, and the valid ones copied.
    """
    lanes = module.machine.lanes(8)
    all_blocks = -(-total // per_block)
    most = max(lanes, module.machine.piece(_BLOCKS, 8))
    # Of a total that only the run knows, an item draws as many as it may.
    blocks = most if has_dims((total,)) else min(most, -(-all_blocks // lanes) * lanes)
    size = blocks * per_block
    f = module.function(name, "i32", PARAMS)
    kind = f"i{8 * itemsize}"
    state, out = argument(f, 0, "i64"), argument(f, target, kind)
    words = f.var("i8", count=16 * blocks, align=64)
    own = f.var(kind, count=size, align=64)
    key, origin = state.load(8), (state + 1).load(8)
    module.once("weft.philox", _add_words)
    with each_item(f) as item:
        first = f(f"add i64 {origin}, {item * blocks}")  # the counter wraps modulo 2⁶⁴
        f.do(f"call void @weft.philox(ptr {words}, i64 {key}, i64 {first}, i64 {blocks})")
        start = item * size
        count = minimum(total - start, size)
        there = out + start
        partly = f(f"icmp slt i64 {count}, {size}")
        to = f.ptr(f(f"select i1 {partly}, ptr {own}, ptr {there}"), kind)
        fill(f, Chunk(words, to, start, count, size))
        with f.when(partly):
            copy_bytes(f, there, own, count * itemsize)
    f.do("ret i32 0")
    items = -(-all_blocks // blocks) if blocks else 0
    return Kernel(name, items, blocks * _BLOCK_COST + size * cost)
