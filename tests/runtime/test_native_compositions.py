"""Programs of a few lines whose kernels read what other kernels leave: each is run natively with
other inputs in each call, and compared with eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F

Shape = tuple[int, ...]
ORDERS = list(itertools.permutations(range(4)))


def _agrees(
    function: Callable[..., Any], shapes: list[Shape], grads: bool = False, dtype: str = "float32"
) -> None:
    """Compare three calls on other numbers each; with `grads`, the products with the gradients of
    all arguments, too, of numbers that are given."""

    def with_gradients(along: Any, *args: Any) -> Any:
        out = function(*args)
        return [out, *weft.autograd.grad([out], list(args), [along])]

    rng = np.random.default_rng(0)

    def given() -> list[Any]:
        return [weft.asarray((rng.normal(size=s) * 0.5).astype(dtype)) for s in shapes]

    shape = function(*given()).shape
    program = with_gradients if grads else function
    compiled = weft.compile(program, backend="native")
    for _ in range(3):
        args = given()
        for x in args:
            x.requires_grad = grads
        if grads:
            args.insert(0, weft.asarray(rng.normal(size=shape).astype(dtype)))
        wanted, found = program(*args), compiled(*args)
        if not grads:
            wanted, found = [wanted], [found]
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=2e-4, atol=2e-5)


# --- loops that carry a scalar beside a product ---


def scalar_beside_product(w: Any, z: Any, h: Any) -> Any:
    for _ in range(3):
        z = h * z + w @ z
        h = h * 1.1
    return z.sum()


def scalar_in_while(w: Any, z: Any, h: Any) -> Any:
    i = weft.asarray(0)
    while i < 4:
        k1 = w @ z
        k2 = w @ (z + h * k1)
        y3 = h * 0.1 * k1 + h * 0.3 * k2
        z = w @ y3 - y3
        h = h * 1.5
        i = i + 1
    return z


def scalar_kept_for_later(w: Any, z: Any, h: Any) -> Any:
    rates = []
    for _ in range(3):
        z = (h * z + w @ z) * h
        rates.append(h)
        h = h * 1.1
    return z * weft.stack(rates).sum()


@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("program", [scalar_beside_product, scalar_in_while, scalar_kept_for_later])
def test_scalar_beside_a_product(program: Callable[..., Any], grads: bool) -> None:
    for columns in ((), (3,)):
        _agrees(program, [(4, 4), (4, *columns), ()], grads)


# --- copies that strides cannot spare ---


def _heads(x: Any) -> Any:
    return x.reshape(2, 3, 2, 4).swapaxes(1, 2)


COPIES: dict[str, tuple[Callable[..., Any], list[Shape]]] = {
    "gelu of a copy": (lambda r: F.gelu(r.T.reshape(-1)), [(3, 5)]),
    "a copy twice": (lambda r: (lambda c: c * c + weft.sin(c))(r.T.reshape(-1)), [(3, 5)]),
    "a copy beside other loops": (
        lambda r, x: weft.exp(x) + r.T.reshape(-1) * 2,
        [(3, 5), (15,)],
    ),
    "a copy after other loops": (
        lambda r, x: weft.exp(x).sum() + r.T.reshape(-1) * r.T.reshape(-1),
        [(3, 5), (15,)],
    ),
    "layer_norm, heads": (lambda x: _heads(F.layer_norm(x, (8,))), [(2, 3, 8)]),
    "rms_norm, heads": (lambda x: _heads(F.rms_norm(x, (8,))), [(2, 3, 8)]),
    "gelu, heads": (lambda x: _heads(F.gelu(x)), [(2, 3, 8)]),
    "normalize, heads": (lambda x: _heads(F.normalize(x, dim=-1)), [(2, 3, 8)]),
    "concat, heads": (lambda x, y: _heads(weft.concat([x, y], axis=-1)), [(2, 3, 4), (2, 3, 4)]),
    "heads, gelu": (lambda x: F.gelu(_heads(x).reshape(2, -1)), [(2, 3, 8)]),
    "heads, softmax": (lambda x: weft.softmax(_heads(x).reshape(4, -1), axis=-1), [(2, 3, 8)]),
    "heads of a product": (
        lambda x, w: F.gelu(_heads(x @ w).reshape(12, 4)) * _heads(x @ w).reshape(12, 4),
        [(2, 3, 8), (8, 8)],
    ),
}


@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("name", COPIES)
def test_copies(name: str, grads: bool) -> None:
    _agrees(*COPIES[name], grads)


# --- convolutions of views ---


def _frames(v: Any, w: Any) -> Any:
    total = F.conv2d(v[:, 0], w)
    for t in range(9):
        total = total * 0.5 + F.conv2d(v[:, t], w)
    return total


def _unet(x: Any, w: Any, up: Any, last: Any) -> Any:
    down = F.relu(F.conv2d(x, w, padding=1))
    small = F.max_pool2d(down, 2)
    return F.conv2d(weft.concat([F.conv_transpose2d(small, up, stride=2), down], axis=1), last)


CONVOLUTIONS: dict[str, tuple[Callable[..., Any], list[Shape]]] = {
    "some channels": (lambda z, w: F.conv2d(z[:, :2], w), [(2, 4, 8, 8), (3, 2, 3, 3)]),
    "turned": (lambda x, w: F.conv1d(x.transpose(1, 2), w), [(2, 8, 3), (4, 3, 3)]),
    "a crop": (lambda x, w: F.conv2d(x[..., 1:7, 2:8], w), [(2, 2, 8, 9), (3, 2, 3, 3)]),
    "a part of the weights": (
        lambda x, w: F.conv2d(x, w[:, ::2]) + F.conv2d(x, w[:, 1::2]),
        [(2, 2, 6, 6), (3, 4, 3, 3)],
    ),
    "repeated": (lambda x, w: F.conv2d(x.expand(4, 2, 6, 6), w), [(1, 2, 6, 6), (3, 2, 3, 3)]),
    "frames in a loop": (_frames, [(2, 9, 2, 5, 5), (3, 2, 3, 3)]),
    "a U-Net": (_unet, [(2, 2, 6, 6), (4, 2, 3, 3), (4, 3, 2, 2), (2, 7, 1, 1)]),
}


@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_views(name: str, grads: bool) -> None:
    _agrees(*CONVOLUTIONS[name], grads)


def test_sums_over_axes_in_another_order() -> None:
    """A sum over columns whose result has the other axes in another order than the loops."""

    def sums(x: Any) -> Any:
        return tuple(
            weft.sum(weft.permute_dims(weft.tanh(x + i), order), axis=axis)
            for i, (order, axis) in enumerate(itertools.product(ORDERS, range(4)))
        )

    compiled = weft.compile(sums, backend="native")
    rng = np.random.default_rng(0)
    for _ in range(2):
        x = weft.asarray(rng.standard_normal((2, 3, 4, 5)))
        for found, wanted in zip(compiled(x), sums(x), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)


REPLACED: dict[str, tuple[Any, Any]] = {
    "sin": (lambda x: weft.sin(x) * 2 + x, lambda x: x * 0 + 5),
    "add": (lambda x: (x + x * 2).exp(), lambda a, b: a * 0 + 0.5),
    "matmul": (lambda x: weft.relu(x @ x.T) + 1, lambda a, b: np.matmul(a, b) * 0 + 3),
    "softmax": (lambda x: weft.softmax(x, axis=-1) + 1, lambda x, axis: x * 0 + 7),
    "sum": (lambda x: x.sum(axis=0) * 2, lambda x, axis, keepdims: x.mean(axis)),
}


@pytest.mark.parametrize("backend", ["interpret", "native", "dataflow", "split"])
@pytest.mark.parametrize("name", REPLACED)
def test_kernels_of_users_are_called_in_machine_code(name: str, backend: str) -> None:
    """Eager code calls them: compiled code does, too, also inside of what would be fused."""
    call, kernel = REPLACED[name]
    x = weft.randn(3, 3)
    before = call(x).numpy()
    weft.register_kernel(name)(kernel)
    wanted = call(x).numpy()
    assert not np.allclose(before, wanted)
    compiled = weft.compile(lambda x: call(x), backend=backend)
    for _ in range(2):
        np.testing.assert_allclose(compiled(x).numpy(), wanted, rtol=1e-6)


def test_a_kernel_that_gives_another_shape_is_an_error() -> None:
    weft.register_kernel("sin")(lambda x: np.zeros(7, np.float32))
    with pytest.raises(weft.errors.ShapeError, match=r"gave f32\[7\], and f32\[3\] was planned"):
        weft.compile(lambda x: weft.sin(x) + 1, backend="native")(weft.ones(3))
