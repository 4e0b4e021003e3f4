"""Matrix products and `weft.linalg`: what the tables of samples do not show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.ir.op import OPS

INTEGERS = [weft.bool, weft.int8, weft.int64, weft.uint16]
REAL_OF = {weft.complex64: weft.float32, weft.complex128: weft.float64}
FLOATS = [weft.float16, weft.bfloat16, weft.float32, weft.float64, weft.complex64, weft.complex128]

# --- dtypes ------------------------------------------------------------------------------------

#: name -> dtypes of the results on a square matrix: "same" as x, or "real"
RESULTS = {
    "cholesky": ["same"],
    "qr": ["same", "same"],
    "svd": ["same", "real", "same"],
    "svdvals": ["real"],
    "eigh": ["real", "same"],
    "eigvalsh": ["real"],
    "inv": ["same"],
    "det": ["same"],
    "slogdet": ["same", "real"],
    "pinv": ["same"],
    "matrix_norm": ["real"],
    "vector_norm": ["real"],
}


@pytest.mark.parametrize("name", RESULTS)
def test_dtypes_of_results(name: str) -> None:
    function = getattr(weft.linalg, name)
    for dtype in FLOATS:
        out = function(weft.eye(3, dtype=dtype))
        parts = out if isinstance(out, tuple) else (out,)
        wanted = [dtype if r == "same" else REAL_OF.get(dtype, dtype) for r in RESULTS[name]]
        assert [part.dtype for part in parts] == wanted


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
def test_integers_become_the_default_float(name: str, dtype: weft.DType) -> None:
    x = weft.eye(3, dtype=dtype)
    out = getattr(weft.linalg, name)(x)
    want = getattr(weft.linalg, name)(x.astype(weft.float32))
    for mine, theirs in zip(
        *((o if isinstance(o, tuple) else (o,)) for o in (out, want)), strict=True
    ):
        assert mine.dtype is weft.float32
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_operands_are_promoted() -> None:
    half, whole = weft.ones((2, 2), dtype=weft.float32), weft.ones((2, 2), dtype=weft.int64)
    double = weft.ones((2, 2), dtype=weft.complex128)
    assert (half @ whole).dtype is weft.float32
    assert (whole @ double).dtype is weft.complex128
    assert weft.linalg.solve(weft.eye(2, dtype=weft.int64), whole).dtype is weft.float32
    assert weft.linalg.cross(weft.ones(3, dtype=weft.int8), weft.ones(3)).dtype is weft.float32
    assert weft.linalg.matrix_rank(half).dtype is weft.int64
    assert weft.linalg.trace(weft.ones((2, 2), dtype=weft.uint8)).dtype is weft.uint64
    assert weft.linalg.trace(whole, dtype=weft.float64).dtype is weft.float64


def test_narrow_floats_round_only_once() -> None:
    x = weft.full((1000,), 30.0, dtype=weft.float16)
    assert float(weft.linalg.vector_norm(x)) == float(np.float16(30 * 1000**0.5))
    tall = weft.full((2, 2), 300.0, dtype=weft.float16)  # 300 ** 2 is beyond float16
    assert float(weft.linalg.matrix_norm(tall)) == 600
    assert float(weft.linalg.det(weft.asarray([[1.0, 2], [3, 4]]).astype(weft.bfloat16))) == -2
    ones = weft.ones(4097, dtype=weft.float16)
    assert float(ones @ ones) == 4096  # in float16 alone, the sum sticks at 2048
    third = weft.full((1, 1), 1 / 3, dtype=weft.bfloat16)
    assert float(weft.linalg.matrix_power(third, 3)) == float(
        weft.asarray(float(third) ** 3).astype(weft.bfloat16)
    )


# --- the operator ------------------------------------------------------------------------------


def test_at_with_numpy_arrays() -> None:
    x, a = weft.asarray([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0], np.float32)
    for out in (x @ a, weft.matmul(x, a)):
        assert isinstance(out, weft.Tensor)
        assert out.tolist() == [21, 43]
    assert isinstance(a @ x, weft.Tensor)
    assert (a @ x).tolist() == [31, 42]


def test_numpy_arrays_are_operands() -> None:
    x = np.stack([np.eye(2), np.diag([1.0, 0.1])])
    assert weft.linalg.diagonal(x).tolist() == [[1, 1], [1, 0.1]]
    assert weft.linalg.trace(x).tolist() == [2, 1.1]
    assert weft.linalg.matrix_rank(x, rtol=np.array([0.5, 0.5])).tolist() == [2, 1]
    assert weft.linalg.pinv(x, rtol=np.array([0.5, 0.5]))[1].tolist() == [[1, 0], [0, 0]]
    assert weft.fft.fft(np.ones(2)).tolist() == [2, 0]


def test_at_in_place_is_a_new_value_under_the_same_name() -> None:
    x = y = weft.asarray([[1.0, 1.0], [0.0, 1.0]])
    before = x.__copy__()
    x @= x
    assert x is y
    assert x.tolist() == [[1, 2], [0, 1]]
    assert before.tolist() == [[1, 1], [0, 1]]


def test_a_product_of_vectors_is_a_tensor_without_axes() -> None:
    for dtype in (weft.float32, weft.int64, weft.bfloat16, weft.complex128):
        x = weft.ones(3, dtype=dtype)
        out = x @ x
        assert type(out._data) is np.ndarray
        assert (out.shape, out.dtype, out.item()) == ((), dtype, 3)


sizes = st.integers(0, 4)
stacks = st.sampled_from([((), ()), ((2,), (2,)), ((2, 1), (3,)), ((), (2, 3)), ((0,), (1,))])


@given(stacks, sizes, sizes, sizes, st.booleans(), st.booleans(), st.booleans())
def test_products_of_any_layout(
    stack: Any, m: int, k: int, n: int, turn1: bool, turn2: bool, back: bool
) -> None:
    rng = np.random.default_rng([m, k, n])
    a, b = rng.standard_normal((*stack[0], m, k)), rng.standard_normal((*stack[1], k, n))
    x, y = weft.asarray(a), weft.asarray(b)
    if turn1:
        x = weft.asarray(a.mT.copy()).mT
    if turn2:
        y = weft.asarray(b.mT.copy()).mT
    if back:
        y = weft.flip(weft.asarray(np.flip(b).copy()))
    np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-13, atol=1e-13)


# --- the derivative rules ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("shape1", "shape2"),
    [
        ((3,), (3,)),
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((2, 0), (0, 3)),
        ((0, 2, 3), (3, 4)),
    ],
)
def test_matmul_derivative(shape1: Any, shape2: Any, kind: str) -> None:
    """<g, d out> = <vjp(g), d x>, for the inner product Re(conj(a) b)."""
    rng = np.random.default_rng(0)

    def draw(shape: Any) -> Any:
        real = rng.standard_normal(shape)
        return real + 1j * rng.standard_normal(shape) if kind == "complex128" else real

    def inner(a: Any, b: Any) -> Any:
        return np.sum(np.conj(a) * b).real

    x1, x2, dx1, dx2 = draw(shape1), draw(shape2), draw(shape1), draw(shape2)
    out = np.asarray(x1 @ x2)
    g = draw(out.shape)
    rule1, rule2 = OPS["matmul"].vjp or (None, None)
    assert rule1 is not None
    assert rule2 is not None
    for xp, make in ((np, np.asarray), (weft, weft.asarray)):
        args = [make(a) for a in (g, out, x1, x2)]
        g1, g2 = np.asarray(rule1(xp, *args)), np.asarray(rule2(xp, *args))
        assert g1.shape == shape1
        assert g2.shape == shape2
        np.testing.assert_allclose(inner(g, dx1 @ x2), inner(g1, dx1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(inner(g, x1 @ dx2), inner(g2, dx2), rtol=1e-12, atol=1e-12)


# --- results -----------------------------------------------------------------------------------


def test_results_have_names() -> None:
    x = weft.eye(2)
    assert weft.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert weft.linalg.qr(x)._fields == ("Q", "R")
    assert weft.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert weft.linalg.svd(x)._fields == ("U", "S", "Vh")


def test_only_the_lower_triangle_of_a_symmetric_matrix_is_read() -> None:
    x = weft.asarray([[4.0, 2.0], [2.0, 5.0]])
    lower = weft.tril(x)
    assert weft.linalg.cholesky(lower).tolist() == weft.linalg.cholesky(x).tolist()
    assert weft.linalg.cholesky(lower, upper=True).tolist() == [[2, 1], [0, 2]]
    assert weft.linalg.eigvalsh(lower).tolist() == weft.linalg.eigvalsh(x).tolist()


def test_norms_of_nothing() -> None:
    """The largest of no values is 0, the smallest inf."""
    empty = weft.zeros((2, 0))
    for ord, norm in [(0, 0), (1, 0), (2, 0), (3.5, 0), (math.inf, 0), (-1, math.inf)]:
        assert weft.linalg.vector_norm(empty, axis=1, ord=ord).tolist() == [norm, norm]
    assert weft.linalg.vector_norm(empty, axis=1, ord=-math.inf).tolist() == [math.inf] * 2
    for ord in ("fro", "nuc", 1, 2, math.inf):
        assert float(weft.linalg.matrix_norm(weft.zeros((0, 0)), ord=ord)) == 0
    for ord in (-1, -2, -math.inf):
        assert float(weft.linalg.matrix_norm(weft.zeros((0, 0)), ord=ord)) == math.inf


def test_norms_of_no_axes_are_absolute_values() -> None:
    x = weft.asarray([3.0, -4.0])
    for ord in (1, 2, 3, math.inf, -math.inf):
        np.testing.assert_allclose(weft.linalg.vector_norm(x, axis=(), ord=ord).numpy(), [3, 4])


def test_norms_keep_nan() -> None:
    x = weft.asarray([1.0, math.nan])
    for ord in (1, 2, 3, math.inf, -math.inf):
        assert math.isnan(weft.linalg.vector_norm(x, ord=ord))


def test_no_write_shows_in_another_tensor() -> None:
    x = weft.eye(2)
    for make in (
        lambda: weft.linalg.matrix_power(x, 1),
        lambda: weft.linalg.matrix_power(x, 0),
        lambda: weft.linalg.diagonal(x),
        lambda: weft.linalg.matrix_transpose(x),
        lambda: weft.fft.fftshift(x, axes=()),
        lambda: weft.fft.fftn(x.astype(weft.complex64), axes=()),
    ):
        out = make()
        out[...] = 7
        assert x.tolist() == [[1, 0], [0, 1]]


def test_namespaces_list_only_what_is_public() -> None:
    for module in (weft.linalg, weft.fft):
        assert dir(module) == sorted(module.__all__)
        assert all(getattr(module, name).__doc__ for name in module.__all__)


def test_costs() -> None:
    a, b = weft.ones((5, 2, 3)).type, weft.ones((3, 4)).type
    op = OPS["matmul"]
    out = op.infer(a, b)
    cost = op.estimate((a, b), (out,))
    assert cost.flops == 2 * 5 * 2 * 3 * 4
    assert cost.bytes == a.nbytes + b.nbytes + out.nbytes


@pytest.mark.parametrize(
    "function",
    [
        lambda x: weft.linalg.matrix_power(x, 0),
        lambda x: weft.linalg.vector_norm(x, ord=0),
        lambda x: weft.linalg.matrix_norm(x[:, :0], ord=2),
    ],
    ids=["matrix_power 0", "vector_norm 0", "norm of nothing"],
)
def test_what_does_not_change_with_x_has_a_gradient_of_zeros(function: Any) -> None:
    for numbers in ([[1.0, 2.0], [3.0, np.inf]], [[0.0, 1.0], [np.nan, 1.0]]):
        x = weft.tensor(numbers, requires_grad=True)
        out = function(x)
        assert out.requires_grad
        same = function(x.detach()).numpy()
        np.testing.assert_array_equal(out.detach().numpy(), same)
        out.sum().backward()
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), np.zeros((2, 2)))
        compiled = weft.compile(lambda x: (function(x) * 2).sum())
        x.grad = None
        compiled(x).backward()
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), np.zeros((2, 2)))


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32, weft.complex64])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        *(((1,), (1,)), ((1,), (1, 3)), ((3, 1), (1,)), ((1, 1), (1, 3)), ((3, 1), (1, 1))),
        *(((1, 1), (1, 1)), ((2, 3, 1), (1, 1)), ((1, 1, 1), (1, 4)), ((1, 1), (2, 1, 3))),
        *(((2, 2), (2, 2)), ((1, 3), (3, 1))),
    ],
)
def test_zero_times_infinity_is_nan_in_products_of_every_size(left, right, dtype) -> None:
    for a, b in [(0.0, math.inf), (math.inf, 0.0), (0.0, math.nan)]:
        x, y = weft.full(left, a, dtype=dtype), weft.full(right, b, dtype=dtype)
        for product in (weft.matmul, weft.compile(weft.matmul, backend="native")):
            assert np.isnan(np.asarray(product(x, y).astype(weft.complex64))).all()
        if dtype != weft.complex64 and len(right) == 2:
            out = weft.nn.functional.linear(x, y.T, weft.ones(right[1], dtype=dtype))
            assert np.isnan(np.asarray(out.astype(weft.float32))).all()
