"""Matrices that LAPACK factors: it is called by address, without Python.

LAPACK has its matrices by columns, so they are transposed on their way in and out, as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.base.dims import ceil_div, has_dims
from weft.base.dtypes import DType, complex64, complex128, float32, float64, real_dtype
from weft.base.shapes import Shape, size_of
from weft.codegen.contract import Status
from weft.codegen.index import Index, Ptr, Size, minimum
from weft.codegen.item_cost import item_cost
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.linalg import lapack
from weft.codegen.linalg.batch import place_in_stack
from weft.codegen.scalar.forms import memory_type
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ir.types import TensorType

__all__ = ["EMITTERS"]

#: Rows and columns that are transposed together: their lines stay in the first cache.
_BLOCK = 16
#: Operations of LAPACK in a nanosecond.
_SPEED = 8.0


class LapackKernel:
    """The kernel of a function of each matrix of a stack.

    As in `numpy.linalg`, all is computed in double precision: `dtype` is float64 or complex128.
    """

    def __init__(self, module: Module, name: str, dtype: DType, stack: Shape) -> None:
        self.module = module
        self.f = module.function(name, "i32", PARAMS)
        self.given = dtype
        self.dtype = complex128 if dtype.kind == "complex" else float64
        self.parts = 2 if dtype.kind == "complex" else 1
        self.integer = lapack.integer()
        self._name = name
        self._stack = stack
        self._info = self.f.var(self.integer)
        self._item: Index | None = None

    def room(self, count: int) -> Ptr:
        """Memory for an array of numbers."""
        return self.reals(self.parts * count)

    def reals(self, count: int) -> Ptr:
        return self.f.var("double", count=max(1, count), align=64)

    def integers(self, count: int) -> Ptr:
        return self.f.var(self.integer, count=max(1, count), align=64)

    def call(self, name: str, *given: Ptr | int | str) -> None:
        """Call a function of LAPACK; if it fails, so does the kernel, as the card will."""
        self.call_blas(name, *given, self._info)
        info = self._info.load()
        self.fail_if(self.f(f"icmp ne {self.integer} {info}, 0"))

    def call_blas(self, name: str, *given: Ptr | int | str) -> None:
        full = f"{lapack.PREFIX}{lapack.LETTERS[self.dtype]}{name}"
        self.module.declare("void", full, ", ".join(["ptr"] * len(given)))
        args = ", ".join(f"ptr {self._address(x)}" for x in given)
        self.f.do(f"call void @{full}({args})")

    def _address(self, given: Ptr | int | str) -> str:
        if isinstance(given, str):
            return self.module.constant("i8", str(ord(given)), 1)
        if isinstance(given, int):
            return self.module.constant(self.integer, str(given), 8)
        return given.name

    def fail_if(self, condition: str) -> None:
        with self.f.when(condition):
            self.f.do(f"ret i32 {int(Status.FAILED)}")
            self.f.block(self.f.fresh("never"))

    # --- items ----------------------------------------------------------------------------------

    @contextmanager
    def items(self) -> Iterator[None]:
        with each_item(self.f) as item:
            self._item = item
            yield

    def kernels(self, flops: float, elements: int) -> list[Kernel]:
        self.f.do("ret i32 0")
        each = 2000 + flops / _SPEED + elements
        return [item_cost(each).kernel(self._name, size_of(self._stack))]

    def operand(self, place: int, kind: TensorType, axes: int = 2) -> Ptr:
        """The matrix (or vector, for one axis) of an operand or a result that belongs to the
        item: its real numbers."""
        shape = kind.shape[-axes:]
        stack, size = kind.shape[:-axes], size_of(shape)
        parts = 2 if kind.dtype.kind == "complex" else 1
        base = argument(self.f, place, memory_type(real_dtype(kind.dtype)))
        assert self._item is not None
        return base + place_in_stack(self._item, self._stack, stack, size * parts)

    # --- arrays ---------------------------------------------------------------------------------

    def transpose(self, source: Ptr, to: Ptr, rows: int, columns: int) -> None:
        """Copy a matrix by rows to one by columns; or the other way round, for its transpose."""
        for top in self._blocks(rows):
            for left in self._blocks(columns):
                with self.f.loop(*top) as i, self.f.loop(*left) as j:
                    self.move(source, i * columns + j, to, j * rows + i)

    def copy(self, source: Ptr, to: Ptr, count: int) -> None:
        if source is not to:
            with self.f.loop(0, count) as i:
                self.move(source, i, to, i)

    def move(self, source: Ptr, at: Size, to: Ptr, place: Size) -> None:
        """Copy a number from one place to another, which may have another precision."""
        for part in range(self.parts):
            value = (source + (at * self.parts + part)).load()
            (to + (place * self.parts + part)).store(self.converted(value, source.kind, to.kind))

    def converted(self, value: str, kind: str, wanted: str) -> str:
        if kind == wanted:
            return value
        word = "fpext" if wanted == "double" else "fptrunc"
        return self.f(f"{word} {kind} {value} to {wanted}")

    def put(self, to: Ptr, place: Size, value: float) -> None:
        """Store a real constant."""
        for part in range(self.parts):
            text = repr(float(0.0 if part else value))
            (to + (place * self.parts + part)).store(text)

    def in_double(self, out: Ptr, count: int) -> Ptr:
        """A result, if it has double precision; else memory for it that is copied at the end."""
        return out if out.kind == "double" else self.room(count)

    def keep_triangle(self, to: Ptr, rows: int, columns: int, *, lower: bool) -> None:
        """Write zeros in the other triangle of a matrix that lies by rows."""
        with self.f.loop(0, rows) as i:
            first: Size = i + 1 if lower else 0
            with self.f.loop(first, columns if lower else minimum(i, columns)) as j:
                self.put(to, i * columns + j, 0.0)

    def _blocks(self, count: int) -> Iterator[tuple[Size, Size]]:
        """Parts of a range, whose lines stay in the first cache."""
        with self.f.loop(0, ceil_div(count, _BLOCK)) as part:
            start = part * _BLOCK
            yield start, minimum(start + _BLOCK, count)


def _ready(module: Module, dtype: DType, *sizes: int) -> bool:
    return (
        module.has_lapack
        and dtype in (float32, float64, complex64, complex128)
        and not has_dims(sizes)
        and lapack.integer() != ""
    )


def _cholesky(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind = node.inputs[0].tensor_type
    size, dtype = kind.shape[-1], kind.dtype
    if not _ready(module, dtype, size):
        return None
    k = LapackKernel(module, name, dtype, kind.shape[:-2])
    with k.items():
        out = k.operand(1, kind)
        a = k.in_double(out, size * size)
        k.copy(k.operand(0, kind), a, size * size)
        # By columns it is the transpose: its upper triangle is the lower one of x.
        k.call("potrf", "U", size, a, size)
        k.copy(a, out, size * size)
        k.keep_triangle(out, size, size, lower=True)
    return k.kernels(size**3 / 3, size * size)


def _solve(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, right = node.inputs[0].tensor_type, node.inputs[1].tensor_type
    axes = min(right.ndim, 2)
    size, columns, dtype = kind.shape[-1], right.shape[-1] if axes == 2 else 1, kind.dtype
    if not _ready(module, dtype, size, columns):
        return None
    result = node.out.tensor_type
    k = LapackKernel(module, name, dtype, result.shape[:-axes])
    a, b, pivots = k.room(size * size), k.room(size * columns), k.integers(size)
    with k.items():
        k.transpose(k.operand(0, kind), a, size, size)
        k.transpose(k.operand(1, right, axes), b, size, columns)
        k.call("gesv", size, columns, a, size, pivots, b, size)
        k.transpose(b, k.operand(2, result, axes), columns, size)
    flops = 2 / 3 * size**3 + 2 * size * size * columns
    return k.kernels(flops, size * size + 2 * size * columns)


def _solve_triangular(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, right = node.inputs[0].tensor_type, node.inputs[1].tensor_type
    size, columns, dtype = kind.shape[-1], right.shape[-1], kind.dtype
    upper, unit = node.attrs["upper"], node.attrs["unit"]
    if not _ready(module, dtype, size, columns):
        return None
    k = LapackKernel(module, name, dtype, node.out.tensor_type.shape[:-2])
    one = module.constant("<2 x double>", "<double 1.0, double 0.0>", 16)
    with k.items():
        f = k.f
        given, out = k.operand(0, kind), k.operand(2, node.out.tensor_type)
        if not unit:
            with f.loop(0, size) as i:
                k.fail_if(_is_zero(k, given + i * ((size + 1) * k.parts)))
        a = given if given.kind == "double" else k.room(size * size)
        b = k.in_double(out, size * columns)
        k.copy(given, a, size * size)
        k.copy(k.operand(1, right), b, size * columns)
        # By columns the equation is xᵀ aᵀ = bᵀ, and the other triangle counts.
        kinds = ("R", "L" if upper else "U", "N", "U" if unit else "N")
        k.call_blas("trsm", *kinds, columns, size, f.ptr(one), a, size, b, columns)
        k.copy(b, out, size * columns)
    return k.kernels(size * size * columns, 2 * size * columns)


def _is_zero(k: LapackKernel, number: Ptr) -> str:
    parts = [k.f(f"fcmp oeq {number.kind} {(number + i).load()}, 0.0") for i in range(k.parts)]
    return parts[0] if len(parts) == 1 else k.f(f"and i1 {parts[0]}, {parts[1]}")


def _inv(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind = node.inputs[0].tensor_type
    size, dtype = kind.shape[-1], kind.dtype
    if not _ready(module, dtype, size):
        return None
    k = LapackKernel(module, name, dtype, kind.shape[:-2])
    a, b, pivots = k.room(size * size), k.room(size * size), k.integers(size)
    with k.items():
        k.transpose(k.operand(0, kind), a, size, size)
        with k.f.loop(0, size * size) as i:
            k.put(b, i, 0.0)
        with k.f.loop(0, size) as i:
            k.put(b, i * (size + 1), 1.0)
        k.call("gesv", size, size, a, size, pivots, b, size)
        k.transpose(b, k.operand(1, kind), size, size)
    return k.kernels(8 / 3 * size**3, 2 * size * size)


def _eigh(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, (values, _) = node.inputs[0].tensor_type, node.outputs
    size, dtype = kind.shape[-1], kind.dtype
    if not _ready(module, dtype, size):
        return None
    k = LapackKernel(module, name, dtype, kind.shape[:-2])
    pairs = k.parts == 2
    routine = "heevd" if pairs else "syevd"
    more = (None, "query") if pairs else ()
    asked = ("V", "L", size, None, size, None, "work", "query", *more, None, "query", None)
    count = lapack.workspace(k.dtype, routine, *asked)
    reals, many = 1 + 5 * size + 2 * size * size, 3 + 5 * size
    a, w, work, integers = k.room(size * size), k.reals(size), k.room(count), k.integers(many)
    extra = (k.reals(reals), reals) if pairs else ()
    with k.items():
        k.transpose(k.operand(0, kind), a, size, size)
        k.call(routine, "V", "L", size, a, size, w, work, count, *extra, integers, many)
        _write_reals(k, w, k.operand(1, values.tensor_type, 1), size)
        k.transpose(a, k.operand(2, kind), size, size)
    return k.kernels(9 * size**3, 2 * size * size)


def _write_reals(k: LapackKernel, source: Ptr, to: Ptr, count: int) -> None:
    with k.f.loop(0, count) as i:
        (to + i).store(k.converted((source + i).load(), "double", to.kind))


def _svd(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, (left, values, right) = node.inputs[0].tensor_type, node.outputs
    rows, columns = kind.shape[-2:]
    dtype, whole = kind.dtype, node.attrs["full_matrices"]
    if not _ready(module, dtype, rows, columns):
        return None
    inner = min(rows, columns)
    wide, high = (rows, columns) if whole else (inner, inner)
    job = "A" if whole else "S"
    k = LapackKernel(module, name, dtype, kind.shape[:-2])
    more = (None,) if k.parts == 2 else ()
    asked = (job, rows, columns, None, rows, None, None, rows, None, high, "work", "query")
    count = lapack.workspace(k.dtype, "gesdd", *asked, *more, None, None)
    longest = max(5 * (inner + 1), 2 * (max(rows, columns) + inner) + 1)
    a, u, v = k.room(rows * columns), k.room(rows * wide), k.room(high * columns)
    s, work, integers = k.reals(inner), k.room(count), k.integers(8 * inner)
    extra = (k.reals(inner * longest),) if k.parts == 2 else ()
    with k.items():
        k.transpose(k.operand(0, kind), a, rows, columns)
        sizes = (rows, columns, a, rows, s, u, rows, v, high, work, count)
        k.call("gesdd", job, *sizes, *extra, integers)
        k.transpose(u, k.operand(1, left.tensor_type), wide, rows)
        _write_reals(k, s, k.operand(2, values.tensor_type, 1), inner)
        k.transpose(v, k.operand(3, right.tensor_type), columns, high)
    return k.kernels(14 * rows * columns * inner, 2 * rows * columns)


def _qr(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, (unit, triangle) = node.inputs[0].tensor_type, node.outputs
    rows, columns = kind.shape[-2:]
    dtype = kind.dtype
    if not _ready(module, dtype, rows, columns):
        return None
    inner = min(rows, columns)
    wide = rows if node.attrs["mode"] == "complete" else inner
    k = LapackKernel(module, name, dtype, kind.shape[:-2])
    make = "ungqr" if k.parts == 2 else "orgqr"
    end = ("work", "query", None)
    factor = lapack.workspace(k.dtype, "geqrf", rows, columns, None, rows, None, *end)
    spread = lapack.workspace(k.dtype, make, rows, wide, inner, None, rows, None, *end)
    a, tau, work = k.room(rows * max(wide, columns)), k.room(inner), k.room(max(factor, spread))
    with k.items():
        k.transpose(k.operand(0, kind), a, rows, columns)
        k.call("geqrf", rows, columns, a, rows, tau, work, factor)
        out = k.operand(2, triangle.tensor_type)
        with k.f.loop(0, wide) as i, k.f.loop(0, columns) as j:
            k.move(a, j * rows + i, out, i * columns + j)
        k.keep_triangle(out, wide, columns, lower=False)
        k.call(make, rows, wide, inner, a, rows, tau, work, spread)
        k.transpose(a, k.operand(1, unit.tensor_type), wide, rows)
    return k.kernels(4 * rows * columns * inner, 2 * rows * columns)


#: By the name of the card: (module, name, node) -> kernels, or None where there is no LAPACK.
EMITTERS: dict[str, Callable[..., Any]] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "inv": _inv,
    "qr": _qr,
    "solve": _solve,
    "solve_triangular": _solve_triangular,
    "svd": _svd,
}
