"""Products of float32 on tensor cores, from bfloat16 parts, without losing float32's precision.

Of the nine products of the parts of two elements, the six largest are computed, the smallest first:
what is left out is below 2**-26 of |a| |b|, less than float32 loses where it rounds a sum. Tensor
cores round toward 0, so they only add up the products of 16 terms; these sums are added in float32.

Where a result is infinite or no number (because of operands that are, or because it is above 2**62:
operands were multiplied by 2**32), a thread computes it again, term by term, from the operands.

A block has 128 × 128 results. Tiles of the parts are copied to shared memory while it multiplies
those before. On GPUs of compute capability 9.0, four warps multiply together (`warpgroup.py`).
"""

from __future__ import annotations

from weft.base.dtypes import bfloat16, float32
from weft.codegen.cuda import warpgroup
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.group_base import Launch
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import Gemm
from weft.codegen.cuda.primitives import LANES, Device
from weft.codegen.elementwise import literal
from weft.codegen.index import Index, Ptr, Size
from weft.codegen.text import Module
from weft.passes.lowering.split_products import SCALE

__all__ = ["emit_product_of_parts", "fits_parts"]

#: Rows and columns of the result of a block; terms that tensor cores add up.
SIDE, TERMS = 128, 16
THREADS = 8 * LANES
#: The parts of one operand.
PARTS = 3
#: Fewer terms are not worth it, nor are tiles that leave more of the GPU idle.
LEAST_TERMS, LEAST_USE = 128, 0.7
#: The parts of the left and the right operand that are multiplied, the smallest products first.
PAIRS = ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))
#: Elements that are copied at once.
CHUNK = 8
#: Shared memory of a block begins at a multiple of this.
ALIGNED = 1024


