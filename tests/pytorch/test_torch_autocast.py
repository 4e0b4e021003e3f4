"""`torch.autocast` and `GradScaler`: the same programs here and in PyTorch, on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from peer import figures

import weft
import weft.torch

PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {}


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


def fill(torch: Any, model: Any, scale: float = 0.5) -> Any:
    """The same first values in both libraries."""
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            count = int(np.prod(p.shape))
            numbers = scale * np.sin(1.0 + number + 1.7 * np.arange(count))
            p.copy_(torch.tensor(numbers.reshape(tuple(p.shape)), dtype=torch.float32))
    return model


def inputs(torch: Any, *shape: int) -> Any:
    count = int(np.prod(shape))
    return torch.tensor(np.cos(0.7 * np.arange(count)).reshape(shape), dtype=torch.float32)


def train(torch: Any, compiled: str, model: Any, loss_of: Any, optimizer: Any, steps: int) -> Any:
    """The losses of some steps in bfloat16, and the parameters after them."""

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = weft.compile(step, backend=compiled) if compiled else step
    losses = [run() for _ in range(steps)]
    assert all(loss.dtype == torch.float32 for loss in losses)
    assert all(p.grad.dtype == p.dtype == torch.float32 for p in model.parameters())
    ends = {name: p.detach() for name, p in model.named_parameters()}
    return {"losses": torch.stack(losses), **ends}


@program
def mlp(torch: Any, compiled: str = "") -> Any:
    nn, F = torch.nn, torch.nn.functional
    model = fill(torch, nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))
    x, y = inputs(torch, 24, 4), torch.tensor(np.arange(24) % 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return train(torch, compiled, model, lambda m: F.cross_entropy(m(x), y), optimizer, 20)


@program
def transformer(torch: Any, compiled: str = "") -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 8)
            self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 7)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.block(self.embed(tokens)))

    model = fill(torch, Model(), 0.3)
    tokens = torch.tensor((np.arange(40) * 3 % 7).reshape(5, 8))

    def loss_of(m: Any) -> Any:
        return F.cross_entropy(m(tokens[:, :-1]).reshape(-1, 7), tokens[:, 1:].reshape(-1))

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(torch, compiled, model, loss_of, optimizer, 15)


@program
def convolution(torch: Any, compiled: str = "") -> Any:
    nn, F = torch.nn, torch.nn.functional
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    model = fill(torch, nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 2)))
    x, y = inputs(torch, 8, 1, 6, 6), torch.tensor(np.arange(8) % 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return train(torch, compiled, model, lambda m: F.cross_entropy(m(x), y), optimizer, 10)


@program
def recurrent(torch: Any, compiled: str = "") -> Any:
    nn, F = torch.nn, torch.nn.functional

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 6)
            self.head = nn.Linear(6, 1)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][-1])

    model = fill(torch, Model())
    x, y = inputs(torch, 7, 4, 3), inputs(torch, 4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(torch, compiled, model, lambda m: F.mse_loss(m(x), y), optimizer, 10)


@pytest.mark.parametrize("compiled", ["", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_training_in_bfloat16(name: str, compiled: str) -> None:
    want = figures(f"autocast_{name}", PROGRAMS[name])
    got = PROGRAMS[name](weft.torch, compiled)
    assert want["losses"][-1] < want["losses"][0]
    for key, theirs in want.items():
        mine = got[key].numpy()
        scale = max(0.1, float(np.abs(theirs).max()))
        np.testing.assert_allclose(mine, theirs, atol=0.02 * scale, rtol=0.02, err_msg=key)


def scaled(torch: Any, compiled: str = "") -> dict[str, Any]:
    """The scale and a parameter after each step, of which some overflow."""
    w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    optimizer = torch.optim.Adam([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    def step(factor: Any) -> Any:
        optimizer.zero_grad()
        loss = (w * w * factor).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        scaler.step(optimizer)
        scaler.update()

    run = weft.compile(step, backend=compiled) if compiled else step
    factors = [1.0, 2.0, np.inf, 1.0, 1.0, 1.0, np.nan, 1e38, 1.0, 1.0, 1.0, 1.0]
    scales, values = [], []
    for factor in factors:
        run(torch.tensor(factor, dtype=torch.float32))
        scales.append(scaler.get_scale())
        values.append(w.detach().clone())
    state = scaler.state_dict()
    return {
        "scales": np.asarray(scales),
        "values": torch.stack(values),
        "state": np.asarray([float(state[key]) for key in sorted(state)]),
    }


@pytest.mark.parametrize("compiled", ["", "native"])
def test_grad_scaler(compiled: str) -> None:
    want, got = figures("grad_scaler", scaled), scaled(weft.torch, compiled)
    assert len(set(want["scales"])) > 2
    np.testing.assert_array_equal(got["scales"], want["scales"])
    np.testing.assert_array_equal(got["state"], want["state"])
    np.testing.assert_allclose(got["values"].numpy(), want["values"], rtol=1e-5)


@pytest.mark.skipif(weft.cuda.is_available(), reason="it is about machines without a GPU")
def test_names_and_devices() -> None:
    torch = weft.torch
    from weft.torch.cpu.amp import autocast as of_cpu
    from weft.torch.cuda.amp import GradScaler as OfCuda
    from weft.torch.cuda.amp import autocast as of_cuda

    x = torch.ones(2, 2)
    on = [torch.autocast("cpu"), torch.amp.autocast(device_type="cpu"), of_cpu()]
    on.append(torch.autocast("cpu", torch.bfloat16))
    for context in on:
        with context:
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") == torch.bfloat16
            assert (x @ x).dtype == torch.bfloat16
            assert isinstance(x @ x, torch.Tensor)
    with torch.autocast("cpu", dtype=torch.float16, enabled=True, cache_enabled=False):
        assert (x @ x).dtype == torch.float16
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        off = [torch.autocast("cpu", enabled=False), torch.autocast("cuda"), of_cuda()]
        off.append(torch.autocast("cpu", dtype=torch.float32))
        assert not OfCuda().is_enabled()
    assert len(told) == 4
    for context in off:
        with context:
            assert not torch.is_autocast_enabled("cpu")
            assert (x @ x).dtype == torch.float32
    with pytest.raises(TypeError, match=r"device\.type"):
        torch.autocast(torch.device("cpu"))


def own_function(torch: Any) -> Any:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            given = g @ w.t()
            assert given.dtype == torch.bfloat16
            return given, x.t() @ g

    return Product


@pytest.mark.parametrize("compiled", [False, True])
def test_functions_with_a_backward_of_their_own(compiled: bool) -> None:
    def work(torch: Any) -> Any:
        function = own_function(torch)
        x, w = inputs(torch, 2, 3), inputs(torch, 3, 3).requires_grad_()

        def step(x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = function.apply(x, w)
            y.float().sum().backward()
            return y.detach().float()

        run = weft.compile(step) if compiled and torch is weft.torch else step
        return {"y": run(x), "grad": w.grad}

    want, got = figures("autocast_function", work), work(weft.torch)
    for key, theirs in want.items():
        np.testing.assert_allclose(got[key].numpy(), theirs, atol=2**-7)
