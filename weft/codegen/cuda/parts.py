"""Products of float32 on tensor cores, from bfloat16 parts, without losing float32's precision.

Of the nine products of the parts of two elements, the six largest are computed, the smallest first:
what is left out is below 2**-26 of |a| |b|, less than float32 loses where it rounds a sum. Tensor
cores round toward 0, so they only add up the products of 16 terms; these sums are added in float32,
first those of 256 terms.

Where a result is infinite or no number (because of operands that are, or because it is above 2**62:
operands were multiplied by 2**32), a thread computes it again, term by term, from the operands.
"""

from __future__ import annotations

from weft.base.dtypes import bfloat16, float32
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

#: Rows and columns of the result of a block; terms at a time, in tensor cores and in copies; rows
#: and columns of the result of a warp.
SIDE, TERMS, STEP = 128, 16, 32
ROWS, COLUMNS = 64, 32
THREADS = SIDE // ROWS * (SIDE // COLUMNS) * LANES
#: Bytes from a row of a tile to the next, in shared memory: rows of terms, or of places in the
#: result. No two of eight rows that are read at once lie in the same banks.
BY_TERMS, BY_SIDE = 2 * STEP + 16, 2 * SIDE + 16
TILE = max(SIDE * BY_TERMS, STEP * BY_SIDE)
#: The parts of one operand; their tiles, of both, are a stage.
PARTS = 3
STAGE = 2 * PARTS * TILE
#: Copies after which sums are added to the sums of all.
TOGETHER = 256 // STEP
#: Fewer terms are not worth it, nor are tiles that leave more of the GPU idle.
LEAST_TERMS, LEAST_USE = 128, 0.7
#: The parts of the left and the right operand that are multiplied, the smallest products first.
PAIRS = ((0, 2), (2, 0), (1, 1), (0, 1), (1, 0), (0, 0))
#: Elements that are copied at once.
CHUNK = 8


def fits_parts(call: Gemm, machine: GpuMachine) -> bool:
    """Whether a product can be made of parts, and is likely to be faster so than by cuBLAS."""
    if not machine.emulated and int(machine.arch[3:]) < 80:
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
    return _Product(module, name, call, parts, gated).write()


