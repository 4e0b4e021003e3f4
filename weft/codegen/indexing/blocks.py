"""Contiguous blocks of elements: fill, combine, round, clear, copy."""

from __future__ import annotations

from weft.base.dtypes import NARROW_FLOATS, DType, float32, real_dtype
from weft.codegen.elementwise import emit
from weft.codegen.index import Ptr, Size, minimum
from weft.codegen.indexing.access import clear_bytes, copy_bytes, raw_type
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.scalar.forms import load, memory_type, rounded, store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module

__all__ = [
    "accumulator",
    "clear_kernel",
    "combine_block",
    "copy_kernel",
    "fill_block",
    "round_kernel",
    "widen_kernel",
]

_SHARED = "nounwind noinline"  # small code is worth a call for each block
_PIECE = 16384  # bytes of one item of a copy


def accumulator(dtype: DType) -> DType:
    """The dtype in which a dtype is summed; complex numbers are summed by parts."""
    return float32 if dtype in NARROW_FLOATS else real_dtype(dtype)


def fill_block(f: Function, target: Ptr, value: str, count: Size, itemsize: int) -> None:
    """Write an element (as an integer of its size) `count` times."""
    kind = raw_type(itemsize)
    if count == 1:
        target.of(kind).store(value, 1)
        return
    name = f"weft.fill.{kind}"

    def make(module: Module) -> None:
        g = module.function(name, "void", [("ptr", "to"), (kind, "value"), ("i64", "n")], _SHARED)
        lanes = module.machine.lanes(itemsize)
        whole = f"<{lanes} x {kind}>"
        first = g(f"insertelement {whole} poison, {kind} %value, i64 0")
        many = g(f"shufflevector {whole} {first}, {whole} poison, <{lanes} x i32> zeroinitializer")
        to, n = g.ptr("%to", kind), g.index("%n")
        even = n // lanes * lanes
        with g.loop(0, even, lanes) as i:
            g.do(f"store {whole} {many}, ptr {to + i}, align 1")
        with g.loop(even, n) as i:
            (to + i).store("%value", 1)
        g.do("ret void")

    f.module.once(name, make)
    f.do(f"call void @{name}(ptr {target}, {kind} {value}, i64 {f.size(count)})")


def combine_block(
    f: Function, op: str, dtype: DType, target: Ptr, source: Ptr, count: Size
) -> None:
    """target[i] = op(target[i], source[i]); the source has a real dtype, the target its
    accumulator's."""
    name = f"weft.{op}.{dtype.name}"
    wide = accumulator(dtype)

    def step(g: Function, to: Ptr, source: Ptr, lanes: int) -> None:
        more = load(g, dtype, source, lanes)
        old = load(g, wide, to, lanes)
        total = emit(g, op, [(wide, old), (wide, more)], wide, lanes, {})
        store(g, wide, to, str(total), lanes)

    def make(module: Module) -> None:
        g = module.function(name, "void", [("ptr", "to"), ("ptr", "from"), ("i64", "n")], _SHARED)
        lanes = module.machine.lanes(wide.itemsize)
        to, given, n = (
            g.ptr("%to", memory_type(wide)),
            g.ptr("%from", memory_type(dtype)),
            g.index("%n"),
        )
        even = n // lanes * lanes
        with g.loop(0, even, lanes) as i:
            step(g, to + i, given + i, lanes)
        with g.loop(even, n) as i:
            step(g, to + i, given + i, 1)
        g.do("ret void")

    if count == 1:
        step(f, target, source, 1)
        return
    f.module.once(name, make)
    f.do(f"call void @{name}(ptr {target}, ptr {source}, i64 {f.size(count)})")


def _piece_range(f: Function, size: int, piece: int) -> tuple[Size, Size]:
    """The start and the length of what this call processes."""
    start = f.index("%begin") * piece
    stop = minimum(f.index("%end") * piece, size)
    return start, stop - start


def clear_kernel(module: Module, name: str, place: int, size: int, scratch: int = 0) -> Kernel:
    """A kernel that zeroes `size` bytes of an argument."""
    f = module.function(name, "i32", PARAMS)
    piece = module.machine.piece(_PIECE)
    start, length = _piece_range(f, size, piece)
    clear_bytes(f, argument(f, place) + start, length)
    f.do("ret i32 0")
    return Kernel(name, -(-size // piece), piece / 40, scratch)


def copy_kernel(module: Module, name: str, source: int, target: int, size: int) -> Kernel:
    """A kernel that copies `size` bytes from one argument to another.

    It does nothing if both are the same memory (an in-place update).
    """
    f = module.function(name, "i32", PARAMS)
    given, out = argument(f, source), argument(f, target)
    piece = module.machine.piece(_PIECE)
    start, length = _piece_range(f, size, piece)
    with f.when(f(f"icmp ne ptr {given}, {out}")):
        copy_bytes(f, out + start, given + start, length)
    f.do("ret i32 0")
    return Kernel(name, -(-size // piece), piece / 30)


def round_kernel(
    module: Module, name: str, source: int, target: int, dtype: DType, count: int, scratch: int
) -> Kernel:
    """A kernel that rounds `count` float32 numbers to a narrow float."""
    return _convert_kernel(module, name, (source, float32), (target, dtype), count, scratch)


def widen_kernel(
    module: Module, name: str, source: int, target: int, dtype: DType, count: int, scratch: int
) -> Kernel:
    """A kernel that makes float32 numbers of `count` narrow floats."""
    return _convert_kernel(module, name, (source, dtype), (target, float32), count, scratch)


def _convert_kernel(
    module: Module,
    name: str,
    source: tuple[int, DType],
    target: tuple[int, DType],
    count: int,
    scratch: int,
) -> Kernel:
    f = module.function(name, "i32", PARAMS)
    (given, out) = (argument(f, place, memory_type(dtype)) for place, dtype in (source, target))
    lanes = module.machine.lanes(4)
    piece = module.machine.piece(64 * lanes, 4)

    def step(i: Size, width: int) -> None:
        value = Vec(f, "float", width, load(f, source[1], given + i, width))
        if target[1] is not float32:
            value = rounded(value, target[1])
        store(f, target[1], out + i, value.name, width)

    start, length = _piece_range(f, count, piece)
    even = start + length // lanes * lanes
    with f.loop(start, even, lanes) as i:
        step(i, lanes)
    with f.loop(even, start + length) as i:
        step(i, 1)
    f.do("ret i32 0")
    return Kernel(name, -(-count // piece), piece / 8, scratch)
