"""Which matrices are small enough for code of ours, and the kernels of their functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dims import has_dims
from weft.base.dtypes import DType
from weft.codegen.kernel import Kernel
from weft.codegen.linalg.batch import Batch
from weft.codegen.linalg.cells import Grid, Number
from weft.codegen.linalg.factor import Elimination, back_substitute, cholesky, substitute
from weft.codegen.scalar.floats import FLOATS
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.ir.types import TensorType

__all__ = ["EMITTERS"]

#: Largest number of rows and of columns: on a CPU, and on a GPU, where each thread has a matrix.
LARGEST, LARGEST_OF_THREAD = 32, 8
#: Largest number of columns of a right side.
WIDEST = 64


def _fits(module: Module, *sizes: int) -> bool:
    most = LARGEST if module.has_c_library else LARGEST_OF_THREAD
    return not has_dims(sizes) and max(sizes) <= most


def _operand(node: Node, place: int = 0) -> tuple[TensorType, DType, int, int]:
    kind = node.inputs[place].tensor_type
    return kind, kind.dtype, *kind.shape[-2:]  # type: ignore[return-value]


def _cholesky(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, dtype, size, _ = _operand(node)
    if not _fits(module, size):
        return None
    batch = Batch(module, name, dtype, kind.shape[:-2], size)
    with batch.items():
        a = batch.grid(size, size)
        batch.read(0, kind, a, adjoint=True)
        cholesky(batch, a)
        batch.write(1, dtype, a, adjoint=True)
    return batch.kernels(size**3 / 3, 2 * size * size)


def _solve(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, dtype, size, _ = _operand(node)
    right, result = node.inputs[1].tensor_type, node.out.tensor_type
    columns = 1 if right.ndim == 1 else right.shape[-1]
    if not _fits(module, size) or has_dims((columns,)) or columns > WIDEST:
        return None
    stack = result.shape[:-1] if right.ndim == 1 else result.shape[:-2]
    batch = Batch(module, name, dtype, stack, max(size, columns))
    with batch.items():
        a, b = batch.grid(size, size), batch.grid(size, columns)
        batch.read(0, kind, a)
        batch.read(1, right, b)
        done = Elimination(batch, a, b)
        done.run()
        batch.fail_if(done.singular)
        back_substitute(batch, a, b)
        batch.write(2, dtype, b)
    flops = 2 / 3 * size**3 + 2 * size * size * columns
    return batch.kernels(flops, size * size + 2 * size * columns)


def _solve_triangular(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, dtype, size, _ = _operand(node)
    right, result = node.inputs[1].tensor_type, node.out.tensor_type
    columns, unit = right.shape[-1], node.attrs["unit"]
    if not _fits(module, size) or has_dims((columns,)) or columns > WIDEST:
        return None
    batch = Batch(module, name, dtype, result.shape[:-2], max(size, columns))
    with batch.items():
        a, b = batch.grid(size, size), batch.grid(size, columns)
        batch.read(0, kind, a)
        batch.read(1, right, b)
        if not unit:
            for i in batch.span(0, size):
                batch.fail_if(a[i, i].is_zero())
        solve = back_substitute if node.attrs["upper"] else substitute
        solve(batch, a, b, unit=unit)
        batch.write(2, dtype, b)
    return batch.kernels(size * size * columns, size * size + 2 * size * columns)


def _inv(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, dtype, size, _ = _operand(node)
    if not _fits(module, size):
        return None
    batch = Batch(module, name, dtype, kind.shape[:-2], size)
    with batch.items():
        a, b = batch.grid(size, size), batch.grid(size, size)
        batch.read(0, kind, a)
        for i in batch.span(0, size):
            for j in batch.span(0, size):
                b[i, j] = a[i, j].like(0.0)
            b[i, i] = a[i, i].like(1.0)
        done = Elimination(batch, a, b)
        done.run()
        batch.fail_if(done.singular)
        back_substitute(batch, a, b)
        batch.write(1, dtype, b)
    return batch.kernels(8 / 3 * size**3, 2 * size * size)


def _lu(module: Module, name: str, node: Node) -> list[Kernel] | None:
    kind, dtype, rows, columns = _operand(node)
    if not _fits(module, rows, columns):
        return None
    batch = Batch(module, name, dtype, kind.shape[:-2], max(rows, columns))
    with batch.items():
        a = batch.grid(rows, columns)
        batch.read(0, kind, a)
        done = Elimination(batch, a, order=True)
        done.run()
        assert done.order is not None
        batch.write(1, dtype, a)
        batch.write_integers(2, done.order, done.integer, rows)
    return batch.kernels(rows * columns * min(rows, columns), 2 * rows * columns)


def _determinant(module: Module, name: str, node: Node, write: Callable[..., Any]) -> Any:
    kind, dtype, size, _ = _operand(node)
    if not _fits(module, size) or dtype.kind == "complex":
        return None
    batch = Batch(module, name, dtype, kind.shape[:-2], size)
    with batch.items():
        a = batch.grid(size, size)
        batch.read(0, kind, a)
        done = Elimination(batch, a)
        done.run()
        out = [batch.grid(1, 1) for _ in node.outputs]
        write(batch, a, done, out)
        for place, grid in enumerate(out):
            batch.write(1 + place, node.outputs[place].tensor_type.dtype, grid)
    return batch.kernels(size**3, size * size)


def _det(module: Module, name: str, node: Node) -> list[Kernel] | None:
    found: list[Kernel] | None = _determinant(module, name, node, _write_det)
    return found


def _slogdet(module: Module, name: str, node: Node) -> list[Kernel] | None:
    found: list[Kernel] | None = _determinant(module, name, node, _write_slogdet)
    return found


def _signed(batch: Batch, done: Elimination, value: Vec) -> Vec:
    return done.negative.pick(-value, value)


def _write_det(batch: Batch, a: Grid, done: Elimination, out: list[Grid]) -> None:
    """The product of the pivots; where it is out of range, by logarithms."""
    (det,) = out
    det[0, 0] = Number(batch.constant(1.0))
    for k in batch.span(0, a.rows):
        det[0, 0] = Number(det[0, 0].re * a[k, k].re)
    product = det[0, 0].re
    fine = (abs(product) > 0.0) & (abs(product) < float("inf"))
    with batch.f.when((~(fine | done.singular)).any()):
        parts = [batch.grid(1, 1), batch.grid(1, 1)]
        _sum_logs(batch, a, parts)
        exact = parts[0][0, 0].re * FLOATS["exp"](parts[1][0, 0].re)
        det[0, 0] = Number((fine | done.singular).pick(product, exact))
    det[0, 0] = Number(_signed(batch, done, det[0, 0].re))


def _write_slogdet(batch: Batch, a: Grid, done: Elimination, out: list[Grid]) -> None:
    _sum_logs(batch, a, out)
    sign = out[0]
    signed = _signed(batch, done, sign[0, 0].re)
    sign[0, 0] = Number(done.singular.pick(batch.constant(0.0), signed))


def _sum_logs(batch: Batch, a: Grid, out: list[Grid]) -> None:
    """The sign of the product of the pivots, and the logarithm of its size."""
    sign, log = out
    sign[0, 0], log[0, 0] = Number(batch.constant(1.0)), Number(batch.constant(0.0))
    for k in batch.span(0, a.rows):
        pivot = a[k, k].re
        before = sign[0, 0].re
        sign[0, 0] = Number((pivot < 0.0).pick(-before, before))
        log[0, 0] = Number(log[0, 0].re + FLOATS["log"](abs(pivot)))


#: By the name of the card: (module, name, node) -> kernels, or None where a matrix is too large.
EMITTERS: dict[str, Callable[..., Any]] = {
    "cholesky": _cholesky,
    "det": _det,
    "inv": _inv,
    "lu_factor": _lu,
    "slogdet": _slogdet,
    "solve": _solve,
    "solve_triangular": _solve_triangular,
}
