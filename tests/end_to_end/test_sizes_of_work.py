"""Real work of many sizes: two recordings serve it, and nothing about the answer changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn

BACKENDS = ["interpret", "native"]
Capture = Callable[[Any], Any]


def trained(capture: Capture) -> tuple[list[float], list[Any], Any]:
    """Adam steps of an encoder layer, over sequences of different lengths."""
    weft.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True).double()
    optimizer = weft.optim.Adam(layer.parameters(), lr=1e-2)

    def step(x: Any, mask: Any) -> Any:
        optimizer.zero_grad()
        found = layer(x, src_key_padding_mask=mask)
        loss = (found * found).sum() / (x.shape[0] * x.shape[1])
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = capture(step)
    losses = []
    for length in (9, 5, 17, 1, 2, 30, 5):
        x = weft.asarray(np.random.default_rng(length).normal(size=(3, length, 16)))
        mask = weft.arange(length)[None, :] >= weft.asarray([[length], [length // 2 + 1], [1]])
        losses.append(float(call(x, mask)))
    return losses, [p.detach().numpy() for p in layer.parameters()], call


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_encoder_layer(backend: str) -> None:
    losses, parameters, _ = trained(lambda f: f)
    got, mine, call = trained(lambda f: weft.compile(f, backend=backend, dynamic="auto"))
    np.testing.assert_allclose(got, losses, rtol=1e-8)
    for a, b in zip(mine, parameters, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    assert len(call.recordings) <= 2, [str(r) for r in call.recordings]


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.project = nn.Linear(8, 24)
        self.head = nn.Linear(8, 11)
        self.keys: Any = weft.zeros((1, 2, 0, 4))
        self.values: Any = weft.zeros((1, 2, 0, 4))

    def forward(self, token: Any) -> Any:
        q, k, v = (
            part.reshape(1, -1, 2, 4).permute_dims((0, 2, 1, 3))
            for part in self.project(self.embed(token)).split(8, axis=-1)
        )
        self.keys = weft.concat([self.keys, k], axis=2)
        self.values = weft.concat([self.values, v], axis=2)
        weights = weft.softmax(q @ self.keys.permute_dims((0, 1, 3, 2)) / 2, axis=-1)
        made = (weights @ self.values).permute_dims((0, 2, 1, 3))
        return self.head(made.reshape(1, -1, 8))[0, -1]


def generated(capture: Capture, count: int) -> tuple[list[int], Any]:
    """Tokens of a decoder whose cache, which the module holds, grows by one in each call."""
    weft.manual_seed(1)
    model = Decoder()

    def step(token: Any) -> Any:
        with weft.no_grad():
            return model(token)

    call, token = capture(step), weft.asarray([[1]])
    found = []
    for _ in range(count):
        found.append(int(call(token).argmax()))
        token = weft.asarray([[found[-1]]])
    return found, call


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cache_that_grows(backend: str) -> None:
    want, _ = generated(lambda f: f, 24)
    got, call = generated(lambda f: weft.compile(f, backend=backend, dynamic="auto"), 24)
    assert got == want
    assert len(call.recordings) <= 2, [str(r) for r in call.recordings]


def epochs(capture: Capture) -> tuple[list[float], Any]:
    """A loader whose last batch is shorter."""
    weft.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    x, y = (weft.asarray(rng.normal(size=(21, n))).astype(weft.float32) for n in (4, 1))
    loader = weft.data.DataLoader(weft.data.TensorDataset(x, y), batch_size=8)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    call = capture(step)
    return [float(call(*batch)) for _ in range(3) for batch in loader], call


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shorter_last_batch(backend: str) -> None:
    want, _ = epochs(lambda f: f)
    got, call = epochs(lambda f: weft.compile(f, backend=backend, dynamic="auto"))
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert len(call.recordings) <= 2, [str(r) for r in call.recordings]
