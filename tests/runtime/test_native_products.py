"""Products in graphs: operands that lie as views leave them, rows gathered from whole stacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.runtime.native import NativeProgram


def turned(*axes: int) -> Any:
    return lambda x: weft.permute_dims(x, axes)


#: name, shape of x, what is done to it before, shape of w
PRODUCTS: list[tuple[str, tuple[int, ...], Any, tuple[int, ...]]] = [
    ("tokens first", (4, 9, 5), turned(1, 0, 2), (5, 7)),
    ("three axes", (2, 3, 4, 5), turned(2, 0, 1, 3), (5, 7)),
    ("three axes, backward", (2, 3, 4, 5), turned(2, 1, 0, 3), (5, 7)),
    ("terms apart", (3, 5, 4), turned(0, 2, 1), (5, 7)),
    ("terms and stack apart", (5, 3, 4), turned(1, 2, 0), (5, 7)),
    ("rows of one", (3, 1, 5), turned(1, 0, 2), (5, 7)),
    ("part of the rows", (3, 9, 5), lambda x: weft.permute_dims(x[:, 2:6], (1, 0, 2)), (5, 7)),
    ("every other row", (3, 9, 5), lambda x: x[:, ::2], (5, 7)),
    ("backward rows", (3, 9, 5), lambda x: x[::-1], (5, 7)),
    ("repeated", (1, 9, 5), lambda x: weft.broadcast_to(x, (6, 9, 5)), (5, 7)),
    ("repeated rows", (3, 1, 5), lambda x: weft.broadcast_to(x, (3, 6, 5)), (5, 7)),
    ("times a vector", (4, 9, 5), turned(1, 0, 2), (5,)),
    ("large", (8, 33, 40), turned(1, 0, 2), (40, 50)),
    ("one term", (4, 9, 1), turned(1, 0, 2), (1, 7)),
    ("w has a stack of one", (4, 9, 5), turned(1, 0, 2), (1, 5, 7)),
    ("w has a stack", (4, 9, 5), turned(1, 0, 2), (9, 5, 7)),
]


@pytest.mark.parametrize("row", PRODUCTS, ids=lambda row: row[0])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.int32], ids=str)
def test_rows_of_stacks(row: Any, dtype: Any) -> None:
    _, shape, view, other = row
    rng = np.random.default_rng(1)
    x, w = (weft.tensor(rng.integers(-9, 9, size)).astype(dtype) for size in (shape, other))

    def f(x: Any, w: Any) -> Any:
        out = view(x) @ w
        return out, out * 2 + view(x).sum(axis=-1, keepdims=True)[..., : out.shape[-1]].sum()

    run = NativeProgram(weft.make_graph(f, x, w))
    assert "call" not in run.plan()
    for got, want in zip(run([x, w]), f(x, w), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_tokens_first_are_one_product() -> None:
    """Rows in whatever order they lie: no copy, and not a product for each token."""
    x, w = weft.randn(4, 90, 16), weft.randn(16, 24)
    run = NativeProgram(weft.make_graph(lambda x, w: weft.permute_dims(x, (1, 0, 2)) @ w, x, w))
    assert run.plan().count("\n") == 1
    np.testing.assert_allclose(
        run([x, w])[0].numpy(), (weft.permute_dims(x, (1, 0, 2)) @ w).numpy(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=str)
def test_terms_a_page_apart_are_copied(dtype: Any) -> None:
    """Each tile's rows lie close together in the copy, and no tile writes over another's."""
    rng = np.random.default_rng(2)
    x, y = (weft.tensor(rng.integers(-9, 9, (900, n))).astype(dtype) for n in (1024, 256))
    run = NativeProgram(weft.make_graph(lambda x, y: x.mT @ y, x, y))
    assert any(name.endswith(".copy") for name in run.kernels)
    np.testing.assert_array_equal(run([x, y])[0].numpy(), x.numpy().T @ y.numpy())
