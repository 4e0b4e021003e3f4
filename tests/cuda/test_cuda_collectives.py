"""Collectives of tensors on GPUs: those of the CPU's are the oracle. NCCL is emulated where ranks
are threads."""

from __future__ import annotations

from typing import Any

import fake_nccl
import numpy as np
import pytest
from cuda_device import REAL, cuda

import weft
from weft import distributed, nn, optim
from weft.errors import DistributedError

__all__ = ["cuda"]
pytestmark = [
    pytest.mark.usefixtures("cuda"),
    pytest.mark.skipif(REAL, reason="several ranks need several GPUs"),
]

PAIRS = ((0, 1), (1, 2))
CALLS: dict[str, Any] = {
    "all_reduce": lambda x: distributed.all_reduce(x),
    "all_reduce mean": lambda x: distributed.all_reduce(x, op="mean"),
    "all_reduce max": lambda x: distributed.all_reduce(x, op="max"),
    "all_reduce min": lambda x: distributed.all_reduce(x, op="min"),
    "all_gather": lambda x: distributed.all_gather(x),
    "all_gather 1": lambda x: distributed.all_gather(x, axis=1),
    "reduce_scatter": lambda x: distributed.reduce_scatter(x),
    "reduce_scatter 1": lambda x: distributed.reduce_scatter(x, axis=1),
    "all_to_all": lambda x: distributed.all_to_all(x, split_axis=0, concat_axis=1),
    "broadcast": lambda x: distributed.broadcast(x, root=1),
    "send": lambda x: distributed.send(x, PAIRS),
    "added": lambda x: distributed.added(x),
    "copied": lambda x: distributed.copied(x),
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int16")


def given(rank: int, dtype: str) -> weft.Tensor:
    numbers = np.random.default_rng(rank).integers(1, 9, (6, 3)) / (1 if "int" in dtype else 4)
    return weft.asarray(numbers).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_on_the_cpu(name: str, dtype: str) -> None:
    if "mean" in name and "int" in dtype:
        return

    def rank(device: str) -> Any:
        x = given(distributed.rank(), dtype)
        out = CALLS[name](x.to(device))
        assert str(out.device) == device
        return out.cpu().numpy(), out.dtype.name

    fake_nccl.log.clear()
    wanted = distributed.run_virtual(3, rank, "cpu")
    assert not fake_nccl.log
    for (one, kind), (two, wants) in zip(
        distributed.run_virtual(3, rank, "cuda"), wanted, strict=True
    ):
        np.testing.assert_array_equal(one, two)
        assert kind == wants == dtype
    assert fake_nccl.log or name == "copied"


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_on_the_cpu(name: str) -> None:
    def rank(device: str) -> Any:
        x = given(distributed.rank(), "float32").to(device).detach()
        x.requires_grad = True
        (CALLS[name](x) ** 2).sum().backward()
        assert x.grad is not None
        return x.grad.cpu().numpy()

    wanted = distributed.run_virtual(3, rank, "cpu")
    for one, two in zip(distributed.run_virtual(3, rank, "cuda"), wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_data_parallel_training(compiled: bool) -> None:
    def train(device: str) -> Any:
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
        distributed.data_parallel(model)
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        x = given(distributed.rank(), "float32").to(device)
        for _ in range(4):
            run(x)
        return [p.detach().cpu().numpy() for p in model.parameters()]

    wanted = distributed.run_virtual(2, train, "cpu")
    for one, two in zip(distributed.run_virtual(2, train, "cuda"), wanted, strict=True):
        for p, q in zip(one, two, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-6)


def test_empty_arrays_and_one_rank() -> None:
    def rank() -> Any:
        nothing = weft.zeros((0, 3), device="cuda")
        return [call(nothing).shape for name, call in CALLS.items() if "reduce" not in name]

    assert len(distributed.run_virtual(3, rank)) == 3
    x = weft.ones((2, 2), device="cuda")
    for name, call in CALLS.items():
        if name not in ("send", "broadcast"):
            assert call(x).tolist() == [[1.0, 1.0], [1.0, 1.0]], name
    assert distributed.send(x, ((0, 0),)).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_other_calls_on_other_ranks_are_errors() -> None:
    def rank() -> None:
        x = weft.ones(2 + distributed.rank(), device="cuda")
        distributed.all_reduce(x)

    with pytest.raises(DistributedError, match="different collectives"):
        distributed.run_virtual(2, rank, timeout=20)


def test_missing_nccl_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_nccl, "available", False)
    with pytest.raises(DistributedError, match="nvidia-nccl"):
        distributed.run_virtual(
            2, lambda: distributed.all_reduce(weft.ones(2, device="cuda")), timeout=20
        )
