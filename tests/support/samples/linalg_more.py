"""Samples of the functions of `weft.linalg` beyond the Array API."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg as scipy

from samples.linalg import (
    FLOATS,
    MATRIX,
    SQUARE,
    Array,
    adjoint,
    close,
    definite,
    regular,
    wide,
)
from samples.table import Row, Sample, call, values
from weft.base.dtypes import DType


def distinct(shape: tuple[int, ...], dtype: DType) -> Array:
    """Matrices whose eigenvalues are well apart."""
    diagonal = np.diag(3.0 * np.arange(shape[-1]))
    return (wide(values(shape, dtype, -1, 1)) + diagonal).astype(dtype.numpy)


def eigs(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(distinct(shape, dtype))
    yield call(np.array([[0, -1], [1, 0]], dtype.numpy))


def check_eig(got: list[Array], x: Array) -> None:
    lengths, vectors = got
    assert lengths.dtype.kind == vectors.dtype.kind == "c"
    units = np.result_type(x.dtype, np.float32) if x.dtype.itemsize > 2 else np.dtype(np.float32)
    close(wide(x) @ wide(vectors), wide(vectors) * lengths[..., None, :], units, 512)


def check_eigvals(got: list[Array], x: Array) -> None:
    (found,) = got
    units = np.result_type(x.dtype, np.float32) if x.dtype.itemsize > 2 else np.dtype(np.float32)
    want = np.linalg.eigvals(wide(x))
    ordered = [np.take_along_axis(v, np.argsort(v.real * 7 + v.imag), -1) for v in (found, want)]
    close(*ordered, units, 512)


def exponentials(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(values(shape, dtype, -1, 1))
    yield call(values((3, 3), dtype, -4, 4))
    yield call((30 * np.eye(2) * [[0, 0], [0, -1]]).astype(dtype.numpy))


def expm(x: Array) -> Array:
    return np.asarray(scipy.expm(wide(x))) if x.size else wide(x)


def matrices(dtype: DType) -> Iterator[Sample]:
    for shape in MATRIX:
        yield call(regular(shape, dtype)[..., ::-1, :].copy())


def check_lu(got: list[Array], x: Array) -> None:
    p, lower, upper = map(wide, got)
    np.testing.assert_array_equal(upper, np.triu(upper))
    np.testing.assert_array_equal(lower, np.tril(lower))
    assert (np.abs(lower) <= 1.01).all()
    close(p @ lower @ upper, x, x.dtype)


def check_lu_factor(got: list[Array], x: Array) -> None:
    both, order = got
    size = min(x.shape[-2:])
    lower = np.tril(wide(both)[..., :size], -1) + np.eye(x.shape[-2], size)
    rows = np.take_along_axis(wide(x), order[..., None], axis=-2)
    close(lower @ np.triu(wide(both)[..., :size, :]), rows, x.dtype)


def factored(dtype: DType) -> Iterator[Sample]:
    """LU, pivots and a right-hand side."""
    for shape, right in [((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((1, 1), (1, 1))]:
        both = regular(shape, dtype)
        order = np.broadcast_to(np.arange(shape[-1])[::-1], shape[:-1]).copy()
        yield call(both, order, values(right, dtype, seed=1))


def lu_solve(both: Array, order: Array, right: Array) -> Array:
    a = wide(both)
    lower, upper = np.tril(a, -1) + np.eye(a.shape[-1]), np.triu(a)
    moved = np.take_along_axis(wide(right), order[..., None], axis=-2)
    return np.linalg.solve(upper, np.linalg.solve(lower, moved))


def triangles(dtype: DType) -> Iterator[Sample]:
    for upper in (False, True):
        for shape, right in [((3, 3), (3, 2)), ((2, 3, 3), (3, 1)), ((0, 0), (0, 2))]:
            yield call(regular(shape, dtype), values(right, dtype, seed=1), upper=upper)
        a, b = (regular((3, 3), dtype) / 6).astype(dtype.numpy), values((3, 3), dtype, seed=1)
        yield call(a, b, upper=upper, unitriangular=True)
        yield call(regular((3, 3), dtype), values((2, 3), dtype, seed=1), upper=upper, left=False)


def solve_triangular(
    a: Array, b: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    part = np.triu(wide(a)) if upper else np.tril(wide(a))
    if unitriangular:
        part = part - part * np.eye(len(part)) + np.eye(len(part))
    if left:
        return np.linalg.solve(part, wide(b))
    return np.linalg.solve(part.mT, wide(b).mT).mT


def factors(dtype: DType) -> Iterator[Sample]:
    for shape in [(3, 3), (2, 2, 2)]:
        yield call(np.linalg.cholesky(wide(definite(shape, dtype))).astype(dtype.numpy))
    upper = adjoint(np.linalg.cholesky(wide(definite((3, 3), dtype)))).astype(dtype.numpy)
    yield call(upper, upper=True)


def cholesky_inverse(factor: Array, *, upper: bool = False) -> Array:
    lower = adjoint(wide(factor)) if upper else wide(factor)
    return np.linalg.inv(lower @ adjoint(lower))


def cholesky_systems(dtype: DType) -> Iterator[Sample]:
    for sample in factors(dtype):
        (factor,) = sample.args
        yield call(values((*factor.shape[:-1], 2), dtype, seed=1), factor, **sample.kwargs)


def cholesky_solve(b: Array, factor: Array, *, upper: bool = False) -> Array:
    return cholesky_inverse(factor, upper=upper) @ wide(b)


def norms(dtype: DType) -> Iterator[Sample]:
    x = values((2, 3, 4), dtype)
    yield call(x)
    yield call(x, keepdims=True)
    yield call(x[0], 1)
    yield call(x[0], "nuc")
    yield call(x[0, 0], 3)
    yield call(x[0, 0], math.inf)
    yield call(x, 1, axis=1)
    yield call(x, axis=(0, 2))
    yield call(x, axis=(2, 0), keepdims=True, ord=-math.inf)
    yield call(x, 2, axis=(0, 1))


def conditions(dtype: DType) -> Iterator[Sample]:
    yield call(regular((3, 4), dtype))
    for p in (None, 2, -2, 1, -1, math.inf, "fro", "nuc"):
        yield call(regular((2, 3, 3), dtype), p)


def squares(dtype: DType) -> Iterator[Sample]:
    for a, b in [((4, 2), (4,)), ((4, 2), (4, 3)), ((3, 3), (3, 1)), ((2, 4), (2, 2))]:
        yield call(regular(a, dtype), values(b, dtype, seed=1))


def check_lstsq(got: list[Array], a: Array, b: Array) -> None:
    solution, residuals, rank, lengths = got
    want = np.linalg.lstsq(wide(a), wide(b))
    close(solution, want[0], a.dtype)
    assert rank == want[2]
    kind = np.dtype(np.float32) if a.dtype.itemsize < 4 else a.real.dtype
    close(lengths, want[3], kind)
    if a.shape[-2] > a.shape[-1]:
        close(residuals, want[1].reshape(residuals.shape), kind, 512)
    else:
        assert residuals.size == 0


def chains(dtype: DType) -> Iterator[Sample]:
    yield call([values((2, 3), dtype), values((3, 4), dtype)])
    shapes = [(2, 3), (3, 4), (4, 1), (1, 3)]
    yield call([values(shape, dtype, seed=i) for i, shape in enumerate(shapes)])
    yield call([values((3,), dtype), values((3, 4), dtype), values((4,), dtype, seed=2)])


def tensors(dtype: DType) -> Iterator[Sample]:
    yield call(regular((6, 6), dtype).reshape(2, 3, 6))
    yield call(regular((6, 6), dtype).reshape(6, 3, 2), 1)
    yield call(regular((3, 3), dtype), 1)


def tensor_systems(dtype: DType) -> Iterator[Sample]:
    yield call(regular((6, 6), dtype).reshape(2, 3, 6), values((2, 3), dtype, seed=1))
    a = np.moveaxis(regular((6, 6), dtype).reshape(6, 2, 3), 1, 0).copy()
    yield call(a, values((6,), dtype, seed=1), (0,))
    yield call(regular((3, 3), dtype), values((3,), dtype, seed=1))


def reflections(dtype: DType) -> Iterator[Sample]:
    for shape, count in [((4, 3), 3), ((3, 3), 2), ((2, 4, 2), 2)]:
        yield call(values(shape, dtype, -1, 1), values((*shape[:-2], count), dtype, 0, 1, seed=1))


def householder_product(x: Array, tau: Array) -> Array:
    rows, columns = x.shape[-2:]
    out = np.broadcast_to(np.eye(rows), (*x.shape[:-2], rows, rows)).astype(wide(x).dtype)
    for i in range(tau.shape[-1]):
        v = np.tril(wide(x), -1)[..., i] + np.eye(rows)[i]
        v[..., :i] = 0
        outer = v[..., :, None] * np.conj(v)[..., None, :]
        out = out @ (np.eye(rows) - wide(tau)[..., i, None, None] * outer)
    return out[..., :columns]


def logdets(dtype: DType) -> Iterator[Sample]:
    for shape in SQUARE:
        yield call(regular(shape, dtype))


def logdet(x: Array) -> Array:
    sign, logarithm = np.linalg.slogdet(wide(x))
    return np.log(sign) + logarithm


def reference(function: Any) -> Any:
    return lambda *args, **kwargs: function(*[wide(args[0]), *args[1:]], **kwargs)


ROWS = [
    Row("linalg.eig", None, eigs, FLOATS, check_eig),
    Row("linalg.eigvals", None, eigs, FLOATS, check_eigvals),
    Row("linalg.expm", expm, exponentials, FLOATS, rtol=256),
    Row("linalg.matrix_exp", expm, exponentials, FLOATS, rtol=256),
    Row("linalg.lu", None, matrices, FLOATS, check_lu),
    Row("linalg.lu_factor", None, matrices, FLOATS, check_lu_factor),
    Row("linalg.lu_solve", lu_solve, factored, FLOATS, rtol=64),
    Row("linalg.solve_triangular", solve_triangular, triangles, FLOATS, rtol=64),
    Row("linalg.cholesky_inverse", cholesky_inverse, factors, FLOATS, rtol=512),
    Row("linalg.cholesky_solve", cholesky_solve, cholesky_systems, FLOATS, rtol=512),
    Row("linalg.norm", reference(np.linalg.norm), norms, FLOATS, rtol=32),
    Row("linalg.cond", reference(np.linalg.cond), conditions, FLOATS, rtol=128),
    Row("linalg.lstsq", None, squares, FLOATS, check_lstsq),
    Row("linalg.multi_dot", np.linalg.multi_dot, chains, FLOATS, rtol=128),
    Row("linalg.tensorinv", reference(np.linalg.tensorinv), tensors, FLOATS, rtol=64),
    Row("linalg.tensorsolve", reference(np.linalg.tensorsolve), tensor_systems, FLOATS, rtol=64),
    Row("linalg.householder_product", householder_product, reflections, FLOATS, rtol=64),
    Row("logdet", logdet, logdets, FLOATS, rtol=64),
]
