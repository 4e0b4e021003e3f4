"""What the kernels of attention share: how a block's warps hold tiles of matrices.

A warp multiplies tiles of 16 × 16 and 16 × 8 elements. Of a left tile a thread holds 8 elements,
of a right one 4 (pairs of narrow floats in registers of 32 bits), of a result 4 in float32: in the
rows `lane / 4` and `lane / 4 + 8`, two neighbours each. So what a product gives can be, rounded,
the left tile of the next one: scores never leave the registers.

Matrices come to shared memory by asynchronous copies. Their rows are 16 bytes longer there than
their elements take: then no two of the eight rows that are read at once lie in the same banks.
Columns are as many as tiles need, and rows as many as a block handles: those that the matrix does
not have are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.base.dtypes import float32
from weft.codegen.attention.spec import Attention
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.primitives import LANES, Device
from weft.codegen.elementwise import literal, load, memory_type
from weft.codegen.index import Index, Ptr, Size, minimum, offset, unravel
from weft.codegen.matmul.product import Operand
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module

__all__ = ["LOG2E", "NARROW", "SIDE", "THREADS", "Held", "TileCode", "Tiles", "at_once"]

WARPS = 4
THREADS = WARPS * LANES
#: log2(exp(1))
LOG2E = 1.4426950408889634
#: Bytes between the rows of a matrix in shared memory, beside their elements.
GAP = 16
#: Of a tile: its elements along the sides that are multiplied, and the columns of a right one.
SIDE, NARROW = 16, 8


#: Bytes of shared memory of a kernel, and the most rows that a block goes over at once.
ROOM, MOST = 48 << 10, 64


def up(size: int) -> int:
    return -(-size // SIDE) * SIDE


def pitch_of(columns: int) -> int:
    """Bytes from a row to the next, in shared memory."""
    return 2 * up(columns) + GAP


def at_once(spec: Attention, more: int = 0) -> int:
    """How many rows of two matrices a block goes over at once, so that two sets of them have room;
    `more`: bytes that come with each row."""
    each = 2 * (pitch_of(spec.features) + pitch_of(spec.values) + more)
    return min(MOST, ROOM // each // SIDE * SIDE)


#: The registers of a warp that hold rows of a matrix: for each 16 rows, each 16 columns of them.
Held = list[list[list[str]]]


class Tiles:
    """A matrix in shared memory, of so many rows and columns."""

    def __init__(self, code: TileCode, rows: int, columns: int) -> None:
        self.code = code
        self.rows, self.columns = rows, columns
        self.wide = up(columns)
        self.pitch = pitch_of(columns)
        self.bytes = rows * self.pitch
        lane = code.lane
        #: Where a thread reads tiles whose rows are those of a left matrix, or columns of a right.
        self._down = lane % 16 * self.pitch + lane // 16 * 16
        #: Where rows are the columns of a right matrix.
        across = lane % 8 * self.pitch + lane // 16 * (8 * self.pitch)
        self._across = across + lane // 8 % 2 * 16

    def copy(self, to: Ptr, source: Ptr, matrix: Operand, first: Size, limit: int) -> None:
        """Start to copy the rows of a matrix from `first` on, below `limit`."""
        code, f = self.code, self.code.f
        chunks = self.wide // 8
        count = self.rows * chunks
        for start in range(0, count, THREADS):
            if THREADS % chunks == 0:
                row, chunk = code.thread // chunks + start // chunks, code.thread % chunks
            else:
                item = code.thread + start
                row, chunk = item // chunks, item % chunks
            at = row + first
            inside = f(f"icmp slt i64 {at}, {limit}")
            if self.wide != self.columns:
                has = f(f"icmp slt i64 {chunk}, {self.columns // 8}")
                inside = f(f"and i1 {inside}, {has}")
            known = f.index(f(f"select i1 {inside}, i64 {at}, i64 0"))
            size = f(f"select i1 {inside}, i32 16, i32 0")
            place = to.bytes(row * self.pitch + chunk * 16)
            element = source.of("i16") + (known * matrix.row + chunk * 8)
            if start + THREADS > count:
                with f.when(f(f"icmp slt i64 {code.thread}, {count - start}")):
                    code.device.copy(place, element, size)
            else:
                code.device.copy(place, element, size)

    def left(self, at: Ptr, first: Size, count: int) -> Held:
        """So many times 16 rows from `first` on, as left tiles."""
        base = at.bytes(self._down + first * self.pitch)
        return [
            [
                self.code.device.tiles(base.bytes(i * 16 * self.pitch + k * 32), turned=False)
                for k in range(self.wide // SIDE)
            ]
            for i in range(count)
        ]

    def rows_as_columns(self, at: Ptr, first: int, k: int) -> list[list[str]]:
        """Two right tiles: their columns are 16 rows from `first` on, their rows are columns."""
        place = at.bytes(self._across).bytes(first * self.pitch + k * 32)
        found = self.code.device.tiles(place, turned=False)
        return [found[:2], found[2:]]

    def right(self, at: Ptr, first: int, column: int) -> list[list[str]]:
        """Two right tiles: 16 rows from `first` on, 16 columns."""
        place = at.bytes(self._down).bytes(first * self.pitch + column * 2)
        found = self.code.device.tiles(place, turned=True)
        return [found[:2], found[2:]]


class TileCode:
    """A kernel of attention being written. Each of its blocks handles a tile of rows of one matrix
    of the batch, each warp `each` times 16 of them."""

    def __init__(
        self, module: Module, name: str, buffers: int, spec: Attention, rows: int, each: int
    ) -> None:
        self.module, self.spec, self.each = module, spec, each
        self.builder = KernelBuilder(module, name, buffers)
        self.f = self.builder.f
        self.device = Device(self.builder)
        self.name = name
        self.rows = each * SIDE * WARPS  # of a block
        self.blocks = -(-rows // self.rows) * spec.stacks
        self.thread = self.builder.thread()
        self.lane: Index = self.thread % LANES  # type: ignore[assignment]
        #: The first of the warp's rows, in its block; the first of the thread's columns in a tile.
        self.own = self.thread // LANES * (SIDE * each)
        self.column = self.lane % 4 * 2
        block = self.builder.block()
        self.stack = block % spec.stacks
        self.batch = unravel(self.stack, spec.batch)
        self.tile: Size = block // spec.stacks
        self.tiles = -(-rows // self.rows)
        self.positive = spec.scale > 0 and not self.adds
        #: What scores are multiplied by, once they are masked, for the exponent of 2.
        self.factor = spec.scale * LOG2E if self.positive else 1.0

    @property
    def adds(self) -> bool:
        """Whether the mask is numbers to add."""
        kind = self.spec.mask_dtype
        return kind is not None and kind.kind != "bool"

    def last_first(self) -> None:
        """Begin with the last rows: in causal attention they have most to do."""
        if self.spec.causal:
            self.tile = self.f.size(self.tiles - 1) - self.tile

    def matrix(self, place: int, operand: Operand) -> Ptr:
        """One matrix of an operand, of narrow floats."""
        at = offset(operand.offset, zip(self.batch, operand.batch, strict=True))
        return self.builder.buffer(place, "i16") + at

    # --- rows -------------------------------------------------------------------------------------

    def row(self, i: int, half: int) -> Size:
        """A row of the thread: the first of 16 it has a part of, or the second."""
        return self.tile * self.rows + self.own + (self.lane // 4 + (i * SIDE + half * 8))

    def vec(self, value: str | float) -> Vec:
        name = literal(float32, value, 1) if isinstance(value, int | float) else value
        return Vec(self.f, "float", 1, name)

    def zeros(self, *counts: int) -> list[list[Ptr]]:
        """Variables for results: of `counts[0]` times 16 rows, `counts[1]` columns."""
        rows, columns = counts
        return [
            [self.f.var("float", "0.0") for _ in range(columns // NARROW * 4)] for _ in range(rows)
        ]

    def exp2(self, value: Vec) -> Vec:
        return self.vec(self.device.exp2(value.name))

    def over_row(self, value: Vec, word: str) -> Vec:
        """The sum or the maximum over the four threads that hold a row."""
        for step in (1, 2):
            other = self.vec(self.device.exchange(value.name, step))
            value = value + other if word == "add" else self.larger(value, other)
        return value

    def larger(self, a: Vec, b: Vec) -> Vec:
        name = self.module.declare("float", "llvm.maxnum.f32", "float, float")
        return self.vec(self.f(f"call float @{name}(float {a}, float {b})"))

    # --- products ---------------------------------------------------------------------------------

    def times(
        self, left: Held, right: Sequence[Sequence[Sequence[str]]], count: int
    ) -> list[list[list[str]]]:
        """left · right, for as many right tiles next to each other: `right[k]` has those for each
        16 terms."""
        made = [[["0.0"] * 4 for _ in range(count)] for _ in left]
        for k, tiles in enumerate(right):
            for n in range(count):
                for i, rows in enumerate(left):
                    made[i][n] = self.device.multiply(
                        self.spec.dtype, rows[k], tiles[n], made[i][n]
                    )
        return made

    def add_times(
        self,
        sums: Sequence[Sequence[Ptr]],
        left: Sequence[Sequence[str]],
        at: Ptr,
        tiles: Tiles,
        first: int,
    ) -> None:
        """sums += left · rows of a matrix, 16 from `first` on."""
        for column in range(0, tiles.wide, SIDE):
            pair = tiles.right(at, first, column)
            for i, rows in enumerate(left):
                for n, right in enumerate(pair):
                    place = (column // NARROW + n) * 4
                    own = sums[i][place : place + 4]
                    given = [one.load() for one in own]
                    made = self.device.multiply(self.spec.dtype, rows, right, given)
                    for one, value in zip(own, made, strict=True):
                        one.store(value)

    def packed(self, tiles: Sequence[Sequence[Vec]]) -> list[str]:
        """Two results next to each other as one left tile."""
        return [
            self.device.pack(self.spec.dtype, one[half].name, one[half + 1].name)
            for one in tiles
            for half in (0, 2)
        ]

    # --- masks ------------------------------------------------------------------------------------

    def scores(
        self,
        raw: Sequence[str],
        valid: Sequence[str | None],
        places: Sequence[tuple[Size, Size]],
        mask: Ptr | None,
    ) -> tuple[list[Vec], list[str | None]]:
        """Scores as exponents of 2 but for `factor`, -inf where they do not count; and whether they
        count, None where they do. `valid` says that without the mask; `places` are the query and
        the key of each."""
        f, spec = self.f, self.spec
        made: list[Vec] = []
        counts: list[str | None] = []
        nothing = literal(float32, -math.inf, 1)
        for value, counted, (query, key) in zip(raw, valid, places, strict=True):
            score = self.vec(value)
            if not self.positive:
                score = score * (spec.scale * LOG2E)
            if mask is not None and spec.mask is not None and spec.mask_dtype is not None:
                at = minimum(query, spec.queries - 1) * spec.mask.row
                at = at + minimum(key, spec.keys - 1) * spec.mask.column
                given = load(f, spec.mask_dtype, mask + at, 1)
                if self.adds:
                    score = score + self.vec(given) * LOG2E
                else:
                    counted = given if counted is None else f(f"and i1 {counted}, {given}")
            if counted is not None:
                score = self.vec(f(f"select i1 {counted}, float {score}, float {nothing}"))
            made.append(score)
            counts.append(counted)
        return made, counts

    def narrow(self, size: Size) -> str:
        """An index as an i32: comparing these is cheaper."""
        return self.f(f"trunc i64 {self.f.size(size)} to i32")

    def mask(self, place: int | None) -> Ptr | None:
        """The mask of the matrix."""
        spec = self.spec
        if place is None or spec.mask is None or spec.mask_dtype is None:
            return None
        at = offset(spec.mask.offset, zip(self.batch, spec.mask.batch, strict=True))
        return self.builder.buffer(place, memory_type(spec.mask_dtype)) + at
