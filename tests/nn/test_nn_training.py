"""Ten steps of training in Weft and in PyTorch, from the same weights, end at the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nn_samples.table import filled, indices, quiet_figures, values

import weft
import weft.nn
import weft.optim

CLASSES = indices(6, below=3, seed=2)


def mlp(nn: Any) -> Any:
    return nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)
    )


def cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def recurrent(kind: str) -> Callable[[Any], Any]:
    def make(nn: Any) -> Any:
        class Net(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.embed = nn.Embedding(7, 4, padding_idx=0)
                options = {"num_layers": 2, "bidirectional": True, "batch_first": True}
                self.body = getattr(nn, kind)(4, 5, **options)
                self.head = nn.Linear(10, 3)

            def forward(self, x: Any) -> Any:
                return self.head(self.body(self.embed(x))[0][:, -1])

        return Net()

    return make


def transformer(nn: Any) -> Any:
    class Net(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(4))
            self.head = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.body(self.embed(x))[:, 0])

    return Net()


TEXT = indices(6, 5, below=7, seed=4)
MODELS = {
    "mlp": (mlp, values(6, 5)),
    "cnn": (cnn, values(6, 2, 6, 6)),
    "rnn": (recurrent("RNN"), TEXT),
    "lstm": (recurrent("LSTM"), TEXT),
    "gru": (recurrent("GRU"), TEXT),
    "transformer": (transformer, TEXT),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "AdamW": {"lr": 0.01},
}


def trained(name: str, optimizer: str, library: Any, make: Any) -> dict[str, Any]:
    """Losses of ten steps, and the state after them."""
    build, data = MODELS[name]
    model = build(library.nn).double()
    state = model.state_dict()
    learned = {
        k: make(filled(k, tuple(v.shape))) for k, v in state.items() if "float" in str(v.dtype)
    }
    model.load_state_dict({**state, **learned})
    x, y = make(data), make(CLASSES)
    optim = getattr(library.optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    criterion = library.nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    for _ in range(10):
        optim.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optim.step()
        losses.append(loss.item())
    return {"losses": losses} | dict(model.state_dict())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps(name: str, optimizer: str) -> None:
    want = quiet_figures(
        f"nn_training_{name}_{optimizer}",
        lambda torch: trained(name, optimizer, torch, torch.tensor),
    )
    got = trained(name, optimizer, weft, weft.asarray)
    assert got.keys() == want.keys()
    assert want["losses"][-1] < want["losses"][0]
    for key, value in got.items():
        np.testing.assert_allclose(np.asarray(value), want[key], rtol=1e-7, atol=1e-9, err_msg=key)
