"""Gradients where a derivative is special: ties, zeros, ends of a domain, infinities.

Each point gives what PyTorch gives, unless the reason why not stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from peer import figures

import weft

inf, nan = np.inf, np.nan
Work = Callable[..., Any]

EDGES = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, inf, -inf]
BASES = [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, -2.0, -2.0, -2.0, 2.0, inf]
POWERS = [0.0, 1.0, 2.0, 0.5, -1.0, 0.0, 0.0, 2.0, 3.0, -3.0, 0.0]
TIES = [[1.0, 2.0, 2.0], [3.0, 3.0, 3.0], [0.0, -1.0, 0.0]]
ZEROS = [[2.0, 3.0, 4.0], [0.0, 3.0, 4.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
PLANE = [0j, 1 + 0j, 3 - 4j, -2j]

#: name -> (in Weft, in PyTorch, values). Both take a namespace and a tensor for each value.
POINTS: dict[str, tuple[Work, Work, list[Any]]] = {
    # --- elementwise ---
    "abs": (lambda w, x: w.abs(x), lambda t, x: t.abs(x), [EDGES]),
    "abs complex": (lambda w, x: w.abs(x), lambda t, x: t.abs(x), [PLANE]),
    "sign": (lambda w, x: w.sign(x), lambda t, x: t.sign(x), [EDGES]),
    "sign complex": (
        lambda w, x: w.real(w.sign(x) * (1 - 2j)),
        lambda t, x: t.real(t.sgn(x) * (1 - 2j)),
        [PLANE],
    ),
    "pow": (lambda w, x: w.pow(x[0], x[1]), lambda t, x: t.pow(x[0], x[1]), [[BASES, POWERS]]),
    "pow by 0": (lambda w, x: x**0, lambda t, x: x**0, [EDGES]),
    "pow by 1": (lambda w, x: x**1, lambda t, x: x**1, [EDGES]),
    "pow by 2": (lambda w, x: x**2, lambda t, x: x**2, [EDGES]),
    "pow by -1": (lambda w, x: x**-1, lambda t, x: x**-1, [EDGES]),
    "pow by 1/2": (lambda w, x: x**0.5, lambda t, x: x**0.5, [[0.0, 4.0, -1.0, inf]]),
    "pow of 2": (lambda w, x: 2**x, lambda t, x: 2**x, [EDGES]),
    "pow of 0": (lambda w, x: 0.0**x, lambda t, x: 0.0**x, [[0.0, 1.0, 2.5]]),
    "sqrt": (lambda w, x: w.sqrt(x), lambda t, x: t.sqrt(x), [[0.0, 4.0, -1.0]]),
    "log": (lambda w, x: w.log(x), lambda t, x: t.log(x), [[0.0, 1.0, -1.0]]),
    "log1p": (lambda w, x: w.log1p(x), lambda t, x: t.log1p(x), [[0.0, -1.0]]),
    "asin": (lambda w, x: w.asin(x), lambda t, x: t.asin(x), [[-1.0, 0.0, 1.0, 2.0]]),
    "acos": (lambda w, x: w.acos(x), lambda t, x: t.acos(x), [[-1.0, 0.0, 1.0, 2.0]]),
    "acosh": (lambda w, x: w.acosh(x), lambda t, x: t.acosh(x), [[1.0, 2.0]]),
    "atanh": (lambda w, x: w.atanh(x), lambda t, x: t.atanh(x), [[-1.0, 0.0, 1.0]]),
    "exp": (lambda w, x: w.exp(x), lambda t, x: t.exp(x), [EDGES]),
    "tanh": (lambda w, x: w.tanh(x), lambda t, x: t.tanh(x), [EDGES]),
    "maximum": (
        lambda w, x: w.maximum(x[0], x[1]),
        lambda t, x: t.maximum(x[0], x[1]),
        [[[1.0, 2.0, 3.0, 0.0, inf], [2.0, 2.0, 2.0, -0.0, inf]]],
    ),
    "minimum": (
        lambda w, x: w.minimum(x[0], x[1]),
        lambda t, x: t.minimum(x[0], x[1]),
        [[[1.0, 2.0, 3.0, 0.0, nan], [2.0, 2.0, 2.0, -0.0, 1.0]]],
    ),
    "clip": (
        lambda w, x, low, high: w.clip(x, low, high) + w.clip(x, 0.0, 1.0),
        lambda t, x, low, high: t.clamp(x, low, high) + t.clamp(x, 0.0, 1.0),
        [[0.0, 1.0, 0.5, 2.0, -1.0], [0.0] * 5, [1.0] * 5],
    ),
    "copysign": (
        lambda w, x: w.copysign(x[0], x[1]),
        lambda t, x: t.copysign(x[0], x[1]),
        [[[1.0, -1.0, 0.0, 2.0], [-1.0, 1.0, 1.0, -0.0]]],
    ),
    "remainder": (
        lambda w, x: w.remainder(x[0], x[1]),
        lambda t, x: t.remainder(x[0], x[1]),
        [[[4.0, -4.0, 5.5, 0.0], [2.0, 2.0, -2.0, 3.0]]],
    ),
    "steps": (
        lambda w, x: w.floor(x) + w.ceil(x) + w.round(x) + w.trunc(x),
        lambda t, x: t.floor(x) + t.ceil(x) + t.round(x) + t.trunc(x),
        [[0.0, 0.5, 1.0, 2.3]],
    ),
    "where beside NaN": (
        lambda w, x: w.where(x > 0, x, x * nan),
        lambda t, x: t.where(x > 0, x, x * nan),
        [[1.0, 2.0]],
    ),
    "where of NaN": (
        lambda w, x, y: w.where(x == x, x, y),
        lambda t, x, y: t.where(x == x, x, y),
        [[1.0, nan, inf], [nan, 2.0, nan]],
    ),
    "parts of complex numbers": (
        lambda w, x: w.real(x) * 2 + w.imag(x) * 3 + w.real(w.conj(x) * x),
        lambda t, x: t.real(x) * 2 + t.imag(x) * 3 + t.real(t.conj(x) * x),
        [PLANE],
    ),
    "real and complex": (
        lambda w, x, z: w.real(x * z),
        lambda t, x, z: t.real(x * z),
        [[1.0, 2.0, 0.0, 3.0], PLANE],
    ),
    # --- reductions ---
    "max": (lambda w, x: w.max(x, axis=1), lambda t, x: t.amax(x, 1), [TIES]),
    "min": (lambda w, x: w.min(x, axis=0), lambda t, x: t.amin(x, 0), [TIES]),
    "max of all": (lambda w, x: w.max(x), lambda t, x: t.amax(x), [TIES]),
    "prod": (lambda w, x: w.prod(x, axis=1), lambda t, x: t.prod(x, 1), [ZEROS]),
    "prod of all": (lambda w, x: w.prod(x), lambda t, x: t.prod(x), [ZEROS]),
    "prod of one zero": (lambda w, x: w.prod(x), lambda t, x: t.prod(x), [ZEROS[1]]),
    "prod complex": (
        lambda w, x: w.abs(w.prod(x) + 1),
        lambda t, x: t.abs(t.prod(x) + 1),
        [[0j, 1 + 2j, 2 - 1j]],
    ),
    "cumulative_prod": (
        lambda w, x: w.cumulative_prod(x, axis=1),
        lambda t, x: t.cumprod(x, 1),
        [[*ZEROS, [3.0, 0.0, 2.0], [3.0, 2.0, 0.0]]],
    ),
    "std of equal values": (
        lambda w, x: w.std(x),
        lambda t, x: t.std(x, correction=0),
        [[2.0] * 3],
    ),
    "var of equal values": (
        lambda w, x: w.var(x),
        lambda t, x: t.var(x, correction=0),
        [[2.0] * 3],
    ),
    "var of one": (lambda w, x: w.var(x), lambda t, x: t.var(x, correction=0), [[2.0]]),
    "sort": (
        lambda w, x: w.sort(x) * w.asarray([1.0, 2.0, 3.0]),
        lambda t, x: t.sort(x, stable=True).values * t.tensor([1.0, 2.0, 3.0]),
        [TIES],
    ),
    # --- norms and matrices ---
    **{
        f"vector_norm {p}": (
            lambda w, x, p=p: w.linalg.vector_norm(x, axis=1, ord=p),
            lambda t, x, p=p: t.linalg.vector_norm(x, p, 1),
            [ZEROS],
        )
        for p in (1, 2, 3, 2.5, 0.5, -1, inf, -inf)
    },
    "vector_norm complex": (
        lambda w, x: w.linalg.vector_norm(x, axis=1),
        lambda t, x: t.linalg.vector_norm(x, 2, 1),
        [[[0j, 0j], [3 + 4j, 0j]]],
    ),
    "matrix_norm": (
        lambda w, x: w.linalg.matrix_norm(x),
        lambda t, x: t.linalg.matrix_norm(x),
        [[[[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 2.0]]]],
    ),
    "nuclear norm": (
        lambda w, x: w.linalg.matrix_norm(x, ord="nuc"),
        lambda t, x: t.linalg.matrix_norm(x, "nuc"),
        [[[1.0, 0.0], [0.0, 1.0]]],
    ),
    "det of rank 0": (
        lambda w, x: w.linalg.det(x),
        lambda t, x: t.linalg.det(x),
        [[[0.0, 0.0], [0.0, 0.0]]],
    ),
    "eigenvalues of the identity": (
        lambda w, x: w.linalg.eigvalsh(x) * w.asarray([1.0, 2.0]),
        lambda t, x: t.linalg.eigvalsh(x) * t.tensor([1.0, 2.0]),
        [[[1.0, 0.0], [0.0, 1.0]]],
    ),
    "pinv of the identity": (
        lambda w, x: w.linalg.pinv(x) * w.asarray([[1.0, 2.0], [3.0, 4.0]]),
        lambda t, x: t.linalg.pinv(x) * t.tensor([[1.0, 2.0], [3.0, 4.0]]),
        [[[1.0, 0.0], [0.0, 1.0]]],
    ),
    "pinv of rank 1": (
        lambda w, x: w.linalg.pinv(x) * w.asarray([[1.0, 2.0], [3.0, 4.0]]),
        lambda t, x: t.linalg.pinv(x) * t.tensor([[1.0, 2.0], [3.0, 4.0]]),
        [[[1.0, 2.0], [2.0, 4.0]]],
    ),
    "cholesky": (
        lambda w, x: w.linalg.cholesky(x) * w.asarray([[1.0, 2.0], [3.0, 4.0]]),
        lambda t, x: t.linalg.cholesky(x) * t.tensor([[1.0, 2.0], [3.0, 4.0]]),
        [[[4.0, 2.0], [2.0, 5.0]]],
    ),
    "slogdet complex": (
        lambda w, x: w.real(w.linalg.slogdet(x)[0] * (1 - 2j)) + w.linalg.slogdet(x)[1],
        lambda t, x: t.real(t.linalg.slogdet(x)[0] * (1 - 2j)) + t.linalg.slogdet(x)[1],
        [[[1 + 1j, 2j], [0.5, 3 - 1j]]],
    ),
}


def in_torch(torch: Any) -> dict[str, Any]:
    found = {}
    for name, (_, work, values) in POINTS.items():
        leaves = [torch.tensor(np.asarray(v), requires_grad=True) for v in values]
        work(torch, *leaves).sum().backward()
        found |= {f"{name}.{i}": leaf.grad.resolve_conj() for i, leaf in enumerate(leaves)}
    return found


@pytest.fixture(scope="module")
def theirs() -> dict[str, np.ndarray[Any, Any]]:
    return figures("derivatives_points", in_torch)


@pytest.mark.parametrize("create", [False, True], ids=["on arrays", "on tensors"])
@pytest.mark.parametrize("name", POINTS)
def test_as_pytorch(theirs: dict[str, np.ndarray[Any, Any]], name: str, create: bool) -> None:
    work, _, values = POINTS[name]
    leaves = [weft.tensor(np.asarray(v), requires_grad=True) for v in values]
    found = weft.autograd.grad(work(weft, *leaves).sum(), leaves, create_graph=create)
    for i, g in enumerate(found):
        np.testing.assert_allclose(g.numpy(), theirs[f"{name}.{i}"], rtol=1e-9, atol=1e-12)


# --- where PyTorch has NaN, or is wrong ---------------------------------------------------------

NUMBERS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]

#: name -> (function, values, gradients).
OWN: dict[str, tuple[Work, list[Any], list[Any]]] = {
    # PyTorch: NaN for hypot. There is no direction at the origin.
    "hypot at the origin": (weft.hypot, [[0.0, 3.0], [0.0, 4.0]], [[0.0, 0.6], [0.0, 0.8]]),
    "atan2 at the origin": (weft.atan2, [[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]]),
    # PyTorch: 0, as the squares underflow.
    "atan2 of tiny numbers": (weft.atan2, [[0.0], [1e-200]], [[1e200], [0.0]]),
    # PyTorch: NaN. Equal infinities share, as equal numbers do.
    "logaddexp at infinities": (
        weft.logaddexp,
        [[inf, -inf, inf, -inf, 800.0, 1.0], [inf, -inf, 0.0, 1.0, -800.0, 1.0]],
        [[0.5, 0.5, 1.0, 0.0, 1.0, 0.5], [0.5, 0.5, 0.0, 1.0, 0.0, 0.5]],
    ),
    # PyTorch: 0. The gradient of a determinant is the matrix of cofactors, singular or not.
    "det of rank 1": (weft.linalg.det, [[[1.0, 2.0], [2.0, 4.0]]], [[[4.0, -2.0], [-2.0, 1.0]]]),
    "det of rank 2 of 3": (
        weft.linalg.det,
        [NUMBERS],
        [[[-3.0, 6.0, -3.0], [6.0, -12.0, 6.0], [-3.0, 6.0, -3.0]]],
    ),
    "det of a stack": (
        weft.linalg.det,
        [[[[1.0, 2.0], [2.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]],
        [[[[4.0, -2.0], [-2.0, 1.0]], [[0.0, -1.0], [-1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]],
    ),
    # PyTorch: NaN for all. A NaN is the largest and the smallest, and so has the gradient.
    "max of NaN": (weft.max, [[1.0, nan, 3.0]], [[0.0, 1.0, 0.0]]),
    "min of NaNs": (weft.min, [[nan, nan, 3.0]], [[0.5, 0.5, 0.0]]),
    # PyTorch: 0. The product underflows, but its factors are not zeros.
    "prod of tiny numbers": (weft.prod, [[1e-200, 1e-200]], [[1e-200, 1e-200]]),
    "pow of tiny numbers": (weft.pow, [[1e-320], [0.0]], [[0.0], [np.log(1e-320)]]),
    # PyTorch: infinities of either sign; which, is chance.
    "slogdet of a singular matrix": (
        lambda x: weft.linalg.slogdet(x).logabsdet,
        [[[1.0, 1.0], [1.0, 1.0]]],
        [[[nan, nan], [nan, nan]]],
    ),
}


@pytest.mark.parametrize("create", [False, True], ids=["on arrays", "on tensors"])
@pytest.mark.parametrize("name", OWN)
def test_own_choice(name: str, create: bool) -> None:
    work, values, want = OWN[name]
    leaves = [weft.tensor(np.asarray(v), requires_grad=True) for v in values]
    found = weft.autograd.grad(work(*leaves).sum(), leaves, create_graph=create)
    for g, exact in zip(found, want, strict=True):
        np.testing.assert_allclose(g.numpy(), exact, rtol=1e-9, atol=1e-12)


# --- higher orders at special points ------------------------------------------------------------


def smooth(*values: Any) -> list[weft.Tensor]:
    return [weft.asarray(np.asarray(v, dtype=np.result_type(np.asarray(v), 1.0))) for v in values]


#: Functions that are smooth where their rules must not divide by zero, to the third order.
SMOOTH: dict[str, tuple[Work, list[weft.Tensor]]] = {
    "prod": (lambda x: weft.prod(x, axis=1), smooth(ZEROS)),
    "prod over two axes": (lambda x: weft.prod(x, axis=(0, 2)), smooth([[[0, 2.0], [3, 0]]] * 2)),
    "prod complex": (weft.prod, smooth([0j, 1 + 2j, 0j, 3 - 1j])),
    "cumulative_prod": (lambda x: weft.cumulative_prod(x, axis=1), smooth(ZEROS)),
    "cumulative_prod of 7": (
        lambda x: weft.cumulative_prod(x, axis=0),
        smooth([1.5, 0.0, -2.0, 0.5, 0.0, 3.0, 2.0]),
    ),
    "cumulative_prod complex": (lambda x: weft.cumulative_prod(x, axis=0), smooth([1j, 0j, 2.0])),
    "det of rank 0": (weft.linalg.det, smooth(np.zeros((2, 2)))),
    "det of rank 1": (weft.linalg.det, smooth(np.ones((3, 3)))),
    "det of rank 2": (weft.linalg.det, smooth(NUMBERS)),
    "det of a complex matrix": (weft.linalg.det, smooth([[1j, 2], [2j, 4]])),
    "det of a stack": (weft.linalg.det, smooth([np.eye(3), np.ones((3, 3)), NUMBERS])),
    "pinv of the identity": (weft.linalg.pinv, smooth(np.eye(2))),
    "logaddexp of equal numbers": (weft.logaddexp, smooth([1.0, 700.0, 0.0], [1.0, -700.0, 1.0])),
    "pow of negative numbers": (lambda x: x**3 + x**2 + x**-1, smooth([-2.0, -0.5, 2.0])),
    "pow by 0": (weft.pow, smooth([2.0, 0.5, 3.0], [0.0, 0.0, 1.0])),
    "square of zero": (lambda x: weft.pow(x, 2.0) + weft.pow(x, 1.0), smooth([0.0, -1.0])),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_higher_orders(name: str) -> None:
    weft.check_grads(*SMOOTH[name], order=3, eps=1e-5, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        weft.linalg.vector_norm,
        lambda x: weft.linalg.vector_norm(x, ord=3),
        lambda x: weft.linalg.vector_norm(x, ord=0.5),
        weft.linalg.matrix_norm,
        weft.std,
        weft.abs,
        lambda x: weft.hypot(x, x),
        lambda x: weft.abs(x + 0j),
    ],
)
def test_second_order_at_a_kink_is_not_nan(f: Work) -> None:
    x = weft.tensor(np.zeros((2, 2)), requires_grad=True)
    (g,) = weft.autograd.grad(f(x).sum(), x, create_graph=True)
    (h,) = weft.autograd.grad(g.sum(), x)
    assert (g.tolist(), h.tolist()) == ([[0.0, 0.0]] * 2,) * 2


def test_det_of_a_large_singular_matrix() -> None:
    """Beyond the sizes for which the adjugate is a polynomial, by singular values."""
    x = np.random.default_rng(0).normal(size=(10, 10))
    x[3] = 0  # exactly singular
    weft.check_grads(weft.linalg.det, smooth(x), order=2)
    weft.check_grads(weft.linalg.det, smooth(x * (1 + 0.5j)), order=1)


# --- what is not determined ---------------------------------------------------------------------


def test_qr_complete() -> None:
    """R has a gradient in every mode; the columns of Q beyond those of x have none."""
    values = np.random.default_rng(0).normal(size=(4, 3))
    x = weft.tensor(values, requires_grad=True)
    weight = weft.asarray(np.arange(9.0).reshape(3, 3))
    (want,) = weft.autograd.grad((weft.linalg.qr(x).R * weight).sum(), x)
    complete = weft.linalg.qr(x, mode="complete")
    (got,) = weft.autograd.grad((complete.R[:3] * weight).sum(), x, retain_graph=True)
    np.testing.assert_allclose(got.numpy(), want.numpy())
    with pytest.raises(weft.errors.GradientError, match=r"mode=.reduced"):
        complete.Q.sum().backward()


def test_svd_with_full_matrices() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3))
    x = weft.tensor(values, requires_grad=True)
    full, thin = weft.linalg.svd(x), weft.linalg.svd(x, full_matrices=False)
    for mine, other in ((full.S, thin.S), (full.U * full.S, thin.U * thin.S)):
        (got,) = weft.autograd.grad(mine.sum(), x, retain_graph=True)
        (want,) = weft.autograd.grad(other.sum(), x, retain_graph=True)
        np.testing.assert_allclose(got.numpy(), want.numpy())
    with pytest.raises(weft.errors.GradientError, match="full_matrices=False"):
        full.Vh.sum().backward()


def test_vectors_of_equal_values_have_no_finite_gradient() -> None:
    """They are not unique: a number here would be wrong."""
    x = weft.tensor(np.eye(2), requires_grad=True)
    (g,) = weft.autograd.grad((weft.linalg.eigh(x).eigenvectors ** 2)[0].sum(), x)
    assert not np.isfinite(g.numpy()).all()
    (g,) = weft.autograd.grad((weft.linalg.svd(x).U ** 2)[0].sum(), x)
    assert not np.isfinite(g.numpy()).all()
