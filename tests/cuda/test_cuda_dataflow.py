"""The dataflow executor on tensors of a GPU, or of CuPy's stand-in over NumPy."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_device import cuda

import weft

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


def f(x: Any, n: Any) -> Any:
    total = weft.zeros(3, device=x.device)
    for i in range(n):
        y = x + 1.5
        while y.sum() < 20:
            y = y * 2 + weft.ones(3, device=x.device)
        total = total + y * i if x[0] > 0 else total - y
    return weft.sin(total)


@pytest.mark.parametrize("scheduler", ["fifo", "pool"])
def test_loops_branches_and_gradients(scheduler: str) -> None:
    results = []
    for backend in ("interpret", weft.Dataflow(scheduler, threads=2)):
        x = weft.tensor([0.5, 1.0, 2.0], device="cuda", requires_grad=True)
        y = weft.compile(f, backend=backend)(x, weft.tensor(3, device="cuda"))
        (g,) = weft.autograd.grad((y * y).sum(), x)
        assert str(y.device) == str(g.device) == "cuda"
        results.append((y.tolist(), g.tolist()))
    assert results[0] == results[1]
