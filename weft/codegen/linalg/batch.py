"""A stack of small matrices as items of work: one by one, or several in the lanes of vectors.

Matrices of several lanes lie side by side in local memory, so that one vector has the same element
of each. The last item repeats the last matrix in lanes that are left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.base.dims import ceil_div, has_dims
from weft.base.dtypes import NARROW_FLOATS, DType, real_dtype
from weft.base.shapes import Shape, size_of
from weft.codegen.contract import Status
from weft.codegen.index import Index, Ptr, Size, minimum, offset, unravel
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.linalg.cells import Grid, span
from weft.codegen.scalar.forms import compute_kind, load, memory_type, rounded, store
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module
from weft.ir.types import TensorType

__all__ = ["Batch", "place_in_stack"]

#: Matrices up to this size are computed without loops, in registers if they are not in lanes.
UNROLLED = 4
#: Fewer matrices than this are computed one by one.
FEW = 4


class Batch:
    """The kernel of a function of each matrix of a stack. As in `numpy.linalg`, all is computed in
    double precision.

    dtype   of the matrices
    stack   the shape of the stack of results
    size    rows and columns of the largest matrix that loops go over
    """

    def __init__(self, module: Module, name: str, dtype: DType, stack: Shape, size: int) -> None:
        self.f = module.function(name, "i32", PARAMS)
        self.dtype = dtype
        self.kind = "double"
        self.stack = stack
        self.count = size_of(stack)
        self.lanes = _lanes(module, self.count)
        self.unrolled = size <= UNROLLED
        self._name = name
        self._item: Index | None = None

    def span(self, start: Size, stop: Size) -> Iterator[Size]:
        """A loop over rows or columns."""
        return span(self.f, start, stop, unrolled=self.unrolled)

    def grid(self, rows: int, columns: int) -> Grid:
        pairs = self.dtype.kind == "complex"
        return Grid(self.f, self.kind, self.lanes, rows, columns, pairs=pairs)

    def constant(self, value: float) -> Vec:
        return Vec(self.f, self.kind, self.lanes, "").make(value)

    @contextmanager
    def items(self) -> Iterator[None]:
        """The code of an item."""
        with each_item(self.f) as item:
            self._item = item
            yield

    def kernels(self, flops: float, elements: int) -> list[Kernel]:
        """The end of the kernel; what one matrix costs, and how many elements are moved."""
        self.f.do("ret i32 0")
        each = 20 + 0.4 * flops + 0.7 * self.lanes * elements
        items = ceil_div(self.count, self.lanes) if self.lanes > 1 else self.count
        return [item_cost(each).kernel(self._name, items)]

    def fail_if(self, mask: Vec) -> None:
        """Fail as the card would, if a mask holds in any lane."""
        with self.f.when(mask.any()):
            self.f.do(f"ret i32 {int(Status.FAILED)}")
            self.f.block(self.f.fresh("never"))

    # --- memory ---------------------------------------------------------------------------------

    def read(self, place: int, kind: TensorType, grid: Grid, *, adjoint: bool = False) -> None:
        """Read the matrices of an operand; `adjoint`: their conjugate transposes."""
        source, dtype = self._argument(place, kind.dtype), real_dtype(kind.dtype)
        stack = kind.shape[:-2] if kind.ndim > 1 else ()
        rows, columns = (grid.columns, grid.rows) if adjoint else (grid.rows, grid.columns)
        for lane, start in self._matrices(source, stack, rows * columns * len(grid.parts)):
            for i in self._moved(0, rows):
                for j in self._moved(0, columns):
                    at = start + (i * columns + j) * len(grid.parts)
                    to = (j * grid.columns + i) if adjoint else (i * grid.columns + j)
                    for number, part in enumerate(grid.parts):
                        given = load(self.f, dtype, at + number, 1)
                        value = Vec(self.f, compute_kind(dtype), 1, given)
                        value = value.convert("fpext", self.kind)
                        value = -value if adjoint and number else value
                        (part.of(self.kind) + (to * self.lanes + lane)).store(value.name)

    def write(self, place: int, dtype: DType, grid: Grid, *, adjoint: bool = False) -> None:
        """Write the matrices of a result."""
        source, real = self._argument(place, dtype), real_dtype(dtype)
        rows, columns = (grid.columns, grid.rows) if adjoint else (grid.rows, grid.columns)
        for lane, start in self._matrices(source, self.stack, rows * columns * len(grid.parts)):
            for i in self._moved(0, rows):
                for j in self._moved(0, columns):
                    at = start + (i * columns + j) * len(grid.parts)
                    place_ = (j * grid.columns + i) if adjoint else (i * grid.columns + j)
                    for number, part in enumerate(grid.parts):
                        held = (part.of(self.kind) + (place_ * self.lanes + lane)).load()
                        value = Vec(self.f, self.kind, 1, held)
                        value = -value if adjoint and number else value
                        value = value.convert("fptrunc", compute_kind(real))
                        if real in NARROW_FLOATS:
                            value = rounded(value, real)
                        store(self.f, real, at + number, value.name, 1)

    def write_integers(self, place: int, values: Ptr, integer: str, rows: int) -> None:
        """Write a column of integers, kept as `integer`, as int64."""
        out = argument(self.f, place, "i64")
        for lane, start in self._matrices(out, self.stack, rows):
            for i in self._moved(0, rows):
                held = (values.of(integer) + (i * self.lanes + lane)).load()
                wide = held if integer == "i64" else self.f(f"sext {integer} {held} to i64")
                (start + i).store(wide)

    def _argument(self, place: int, dtype: DType) -> Ptr:
        return argument(self.f, place, memory_type(real_dtype(dtype)))

    def _moved(self, start: Size, stop: Size) -> Iterator[Size]:
        """A loop over elements that are read or written."""
        return span(self.f, start, stop, unrolled=self.unrolled and self.lanes == 1)

    def _matrices(self, base: Ptr, stack: Shape, size: int) -> Iterator[tuple[Size, Ptr]]:
        """Each lane, and where its matrix of an operand begins."""
        assert self._item is not None
        for lane in span(self.f, 0, self.lanes, unrolled=self.lanes == 1):
            number: Size = self._item
            if self.lanes > 1:
                number = minimum(self._item * self.lanes + lane, self.count - 1)
            yield lane, base + place_in_stack(number, self.stack, stack, size)


def place_in_stack(number: Size, whole: Shape, stack: Shape, size: int) -> Size:
    """Where the matrix of an operand begins that belongs to a result: `number` counts the stack of
    results, `whole`, to which that of the operand is broadcast; `size` is what a matrix takes."""
    if stack == whole:
        return number * size
    steps, step = [], size
    for length in reversed(stack):
        steps.append(0 if length.__class__ is int and length == 1 else step)
        step = step * length
    return offset(0, zip(reversed(unravel(number, whole)), steps, strict=False))


def _lanes(module: Module, count: int) -> int:
    most: int = module.machine.lanes(8)
    if has_dims((count,)):
        return most
    return 1 if count < FEW else min(most, 1 << (count.bit_length() - 1))
