"""All pairs of transforms, on a table of functions, against finite differences.

Each way to differentiate a function to its gradient is differentiated in each way to a matrix: the
Hessian. The same is done for many points at once, in a recorded graph, and traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

Tensor = weft.Tensor
Function = Callable[[Tensor], Tensor]
SIZE = 4


def f64(*values: Any) -> Tensor:
    return weft.tensor(list(values), dtype=weft.float64)


class Cubed(weft.Function):
    """With a backward that saves both its argument and its result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        out = x**3 * scale
        ctx.save_for_backward(x, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, out = ctx.saved_tensors
        return (2 * x * x * ctx.scale + out / x) * g, None


W = weft.tensor(np.linspace(-1, 1, 12).reshape(3, 4), requires_grad=True)
KERNEL = f64(0.5, -1.0, 2.0)


def written(x: Tensor) -> Tensor:
    y = x * 1.0
    y[1] = y[0] * y[2]
    y *= x
    y[:2] += 1.0
    return (y * y).sum()


def matrix(x: Tensor) -> Tensor:
    return weft.reshape(x, (2, 2)) @ weft.reshape(x, (2, 2)).T + weft.eye(2, dtype=x.dtype)


def convolved(x: Tensor) -> Tensor:
    y = weft.nn.functional.conv1d(weft.reshape(x, (1, 1, SIZE)), weft.reshape(KERNEL, (1, 1, 3)))
    return (y**3).sum()


def cut(x: Tensor) -> Tensor:
    with weft.no_grad():
        fixed = x * 2
    return (x * x * fixed * x.detach()).sum() * 0 + (x**4).sum()


def decided(x: Tensor) -> Tensor:
    return (x**3).sum() if x.sum() > 0 else (x**2).sum()


def looped(x: Tensor) -> Tensor:
    state = x
    for i in range(3):
        state = weft.tanh(state + x * i)
    return state.sum()


FUNCTIONS: dict[str, Function] = {
    "powers": lambda x: (x**3 * weft.flip(x)).sum(),
    "waves": lambda x: weft.sin(x[0] * x[1]) + weft.exp(x[2] / x[3]),
    "softmax": lambda x: (weft.softmax(x) * weft.log_softmax(x * x)).sum(),
    "network": lambda x: weft.logsumexp(weft.tanh(W @ x) ** 2),
    "Function": lambda x: (Cubed.apply(x, 2.0) * x[0]).sum(),
    "logdet": lambda x: weft.linalg.slogdet(matrix(x)).logabsdet,
    "solve": lambda x: weft.linalg.solve(matrix(x), x[:2]).sum(),
    "eigh": lambda x: weft.linalg.eigvalsh(matrix(x))[0],
    "written": written,
    "gather": lambda x: (x[weft.asarray([0, 2, 2])] * weft.take(x, weft.asarray([3, 1, 0]))).sum(),
    "running": lambda x: weft.cumulative_prod(x)[2] * weft.prod(x) + weft.max(x * x),
    "sorted": lambda x: (weft.sort(x) * weft.arange(4.0, dtype=x.dtype)).sum() ** 2,
    "convolved": convolved,
    "fft": lambda x: (weft.abs(weft.fft.rfft(x)) ** 2).sum() * x[0],
    "cut": cut,
    "decided": decided,
    "looped": looped,
    "norm": lambda x: weft.nn.functional.layer_norm(x, (4,))[0] * weft.linalg.vector_norm(x),
    "constant": lambda x: weft.asarray(2.0, dtype=x.dtype) + 0 * x[0],
}

#: Ways from a function of one number to its gradient.
GRADIENTS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: weft.grad(f),
    "value_and_grad": lambda f: lambda x: weft.value_and_grad(f)(x)[1],
    "vjp": lambda f: lambda x: weft.vjp(f, x)[1](weft.asarray(1.0, dtype=x.dtype))[0],
    "jvp": lambda f: lambda x: weft.stack([weft.jvp(f, (x,), (e,))[1] for e in units(x)]),
    "vmap(jvp)": lambda f: lambda x: weft.vmap(lambda e: weft.jvp(f, (x,), (e,))[1])(units(x)),
    "linearize": lambda f: lambda x: weft.vmap(weft.linearize(f, x)[1])(units(x)),
    "jacfwd": weft.jacfwd,
    "jacrev": weft.jacrev,
    "jacobian": weft.jacobian,
    "autograd": lambda f: lambda x: by_the_tape(f, x),
}
#: Ways from a function of a vector to the matrix of its derivatives.
MATRICES: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: (
        lambda x: weft.stack([weft.grad(lambda y, i=i: f(y)[i])(x) for i in range(SIZE)])
    ),
    "jvp": lambda f: lambda x: weft.stack([weft.jvp(f, (x,), (e,))[1] for e in units(x)], axis=1),
    "vmap(jvp)": lambda f: (
        lambda x: weft.vmap(lambda e: weft.jvp(f, (x,), (e,))[1], out_axes=1)(units(x))
    ),
    "vmap(vjp)": lambda f: lambda x: weft.vmap(weft.vjp(f, x)[1])(units(x))[0],
    "linearize": lambda f: lambda x: weft.vmap(weft.linearize(f, x)[1], out_axes=1)(units(x)),
    "jacfwd": weft.jacfwd,
    "jacrev": weft.jacrev,
    "jacobian": weft.jacobian,
}


def units(x: Tensor) -> Tensor:
    return weft.eye(SIZE, dtype=x.dtype)


