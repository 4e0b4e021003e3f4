"""Samples of matrix products and `weft.linalg`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType, dtype_of_numpy, float_info

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SQUARE: list[Shape] = [(1, 1), (3, 3), (0, 0), (2, 3, 3), (2, 0, 0), (0, 2, 2), (2, 1, 4, 4)]
MATRIX: list[Shape] = [
    *((1, 1), (3, 4), (4, 3), (3, 3), (0, 3), (3, 0), (0, 0)),
    *((2, 3, 2), (0, 2, 2), (2, 1, 2, 3)),
]

# --- matrices ----------------------------------------------------------------------------------


def wide(x: Array) -> Array:
    """In double precision."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def adjoint(x: Array) -> Array:
    return np.conj(np.matrix_transpose(x))


def regular(shape: Shape, dtype: DType) -> Array:
    """Matrices of full rank, and far from less: the diagonal outweighs the rest."""
    strong = 2 * max(shape[-2:]) * np.eye(*shape[-2:])
    return (wide(values(shape, dtype, -1, 1)) + strong).astype(dtype.numpy)


def symmetric(shape: Shape, dtype: DType) -> Array:
    """Symmetric (Hermitian) matrices."""
    x = wide(values(shape, dtype))
    return (x + adjoint(x)).astype(dtype.numpy)


def definite(shape: Shape, dtype: DType) -> Array:
    """Symmetric (Hermitian) positive definite matrices."""
    x = wide(values(shape, dtype, -1, 1))
    return (x @ adjoint(x) + np.eye(shape[-1])).astype(dtype.numpy)


def deficient(shape: Shape, dtype: DType) -> Array:
    """Matrices of rank 1, in which the first row repeats."""
    row = values((*shape[:-2], 1, shape[-1]), dtype, 1, 4)
    return np.broadcast_to(row, shape).copy()


# --- checks of factorisations ------------------------------------------------------------------


def close(mine: Array, theirs: Array, dtype: Any, units: float = 64) -> None:
    eps = units * float_info(dtype_of_numpy(dtype)).eps
    np.testing.assert_allclose(wide(mine), wide(theirs), rtol=eps, atol=eps)


def orthonormal(columns: Array) -> None:
    unit = np.broadcast_to(
        np.eye(columns.shape[-1]), adjoint(columns).shape[:-1] + columns.shape[-1:]
    )
    close(adjoint(wide(columns)) @ wide(columns), unit, columns.dtype)


def check_cholesky(got: list[Array], x: Array, *, upper: bool = False) -> None:
    (factor,) = got
    assert factor.dtype == x.dtype
    lower = adjoint(wide(factor)) if upper else wide(factor)
    np.testing.assert_array_equal(lower, np.tril(lower))
    close(lower @ adjoint(lower), x, x.dtype)


def check_qr(got: list[Array], x: Array, *, mode: str = "reduced") -> None:
    q, r = got
    rows, columns = x.shape[-2:]
    inner = rows if mode == "complete" else min(rows, columns)
    assert q.dtype == r.dtype == x.dtype
    assert q.shape == (*x.shape[:-2], rows, inner)
    assert r.shape == (*x.shape[:-2], inner, columns)
    np.testing.assert_array_equal(wide(r), np.triu(wide(r)))
    orthonormal(q)
    close(wide(q) @ wide(r), x, x.dtype)


def check_svd(got: list[Array], x: Array, *, full_matrices: bool = True) -> None:
    u, s, vh = got
    rows, columns = x.shape[-2:]
    inner = min(rows, columns)
    assert u.dtype == vh.dtype == x.dtype
    assert s.dtype.kind != "c"
    assert u.shape == (*x.shape[:-2], rows, rows if full_matrices else inner)
    assert vh.shape == (*x.shape[:-2], columns if full_matrices else inner, columns)
    orthonormal(u)
    orthonormal(adjoint(wide(vh)).astype(vh.dtype))
    close(s, np.linalg.svdvals(wide(x)), x.dtype)
    product = wide(u)[..., :inner] * wide(s)[..., None, :] @ wide(vh)[..., :inner, :]
    close(product, x, x.dtype)


def check_eigh(got: list[Array], x: Array) -> None:
    w, v = got
    assert v.dtype == x.dtype
    assert w.dtype.kind != "c"
    orthonormal(v)
    close(w, np.linalg.eigvalsh(wide(x)), x.dtype)
    close(wide(x) @ wide(v), wide(v) * wide(w)[..., None, :], x.dtype, 256)


# --- samples -----------------------------------------------------------------------------------


