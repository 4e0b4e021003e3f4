"""The elements of a convolution: in memory, and as they are summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.base import dtypes
from weft.base.dims import has_dims
from weft.base.dtypes import NARROW_FLOATS, DType
from weft.codegen.conv.loops import indices, inside
from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import argument
from weft.codegen.machine import Machine
from weft.codegen.scalar.forms import compute_kind, load, memory_type, rounded, store, supported
from weft.codegen.scalar.vec import FLOATS, Vec, vector_type
from weft.codegen.text import Function

__all__ = ["Element", "PlainStore", "element_of"]


@dataclass(frozen=True, slots=True)
class Element:
    """
    dtype    in memory
    sums     in sums: float32 for narrow floats, else the same
    lanes    of a vector of sums
    moved    how many elements a copy with a mask moves at once: 1 if masks are slow
    whole    how many elements a copy without a mask moves at once
    """

    dtype: DType
    sums: DType
    lanes: int
    moved: int
    whole: int

    @property
    def kind(self) -> str:
        """The LLVM type of sums."""
        return compute_kind(self.sums)

    @property
    def memory(self) -> str:
        """The LLVM type of an element in memory."""
        return memory_type(self.dtype)

    @property
    def width(self) -> int:
        return self.sums.itemsize

    @property
    def vector(self) -> str:
        return vector_type(self.kind, self.lanes)

    @property
    def real(self) -> bool:
        return self.kind in FLOATS

    def vec(self, f: Function, name: str, lanes: int = 0) -> Vec:
        return Vec(f, self.kind, lanes or self.lanes, name)

    def load(self, f: Function, pointer: Ptr, lanes: int, mask: str | None = None) -> str:
        return load(f, self.dtype, pointer, lanes, mask)

    def load_row(self, f: Function, base: Ptr, start: Size, stop: Size, lanes: int) -> str:
        """The elements start, start + 1, … of a row; 0 for those outside of 0 … stop."""
        if lanes <= self.moved:
            return self.load(f, base + start, lanes, inside(f, start, stop, lanes))
        # Masks are slow: they are used at the ends of rows alone.
        room = f.var(vector_type(self.kind, lanes))
        within, ends, done = (f.fresh(word) for word in ("within", "ends", "done"))
        all_there = f(f"icmp slt i64 {f.size(start)}, {f.size(stop - lanes + 1)}")
        if start != 0:
            all_there = f(f"and i1 {all_there}, {f(f'icmp sge i64 {f.size(start)}, 0')}")
        f.branch(all_there, within, ends)
        f.block(within)
        room.store(self.load(f, base + start, lanes))
        f.jump(done)
        f.block(ends)
        room.store(self.load(f, base + start, lanes, inside(f, start, stop, lanes)))
        f.jump(done)
        f.block(done)
        return room.load()

    def load_strided(
        self, f: Function, base: Ptr, start: Size, stop: Size, step: int, lanes: int
    ) -> str:
        """The elements start, start + step, … of a row; 0 for those outside of 0 … stop."""
        if lanes == 1 or step == 1:
            return self.load_row(f, base, start, stop, lanes)
        if step == 2:
            halves = [
                self.load_row(f, base, start + part * lanes, stop, lanes) for part in range(2)
            ]
            whole = vector_type(self.kind, lanes)
            even = ", ".join(f"i32 {2 * i}" for i in range(lanes))
            return f(
                f"shufflevector {whole} {halves[0]}, {whole} {halves[1]}, <{lanes} x i32> <{even}>"
            )
        assert self.dtype is self.sums, "narrow elements are moved one by one"
        mask = inside(f, start, stop, lanes, step)
        places = indices(f, start, lanes, step)
        pointers = base.lanes(places, lanes)
        value = self.vec(f, "", lanes)
        kinds = f"<{lanes} x ptr>, <{lanes} x i1>, {value.type}"
        name = f.module.declare(value.type, f"llvm.masked.gather.{value.suffix}.v{lanes}p0", kinds)
        return f(
            f"call {value.type} @{name}(<{lanes} x ptr> align {self.dtype.itemsize} {pointers}, "
            f"<{lanes} x i1> {mask}, {value.type} zeroinitializer)"
        )

    def row_lanes(self, size: int, step: int = 1) -> int:
        """How many elements of a row of `size` elements to move at once: few more than there are.

        Elements more than 2 steps apart are gathered, if they are wide enough.
        """
        if step > 2 and self.dtype.itemsize < 4:
            return 1
        if has_dims((size,)):
            return self.moved
        return min(self.moved, 1 << (size - 1).bit_length())

    def whole_lanes(self, size: int, step: int = 1) -> int:
        """The same for code that needs no masks where all lanes hold elements."""
        short = not has_dims((size,)) and size < self.whole
        if self.moved > 1 or step > 2 or short:
            return self.row_lanes(size, step)
        return self.whole

    def add(self, f: Function, one: str, other: str, lanes: int = 0) -> str:
        return (self.vec(f, one, lanes) + self.vec(f, other, lanes)).name

    def madd(self, f: Function, x: str, y: str, total: str) -> str:
        """x * y + total, rounded once if the machine has FMA."""
        a, b, c = (self.vec(f, name) for name in (x, y, total))
        if self.real and f.module.machine.fuses(self.width):
            return a.fma(b, c).name
        return (a * b + c).name

    def splat(self, f: Function, value: str, lanes: int = 0) -> str:
        """A scalar in all lanes."""
        lanes = lanes or self.lanes
        if lanes == 1:
            return value
        whole = vector_type(self.kind, lanes)
        first = f(f"insertelement {whole} poison, {self.kind} {value}, i64 0")
        return f(f"shufflevector {whole} {first}, {whole} poison, <{lanes} x i32> zeroinitializer")

    def rounded(self, f: Function, value: str, lanes: int) -> str:
        """A sum rounded to the dtype in memory."""
        if self.dtype not in NARROW_FLOATS:
            return value
        return rounded(Vec(f, self.kind, lanes, value), self.dtype).name

    def get(self, f: Function, pointer: Ptr, lanes: int = 0) -> str:
        """Load sums from local memory."""
        kind = vector_type(self.kind, lanes or self.lanes)
        return pointer.of(kind).load(self.width)

    def put(self, f: Function, pointer: Ptr, value: str, lanes: int = 0) -> None:
        kind = vector_type(self.kind, lanes or self.lanes)
        pointer.of(kind).store(value, self.width)


def element_of(dtype: DType, machine: Machine) -> Element | None:
    """Returns None for dtypes that are left to the cards: complex ones, and users' own."""
    if not supported(dtype) or dtype is dtypes.bool:
        return None
    sums = dtypes.float32 if dtype in NARROW_FLOATS else dtype
    lanes = machine.lanes(sums.itemsize)
    masks = machine.has("avx512bw") or (machine.has("avx2") and dtype.itemsize >= 4)
    moved = lanes if masks and dtype.itemsize >= 2 else 1
    whole = lanes if dtype.itemsize >= 4 and machine.has_vectors else moved
    return Element(dtype, sums, lanes, moved, whole)


class PlainStore:
    """Writes a result of the shape (batch, channels, positions)."""

    _pointer: Ptr

    def __init__(self, element: Element, place: int, sizes: Sequence[int]) -> None:
        self._element = element
        self._place = place
        self._sizes = sizes

    def begin(self, f: Function) -> None:
        self._pointer = argument(f, self._place, self._element.memory)

    def put(
        self, f: Function, value: str, lanes: int, index: Sequence[Size], mask: str | None = None
    ) -> None:
        row = index[0] * self._sizes[1] + index[1]
        place = self._pointer + (row * self._sizes[2] + index[2])
        store(f, self._element.dtype, place, value, lanes, mask)
