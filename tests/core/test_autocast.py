"""`weft.autocast` as a mode: which op computes in which dtype, nesting, threads, errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import autocast
from weft.core import bind
from weft.ir.op import OPS
from weft.nn import functional as F
from weft.record.make_graph import make_graph

X = weft.asarray([[0.5, 0.25, -0.5], [0.125, 0.75, 0.5], [0.5, -0.25, 1.0]])
B = X.bfloat16()
IMAGE, KERNEL = weft.ones(1, 2, 5, 5), weft.ones(3, 2, 3, 3)

#: Calls under autocast to bfloat16, and the dtype of the result.
DTYPES: dict[str, list[Callable[[], Any]]] = {
    "bfloat16": [
        lambda: X @ X,
        lambda: B @ X,
        lambda: X @ X[0],
        lambda: np.asarray([[1.0, 0.0, 0.0]], "float32") @ X,
        lambda: F.linear(X, X),
        lambda: F.linear(X, X, X[0]),
        lambda: weft.einsum("ij,jk,kl->il", X, X, X),
        lambda: weft.addmm(X, X, X),
        lambda: F.conv2d(IMAGE, KERNEL),
        lambda: F.conv2d(IMAGE, KERNEL, weft.ones(3)),
        lambda: F.conv_transpose2d(IMAGE, weft.ones(2, 3, 3, 3), weft.ones(3)),
        lambda: F.scaled_dot_product_attention(X, X, X),
        lambda: F.scaled_dot_product_attention(X, X, X, attn_mask=X),
        lambda: F.prelu(X, X[0, :1]),
        lambda: B + B,
        lambda: B + 1,
        lambda: weft.maximum(B, B),
        lambda: F.relu(B),
        lambda: F.gelu(B),
        lambda: F.elu(B),
        lambda: B.mean(),
        lambda: B.max(),
        lambda: F.batch_norm(B, X[0], X[1] + 1, X[2], X[1]),
        lambda: F.batch_norm(B, X[0], X[1] + 1, X[2], X[1], training=True),
        lambda: F.dropout(B, 0.5),
        lambda: weft.sum(B, dtype="bfloat16"),
        lambda: weft.nn.LSTM(3, 2)(X)[1][1],
        lambda: weft.nn.GRUCell(3, 2)(X),
        lambda: weft.nn.MultiheadAttention(3, 1)(X, X, X)[1],
    ],
    "float32": [
        lambda: X + X,
        lambda: B + X,
        lambda: weft.concat([B, X]),
        lambda: weft.stack([B, X]),
        lambda: weft.where(X > 0, B, X),
        lambda: weft.exp(B),
        lambda: weft.log1p(B),
        lambda: B**2,
        lambda: 2**B,
        lambda: weft.reciprocal(B),
        lambda: weft.softmax(B, axis=0),
        lambda: weft.logsumexp(B, axis=0),
        lambda: F.log_softmax(B, dim=0),
        lambda: B.sum(),
        lambda: B.prod(),
        lambda: B.cumsum(0),
        lambda: weft.linalg.norm(B),
        lambda: weft.linalg.inv(B),
        lambda: weft.linalg.solve(B, X),
        lambda: weft.linalg.lstsq(X, X)[0],
        lambda: weft.cdist(X, X),
        lambda: weft.cov(X),
        lambda: F.layer_norm(B, (3,), X[0], X[1]),
        lambda: F.group_norm(B, 1),
        lambda: F.mse_loss(B, B),
        lambda: F.cross_entropy(B, weft.asarray([0, 1, 2])),
        lambda: F.binary_cross_entropy_with_logits(B, B),
        lambda: F.cosine_similarity(B, B),
        lambda: weft.dot(X[0], X[1]),
    ],
    "float64": [
        lambda: X.double() @ X.double(),
        lambda: X @ X.double(),
        lambda: F.linear(X, X, X[0].double()),
        lambda: weft.exp(X.double()),
    ],
    "complex64": [lambda: X.astype("complex64") @ X],
    "int64": [lambda: weft.ones(2, 2, dtype="int64") @ weft.ones(2, 2, dtype="int64")],
}
CALLS = [(dtype, i) for dtype, calls in DTYPES.items() for i in range(len(calls))]


@pytest.mark.parametrize(("dtype", "number"), CALLS)
def test_dtype_of_result(dtype: str, number: int) -> None:
    call = DTYPES[dtype][number]
    with autocast("bfloat16"):
        assert call().dtype.name == dtype
    assert weft.compile(lambda: _under(call), fallback="python")().dtype.name == dtype


@autocast("bfloat16")
def _under(call: Callable[[], Any]) -> Any:
    return call()


def test_rounds_operands_once_and_accumulates_in_float32() -> None:
    weft.manual_seed(1)
    x, y = weft.randn(20, 30), weft.randn(30, 10)
    with autocast("bfloat16"):
        found = x @ y
    exact = x.bfloat16().double() @ y.bfloat16().double()
    np.testing.assert_allclose(found.double().numpy(), exact.numpy(), atol=2**-8 * 30)
    assert (found == exact.astype("bfloat16")).astype("float32").mean() > 0.99


def test_loss_of_narrow_values_is_exact() -> None:
    x, y = weft.full((1000,), 1.0, dtype="bfloat16"), weft.full((1000,), 1.0078125)
    with autocast("bfloat16"):
        assert F.mse_loss(x, y).item() == 0.0078125**2
        assert F.l1_loss(x, y).item() == 0.0078125


def test_every_field_of_a_card_is_a_rule() -> None:
    assert {op.autocast for op in OPS.values()} == {"", "lower", "float32"}


def test_nesting_and_errors_leave_it_as_it_was() -> None:
    assert not weft.is_autocast_enabled()
    mode = autocast("float16")
    with mode, mode:
        assert weft.get_autocast_dtype() is weft.float16
        with pytest.raises(ZeroDivisionError), autocast("bfloat16"):
            weft.asarray(1 / (weft.get_autocast_dtype() is weft.float16))
        with autocast(enabled=False):
            assert not weft.is_autocast_enabled()
            assert (X @ X).dtype is weft.float32
        with pytest.raises(weft.errors.ShapeError):
            X @ weft.ones(2)
        assert (X @ X).dtype is weft.float16
    assert not weft.is_autocast_enabled()
    assert bind._recording == 0
    assert (X @ X).dtype is weft.float32


def test_decorator_and_recursion() -> None:
    @autocast("bfloat16")
    def power(x: Any, n: int) -> Any:
        """x to the power of n."""
        return x if n == 0 else power(x, n - 1) @ X

    assert power(X, 3).dtype is weft.bfloat16
    assert power.__doc__ == "x to the power of n."


def test_each_thread_has_its_own() -> None:
    found = []

    def work(dtype: str | None) -> None:
        for _ in range(50):
            with autocast(dtype or "float16", enabled=dtype is not None):
                found.append((X @ X).dtype.name == (dtype or "float32"))

    threads = [threading.Thread(target=work, args=(d,)) for d in ("float16", "bfloat16", None)]
    with autocast("bfloat16"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 150
    assert all(found)
    assert bind._recording == 0


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        ("cpu", "the first argument is a dtype, not 'cpu'"),
        ("float32", "cannot be cast down to float32"),
        (weft.int8, "cannot be cast down to int8"),
    ],
)
def test_dtypes_that_are_refused(dtype: Any, says: str) -> None:
    with pytest.raises(weft.errors.DTypeError, match=says):
        autocast(dtype)


def test_writes_keep_the_dtype() -> None:
    x, n = B.clone(), weft.asarray([2, 3])
    with autocast():
        x **= 2
        assert x.dtype is weft.bfloat16
        with pytest.raises(weft.errors.DTypeError):
            n *= 0.5
    with pytest.raises(weft.errors.DTypeError):
        x += X


def test_recorded_graphs_run_as_they_were_recorded() -> None:
    graph = make_graph(lambda x: weft.exp(x @ x), X)
    compiled = weft.compile(lambda x: x @ x, backend="interpret")
    assert compiled(X).dtype is weft.float32
    with autocast():
        assert compiled(X).dtype is weft.bfloat16
        assert graph(X).dtype is weft.float32
    assert compiled(X).dtype is weft.float32
    assert len(compiled.recordings) == 2


def test_a_compiled_function_is_given_contexts() -> None:
    @weft.compile
    def product(x: Any, context: Any) -> Any:
        with context:
            return x @ x

    for dtype in ("bfloat16", "float16", "bfloat16"):
        assert product(X, autocast(dtype)).dtype.name == dtype
    assert product(X, autocast(enabled=False)).dtype is weft.float32
    assert len(product.recordings) == 3


def test_backward_runs_in_the_dtypes_of_its_forward() -> None:
    w = X.clone().requires_grad_()
    with autocast("bfloat16"):
        loss = (X @ w).sum()
    loss.backward()
    outside = w.grad
    w.grad = None
    with autocast("float16"):
        with autocast("bfloat16"):
            loss = (X @ w).sum()
        loss.backward()
    assert w.grad.dtype is weft.float32
    assert (w.grad == outside).all()
