"""What four warps multiply together on GPUs of compute capability 9.0 (`wgmma`).

Operands lie in shared memory, in tiles of 128 × 64 bfloat16: 128 places (rows of a left matrix,
columns of a right one) and 64 terms. A tile has rows of 128 bytes: a place with all terms, or,
where the matrix has places next to each other, a term with 64 places, and a second such half. Of
the 16-byte chunks of row r, chunk c lies at c ^ (r % 8), so that no two rows of eight are in the
same banks.

The 128 threads of a warpgroup give 64 × 128 results: warp w those of 16 rows from 16 w on, a thread
the same of each 8 columns as with `mma.sync`.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtypes import bfloat16
from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.elementwise import load
from weft.codegen.index import Index, Ptr, Size

__all__ = ["HALF", "PLACES", "ROW", "TERMS", "TILE", "Operand", "fence", "place_of", "products"]

#: Of a tile: places and terms; bytes of a row, of half of its places, of all.
PLACES, TERMS, ROW = 128, 64, 128
HALF = TERMS * ROW
TILE = 2 * HALF
#: Terms that one instruction multiplies; results of a thread.
SIDE, RESULTS = 16, 64
#: A description of a matrix in shared memory: with chunks placed as above.
_SWIZZLED = 1 << 62

#: A tile: where it begins (a left one: where the rows of the warpgroup begin), and whether its rows
#: are places.
Operand = tuple[Ptr, bool]


def place_of(builder: KernelBuilder, place: Size, term: Size, *, by_terms: bool) -> Size:
    """Where an element lies in its tile, in bytes. `by_terms`: rows are places."""
    f = builder.f
    row, along = (place, term) if by_terms else (term, place)
    group, within = along // (ROW // 2), along % (ROW // 2)
    low = row % 8
    chunk: Size = within // 8
    if isinstance(chunk, int) and isinstance(low, int):
        chunk ^= low
    else:
        chunk = f.index(f(f"xor i64 {chunk}, {low}"))
    return group * HALF + row * ROW + chunk * 16 + within % 8 * 2


def fence(builder: KernelBuilder) -> None:
    """Let tensor cores see what this thread has copied to shared memory."""
    if not builder.machine.emulated:
        builder.f.do('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')


def products(
    builder: KernelBuilder, pairs: Sequence[tuple[Operand, Operand]], lane: Index, term: int
) -> list[str]:
    """The sum of products of 16 terms of several pairs of tiles, in their order: 64 floats of the
    thread. All threads of the warpgroup call it."""
    if builder.machine.emulated:
        return _emulated(builder, pairs, lane, term)
    f = builder.f
    regs = ", ".join(f"${i}" for i in range(RESULTS))
    given: list[str] = []
    lines = ["{", ".reg .pred none;", ".reg .pred more;"]
    lines += ["setp.ne.b32 none, 0, 0;", "setp.eq.b32 more, 0, 0;", "wgmma.fence.sync.aligned;"]
    for number, pair in enumerate(pairs):
        places = []
        for one in pair:
            made = _description(builder, one, term)
            if made not in given:
                given.append(made)
            places.append(RESULTS + given.index(made))
        turned = ", ".join(str(int(not by_terms)) for _, by_terms in pair)
        more = "more" if number else "none"
        lines.append(
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
            f"{{{regs}}}, ${places[0]}, ${places[1]}, {more}, 1, 1, {turned};"
        )
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "}"]
    kind = f"{{{', '.join(['float'] * RESULTS)}}}"
    constraints = ",".join([*["=f"] * RESULTS, *["l"] * len(given), "~{memory}"])
    text = "\\0A".join(lines)
    made = f(
        f'call {kind} asm sideeffect "{text}", "{constraints}"'
        f"({', '.join(f'i64 {one}' for one in given)}) convergent"
    )
    return [f(f"extractvalue {kind} {made}, {i}") for i in range(RESULTS)]


def _description(builder: KernelBuilder, operand: Operand, term: int) -> str:
    """The description of the tile from some term on."""
    f = builder.f
    at, by_terms = operand
    start = at.bytes(term * 2 if by_terms else term * ROW)
    shared = f(f"addrspacecast ptr {start} to ptr addrspace(3)")
    address = f(f"zext i32 {f(f'ptrtoint ptr addrspace(3) {shared} to i32')} to i64")
    # Steps, in units of 16 bytes: between halves of the places, and between groups of 8 rows.
    half = 0 if by_terms else HALF >> 4
    rest = half << 16 | (8 * ROW >> 4) << 32 | _SWIZZLED
    return f(f"or i64 {f(f'lshr i64 {address}, 4')}, {rest}")


def _emulated(
    builder: KernelBuilder, pairs: Sequence[tuple[Operand, Operand]], lane: Index, term: int
) -> list[str]:
    f = builder.f
    warp = builder.thread() // 32 % 4
    sums = f.var("float", count=RESULTS)
    with f.loop(0, RESULTS) as i:
        (sums + i).store("0.0")
    for (left, a_by_terms), (right, b_by_terms) in pairs:
        with f.loop(0, RESULTS) as i:
            row = lane // 4 + warp * 16 + i // 2 % 2 * 8
            column = lane % 4 * 2 + i // 4 * 8 + i % 2
            with f.loop(term, term + SIDE) as k:
                parts = []
                for at, place, by_terms in ((left, row, a_by_terms), (right, column, b_by_terms)):
                    byte = place_of(builder, place, k, by_terms=by_terms)
                    parts.append(load(f, bfloat16, at.bytes(byte).of("i16"), 1))
                product = f(f"fmul float {parts[0]}, {parts[1]}")
                (sums + i).store(f(f"fadd float {(sums + i).load()}, {product}"))
    return [(sums + i).load() for i in range(RESULTS)]
