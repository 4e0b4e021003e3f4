"""Gradients of functions that mean another thing in `weft.torch` than in Weft's core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peer import figures
from torch_expressions import VALUES

import weft.torch as torch

EXPRESSIONS = [
    *("f.max(1).values", "f.min(0)[0]", "f.max()", "torch.max(f, 1.5 * f)"),
    *("f.sort(dim=1, descending=True).values", "f.median(1).values", "f.median()"),
    *("f.std()", "f.var(0)", "torch.std_mean(f, 1)[0]", "f.norm()", "f.norm(dim=1)", "f.norm(1)"),
    *("f.repeat(2, 3)", "f.flip(0)", "f.roll(1, 1)", "f.tril()", "f.diagonal()", "f.squeeze(0)"),
    *("f.topk(2).values", "f.kthvalue(2).values", "f.cummax(1).values", "torch.where(f > 0, f, 0)"),
    *(
        "f.softmax(1)",
        "f ** 2",
        "f.round(decimals=1)",
        "f.sum(0)",
        "f.view(-1)[::2]",
        "f / f.sum()",
    ),
    *("f.clamp(-1, 1)", "f.masked_fill(f > 2, 0.0)", "f.transpose(0, 1)", "f.repeat_interleave(2)"),
    *("torch.tensor([[1, 0, 0]]) * f", "(f - f).norm()", "torch.stack([f, f]).max(0).values"),
]


def gradient(expression: str, namespace: Any) -> Any:
    f = namespace.tensor(VALUES["f"], requires_grad=True)
    out = eval(expression, {"torch": namespace, "f": f})
    weights = np.arange(1.0, 1 + out.numel(), dtype=np.float32).reshape(tuple(out.shape))
    (out * namespace.tensor(weights)).sum().backward()
    return f.grad.numpy()


@pytest.fixture(scope="module")
def wanted() -> dict[str, Any]:
    return figures(
        "torch_gradients",
        lambda real: {str(i): gradient(e, real) for i, e in enumerate(EXPRESSIONS)},
    )


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=EXPRESSIONS)
def test_a_gradient_is_pytorchs(number: int, wanted: dict[str, Any]) -> None:
    found = gradient(EXPRESSIONS[number], torch)
    np.testing.assert_allclose(found, wanted[str(number)], rtol=1e-5, atol=1e-6)