def products(dtype: DType) -> Iterator[Sample]:
    for shape1, shape2 in [
        ((3,), (3,)),
        ((0,), (0,)),
        ((1,), (1,)),
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 0), (0, 3)),
        ((0, 3), (3, 2)),
        ((2, 3), (3, 0)),
        ((1, 1), (1, 1)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (3,)),
        ((0, 2, 3), (3, 4)),
        ((5, 2, 0), (0, 4)),
        ((3,), (5, 3, 2)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (5, 3, 4)),
    ]:
        yield call(values(shape1, dtype), values(shape2, dtype, seed=1))


def dots(dtype: DType) -> Iterator[Sample]:
    for shape1, shape2, kwargs in [
        ((3,), (3,), {}),
        ((0,), (0,), {}),
        ((2, 3), (2, 3), {}),
        ((2, 3), (2, 3), {"axis": -2}),
        ((2, 3), (2, 3), {"axis": 0}),
        ((2, 0), (2, 0), {}),
        ((0, 3), (0, 3), {}),
        ((2, 1, 3), (4, 3), {}),
        ((3,), (2, 4, 3), {"axis": -1}),
        ((5, 3, 1), (3, 2), {"axis": -2}),
    ]:
        yield call(values(shape1, dtype), values(shape2, dtype, seed=1), **kwargs)


def contractions(dtype: DType) -> Iterator[Sample]:
    for shape1, shape2, kwargs in [
        ((2, 3), (2, 3), {}),
        ((4, 2, 3), (2, 3, 5), {}),
        ((2, 3), (3, 4), {"axes": 1}),
        ((2,), (3, 2), {"axes": 0}),
        ((), (3,), {"axes": 0}),
        ((2, 3, 4), (4, 2), {"axes": ((0, 2), (1, 0))}),
        ((2, 3, 4), (4, 2), {"axes": ((-3, -1), (-1, -2))}),
        ((2, 3), (3, 2), {"axes": ((), ())}),
        ((2, 0), (0, 3), {"axes": 1}),
        ((0, 3), (3, 2), {"axes": 1}),
    ]:
        yield call(values(shape1, dtype), values(shape2, dtype, seed=1), **kwargs)


def crosses(dtype: DType) -> Iterator[Sample]:
    for shape1, shape2, kwargs in [
        ((3,), (3,), {}),
        ((2, 3), (2, 3), {}),
        ((3, 2), (3, 2), {"axis": -2}),
        ((3, 2), (3, 2), {"axis": 0}),
        ((4, 1, 3), (5, 3), {}),
        ((3, 1), (2, 3, 4), {"axis": -2}),
        ((0, 3), (3,), {}),
    ]:
        yield call(values(shape1, dtype, 0, 4), values(shape2, dtype, 0, 4, seed=1), **kwargs)


def vectors(dtype: DType) -> Iterator[Sample]:
    for sizes in [(3, 4), (1, 1), (0, 2), (2, 0)]:
        yield call(*(values((size,), dtype, seed=size) for size in sizes))


def matrices(dtype: DType) -> Iterator[Sample]:
    for shape in MATRIX:
        yield call(values(shape, dtype))


def diagonals(dtype: DType) -> Iterator[Sample]:
    for shape in MATRIX:
        yield call(values(shape, dtype))
        for offset in (-4, -2, -1, 1, 2, 3, 9):
            yield call(values(shape, dtype), offset=offset)


