"""Deep models: what the first calls cost with each layer, and the memory of real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from works.base import Job, Kit, Work, classes, normal, numpy_of

from large_works.base import Bar, Large

HEADS = 4


def gpt(words: int, width: int, heads: int, length: int, depth: int) -> Callable[[Any], Any]:
    """GPT-2's shape, without dropout: embeddings, blocks that normalize first, a head."""

    def build(library: Any) -> Any:
        nn = library.nn

        class GPT(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.tokens = nn.Embedding(words, width)
                self.places = nn.Embedding(length, width)
                self.blocks = nn.ModuleList(
                    nn.TransformerEncoderLayer(
                        width,
                        heads,
                        4 * width,
                        dropout=0.0,
                        activation="gelu",
                        batch_first=True,
                        norm_first=True,
                    )
                    for _ in range(depth)
                )
                self.norm = nn.LayerNorm(width)
                self.head = nn.Linear(width, words, bias=False)

            def forward(self, x: Any) -> Any:
                h = self.tokens(x) + self.places(library.arange(x.shape[1]))
                for block in self.blocks:
                    h = block(h)
                return self.head(self.norm(h)).reshape((-1, words))

        return GPT()

    return build


def layers(width: int, depth: int) -> Callable[[Any], Any]:
    """Equal transformer layers in a row, and ten classes per token."""

    def build(library: Any) -> Any:
        nn = library.nn
        inner = [
            nn.TransformerEncoderLayer(
                width,
                HEADS,
                4 * width,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(depth)
        ]
        return nn.Sequential(*inner, nn.Linear(width, 10), nn.Flatten(0, 1))

    return build


def training(build: Callable[[Any], Any], x: Any, y: Any) -> Callable[[Kit], Job]:
    """A step of AdamW. Weights are drawn small, and the same on all sides, one tensor at a time."""

    def make(kit: Kit) -> Job:
        library = kit.library
        model = build(library)
        _draw(library, model)
        chosen = library.optim.AdamW(model.parameters(), lr=1e-4)
        cross_entropy = library.nn.functional.cross_entropy

        @kit.forward
        def loss_of(x: Any, y: Any) -> Any:
            return cross_entropy(model(x), y)

        @kit.step
        def train_step(x: Any, y: Any) -> Any:
            chosen.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            chosen.step()
            return loss

        given = kit.tensor(x), kit.tensor(y)
        few = list(model.parameters())[-4:]
        return Job(lambda: train_step(*given), lambda: [numpy_of(p) for p in few], train_step)

    return make


def _draw(library: Any, model: Any) -> None:
    rng = np.random.default_rng(1)
    with library.no_grad():
        for name, p in model.named_parameters():
            start = rng.standard_normal(tuple(p.shape), np.float32) * np.float32(0.02)
            scale = "norm" in name and name.endswith("weight")
            p.copy_(library.tensor(start + 1 if scale else start))


def _small(depth: int, bars: tuple[Bar, ...], shorter: int = 0) -> Large:
    width, rows, length = 64, 2, 32
    x = normal(0, rows, length, width)
    y = classes(2, 10, rows * length)
    work = Work(
        f"layers_{depth}",
        f"{depth} transformer layers of {width}, AdamW",
        1.0,
        training(layers(width, depth), x, y),
        None,
        "it would take minutes",
    )
    return Large(work, bars, shorter=f"layers_{shorter}" if shorter else "", fewer=depth - shorter)


def _gpt2() -> Large:
    words, length = 50257, 128
    x = classes(0, words, 2, length)
    y = classes(1, words, 2 * length)
    work = Work(
        "gpt2",
        "GPT-2 of 162 M parameters, 2×128, AdamW",
        0.75,
        training(gpt(words, 768, 12, length, 12), x, y),
        None,
        "not asked",
        tolerance=1e-3,
    )
    return Large(work, (Bar("peak", 1.1, "torch"), Bar("step", 0.75, "torch")))


WORKS = [
    _small(8, ()),
    _small(32, (Bar("first", 2.0), Bar("second", 0.1)), shorter=8),
    _small(64, (Bar("further", 0.03),), shorter=32),
    _gpt2(),
]
