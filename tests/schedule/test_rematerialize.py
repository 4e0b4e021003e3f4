"""What follows a product and is needed once more later is computed again, where that moves less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.core.bind import bind
from weft.ir.interpret import interpret
from weft.passes.pipeline import optimize
from weft.runtime.native import NativeProgram

SHAPES = ((6, 8), (8, 20), (20,))
X, W, B = (weft.randn(*shape, generator=weft.Generator(i)) for i, shape in enumerate(SHAPES))


def trained(act: Any) -> Any:
    """A layer with an activation, a layer after it, and the gradients of both."""

    def f(x: Any, w: Any, b: Any) -> Any:
        def loss(x: Any, w: Any, b: Any) -> Any:
            return (act(x @ w + b) @ w.mT).sum()

        return weft.grad(loss, argnums=(0, 1, 2))(x, w, b)

    return f


def normed(x: Any, w: Any, b: Any) -> Any:
    """Row sums, column sums and products of one product's result."""
    made = x @ w
    scaled, squared = made * b, made * made * b
    return (
        scaled.sum(axis=0),
        squared.sum(axis=1),
        (scaled - squared.sum(axis=1, keepdims=True)).sum(axis=0),
    )


def given_back(x: Any, w: Any, b: Any) -> Any:
    made = weft.exp(x @ w + b)
    return made, weft.tanh(made @ w.mT) @ w * made


def turned(x: Any, w: Any, b: Any) -> Any:
    made = (x @ w + b).mT * 2 + 1
    return (x @ w).mT @ x, (made.mT @ w.mT).mT @ made.mT, made


#: name, function, how many results of the size of the product are written.
ROWS = [
    ("gelu", trained(F.gelu), 2 + 1),  # the product, the activation; and its gradient
    ("tanh gelu", trained(lambda x: F.gelu(x, approximate="tanh")), None),
    ("silu", trained(F.silu), 2 + 1),
    ("mish", trained(F.mish), None),
    ("relu", trained(weft.relu), None),
    ("elu", trained(F.elu), None),
    ("softplus", trained(F.softplus), None),
    ("norm", normed, 1),
    ("given back", given_back, None),
    ("turned", turned, None),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_same_and_less_is_written(row: Any) -> None:
    _, function, count = row
    given = [X, W, B]
    graph = optimize(weft.make_graph(function, *given))
    run = NativeProgram(graph)
    for got, want in zip(run(given), interpret(graph, given, bind), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=2e-5)
    if count is not None:
        assert run.plan().count("f32[6,20] ") == count


def test_equal_bits() -> None:
    """Computed twice, a value is the same: what is written and what is computed again."""

    def f(x: Any, w: Any, b: Any) -> Any:
        made = weft.exp(x @ w + b)
        return made, (made @ w.mT) @ w * 0 + made

    first, second = NativeProgram(weft.make_graph(f, X, W, B))([X, W, B])
    assert first.numpy().tobytes() == second.numpy().tobytes()
