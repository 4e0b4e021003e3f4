"""The works of the suite. The bars of the first ones are those of the issue that asks for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from works import functions, models
from works.base import Array, Work, classes, normal

__all__ = ["WORKS"]

#: "Ahead of the best peer", which is all that is asked of the further works.
AHEAD = 1.0
FIRST_MLP, FIRST_TRANSFORMER, WARM = 0.15, 0.5, 0.05


def _function(kind: str, name: str, *arrays: Array) -> dict[str, Any]:
    """A function's gradient or value, in all libraries."""
    make = getattr(functions, kind)(getattr(functions, name), *arrays)
    return {"make": make, "jax": (kind, {"function": name, "arrays": list(arrays)})}


def _model(
    model: str, build: Any, options: dict[str, Any], x: Array, *labels: Array, **how: Any
) -> dict[str, Any]:
    """A training step of a model, or without labels its inference, in all libraries."""
    kind = "training" if labels else "inference"
    make = getattr(models, kind)(build, x, *labels, **how)
    named = {"y": labels[0]} if labels else {}
    return {
        "make": make,
        "jax": (kind, {"model": model, "options": options, "x": x, **named, **how}),
    }


def _mlp(
    sizes: tuple[int, ...], batch: int, train: bool = True, dtype: Any = "float32", **how: Any
) -> Any:
    x = normal(0, batch, sizes[0], dtype=dtype)
    labels = [classes(2, sizes[-1], batch)] if train else []
    return _model("mlp", models.mlp(*sizes), {"sizes": sizes}, x, *labels, **how)


def _cnn(batch: int, train: bool = True, normalized: bool = False) -> Any:
    build = models.batchnorm_cnn if normalized else models.cnn
    labels = [classes(2, 10, batch)] if train else []
    return _model("cnn", build, {"normalized": normalized}, normal(0, batch, 1, 28, 28), *labels)


def _transformer(batch: int, train: bool = True) -> Any:
    options = {"width": 256, "heads": 8, "classes": 32}
    labels = [classes(2, 32, batch * 128)] if train else []
    x = normal(0, batch, 128, 256)
    return _model("transformer", models.transformer(**options), options, x, *labels)


def _lstm(batch: int, train: bool = True) -> Any:
    options = {"inputs": 32, "hidden": 64, "classes": 10}
    labels = [classes(2, 10, batch)] if train else []
    return _model("lstm", models.lstm(**options), options, normal(0, batch, 100, 32), *labels)


def _embedding() -> Any:
    options = {"words": 10_000, "width": 128, "classes": 10}
    x, y = classes(0, 10_000, 64, 32), classes(2, 10, 64)
    return _model("embedding", models.embedding(**options), options, x, y, lr=0.1)


def _step_flops(batch: int, *sizes: int) -> float:
    """Of a chain of matrix products: forward, and both backwards but the first one's for x."""
    products = [2.0 * batch * a * b for a, b in itertools.pairwise(sizes)]
    return 3 * sum(products) - products[0]


def _transformer_flops(batch: int, length: int = 128, width: int = 256) -> float:
    tokens = batch * length
    forward = 2 * tokens * width * width * (3 + 1 + 4 + 4) + 2 * 2 * tokens * length * width
    return 3.0 * (forward + 2 * tokens * width * 32)


def _cnn_flops(batch: int) -> float:
    first, second = 2 * 28 * 28 * 16 * 9, 2 * 14 * 14 * 32 * 16 * 9
    return batch * (2.0 * first + 3 * second + 3 * 2 * 1568 * 10)


_SMALL, _LARGE = (64, 64, 10), (784, 512, 512, 10)
_ROWS = normal(0, 2048, 1024)
_ORTHOGONAL = np.linalg.qr(normal(3, 32, 32, dtype=np.float64))[0].astype(np.float32)