def choleskys(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(definite(shape, dtype))
        yield call(definite(shape, dtype), upper=True)


def qrs(dtype: DType) -> Iterator[Sample]:
    for shape in MATRIX:
        yield call(values(shape, dtype))
        yield call(values(shape, dtype), mode="complete")


def svds(dtype: DType) -> Iterator[Sample]:
    for shape in MATRIX:
        yield call(values(shape, dtype))
        yield call(values(shape, dtype), full_matrices=False)
    yield call(deficient((3, 4), dtype))


def symmetrics(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(symmetric(shape, dtype))


def systems(dtype: DType) -> Iterator[Sample]:
    for shape1, shape2 in [
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((3, 3), (3, 0)),
        ((1, 1), (1, 1)),
        ((0, 0), (0,)),
        ((0, 0), (0, 2)),
        ((2, 3, 3), (3,)),
        ((2, 3, 3), (3, 4)),
        ((2, 3, 3), (2, 3, 1)),
        ((2, 1, 3, 3), (5, 3, 2)),
        ((3, 3), (2, 3, 4)),
    ]:
        yield call(regular(shape1, dtype), values(shape2, dtype, seed=1))


def regulars(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(regular(shape, dtype))


def determinants(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(values(shape, dtype))
    yield call(np.zeros((2, 2), dtype.numpy))
    yield call(np.array([[2, 1], [1, 2]], dtype.numpy))


def powers(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        for n in (0, 1, 2, 3, 4, 7, -1, -2, -3):
            yield call((regular(shape, dtype) / 4).astype(dtype.numpy), n)


def tolerances(dtype: DType) -> Iterator[Sample]:
    """For rank and pseudo-inverse: full rank, less than that, and a tolerance of one's own."""
    for shape in MATRIX:
        yield call(regular(shape, dtype))
    for shape in ((3, 3), (2, 3, 4)):
        yield call(deficient(shape, dtype))
    yield call(regular((3, 4), dtype), rtol=0.9)
    real = np.float64 if dtype.numpy.itemsize == 16 or dtype.name == "float64" else np.float32
    yield call(regular((2, 3, 4), dtype), rtol=np.array([0.9, 1e-3], real))
    yield call(np.zeros((2, 2), dtype.numpy))


def vector_norms(dtype: DType) -> Iterator[Sample]:
    for shape in [(), (1,), (5,), (3, 4), (2, 1, 3), (0,), (2, 0)]:
        yield call(values(shape, dtype))
        yield call(values(shape, dtype), keepdims=True)
    x = values((2, 3, 4), dtype)
    x[0, 0, 1] = x[1, 2, :] = 0
    for ord in (0, 1, 2, 3, 0.5, 2.5, -1, -2, -0.5, math.inf, -math.inf):
        yield call(x, ord=ord)
        yield call(x, ord=ord, axis=-1)
        yield call(x, ord=ord, axis=(0, 2), keepdims=True)
    yield call(values((2, 0, 3), dtype), axis=1, ord=math.inf)
    yield call(values((2, 0, 3), dtype), axis=(0, 2), ord=-math.inf)


def matrix_norms(dtype: DType) -> Iterator[Sample]:
    for shape in MATRIX:
        for ord in ("fro", "nuc", 1, 2, math.inf):
            yield call(values(shape, dtype), ord=ord)
    for ord in (-1, -2, -math.inf):
        yield call(values((2, 3, 4), dtype), ord=ord)
        yield call(values((3, 4), dtype), ord=ord, keepdims=True)
    yield call(values((2, 3, 4), dtype))
    yield call(values((2, 3, 4), dtype), keepdims=True, ord=None)


def _matrix_norm(x: Array, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return np.linalg.matrix_norm(x, keepdims=keepdims, ord="fro" if ord is None else ord)


def _pinv(x: Array, *, rtol: Any = None) -> Any:
    return np.linalg.pinv(x, rtol=rtol)


def _tensordot(x1: Array, x2: Array, *, axes: Any = 2) -> Any:
    return np.tensordot(x1, x2, axes=axes)


FLOATS = "floating"
ROWS = [
    Row("matmul", np.matmul, products, rtol=32),
    Row("linalg.matmul", np.matmul, products, rtol=32),
    Row("vecdot", np.vecdot, dots, rtol=32),
    Row("linalg.vecdot", np.vecdot, dots, rtol=32),
    Row("tensordot", _tensordot, contractions, rtol=64),
    Row("linalg.tensordot", _tensordot, contractions, rtol=64),
    Row("linalg.matrix_transpose", np.matrix_transpose, matrices, kinds="all"),
    Row("linalg.outer", np.linalg.outer, vectors),
    Row("linalg.cross", np.linalg.cross, crosses, rtol=16),
    Row("linalg.diagonal", np.linalg.diagonal, diagonals, kinds="all"),
    Row("linalg.trace", np.linalg.trace, diagonals),
    Row("linalg.cholesky", None, choleskys, FLOATS, check_cholesky),
    Row("linalg.qr", None, qrs, FLOATS, check_qr),
    Row("linalg.svd", None, svds, FLOATS, check_svd),
    Row("linalg.svdvals", np.linalg.svdvals, matrices, FLOATS, rtol=32),
    Row("linalg.eigh", None, symmetrics, FLOATS, check_eigh),
    Row("linalg.eigvalsh", np.linalg.eigvalsh, symmetrics, FLOATS, rtol=32),
    Row("linalg.solve", np.linalg.solve, systems, FLOATS, rtol=16),
    Row("linalg.inv", np.linalg.inv, regulars, FLOATS, rtol=16),
    Row("linalg.det", np.linalg.det, determinants, FLOATS, rtol=64),
    Row("linalg.slogdet", np.linalg.slogdet, determinants, FLOATS, rtol=64),
    Row("linalg.matrix_power", np.linalg.matrix_power, powers, FLOATS, rtol=64),
    Row("linalg.matrix_rank", np.linalg.matrix_rank, tolerances, FLOATS),
    Row("linalg.pinv", _pinv, tolerances, FLOATS, rtol=128),
    Row("linalg.vector_norm", np.linalg.vector_norm, vector_norms, FLOATS, rtol=32),
    Row("linalg.matrix_norm", _matrix_norm, matrix_norms, FLOATS, rtol=32),
]
