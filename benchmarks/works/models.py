"""Models and their training steps, in the words that Weft and PyTorch share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from works.base import Array, Job, Kit, numpy_of, weights

Build = Callable[[Any], Any]  # the library's nn -> a model


def mlp(*sizes: int) -> Build:
    def build(nn: Any) -> Any:
        layers: list[Any] = []
        for size, following in itertools.pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return build


def cnn(nn: Any, normalized: bool = False) -> Any:
    layers: list[Any] = []
    for channels, following in ((1, 16), (16, 32)):
        layers.append(nn.Conv2d(channels, following, 3, padding=1))
        layers += [nn.BatchNorm2d(following)] if normalized else []
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def batchnorm_cnn(nn: Any) -> Any:
    return cnn(nn, normalized=True)


def transformer(width: int, heads: int, classes: int) -> Build:
    """One block (normalization first, gelu, four times the width inside), and classes per token."""

    def build(nn: Any) -> Any:
        block = nn.TransformerEncoderLayer(
            width,
            heads,
            4 * width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        return nn.Sequential(block, nn.Linear(width, classes), nn.Flatten(0, 1))

    return build


def lstm(inputs: int, hidden: int, classes: int) -> Build:
    def build(nn: Any) -> Any:
        class Model(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.lstm = nn.LSTM(inputs, hidden, batch_first=True)
                self.head = nn.Linear(hidden, classes)

            def forward(self, x: Any) -> Any:
                out, _ = self.lstm(x)
                return self.head(out[:, -1])

        return Model()

    return build


def embedding(words: int, width: int, classes: int) -> Build:
    def build(nn: Any) -> Any:
        class Model(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(words, width)
                self.head = nn.Linear(width, classes)

            def forward(self, x: Any) -> Any:
                return self.head(self.embedding(x).mean(axis=1))

        return Model()

    return build


def ready(kit: Kit, build: Build, dtype: Any) -> Any:
    """The model, with the weights that all sides have."""
    model = build(kit.library.nn)
    if dtype == "float64":
        model = model.double()
    parameters = list(model.parameters())
    with kit.library.no_grad():
        for p, start in zip(
            parameters, weights([tuple(p.shape) for p in parameters], dtype), strict=True
        ):
            p.copy_(kit.library.tensor(start))
    return model


def training(
    build: Build, x: Array, y: Array, optimizer: str = "SGD", lr: float = 0.01
) -> Callable[[Kit], Job]:
    """A step as a user writes it: cross entropy, backward, update."""
    dtype = "float64" if x.dtype == "float64" else "float32"

    def make(kit: Kit) -> Job:
        model = ready(kit, build, dtype)
        chosen = getattr(kit.library.optim, optimizer)(model.parameters(), lr=lr)
        update = kit.update(chosen.step) if optimizer != "SGD" else chosen.step
        cross_entropy = kit.library.nn.functional.cross_entropy

        @kit.forward
        def loss_of(x: Any, y: Any) -> Any:
            return cross_entropy(model(x), y)

        @kit.step
        def train_step(x: Any, y: Any) -> Any:
            chosen.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            update()
            return loss

        given = kit.tensor(x), kit.tensor(y)
        return Job(
            lambda: train_step(*given),
            lambda: [numpy_of(p) for p in model.parameters()],
            train_step,
        )

    return make


def inference(build: Build, x: Array) -> Callable[[Kit], Job]:
    """The model's forward without gradients."""

    def make(kit: Kit) -> Job:
        model = ready(kit, build, "float32").eval()
        no_grad = kit.library.no_grad

        @kit.step
        @kit.forward
        def predict(x: Any) -> Any:
            with no_grad():
                return model(x)

        given = kit.tensor(x)
        return Job(lambda: predict(given), program=predict)

    return make