WORKS = [
    Work(
        "chain",
        "10 × tanh(z*w+x) on 32, forward+backward",
        0.7,
        **_function("gradient", "chain", normal(0, 32), normal(1, 32), normal(2, 32)),
        issue=True,
    ),
    Work(
        "mlp_small",
        "MLP 64-64-10, batch 32",
        0.4,
        **_mlp(_SMALL, 32),
        flops=_step_flops(32, *_SMALL),
        first_s=FIRST_MLP,
        warm_s=WARM,
        issue=True,
    ),
    Work(
        "mlp",
        "MLP 784-512-512-10, batch 128",
        0.9,
        **_mlp(_LARGE, 128),
        flops=_step_flops(128, *_LARGE),
        first_s=FIRST_MLP,
        warm_s=WARM,
        issue=True,
    ),
    Work(
        "norm_forward",
        "sum of gelu(layer_norm(x))*sigmoid(x), 2048×1024",
        0.8,
        **_function("value", "gated_norm", _ROWS),
        bytes=_ROWS.nbytes,
        issue=True,
    ),
    Work(
        "norm",
        "the same, forward+backward",
        0.6,
        **_function("gradient", "gated_norm", _ROWS),
        bytes=2 * _ROWS.nbytes,
        issue=True,
    ),
    Work(
        "transformer",
        "transformer block 8×128×256, 8 heads",
        0.85,
        **_transformer(8),
        flops=_transformer_flops(8),
        first_s=FIRST_TRANSFORMER,
        warm_s=WARM,
        issue=True,
    ),
    Work(
        "cnn",
        "CNN 16-32 3×3, pooling, 28×28, batch 64",
        0.7,
        **_cnn(64),
        flops=_cnn_flops(64),
        issue=True,
    ),
    Work(
        "while",
        "while |x| is large: x = 0.99 tanh(xW), 4×32, fw+bw",
        0.08,
        functions.gradient(functions.until_small, normal(0, 4, 32), 0.84 * _ORTHOGONAL),
        None,
        "no reverse mode through while",
        issue=True,
    ),
    Work(
        "product",
        "1024³ float32 product",
        1.0,
        **_function("value", "product", normal(0, 1024, 1024), normal(1, 1024, 1024)),
        flops=2.0 * 1024**3,
        tolerance=1e-3,
        issue=True,
    ),
    Work("lstm", "LSTM 32-64, 100 steps, batch 16", AHEAD, **_lstm(16)),
    Work(
        "adam_small",
        "MLP 64-64-10, batch 32, Adam",
        AHEAD,
        **_mlp(_SMALL, 32, optimizer="Adam", lr=1e-4),
    ),
    Work(
        "adam",
        "MLP 784-512-512-10, batch 128, Adam",
        AHEAD,
        **_mlp(_LARGE, 128, optimizer="Adam", lr=1e-4),
        flops=_step_flops(128, *_LARGE),
        tolerance=1e-3,
    ),
    Work("mlp_small_1", "MLP 64-64-10, inference of 1", AHEAD, **_mlp(_SMALL, 1, train=False)),
    Work(
        "mlp_1",
        "MLP 784-512-512-10, inference of 1",
        AHEAD,
        **_mlp(_LARGE, 1, train=False),
    ),
    Work(
        "transformer_1",
        "transformer block, inference of 1",
        AHEAD,
        **_transformer(1, train=False),
        flops=_transformer_flops(1) / 3,
    ),
    Work("cnn_1", "CNN 16-32, inference of 1", AHEAD, **_cnn(1, train=False)),
    Work("lstm_1", "LSTM, 100 steps, inference of 1", AHEAD, **_lstm(1, train=False)),
    Work(
        "softmax",
        "softmax of rows, 2048×1024",
        AHEAD,
        **_function("value", "softmax", _ROWS),
        bytes=2 * _ROWS.nbytes,
    ),
    Work(
        "logsumexp",
        "sum of logsumexp of rows, 2048×1024, fw+bw",
        AHEAD,
        **_function("gradient", "logsumexp", _ROWS),
        bytes=2 * _ROWS.nbytes,
    ),
    Work(
        "embedding",
        "embedding 10,000×128 of 64×32, mean, linear",
        AHEAD,
        **_embedding(),
    ),
    Work(
        "batchnorm_cnn",
        "CNN with BatchNorm, batch 64",
        AHEAD,
        **_cnn(64, normalized=True),
        flops=_cnn_flops(64),
        tolerance=1e-3,
    ),
    Work(
        "chain_float64",
        "10 × tanh(z*w+x) on 32, float64",
        AHEAD,
        **_function("gradient", "chain", *(normal(i, 32, dtype=np.float64) for i in range(3))),
    ),
    Work(
        "mlp_float64",
        "MLP 784-512-512-10, batch 128, float64",
        AHEAD,
        **_mlp(_LARGE, 128, dtype="float64"),
        flops=_step_flops(128, *_LARGE),
    ),
]
