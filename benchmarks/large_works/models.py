"""Models at sizes people train: ResNet-18, ViT and a GPT of four layers, whole training steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from works.base import Array, Job, Kit, Work, classes, normal, numpy_of

from large_works.base import Bar, Large

Build = Callable[[Any], Any]  # the library -> a model

#: Our time over that of the best of the others.
BAR = Bar("step", 0.6, "best")
SIDES = ("weft", "torch", "torch.compile", "jax")


def resnet18(count: int, small: bool) -> Build:
    """He and others, 2015. For `small` pictures the stem is one 3×3 convolution."""

    def build(library: Any) -> Any:
        nn = library.nn
        relu = nn.functional.relu

        class Block(nn.Module):  # type: ignore[misc]
            def __init__(self, inputs: int, outputs: int, stride: int) -> None:
                super().__init__()
                self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
                self.bn1 = nn.BatchNorm2d(outputs)
                self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
                self.bn2 = nn.BatchNorm2d(outputs)
                self.shortcut = nn.Sequential()
                if stride != 1 or inputs != outputs:
                    self.shortcut = nn.Sequential(
                        nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                    )

            def forward(self, x: Any) -> Any:
                h = relu(self.bn1(self.conv1(x)))
                return relu(self.bn2(self.conv2(h)) + self.shortcut(x))

        class ResNet(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                size = 3 if small else 7
                self.conv1 = nn.Conv2d(3, 64, size, 1 if small else 2, size // 2, bias=False)
                self.bn1 = nn.BatchNorm2d(64)
                self.pool = nn.Sequential() if small else nn.MaxPool2d(3, 2, 1)
                blocks, width = [], 64
                for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                    blocks += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
                    width = outputs
                self.blocks = nn.Sequential(*blocks)
                self.head = nn.Linear(512, count)

            def forward(self, x: Any) -> Any:
                h = self.pool(relu(self.bn1(self.conv1(x))))
                return self.head(self.blocks(h).mean((2, 3)))

        return ResNet()

    return build


def _layer(nn: Any, width: int, heads: int) -> Any:
    return nn.TransformerEncoderLayer(
        width,
        heads,
        4 * width,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    )


def vit(size: int, patch: int, width: int, heads: int, depth: int, count: int) -> Build:
    def build(library: Any) -> Any:
        nn = library.nn

        class ViT(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.patches = nn.Conv2d(3, width, patch, patch)
                self.token = nn.Parameter(library.zeros((1, 1, width)))
                self.places = nn.Parameter(library.zeros((1, (size // patch) ** 2 + 1, width)))
                self.blocks = nn.Sequential(*[_layer(nn, width, heads) for _ in range(depth)])
                self.norm = nn.LayerNorm(width)
                self.head = nn.Linear(width, count)

            def forward(self, x: Any) -> Any:
                h = self.patches(x).flatten(2).transpose(1, 2)
                token = self.token.expand((x.shape[0], 1, width))
                h = library.concat((token, h), 1) + self.places
                return self.head(self.norm(self.blocks(h)[:, 0]))

        return ViT()

    return build


def gpt(words: int, width: int, heads: int, length: int, depth: int) -> Build:
    """GPT-2's blocks, with causal attention."""

    def build(library: Any) -> Any:
        nn = library.nn
        F = nn.functional

        class Block(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv = nn.Linear(width, 3 * width)
                self.out = nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                rows, steps, _ = x.shape
                qkv = self.qkv(self.norm1(x)).reshape((rows, steps, 3, heads, width // heads))
                q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
                h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(h.transpose(1, 2).reshape((rows, steps, width)))
                return x + self.down(F.gelu(self.up(self.norm2(x))))

        class GPT(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.tokens = nn.Embedding(words, width)
                self.places = nn.Embedding(length, width)
                self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
                self.norm = nn.LayerNorm(width)
                self.head = nn.Linear(width, words, bias=False)

            def forward(self, x: Any) -> Any:
                h = self.tokens(x) + self.places(library.arange(x.shape[1]))
                return self.head(self.norm(self.blocks(h))).reshape((-1, words))

        return GPT()

    return build


def drawn(named: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """What all sides start from, by the names that PyTorch gives the parameters."""
    rng = np.random.default_rng(1)
    found = {}
    for name, shape in named.items():
        inputs = int(np.prod(shape[1:])) if len(shape) > 1 else 2500
        start = rng.standard_normal(shape, np.float32) * np.float32(inputs**-0.5)
        scale = len(shape) == 1 and name.endswith("weight")  # of a normalization
        found[name] = start + np.float32(1) if scale else start
    return found


def training(build: Build, x: Array, y: Array, optimizer: str, **how: Any) -> Callable[[Kit], Job]:
    """A step as a user writes it: cross entropy, backward, update."""

    def make(kit: Kit) -> Job:
        library = kit.library
        model = build(library)
        named = dict(model.named_parameters())
        starts = drawn({name: tuple(p.shape) for name, p in named.items()})
        with library.no_grad():
            for name, p in named.items():
                p.copy_(library.tensor(starts[name]))
        chosen = getattr(library.optim, optimizer)(model.parameters(), **how)
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
        some = list(model.parameters())[-4:]
        return Job(lambda: train_step(*given), lambda: [numpy_of(p) for p in some], train_step)

    return make


def _work(
    name: str, title: str, model: str, options: dict[str, Any], x: Array, y: Array, flops: float
) -> Large:
    build = {"resnet18": resnet18, "vit": vit, "gpt": gpt}[model](**options)
    if model == "resnet18":
        optimizer, how = "SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
    else:
        optimizer, how = "AdamW", {"lr": 1e-4, "weight_decay": 0.01}
    given = {"model": model, "options": options, "x": x, "y": y, "optimizer": optimizer, "how": how}
    work = Work(
        name,
        title,
        BAR.at_most,
        training(build, x, y, optimizer, **how),
        ("large_works.jax_side:training", given),
        flops=flops,
        tolerance=5e-3,
    )
    return Large(work, (BAR,), sides=SIDES)


def _resnet(name: str, size: int, batch: int, count: int) -> Large:
    small = size < 64
    # Products of an image: He and others count 1.8 billion for 224×224; 0.56 for 32×32.
    each = 0.5559e9 if small else 1.8142e9
    return _work(
        name,
        f"ResNet-18, {size}×{size}, batch {batch}, SGD with momentum",
        "resnet18",
        {"count": count, "small": small},
        normal(0, batch, 3, size, size),
        classes(2, count, batch),
        6 * each * batch,
    )


def _blocks_flops(tokens: int, length: int, width: int, depth: int) -> float:
    return 3.0 * depth * (2.0 * tokens * width * width * 12 + 4.0 * tokens * length * width)


def _vit() -> Large:
    batch, length, width, depth = 8, 197, 192, 12
    return _work(
        "vit_tiny",
        "ViT-Ti/16, 224×224, batch 8, AdamW",
        "vit",
        {"size": 224, "patch": 16, "width": width, "heads": 3, "depth": depth, "count": 1000},
        normal(0, batch, 3, 224, 224),
        classes(2, 1000, batch),
        _blocks_flops(batch * length, length, width, depth)
        + 4.0 * batch * 196 * width * 768
        + 6.0 * batch * width * 1000,
    )


def _gpt() -> Large:
    words, width, length, batch, depth = 8192, 384, 128, 8, 4
    return _work(
        "gpt_4",
        "GPT of 4 layers, 384 wide, 8192 words, 8×128 tokens, AdamW",
        "gpt",
        {"words": words, "width": width, "heads": 6, "length": length, "depth": depth},
        classes(0, words, batch, length),
        classes(1, words, batch * length),
        _blocks_flops(batch * length, length, width, depth) + 6.0 * batch * length * width * words,
    )


WORKS = [
    _resnet("resnet18_32", 32, 32, 10),
    _resnet("resnet18_224", 224, 8, 1000),
    _vit(),
    _gpt(),
]