def by_the_tape(f: Function, x: Tensor) -> Tensor:
    """The eager way; the history of x goes on behind the gradient."""
    y = x * 1
    if not y.requires_grad:
        y.requires_grad = True
    found: Tensor = weft.autograd.grad(f(y), y, create_graph=True, materialize_grads=True)[0]
    return found


POINT = f64(0.7, -0.4, 1.1, 0.9)


def differences(f: Callable[[Any], Any], x: Any, eps: float = 1e-5) -> Any:
    steps = [eps * row for row in np.eye(SIZE)]
    return np.stack([(f(x + s) - f(x - s)) / (2 * eps) for s in steps], axis=-1)


def gradient_of(name: str, x: Any) -> Any:
    with weft.no_grad():
        return differences(lambda x: FUNCTIONS[name](weft.asarray(x)).numpy(), x, 1e-6)


def hessian_of(name: str, x: Any) -> Any:
    """Differences of exact gradients, which are checked themselves."""
    return differences(lambda x: weft.grad(FUNCTIONS[name])(weft.asarray(x)).detach().numpy(), x)


@pytest.mark.parametrize("way", GRADIENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name: str, way: str) -> None:
    got = GRADIENTS[way](FUNCTIONS[name])(POINT)
    want = gradient_of(name, POINT.numpy())
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("outer", MATRICES)
@pytest.mark.parametrize("inner", GRADIENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_pair(name: str, inner: str, outer: str) -> None:
    both = MATRICES[outer](GRADIENTS[inner](FUNCTIONS[name]))
    want = hessian_of(name, POINT.numpy())
    np.testing.assert_allclose(both(POINT).detach().numpy(), want, rtol=1e-6, atol=1e-7)


POINTS = weft.stack([POINT, POINT * 0.5 + 0.3, weft.flip(POINT)])
#: Functions that look at values decide for all elements at once.
ONE_AT_A_TIME = {"decided"}
MAPPED = [name for name in FUNCTIONS if name not in ONE_AT_A_TIME]


@pytest.mark.parametrize("inner", ["grad", "jvp", "linearize", "jacrev", "jacfwd"])
@pytest.mark.parametrize("name", MAPPED)
def test_for_many_points(name: str, inner: str) -> None:
    """vmap of a Hessian, and the derivative of vmap of a gradient."""
    gradient = GRADIENTS[inner](FUNCTIONS[name])
    want = np.stack([hessian_of(name, x.numpy()) for x in POINTS])
    got = weft.vmap(weft.jacfwd(gradient))(POINTS)
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-6, atol=1e-7)
    blocks = weft.jacrev(weft.vmap(gradient))(POINTS).detach().numpy()
    blocks = np.stack([blocks[i, :, i] for i in range(3)])
    np.testing.assert_allclose(blocks, want, rtol=1e-6, atol=1e-7)
    direction = weft.sin(POINTS * 5)
    _, moved = weft.jvp(weft.vmap(gradient), (POINTS,), (direction,))
    along = np.einsum("bij,bj->bi", want, direction.numpy())
    np.testing.assert_allclose(moved.detach().numpy(), along, rtol=1e-6, atol=1e-7)
    total = weft.grad(lambda x: (weft.vmap(gradient)(x) * direction).sum())(POINTS)
    along = np.einsum("bij,bi->bj", want, direction.numpy())
    np.testing.assert_allclose(total.detach().numpy(), along, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", MAPPED)
def test_of_vmap(name: str) -> None:
    """hessian, hvp and jacobian of a function that maps inside."""
    f = FUNCTIONS[name]

    def total(x: Tensor) -> Tensor:
        return weft.vmap(f)(x).sum()

    want = np.stack([hessian_of(name, x.numpy()) for x in POINTS])
    whole = weft.hessian(total)(POINTS).detach().numpy()
    for i in range(3):
        for j in range(3):
            block = want[i] if i == j else np.zeros((SIZE, SIZE))
            np.testing.assert_allclose(whole[i, :, j], block, rtol=1e-6, atol=1e-7)
    product = weft.hvp(total, (POINTS,), (POINTS,)).detach().numpy()
    np.testing.assert_allclose(
        product, np.einsum("bij,bj->bi", want, POINTS.numpy()), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("outer", ["grad", "jvp", "vmap(vjp)", "linearize", "jacfwd", "jacrev"])
@pytest.mark.parametrize("inner", ["grad", "jvp", "vmap(jvp)", "linearize", "jacrev"])
@pytest.mark.parametrize("name", [n for n in MAPPED if n not in ("solve", "eigh", "fft", "norm")])
def test_recorded(name: str, inner: str, outer: str) -> None:
    """The transforms run on symbolic tensors unchanged."""
    both = MATRICES[outer](GRADIENTS[inner](FUNCTIONS[name]))
    graph = weft.make_graph(both, weft.spec(SIZE, weft.float64))
    for x in POINTS:
        want = both(x).detach().numpy()
        np.testing.assert_allclose(graph(x).detach().numpy(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_traced_outside_and_inside(name: str) -> None:
    f = FUNCTIONS[name]
    traced = weft.trace(weft.hessian(f))
    inside = weft.hessian(weft.trace(f))
    for x in POINTS:
        want = weft.hessian(f)(x).detach().numpy()
        for way in (traced, inside):
            np.testing.assert_allclose(way(x).detach().numpy(), want, rtol=1e-9, atol=1e-9)
