"""Programs that become libraries in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype("f4")


def native(function: Any) -> Any:
    return weft.compile(function, backend="native")


def called(function: Any, arguments: dict[str, Any]) -> Any:
    return function(*[weft.tensor(x) for x in arguments.values()])


def mlp() -> tuple[Any, dict[str, Any]]:
    model = nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 7)).eval()
    return model.requires_grad_(False), {"x": floats(5, 20)}


def cnn() -> tuple[Any, dict[str, Any]]:
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)),
    )
    return model.eval().requires_grad_(False), {"x": floats(3, 1, 12, 12)}


def training() -> tuple[Any, dict[str, Any]]:
    model = nn.Sequential(nn.Linear(20, 33), nn.BatchNorm1d(33), nn.Dropout(0.2), nn.Linear(33, 7))
    optimizer = weft.optim.Adam(model.parameters(), lr=1e-2)

    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train_step, {"x": floats(16, 20), "y": RANDOM.integers(0, 7, 16)}


def count_up(x: Any) -> Any:
    y = x
    while y.sum() < 100:
        y = y * y + 1
    return y


def gradient(x: Any) -> Any:
    return weft.grad(lambda v: count_up(v).sum())(x)


def halves(x: Any) -> Any:
    narrow = x.astype(weft.bfloat16)
    return x.astype(weft.float16) * 2, narrow @ narrow


def channels(x: Any, weight: Any) -> Any:
    """Convolutions and a pooling in rows of whole and of parts of vectors, and their gradients."""

    def total(x: Any, weight: Any) -> Any:
        y = F.relu(F.conv2d(x, weight, padding=1))
        return F.max_pool2d(y, 3, 2, 1), F.conv2d(x[..., 1:], weight, stride=2).sum()

    def loss(x: Any, weight: Any) -> Any:
        pooled, more = total(x, weight)
        return (pooled * pooled).sum() + more

    return total(x, weight), weft.grad(loss, argnums=(0, 1))(x, weight)


BIG = floats(80, 90)
ROWS: list[tuple[str, Callable[..., Any], list[Any]]] = [
    ("tree", lambda x, y: {"a": x @ y, "b": (x > 0, x.sum())}, [floats(3, 4), floats(4, 5)]),
    ("one element", lambda x: x * 2 + 1, [floats(1)]),
    ("no axes", lambda x: x * 2 + 1, [floats()]),
    ("view", lambda x: x.T[1:, ::2], [floats(6, 5)]),
    ("sort", lambda x: (weft.sort(x), weft.argsort(x)), [floats(2, 3000)]),
    ("gather", lambda i, x: x[i], [RANDOM.integers(0, 9, (4, 2)), floats(9, 3)]),
    ("constant", lambda x: x @ BIG, [floats(4, 80)]),
    ("literal", lambda x: x + weft.arange(3000), [floats(3000)]),
    ("far", lambda x: weft.sin(x) + weft.exp(x), [floats(40) * 1e6]),
    ("half", halves, [floats(9, 9)]),
    ("loop", count_up, [np.abs(floats(4))]),
    ("random", lambda x: F.dropout(x, 0.5), [floats(50)]),
    ("scan", lambda x: weft.scan(lambda c, v: (c * 0.5 + v, c.sum()), x[0], x), [floats(7, 4)]),
    ("written", lambda x: x.add_(1).sum(), [floats(5)]),
    ("few rows", lambda x, y: weft.nn.functional.relu(x @ y.T), [floats(5, 35), floats(7, 35)]),
    ("many terms", lambda x, y: x @ y.T, [floats(39, 301), floats(6, 301)]),
    ("channels", channels, [floats(2, 9, 9, 8) / 10, floats(6, 9, 3, 3) / 10]),
    ("large product", lambda x, y: x @ y, [floats(130, 200), floats(200, 70)]),
]  # fmt: skip


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree.detach().numpy()]
