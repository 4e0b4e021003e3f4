"""Split graphs with values on a GPU, or on CuPy's stand-in over NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import split_graphs as split
from cuda_device import cuda

import weft

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


def f(x: Any, w: Any) -> Any:
    y = weft.tanh(x.to("cuda") @ w) * 2
    z = y.cpu()
    while z.sum() < 100:
        z = z * 3 + 1
    return (weft.exp(-z) + 1).sum(), y


def test_what_is_on_the_gpu_is_a_segment_there() -> None:
    x, w = weft.ones((3, 4)), weft.ones((4, 4)).to("cuda") * 0.1
    want = f(x, w)
    with split.engines("npu"):
        made = weft.compile(f, backend=weft.Split({"exp": "npu"}))
        for _ in range(3):
            got = made(x, w)
            for mine, theirs in zip(got, want, strict=True):
                assert mine.device == theirs.device
                assert np.allclose(mine.numpy(), theirs.numpy(), rtol=1e-5)
        graph = made.programs[-1].program.placement.split()
        (segment,) = split.segments(graph, "cuda")
        assert [n.op.name for n in segment.graphs[0].nodes if n.inputs] == [
            *("matmul", "tanh", "multiply")
        ]
        assert {node.attrs["target"] for node in split.transfers(graph)} == {"npu", "cpu"}
        assert weft.grad(lambda x: made(x, w)[0])(x).shape == (3, 4)
        found = weft.grad(lambda x: made(x, w)[0])(x).numpy()
        assert np.allclose(found, weft.grad(lambda x: f(x, w)[0])(x).numpy(), atol=1e-6)
