"""Eager calls on large tensors: no function is compiled here, on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from works.base import Job, Kit, Work, classes, normal, numpy_of

from large_works.base import Bar, Large


def fused(backward: bool) -> Callable[[Kit], Job]:
    def make(kit: Kit) -> Job:
        library, functional = kit.library, kit.library.nn.functional
        x = kit.tensor(normal(0, 2048, 1024), grad=True)
        start = kit.tensor(normal(1, 2048, 1024))

        def step() -> Any:
            y = functional.gelu(functional.layer_norm(x, (1024,))) * library.sigmoid(x)
            if backward:
                x.grad = None
                y.backward(start)
            return y

        def forward() -> Any:
            with library.no_grad():
                return step()

        results = (lambda: [numpy_of(x.grad)]) if backward else tuple
        return Job(step if backward else forward, results)

    return make


def training(build: Callable[[Any], Any], shape: tuple[int, ...]) -> Any:
    """A step of SGD: forward, backward, update."""

    def make(kit: Kit) -> Job:
        library = kit.library
        model = build(library)
        rng = np.random.default_rng(1)
        with library.no_grad():
            for name, p in model.named_parameters():
                start = rng.standard_normal(tuple(p.shape), np.float32) * np.float32(0.02)
                p.copy_(library.tensor(start + 1 if p.ndim == 1 and "weight" in name else start))
        x, y = kit.tensor(normal(0, *shape)), kit.tensor(classes(1, 10, shape[0]))
        chosen = library.optim.SGD(model.parameters(), lr=0.01)

        def step() -> Any:
            chosen.zero_grad()
            out = model(x)
            loss = library.nn.functional.cross_entropy(out.reshape((shape[0], -1))[:, :10], y)
            loss.backward()
            chosen.step()
            return loss

        return Job(step, lambda: [numpy_of(p) for p in list(model.parameters())[-2:]])

    return make


def block(library: Any) -> Any:
    return library.nn.TransformerEncoderLayer(
        256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )


def cnn(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 8 * 8, 10)),
    )


def depthwise(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(
        *(nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU()),
        nn.Conv2d(64, 64, 3, padding=1, groups=64),
    )


def adam(kit: Kit) -> Job:
    library = kit.library
    given = [library.nn.Parameter(kit.tensor(normal(i, 1024, 1024))) for i in range(4)]
    for i, p in enumerate(given):
        p.grad = kit.tensor(normal(9 + i, 1024, 1024))
    chosen = library.optim.Adam(given, lr=1e-3)
    return Job(chosen.step, lambda: [numpy_of(p) for p in given[:1]])


def _row(name: str, title: str, make: Any, tolerance: float = 1e-3) -> Large:
    work = Work(name, title, 1.0, make, None, "eager calls are not JAX's way", tolerance=tolerance)
    return Large(work, (Bar("step", 1.0, "torch"),))


WORKS = [
    _row("fused", "eager gelu(layer_norm(x))*sigmoid(x), 2048×1024, forward", fused(False)),
    _row("fused_back", "the same with backward", fused(True)),
    _row("block", "eager transformer block of 256, 8×128, SGD", training(block, (8, 128, 256))),
    _row("cnn", "eager CNN of 32 and 64 channels, 32×3×32×32, SGD", training(cnn, (32, 3, 32, 32))),
    _row("depthwise", "eager depthwise convolutions, 16×64×56×56, SGD",
         training(depthwise, (16, 64, 56, 56))),
    _row("adam", "eager Adam, four parameters of 1024×1024", adam),
]  # fmt: skip