def fits_parts(call: Gemm, machine: GpuMachine) -> bool:
    """Whether a product can be made of parts, and is likely to be faster so than by cuBLAS."""
    if not machine.emulated and machine.capability < 80:
        return False
    (left, lda), (right, ldb) = call.left, call.right
    ends = (call.rows if left else call.terms, call.terms if right else call.columns)
    if call.count != 1 or call.columns % 2 or any(size % CHUNK for size in (lda, ldb, *ends)):
        return False
    tiles = -(-call.rows // SIDE) * -(-call.columns // SIDE)
    at_once = max(1, machine.blocks // 4)
    used = call.rows * call.columns / SIDE**2
    return call.terms >= LEAST_TERMS and used >= LEAST_USE * at_once * -(-tiles // at_once)


def emit_product_of_parts(
    module: Module, name: str, call: Gemm, parts: Gemm, *, gated: bool
) -> Launch:
    """The kernel. `call`: how the operands lie, `parts`: how their parts do. Its buffers: the
    operands, the parts of the left one and of the right one, the result; `gated`: then the
    program's flag."""
    kind = _ByWarpgroups if module.machine.warpgroups else _ByWarps
    return kind(module, name, call, parts, gated).write()


class _Product:
    """A kernel being written. Of the result, a warp has `rows` × `columns`; `step` terms are copied
    at once; a tile takes `tile` bytes."""

    rows: int
    columns: int
    step: int
    tile: int

    def __init__(self, module: Module, name: str, call: Gemm, parts: Gemm, gated: bool) -> None:
        self.call, self.parts, self.name = call, parts, name
        self.builder = builder = KernelBuilder(module, name, 9 + gated)
        self.f = builder.f
        self.device = Device(builder)
        if gated:
            builder.stop_if(builder.buffer(9, "i32"))
        self.down, self.across = (-(-size // SIDE) for size in (call.rows, call.columns))
        block = builder.block()
        self.first = block % self.down * SIDE, block // self.down * SIDE
        self.sources = [
            [
                builder.buffer(2 + PARTS * side + i, "i16") + parts.offsets[side]
                for i in range(PARTS)
            ]
            for side in range(2)
        ]
        #: Whether the tiles of the left and the right operand have rows of terms.
        self.by_terms = not parts.left[0], parts.right[0]
        self.thread = builder.thread()
        self.lane: Index = self.thread % LANES  # type: ignore[assignment]
        warp, down = self.thread // LANES, SIDE // self.rows
        self.own = warp % down * self.rows, warp // down * self.columns
        self.stage = 2 * PARTS * self.tile
        self.shared = 2 * self.stage
        self.room = builder.dynamic_shared(self.shared, ALIGNED)
        self.fma = module.declare("float", "llvm.fma.f32", "float, float, float")

    def write(self) -> Launch:
        f = self.f
        count = -(-self.call.terms // self.step)
        self.sums = [f.var("float", "0.0") for _ in range(self.rows * self.columns // LANES)]
        self._copy(f.index("0"))
        with f.loop(0, count) as j:
            self.device.wait_for_copies()
            self.seen()
            self.builder.wait()
            after = j + 1
            with f.when(f(f"icmp slt i64 {after}, {count}")):
                self._copy(after)
            tiles = self.room.bytes(j % 2 * self.stage)
            for term in range(0, self.step, TERMS):
                self.multiply(tiles, term)
        self._store()
        self.builder.end(THREADS)
        return Launch(self.name, self.down * self.across, THREADS, self.shared)

    def seen(self) -> None:
        """What was copied is there for tensor cores."""

    def place_of(self, place: Size, term: Size, *, by_terms: bool) -> Size:
        """Where an element lies in its tile, in bytes."""
        raise NotImplementedError

    def multiply(self, tiles: Ptr, term: int) -> None:
        """Add the products of 16 terms."""
        raise NotImplementedError

    def add(self, first: int, made: list[str]) -> None:
        """Add to some of the sums."""
        f = self.f
        for total, more in zip(self.sums[first : first + len(made)], made, strict=True):
            total.store(f(f"fadd float {total.load()}, {more}"))

    def _copy(self, j: Index) -> None:
        """Start to copy the tiles of some terms. What the matrices do not have is 0."""
        f, call, step = self.f, self.parts, self.step
        to = self.room.bytes(j % 2 * self.stage)
        for side, ((_, leading), limit) in enumerate(
            ((call.left, call.rows), (call.right, call.columns))
        ):
            by_terms = self.by_terms[side]
            chunks = (step if by_terms else SIDE) // CHUNK
            for begin in range(0, SIDE * step // CHUNK, THREADS):
                row, chunk = self.thread // chunks + begin // chunks, self.thread % chunks * CHUNK
                own = (row, chunk) if by_terms else (chunk, row)
                place, term = own[0] + self.first[side], own[1] + j * step
                inside = [
                    f(f"icmp slt i64 {at}, {end}")
                    for at, end, size in ((term, call.terms, step), (place, limit, SIDE))
                    if end % size
                ]
                known: Size = place * leading + term if by_terms else term * leading + place
                size = "16"
                if inside:
                    both = inside[0] if len(inside) == 1 else f(f"and i1 {', '.join(inside)}")
                    known = f.index(f(f"select i1 {both}, i64 {known}, i64 0"))
                    size = f(f"select i1 {both}, i32 16, i32 0")
                at = to.bytes(self.place_of(*own, by_terms=by_terms))
                for part, source in enumerate(self.sources[side]):
                    tile = at.bytes((side * PARTS + part) * self.tile)
                    self.device.copy(tile, source + known, size)

    # --- results ----------------------------------------------------------------------------------

    def _store(self) -> None:
        """Write the results; those that are not finite are computed again."""
        f, across = self.f, self.columns // 8
        back = literal(float32, SCALE**-2, 1)
        out = self.builder.buffer(2 + 2 * PARTS, "float")
        row = self.lane // 4 + self.own[0] + self.first[0]
        column = self.lane % 4 * 2 + self.own[1] + self.first[1]
        bad = "false"
        for number in range(0, len(self.sums), 2):
            m, n, half = number // (4 * across), number // 4 % across, number // 2 % 2
            pair = "poison"
            for i, one in enumerate(self.sums[number : number + 2]):
                value = one.load()
                bad = f(f"or i1 {bad}, {self._is_none(value)}")
                value = f(f"fmul float {value}, {back}")
                pair = f(f"insertelement <2 x float> {pair}, float {value}, i32 {i}")
            at = row + (m * 16 + half * 8), column + n * 8
            with f.when(self._is_inside(*at)):
                to = out + (at[0] * self.call.columns + at[1])
                f.do(f"store <2 x float> {pair}, ptr {to}, align 8")
        with f.when(bad), f.loop(0, len(self.sums)) as item:
            place = (
                row + item // (4 * across) * 16 + item // 2 % 2 * 8,
                column + item // 4 % across * 8 + item % 2,
            )
            with f.when(self._is_inside(*place)):
                self._again(out, *place)

    def _is_none(self, value: str) -> str:
        """Whether a number is infinite or none."""
        rest = self.f(f"fsub float {value}, {value}")
        return self.f(f"fcmp uno float {rest}, 0.0")

    def _is_inside(self, row: Size, column: Size) -> str:
        f, call = self.f, self.call
        ends = [(row, call.rows, self.down), (column, call.columns, self.across)]
        found = [f(f"icmp slt i64 {at}, {end}") for at, end, tiles in ends if end < tiles * SIDE]
        return f(f"and i1 {', '.join(found)}") if len(found) == 2 else [*found, "true"][0]

    def _again(self, out: Ptr, row: Size, column: Size) -> None:
        """One element in float32 arithmetic, if it is not finite."""
        f, call = self.f, self.call
        (left, lda), (right, ldb) = call.left, call.right
        a, b = (self.builder.buffer(i, "float") + call.offsets[i] for i in range(2))
        to = out + (row * call.columns + column)
        with f.when(self._is_none(to.load())):
            total = f.var("float", "0.0")
            with f.loop(0, call.terms) as k:
                x = (a + (row + k * lda if left else row * lda + k)).load()
                y = (b + (column * ldb + k if right else column + k * ldb)).load()
                given = f"float {x}, float {y}, float {total.load()}"
                total.store(f(f"call float @{self.fma}({given})"))
            to.store(total.load())


class _ByWarps(_Product):
    """Each warp multiplies 64 × 32. Rows of tiles are 16 bytes longer than their elements: no two
    of eight rows that are read at once lie in the same banks."""

    rows, columns, step = 64, 32, 32
    long, wide = 2 * step + 16, 2 * SIDE + 16
    tile = max(SIDE * long, step * wide)

    def place_of(self, place: Size, term: Size, *, by_terms: bool) -> Size:
        return place * self.long + term * 2 if by_terms else term * self.wide + place * 2

    def multiply(self, tiles: Ptr, term: int) -> None:
        lane = self.lane
        # Where a thread's row of four 8 × 8 tiles lies: as rows of the left tile, or of the right.
        down, across = lane % 16, lane // 16 * 8
        low, high = lane % 8 + lane // 16 * 8, lane // 8 % 2 * 8
        right = []
        by_terms = self.by_terms[1]
        for part in range(PARTS):
            columns: list[list[str]] = []
            for n in range(0, self.columns, 16):
                place = low if by_terms else across
                at = place + self.own[1] + n, (high if by_terms else down) + term
                found = self._tiles(tiles, PARTS + part, at, by_terms, turned=not by_terms)
                columns += [found[:2], found[2:]]
            right.append(columns)
        by_terms = self.by_terms[0]
        for m in range(0, self.rows, 16):
            left = []
            for part in range(PARTS):
                place = down if by_terms else high
                at = place + self.own[0] + m, (across if by_terms else low) + term
                left.append(self._tiles(tiles, part, at, by_terms, turned=not by_terms))
            made = [["0.0"] * 4 for _ in range(self.columns // 8)]
            for i, j in PAIRS:
                for n, sums in enumerate(made):
                    made[n] = self.device.multiply(bfloat16, left[i], right[j][n], sums)
            flat = [one for sums in made for one in sums]
            self.add(m // 16 * len(flat), flat)

    def _tiles(
        self, tiles: Ptr, part: int, at: tuple[Size, Size], by_terms: bool, *, turned: bool
    ) -> list[str]:
        byte = self.place_of(*at, by_terms=by_terms)
        return self.device.tiles(tiles.bytes(part * self.tile).bytes(byte), turned=turned)


class _ByWarpgroups(_Product):
    """Four warps multiply 64 × 128, while four others add what they have."""

    rows, columns, step = 16, SIDE, warpgroup.TERMS
    tile = warpgroup.TILE

    def seen(self) -> None:
        warpgroup.fence(self.builder)

    def place_of(self, place: Size, term: Size, *, by_terms: bool) -> Size:
        return warpgroup.place_of(self.builder, place, term, by_terms=by_terms)

    def multiply(self, tiles: Ptr, term: int) -> None:
        rows = self.thread // (4 * LANES) * warpgroup.HALF  # of the warpgroup, in bytes
        left = [tiles.bytes(part * self.tile).bytes(rows) for part in range(PARTS)]
        right = [tiles.bytes((PARTS + part) * self.tile) for part in range(PARTS)]
        pairs = [((left[i], self.by_terms[0]), (right[j], self.by_terms[1])) for i, j in PAIRS]
        self.add(0, warpgroup.products(self.builder, pairs, self.lane, term))