class _Product:
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
        self.thread = builder.thread()
        self.lane: Index = self.thread % LANES  # type: ignore[assignment]
        warp = self.thread // LANES
        self.own = warp % (SIDE // ROWS) * ROWS, warp // (SIDE // ROWS) * COLUMNS
        self.room = builder.dynamic_shared(2 * STAGE)
        fma = module.declare("float", "llvm.fma.f32", "float, float, float")
        self.fma = fma

    def write(self) -> Launch:
        f = self.f
        count = -(-self.call.terms // STEP)
        sums, self.here = (
            [f.var("float", "0.0") for _ in range(ROWS * COLUMNS // LANES)] for _ in range(2)
        )
        self._copy(f.index("0"))
        with f.loop(0, count) as j:
            self.device.wait_for_copies()
            self.builder.wait()
            after = j + 1
            with f.when(f(f"icmp slt i64 {after}, {count}")):
                self._copy(after)
            tiles = self.room.bytes(j % 2 * STAGE)
            for term in range(0, STEP, TERMS):
                self._multiply(tiles, term)
            with f.when(f(f"icmp eq i64 {j % TOGETHER}, {TOGETHER - 1}")):
                self._add(sums)
        self._add(sums)
        self._store(sums)
        self.builder.end(THREADS)
        return Launch(self.name, self.down * self.across, THREADS, 2 * STAGE)

    def _add(self, sums: list[Ptr]) -> None:
        for total, part in zip(sums, self.here, strict=True):
            total.store(self.f(f"fadd float {total.load()}, {part.load()}"))
            part.store("0.0")

    # --- operands ---------------------------------------------------------------------------------

    def _copy(self, j: Index) -> None:
        """Start to copy the tiles of some terms. What the matrices do not have is 0."""
        f, call = self.f, self.parts
        to = self.room.bytes(j % 2 * STAGE)
        for side, ((turned, leading), limit) in enumerate(
            ((call.left, call.rows), (call.right, call.columns))
        ):
            by_terms = turned is (side == 1)
            chunks = (STEP if by_terms else SIDE) // CHUNK
            pitch = BY_TERMS if by_terms else BY_SIDE
            for begin in range(0, SIDE * STEP // CHUNK, THREADS):
                row, chunk = self.thread // chunks + begin // chunks, self.thread % chunks * CHUNK
                own = (chunk, row) if by_terms else (row, chunk)
                term, place = own[0] + j * STEP, own[1] + self.first[side]
                inside = [
                    f(f"icmp slt i64 {at}, {end}")
                    for at, end, step in ((term, call.terms, STEP), (place, limit, SIDE))
                    if end % step
                ]
                known: Size = place * leading + term if by_terms else term * leading + place
                size: str = "16"
                if inside:
                    both = inside[0] if len(inside) == 1 else f(f"and i1 {', '.join(inside)}")
                    known = f.index(f(f"select i1 {both}, i64 {known}, i64 0"))
                    size = f(f"select i1 {both}, i32 16, i32 0")
                at = to.bytes(row * pitch + chunk * 2)
                for part, source in enumerate(self.sources[side]):
                    tile = at.bytes((side * PARTS + part) * TILE)
                    self.device.copy(tile, source + known, size)

    def _multiply(self, tiles: Ptr, term: int) -> None:
        """Add the products of 16 terms."""
        f, lane, call = self.f, self.lane, self.parts
        # Where a thread's row of four 8 × 8 tiles lies: as rows of the left tile, or of the right.
        down, across = lane % 16, lane // 16 * 8
        low, high = lane % 8 + lane // 16 * 8, lane // 8 % 2 * 8
        right = []
        for part in range(PARTS):
            at = tiles.bytes((PARTS + part) * TILE)
            columns: list[list[str]] = []
            for n in range(0, COLUMNS, 16):
                place = self.own[1] + n
                if call.right[0]:
                    to = at.bytes((low + place) * BY_TERMS + (high + term) * 2)
                else:
                    to = at.bytes((down + term) * BY_SIDE + (across + place) * 2)
                found = self.device.tiles(to, turned=not call.right[0])
                columns += [found[:2], found[2:]]
            right.append(columns)
        for m in range(0, ROWS, 16):
            left = []
            for part in range(PARTS):
                place, at = self.own[0] + m, tiles.bytes(part * TILE)
                if call.left[0]:
                    to = at.bytes((low + term) * BY_SIDE + (high + place) * 2)
                else:
                    to = at.bytes((down + place) * BY_TERMS + (across + term) * 2)
                left.append(self.device.tiles(to, turned=call.left[0]))
            made = [["0.0"] * 4 for _ in range(COLUMNS // 8)]
            for i, j in PAIRS:
                for n, sums in enumerate(made):
                    made[n] = self.device.multiply(bfloat16, left[i], right[j][n], sums)
            flat = [one for sums in made for one in sums]
            start = m // 16 * len(flat)
            for total, more in zip(self.here[start : start + len(flat)], flat, strict=True):
                total.store(f(f"fadd float {total.load()}, {more}"))

    # --- results ----------------------------------------------------------------------------------

    def _store(self, sums: list[Ptr]) -> None:
        """Write the results; those that are not finite are computed again."""
        f = self.f
        back = literal(float32, SCALE**-2, 1)
        out = self.builder.buffer(2 + 2 * PARTS, "float")
        row = self.lane // 4 + self.own[0] + self.first[0]
        column = self.lane % 4 * 2 + self.own[1] + self.first[1]
        bad = "false"
        for number in range(0, len(sums), 2):
            m, n, half = number // 16, number // 4 % 4, number // 2 % 2
            pair = "poison"
            for i, one in enumerate(sums[number : number + 2]):
                value = one.load()
                bad = f(f"or i1 {bad}, {self._is_none(value)}")
                value = f(f"fmul float {value}, {back}")
                pair = f(f"insertelement <2 x float> {pair}, float {value}, i32 {i}")
            at = row + (m * 16 + half * 8), column + n * 8
            with f.when(self._is_inside(*at)):
                to = out + (at[0] * self.call.columns + at[1])
                f.do(f"store <2 x float> {pair}, ptr {to}, align 8")
        with f.when(bad), f.loop(0, len(sums)) as item:
            place = (
                row + item // 16 * 16 + item // 2 % 2 * 8,
                column + item // 4 % 4 * 8 + item % 2,
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
