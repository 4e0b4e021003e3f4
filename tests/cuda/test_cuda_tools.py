"""Tools that look at runs of compiled functions, on the device "cuda"."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_device import cuda

import weft
from weft import nn
from weft.errors import NonFiniteError
from weft.runtime.cuda.program import CudaProgram

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


def shrinking(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
    while x.abs().max() > 0.1:
        x = 0.9 * weft.tanh(x @ w)
    return x.sum()


#: Functions of x (40 × 48) and w (48 × 48), and ops that their kernels must tell of.
WORKS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "product and loops": (
        lambda x, w: weft.softmax(weft.tanh(x @ w), axis=1).sum(axis=0),
        {"matmul", "tanh"},
    ),
    "a call": (lambda x, w: weft.linalg.inv(w * 0.1 + weft.eye(48).to(w.device)) @ x.T, {"inv"}),
    "a loop": (shrinking, {"while"}),
    "a small program": (lambda x, w: (weft.tanh(x[:4, :4] @ w[:4, :4]) ** 2).sum(), {"tanh"}),
}


def inputs(device: str) -> list[weft.Tensor]:
    rng = np.random.default_rng(0)
    made = [
        rng.standard_normal((40, 48), np.float32),
        rng.standard_normal((48, 48), np.float32) / 14,
    ]
    return [weft.asarray(x.astype(np.float32)).to(device) for x in made]


@pytest.mark.parametrize("name", WORKS)
def test_profiles_have_the_times_of_kernels(name: str) -> None:
    function, ops = WORKS[name]
    compiled = weft.compile(function, backend="native")
    given = inputs("cuda")
    compiled(*given)
    begin = time.monotonic_ns()
    with weft.profile() as profile:
        found = compiled(*given)
    took = time.monotonic_ns() - begin
    want = function(*inputs("cpu"))
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-3, atol=1e-5)
    [run] = [event for event in profile.events if event.kind == "run"]
    kernels = [event for event in profile.events if event.kind in ("kernel", "call")]
    assert [event.device for event in kernels] == ["cuda"] * len(kernels)
    assert ops <= {word for event in kernels for word in event.name.split()}
    assert all(event.places for event in kernels)
    assert all(0 <= event.start <= event.stop for event in kernels)
    assert 0 < sum(event.seconds for event in kernels) <= run.seconds <= took * 1e-9
    assert sum(event.flops for event in kernels) > 0


def test_a_profiled_step_trains() -> None:
    def losses(profiled: bool) -> list[float]:
        weft.manual_seed(0)
        model = nn.Linear(6, 3).to("cuda")
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        @weft.compile(backend="native")
        def step(x: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        x, found = weft.ones((5, 6)).cuda(), []
        for number in range(6):
            if profiled and number % 2:
                with weft.profile():
                    found.append(step(x).item())
            else:
                found.append(step(x).item())
        return found

    assert losses(True) == losses(False)


@pytest.mark.parametrize("compiles", [False, True])
def test_a_nan_is_found(compiles: bool) -> None:
    def work(x: weft.Tensor) -> weft.Tensor:
        return weft.log(x - 1).sum()

    run = weft.compile(work, backend="native") if compiles else work
    x = weft.ones((3, 4)).cuda()
    run(x + 2)
    with weft.detect_nan(), pytest.raises(NonFiniteError, match="log: it creates a NaN: 12 of 12"):
        run(x * 0)
    with weft.detect_nan():
        run(x + 2)


@pytest.mark.parametrize("by", ["mode", "kernel"])
def test_comparisons_see_wrong_numbers(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = weft.compile(WORKS["product and loops"][0], backend="native")
    given = inputs("cuda")
    assert weft.compare(compiled, *given, by=by)
    right = CudaProgram._outputs

    def wrong(self: CudaProgram, inputs: list[weft.Tensor]) -> list[Any]:
        return [array * 1.01 for array in right(self, inputs)]

    monkeypatch.setattr(CudaProgram, "_outputs", wrong)
    found = weft.compare(compiled, *given, by=by)
    assert not found
    assert found.first is not None
