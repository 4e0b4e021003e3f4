"""Packing: copies of operands with another pitch, or transposed, that are fast to read.

Copies have the dtype to compute with, so narrow elements are widened once.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.index import Index, Ptr, Size, minimum
from weft.codegen.matmul.numbers import Number
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["block_side", "copy", "fold", "panel", "transpose", "transpose_block"]

_PARAMS = [
    ("ptr noalias", "src"),
    ("i64", "src_step"),  # bytes from a row to the next
    ("ptr noalias", "dst"),
    ("i64", "dst_step"),
    ("i64", "rows"),
    ("i64", "cols"),
]


def copy(module: Module, number: Number) -> str:
    """dst[i, j] = src[i, j]; rows of `dst` are padded to whole vectors with 0."""
    name = f"copy.{number}"

    def make(module: Module) -> None:
        f = module.function(name, "void", _PARAMS, "nounwind noinline")
        lanes = module.machine.lanes(number.width)
        columns = f.index("%cols")
        whole = columns // lanes * lanes
        partial = f(f"icmp slt i64 {whole}, %cols")
        mask = _below(f, columns - whole, lanes, 0)
        with f.loop(0, f.index("%rows")) as i:
            src, dst = _lines(f, number, i)
            with f.loop(0, whole, lanes) as j:
                _move(f, number, src, dst, j, lanes, None)
            with f.when(partial):
                _move(f, number, src, dst, whole, lanes, mask)
        f.do("ret void")

    return module.once(name, make)


def panel(module: Module, number: Number, vectors: int) -> str:
    """As `copy`, where a row of `dst` is `vectors` vectors; %cols is how many columns are valid."""
    name = f"panel.{number}.{vectors}"

    def make(module: Module) -> None:
        f = module.function(name, "void", _PARAMS, "nounwind noinline")
        lanes = module.machine.lanes(number.width)

        def rows(masks: list[str | None]) -> None:
            with f.loop(0, f.index("%rows")) as i:
                src, dst = _lines(f, number, i)
                for v, mask in enumerate(masks):
                    _move(f, number, src, dst, v * lanes, lanes, mask)

        full = f(f"icmp sge i64 %cols, {vectors * lanes}")
        with f.when(full):
            rows([None] * vectors)
        with f.when(f(f"xor i1 {full}, true")):
            rows([_below(f, f.index("%cols"), lanes, v * lanes) for v in range(vectors)])
        f.do("ret void")

    return module.once(name, make)


def transpose(module: Module, number: Number, columns: int) -> str:
    """dst[j, i] = src[i, j], for rows of at least `columns` elements.

    `dst` has space for whole vectors along its rows, and for as many rows as a vector has lanes;
    rows are padded with their last element.
    """
    lanes = module.machine.lanes(number.width)
    side = block_side(module, number)
    short = columns < side
    name = f"transpose.{number}.{'short' if short else 'long'}"

    def make(module: Module) -> None:
        f = module.function(name, "void", _PARAMS, "nounwind noinline")
        kind = vector_type(number.kind, side)
        source, step = f.ptr("%src", number.memory), f.index("%src_step")
        columns, count = f.index("%cols"), f.index("%rows")
        final, edge = count - 1, columns - side
        with f.loop(0, (count + (lanes - 1)) // lanes * lanes, side) as i:
            lines = [source.bytes(step * minimum(i + t, final)) for t in range(side)]
            out = f.ptr("%dst", number.kind) + i
            with f.loop(0, columns, side) as j:
                at = 0 if short else minimum(j, edge)
                starts = [line + at for line in lines]

                def part(t: int, first: int, count: int, starts: list[Ptr] = starts) -> str:
                    mask = _below(f, columns, count, first) if short else None
                    return number.load(f, starts[t] + first, count, mask)

                place = out.bytes(f.index("%dst_step") * at).of(kind)
                for row in transpose_block(f, number, side, part):
                    place.store(row, number.width)
                    place = place.bytes(f.index("%dst_step"))
        f.do("ret void")

    return module.once(name, make)


def block_side(module: Module, number: Number) -> int:
    """Rows and columns of a block that is transposed at once: 32 bytes. Wider ones are no faster,
    and take LLVM three times as long."""
    lanes: int = module.machine.lanes(number.width)
    return min(lanes, 32 // number.width)


def transpose_block(
    f: Function, number: Number, side: int, part: Callable[[int, int, int], str]
) -> list[str]:
    """Transpose a square block that is one or two times 16 bytes wide.

    `part` loads some elements of a row: which row, the first of them, how many. Halves of vectors
    are combined as they are loaded, which is free; within halves elements are interleaved, which is
    the cheapest way to move them.
    """
    short = min(side, 16 // number.width)
    kind, half = vector_type(number.kind, side), vector_type(number.kind, short)
    made: list[str] = []
    for first in range(0, side, short):
        block = [part(t, first, short) for t in range(side)]
        if side > short:
            order = _numbers(list(range(side)))
            block = [
                f(f"shufflevector {half} {x}, {half} {y}, <{side} x i32> {order}")
                for x, y in zip(block[:short], block[short:], strict=True)
            ]
        for _ in range(short.bit_length() - 1):
            pairs = zip(block[: short // 2], block[short // 2 :], strict=True)
            block = [row for x, y in pairs for row in _interleaved(f, x, y, kind, side, short)]
        made += block
    return made


def _interleaved(f: Function, x: str, y: str, kind: str, lanes: int, short: int) -> tuple[str, str]:
    """Interleave two vectors: the low halves of each 16 bytes, and the high halves."""
    low = [
        start + i // 2 + (lanes if i % 2 else 0)
        for start in range(0, lanes, short)
        for i in range(short)
    ]
    high = [lane + short // 2 for lane in low]
    first, second = (
        f(f"shufflevector {kind} {x}, {kind} {y}, <{lanes} x i32> {_numbers(order)}")
        for order in (low, high)
    )
    return first, second


def fold(f: Function, rows: list[str], kind: str, add: str) -> str:
    """Add the lanes of each of as many vectors as they have lanes: a vector of the sums."""
    lanes = len(rows)
    while len(rows) > 1:
        step = len(rows) // 2
        rows = [
            "zeroinitializer"
            if x == y == "zeroinitializer"
            else f(f"{add} {kind} {', '.join(_halves(f, x, y, kind, lanes, step))}")
            for x, y in zip(rows[:step], rows[step:], strict=True)
        ]
    return rows[0]


def _halves(f: Function, x: str, y: str, kind: str, lanes: int, step: int) -> tuple[str, str]:
    """The lanes of two vectors whose number has a bit unset, and those that have it set."""
    low = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
    high = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
    first, second = (
        f(f"shufflevector {kind} {x}, {kind} {y}, <{lanes} x i32> {_numbers(order)}")
        for order in (low, high)
    )
    return first, second


def _numbers(order: list[int]) -> str:
    return "<" + ", ".join(f"i32 {i}" for i in order) + ">"


def _lines(f: Function, number: Number, i: Index) -> tuple[Ptr, Ptr]:
    """Row `i` of the source, and of the copy."""
    src, dst = f.ptr("%src", number.memory), f.ptr("%dst", number.kind)
    return src.bytes(f.index("%src_step") * i), dst.bytes(f.index("%dst_step") * i)


def _below(f: Function, count: Size, lanes: int, first: int) -> str:
    """The mask of the lanes `first`, `first + 1`, … that are below a count."""
    steps = ", ".join(f"i64 {first + lane}" for lane in range(lanes))
    one = f(f"insertelement <{lanes} x i64> poison, i64 {count}, i64 0")
    all_ = f(f"shufflevector <{lanes} x i64> {one}, <{lanes} x i64> poison, "
             f"<{lanes} x i32> zeroinitializer")  # fmt: skip
    return f(f"icmp slt <{lanes} x i64> <{steps}>, {all_}")


def _move(
    f: Function, number: Number, src: Ptr, dst: Ptr, at: Size, lanes: int, mask: str | None
) -> None:
    value = number.load(f, src + at, lanes, mask)
    (dst + at).of(vector_type(number.kind, lanes)).store(value, number.width)
