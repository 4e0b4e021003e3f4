"""Linear algebra in machine code: results and errors are those of eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import linalg
from weft.errors import LinAlgError
from weft.runtime import native as room

Function = Callable[..., Any]


def upper_unit(x: Any, y: Any) -> Any:
    return linalg.solve_triangular(x, y, upper=True, unitriangular=True)


#: name -> function, what its matrix is, whether it takes a right side
ROWS: dict[str, tuple[Function, str, bool]] = {
    "cholesky": (lambda x: linalg.cholesky(x), "definite", False),
    "cholesky upper": (lambda x: linalg.cholesky(x, upper=True), "definite", False),
    "det": (lambda x: linalg.det(x), "square", False),
    "eigh": (lambda x: tuple(linalg.eigh(x)), "definite", False),
    "inv": (lambda x: linalg.inv(x), "square", False),
    "lu_factor": (lambda x: tuple(linalg.lu_factor(x)), "square", False),
    "lu_factor of a wide one": (lambda x: tuple(linalg.lu_factor(x)), "wide", False),
    "lu_factor of a high one": (lambda x: tuple(linalg.lu_factor(x)), "high", False),
    "qr of a high one": (lambda x: tuple(linalg.qr(x)), "high", False),
    "qr of a wide one": (lambda x: tuple(linalg.qr(x)), "wide", False),
    "qr, complete": (lambda x: tuple(linalg.qr(x, mode="complete")), "high", False),
    "slogdet": (lambda x: tuple(linalg.slogdet(x)), "square", False),
    "solve": (lambda x, y: linalg.solve(x, y), "square", True),
    "solve, lower": (lambda x, y: linalg.solve_triangular(x, y, upper=False), "large", True),
    "solve, upper": (lambda x, y: linalg.solve_triangular(x, y, upper=True), "large", True),
    "solve, ones": (upper_unit, "small", True),
    "svd": (lambda x: tuple(linalg.svd(x)), "high", False),
    "svd, reduced": (lambda x: tuple(linalg.svd(x, full_matrices=False)), "wide", False),
}
#: What has no code: complex determinants, and LU of matrices that are large.
CALLED = {"det", "slogdet", "lu_factor", "lu_factor of a wide one", "lu_factor of a high one"}
SHAPES: list[tuple[int, tuple[int, ...]]] = [(1, (2,)), (3, ()), (3, (3, 7)), (6, (5,)), (35, (2,))]
DTYPES = ("float32", "float64", "complex64", "complex128")


def matrices(kind: str, size: int, stack: tuple[int, ...], dtype: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    shape = {"wide": (size, size + 2), "high": (size + 2, size)}.get(kind, (size, size))
    x = rng.standard_normal((*stack, *shape))
    if dtype.startswith("c"):
        x = x + 1j * rng.standard_normal(x.shape)
    if kind == "definite":
        x = x @ x.conj().swapaxes(-1, -2) + size * np.eye(size)
    if kind == "large":  # its triangles are well conditioned
        x = x + 3 * size * np.eye(size)
    if kind == "small":
        x = x / (4 * size)
    return weft.asarray(x.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROWS)
def test_results_are_those_of_eager_calls(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, kind, has_right = ROWS[name]
    made: list[room.NativeProgram] = []
    original = room.NativeProgram.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(room.NativeProgram, "__init__", noted)
    near = 1e-3 if dtype in ("float32", "complex64") else 1e-9
    for size, stack in SHAPES:
        compiled = weft.compile(function, backend="native")
        for seed in range(2):
            given = [matrices(kind, size, stack, dtype, seed)]
            if has_right:
                given.append(matrices("wide", size, stack[1:], dtype, seed + 7))
            want, got = function(*given), compiled(*given)
            for w, g in zip(weft.tree_leaves(want), weft.tree_leaves(got), strict=True):
                assert (g.dtype, g.shape) == (w.dtype, w.shape)
                scale = np.abs(w.numpy()).max()
                np.testing.assert_allclose(g.numpy(), w.numpy(), near, near * scale)
        if not (name in CALLED and (size > 32 or dtype.startswith("c"))):
            assert [node.op.name for node in made[-1].calls if node.op.name != "conj"] == []


@pytest.mark.parametrize("stack", [(), (9,)])
@pytest.mark.parametrize("size", [2, 35])
@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_those_of_eager_calls(size: int, stack: tuple[int, ...], dtype: str) -> None:
    good = matrices("definite", size, stack, dtype, 0)
    bad = weft.asarray(np.where(np.arange(size) == size - 1, 0, good.numpy()).astype(dtype))
    right = matrices("wide", size, (), dtype, 1)
    for function in (
        lambda x, y: linalg.solve(x, y),
        lambda x, y: linalg.inv(x) @ y,
        lambda x, y: linalg.cholesky(-x) @ y,
        lambda x, y: linalg.solve_triangular(x, y, upper=False),
    ):
        compiled = weft.compile(function, backend="native")
        for _ in range(2):
            with pytest.raises(LinAlgError) as eager:
                function(bad, right)
            with pytest.raises(LinAlgError) as native:
                compiled(bad, right)
            assert native.value.message == eager.value.message
        scale = -1 if "cholesky" in function.__code__.co_names else 1  # works after an error
        want = function(scale * good, right).numpy()
        near = 1e-3 if dtype in ("float32", "complex64") else 1e-9
        got = compiled(scale * good, right).numpy()
        np.testing.assert_allclose(got, want, near, near * np.abs(want).max())


def test_determinants_out_of_range() -> None:
    """Partial products overflow, and the determinant does not; a singular matrix has 0 and -inf."""
    sizes = np.array([[1e200, 1e200, 1e-250, -1e-100], [1e-200, 1e-200, 1e250, 3e100]])
    x = weft.asarray(np.stack([np.diag(row) for row in [*sizes, np.zeros(4)]]))
    det = weft.compile(lambda x: linalg.det(x), backend="native")
    np.testing.assert_allclose(det(x).numpy(), [-1e50, 3e-50, 0.0], rtol=1e-9)
    sign, log = weft.compile(lambda x: tuple(linalg.slogdet(x)), backend="native")(x)
    np.testing.assert_array_equal(sign.numpy(), [-1, 1, 0])
    np.testing.assert_allclose(log.numpy(), linalg.slogdet(x).logabsdet.numpy())


def test_not_a_number_stays_in_its_matrix() -> None:
    """Which elements it reaches there is up to the algorithm."""
    x = np.eye(3) + np.zeros((5, 3, 3))
    x[2, 1, 1] = np.nan
    others = [0, 1, 3, 4]
    for function in (
        lambda x: linalg.inv(x),
        lambda x: linalg.det(x),
        lambda x: linalg.solve(x, weft.ones((3, 2), dtype="float64")),
    ):
        got = weft.compile(function, backend="native")(weft.asarray(x)).numpy()
        want = function(weft.asarray(x)).numpy()
        assert np.isnan(got[2]).any()
        np.testing.assert_array_equal(got[others], want[others])
    want = linalg.slogdet(weft.asarray(x))
    sign, log = weft.compile(lambda x: tuple(linalg.slogdet(x)), backend="native")(weft.asarray(x))
    np.testing.assert_array_equal(sign.numpy(), want.sign.numpy())
    np.testing.assert_array_equal(log.numpy(), want.logabsdet.numpy())


def test_in_loops_with_gradients() -> None:
    """A Kalman filter: products, solutions and determinants of every round, and their gradients."""

    def likelihood(a: Any, q: Any, ys: Any) -> Any:
        m, p = weft.zeros(3, dtype=a.dtype), weft.eye(3, dtype=a.dtype)
        total = weft.asarray(0.0, dtype=a.dtype)
        for i in range(ys.shape[0]):
            m, p = a @ m, a @ p @ a.T + q @ q.T
            s = p + 0.1 * weft.eye(3, dtype=a.dtype)
            off = ys[i] - m
            gain = linalg.solve(s, p).T
            total = total + linalg.slogdet(s).logabsdet + off @ linalg.solve(s, off)
            m, p = m + gain @ off, p - gain @ p
        return total

    rng = np.random.default_rng(0)
    a, q = (weft.asarray(0.5 * rng.standard_normal((3, 3))) for _ in range(2))
    ys = weft.asarray(rng.standard_normal((11, 3)))
    want = weft.grad(likelihood, argnums=(0, 1))(a, q, ys)
    got = weft.compile(weft.grad(likelihood, argnums=(0, 1)), backend="native")(a, q, ys)
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-9)
