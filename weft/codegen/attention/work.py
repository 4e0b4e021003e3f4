"""Shared code of attention's kernels: matrices in memory, products of them, rows of scores.

Narrow floats are widened when their rows are copied, so products always have the compute type as
operands. The store rounds results once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.base.dims import has_dims
from weft.codegen.attention.spec import Attention
from weft.codegen.index import Ptr, Size, minimum, offset
from weft.codegen.kernel import Store, argument
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import copy, panel, transpose
from weft.codegen.matmul.plan import up
from weft.codegen.matmul.product import Operand
from weft.codegen.matmul.tile import tile, tile_of_rows
from weft.codegen.scalar.forms import load, memory_type, splat
from weft.codegen.scalar.vec import Vec, constant, vector_type
from weft.codegen.text import Function, Module

__all__ = ["GAP", "Right", "Work", "largest"]

GAP = 16  # padding between rows: a distance that is no power of two avoids cache conflicts


@dataclass(frozen=True, slots=True)
class Right:
    """The right operand of a product: its address, and bytes to the next term and to the next
    panel."""

    at: Ptr
    step: int
    panel: int
    vectors: int
    panels: Size
    last: int


class Work:
    """What the parts of a kernel share. `f` is set when the kernel's function begins."""

    f: Function

    counts: tuple[int, ...] = ()  # the rows that tiles may have, if only the run knows them

    def __init__(self, module: Module, spec: Attention, number: Number) -> None:
        self.module = module
        self.spec = spec
        self.number = number
        self.width = number.width  # bytes of an element in a local buffer
        self.lanes = module.machine.lanes(number.width)
        self.kind = number.kind
        self.whole = vector_type(number.kind, self.lanes)
        self.columns = 2 * self.lanes  # columns of a panel of keys

    # --- memory ---------------------------------------------------------------------------------

    def room(self, elements: int) -> Ptr:
        """A local buffer; null for 0 elements."""
        if not elements:
            return self.f.ptr("null", self.kind)
        return self.f.var(self.kind, count=elements, align=64)

    def matrix(
        self,
        pointer: Ptr,
        operand: Operand,
        batch: Sequence[Size],
        row: Size,
        number: Number | None = None,
    ) -> Ptr:
        """The address of a row of a matrix of the batch."""
        at = offset(operand.offset, zip(batch, operand.batch, strict=True))
        return pointer.of((number or self.number).memory) + (at + row * operand.row)

    def step(self, operand: Operand) -> int:
        """Bytes from one row of a matrix to the next."""
        return operand.row * self.number.size

    def element(self, base: Ptr, index: Size) -> Ptr:
        return base.of(self.kind) + index

    def vec(self, name: str, lanes: int = 0) -> Vec:
        return Vec(self.f, self.kind, lanes or self.lanes, name)

    def number_vec(self, value: float) -> Vec:
        return self.vec(constant(self.kind, value, self.lanes))

    def read(self, at: Ptr) -> Vec:
        return self.vec(at.of(self.whole).load(self.width))

    def write(self, value: Vec, at: Ptr) -> None:
        at.of(value.type).store(value, self.width)

    def read_one(self, base: Ptr, index: Size) -> Vec:
        return self.vec(self.element(base, index).load(self.width), 1)

    def splat(self, value: Vec) -> Vec:
        return self.vec(splat(self.f, self.number.dtype, value.name, self.lanes))

    def fold(self, value: Vec, word: str) -> Vec:
        """Reduce the lanes of a vector to a scalar: their sum ("add") or maximum ("max")."""
        f, step = self.f, self.lanes // 2
        while step:
            order = ", ".join(f"i32 {(i + step) % self.lanes}" for i in range(self.lanes))
            other = self.vec(
                f(
                    f"shufflevector {self.whole} {value}, {self.whole} poison, "
                    f"<{self.lanes} x i32> <{order}>"
                )
            )
            value = value + other if word == "add" else largest(value, other)
            step //= 2
        return self.vec(f(f"extractelement {self.whole} {value}, i64 0"), 1)

    # --- products -------------------------------------------------------------------------------

    def pack_keys(self, rows: Ptr, step: int, room: Ptr, count: Size, features: int) -> None:
        """Copy `count` rows, transposed, to panels: keys become contiguous."""
        f, width = self.f, self.width
        name = transpose(f.module, self.number, features)
        size = up(features, self.lanes) * self.columns * width
        with f.loop(0, count, self.columns) as first:
            some = minimum(count - first, self.columns)
            src = rows.bytes(first * step)
            dst = room.bytes(first // self.columns * size)
            f.do(
                f"call void @{name}(ptr {src}, i64 {f.size(step)}, ptr {dst}, "
                f"i64 {self.columns * width}, i64 {f.size(some)}, i64 {features})"
            )

    def keys_side(self, room: Ptr, features: int, count: Size) -> Right:
        """The panels of `pack_keys` as the right operand of a product with `count` columns."""
        step = self.columns * self.width
        panels = (count + (self.columns - 1)) // self.columns
        return Right(room, step, up(features, self.lanes) * step, 2, panels, 0)

    def in_place(self, columns: int, most: int) -> tuple[int, int] | None:
        """Vectors of a panel, and lanes of its last vector, to read a matrix without a copy."""
        if not self.number.is_packed:
            return None
        vectors = -(-columns // self.lanes)
        if vectors <= most:
            return vectors, columns % self.lanes
        for count in range(most, 0, -1):
            if columns % (count * self.lanes) == 0:
                return count, 0
        return None

    def copy_size(self, terms: int, columns: int, most: int) -> int:
        """Elements of the buffer that `right` needs."""
        if self.in_place(columns, most) is not None:
            return 0
        return terms * up(columns, self._copied(columns, most) * self.lanes)

    def _copied(self, columns: int, most: int) -> int:
        """Vectors of a panel of a copy."""
        vectors: int = -(-columns // self.lanes)
        return min(most, vectors)

    def right(
        self, rows: Ptr, step: int, count: Size, columns: int, most: int, room: Ptr, size: int
    ) -> Right:
        """`count` rows as the right operand of a product: in place, or copied to a buffer."""
        f, width = self.f, self.width
        found = self.in_place(columns, most)
        if found is not None:
            vectors, last = found
            panels = -(-columns // (vectors * self.lanes))
            return Right(rows, step, vectors * self.lanes * width, vectors, panels, last)
        vectors = self._copied(columns, most)
        whole = vectors * self.lanes
        panels = -(-columns // whole)
        each = size * whole * width
        name = panel(f.module, self.number, vectors)
        with f.loop(0, panels) as p:
            first = p * whole
            src = rows.of(self.number.memory) + first
            dst = room.bytes(p * each)
            some = minimum(columns - first, whole)
            f.do(
                f"call void @{name}(ptr {src}, i64 {f.size(step)}, ptr {dst}, i64 {whole * width}, "
                f"i64 {f.size(count)}, i64 {some})"
            )
        return Right(room, whole * width, each, vectors, panels, 0)

    def left_size(self, rows: int, columns: int) -> int:
        """Elements of the buffer that `left` needs."""
        return 0 if self.number.is_packed else rows * self._left_pitch(columns)

    def _left_pitch(self, columns: int) -> int:
        return up(columns, self.lanes) + GAP

    def left(self, at: Ptr, step: int, rows: int, columns: int, room: Ptr) -> tuple[Ptr, int]:
        """The rows of a tile as the left operand of a product, in place or copied to a buffer; and
        the bytes from one row to the next."""
        if self.number.is_packed:
            return at, step
        pitch = self._left_pitch(columns) * self.width
        name = copy(self.f.module, self.number)
        size = self.f.size
        self.f.do(
            f"call void @{name}(ptr {at}, i64 {size(step)}, ptr {room}, i64 {pitch}, "
            f"i64 {size(rows)}, i64 {columns})"
        )
        return room, pitch

    def multiply(
        self,
        rows: int,
        left: Ptr,
        left_step: int,
        right: Right,
        terms: Size,
        out: Ptr,
        out_step: int,
        more: str,
        *,
        across: bool = False,
    ) -> None:
        """Multiply one tile of rows with all panels; steps are in bytes."""
        f, packed = self.f, self.number.packed
        last = ""
        if has_dims((rows,)):
            name = tile_of_rows(
                f.module, packed, packed, self.counts, right.vectors, last=right.last
            )
            last = f", i64 {f.size(rows)}"
        else:
            name = tile(
                f.module, packed, packed, rows, right.vectors, across=across, last=right.last
            )
        with f.loop(0, right.panels) as p:
            at = right.at.bytes(p * right.panel)
            to = out.bytes(p * (right.vectors * self.lanes * self.width))
            f.do(
                f"call void @{name}(ptr {left}, i64 {f.size(left_step)}, ptr {at}, "
                f"i64 {f.size(right.step)}, i64 {f.size(terms)}, ptr {to}, i64 {f.size(out_step)}, "
                f"i1 {more}{last})"
            )

    # --- scores ---------------------------------------------------------------------------------

    def valid(self, column: Size, limit: Size) -> Vec:
        """A mask of the lanes from `column` on that are below `limit`."""
        f, lanes = self.f, self.lanes
        left = f(f"trunc i64 {limit - column} to i32")
        steps = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
        one = f(f"insertelement <{lanes} x i32> poison, i32 {left}, i64 0")
        all_ = f(
            f"shufflevector <{lanes} x i32> {one}, <{lanes} x i32> poison, "
            f"<{lanes} x i32> zeroinitializer"
        )
        return Vec(f, "i1", lanes, f(f"icmp slt <{lanes} x i32> {steps}, {all_}"))

    def _masked(self, score: Vec, mask: Ptr, column: Size, valid: Vec) -> tuple[Vec, Vec]:
        """A score after masking, and the mask of valid lanes; `mask` is the address of the mask's
        row."""
        f, spec = self.f, self.spec
        dtype = spec.mask_dtype
        assert spec.mask is not None
        assert dtype is not None
        if spec.mask.column == 0:
            value = splat(f, dtype, load(f, dtype, mask, 1), self.lanes)
        else:
            value = load(f, dtype, mask + column, self.lanes, valid.name)
        if dtype.kind == "bool":
            return score, Vec(f, "i1", self.lanes, value) & valid
        return score + self.vec(value), valid

    def mask_row(self, pointer: Ptr, batch: Sequence[Size], row: Size, column: Size) -> Ptr:
        """The address of a row of the mask, from a column on."""
        mask, dtype = self.spec.mask, self.spec.mask_dtype
        if mask is None or dtype is None:
            return pointer
        at = offset(mask.offset + row * mask.row, zip(batch, mask.batch, strict=True))
        return pointer.of(memory_type(dtype)) + (at + column * mask.column)

    def each_vector(self, limit: Size, body: Callable[[Size, bool], None]) -> None:
        """Call `body` for each vector of a row of scores: with its first column, and whether some
        of its scores may not count."""
        f, lanes, spec = self.f, self.lanes, self.spec
        if spec.causal or spec.blank or spec.mask is not None or not has_dims((spec.keys,)):
            with f.loop(0, limit, lanes) as column:
                body(column, True)
            return
        # LLVM finds the vectors that need no mask if their number is known; else they are here.
        whole = f.size(limit // lanes * lanes)
        with f.loop(0, whole, lanes) as column:
            body(column, False)
        with f.when(f(f"icmp slt i64 {whole}, {f.size(limit)}")):
            body(whole, True)

    def pitch(self, keys: int, most: int) -> int:
        """Elements from a row of scores to the next, for blocks of at most so many keys."""
        if not has_dims((keys,)):
            return most + GAP
        block = f"min({most}, -(-({keys}) // {self.columns}) * {self.columns})"
        return self.module.sizes.let(f"{block} + {GAP}", high=most + GAP)

    def score(self, at: Ptr, column: Size, limit: Size, mask: Ptr) -> tuple[Vec, Vec]:
        """A vector of scaled and masked scores, -inf for invalid lanes; and the mask of valid
        lanes."""
        valid = self.valid(column, limit)
        score = self.read(at) * self.spec.scale
        if self.spec.mask is not None:
            score, valid = self._masked(score, mask, column, valid)
        return valid.pick(score, float("-inf")), valid

    # --- results --------------------------------------------------------------------------------

    def put_row(
        self, store: Store, line: Ptr, columns: int, index: list[Size], factor: Vec | None = None
    ) -> None:
        """Pass a row to a store, times a factor."""
        f, lanes = self.f, self.lanes

        def give(column: Size, some: int) -> None:
            value = self.read(self.element(line, column))
            if factor is not None:
                value = value * factor
            # no mask of one lane: LLVM's x86 backend miscompiles truncating stores of it
            if some == 1:
                one = f(f"extractelement {self.whole} {value}, i64 0")
                store.put(f, one, 1, [*index, column])
            else:
                store.put(
                    f, value.name, lanes, [*index, column], ones(some, lanes) if some else None
                )

        if columns >= lanes:
            with f.loop(0, columns // lanes * lanes, lanes) as column:
                give(column, 0)
        if columns % lanes:
            give(columns // lanes * lanes, columns % lanes)

    def arguments(self, *places: int | None) -> list[Ptr]:
        """The pointers at positions of `%args`; null for None."""
        f = self.f
        return [f.ptr("null") if place is None else argument(f, place) for place in places]


def largest(x: Vec, y: Vec) -> Vec:
    """The larger of two, lane by lane; y if x is NaN."""
    return (x > y).pick(x, y)
