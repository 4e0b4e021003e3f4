"""Rows of the activations. Kinks are at whole and half numbers: the inputs hit them too."""

from __future__ import annotations

from typing import Any

import numpy as np

from nn_samples.table import Row, row, values

X = np.concatenate([values(27, low=-5, high=5), np.array([0.0, 0.5, -0.5, 1, -1, 3, -3, 6, 30])])
X = X.reshape(3, 12)
DEEP = values(2, 4, 3, 2, seed=5, low=-3, high=3)


def evaluated(module: Any) -> None:
    module.eval()


ROWS: list[Row] = [
    row("ReLU", to=X),
    row("ReLU6", to=X),
    row("LeakyReLU", to=X),
    row("LeakyReLU", 0.3, to=X, label="slope"),
    row("RReLU", 0.1, 0.5, to=X, prepare=evaluated),
    row("PReLU", to=X),
    row("PReLU", 4, to=DEEP, label="channels"),
    row("ELU", to=X),
    row("ELU", 0.7, to=X, label="alpha"),
    row("CELU", 1.5, to=X),
    row("SELU", to=X),
    row("GELU", to=X),
    row("GELU", to=X, make={"approximate": "tanh"}, label="tanh"),
    row("SiLU", to=X),
    row("Mish", to=X),
    row("Sigmoid", to=X),
    row("LogSigmoid", to=X),
    row("Tanh", to=X),
    row("Tanhshrink", to=X, atol=1e-10),
    row("Softplus", to=X),
    row("Softplus", 2.0, 5.0, to=X, label="beta"),
    row("Softsign", to=X),
    row("Hardtanh", to=X),
    row("Hardtanh", -0.5, 3.0, to=X, label="limits"),
    row("Hardsigmoid", to=X, rtol=1e-7),  # PyTorch divides by 6 in float32
    row("Hardswish", to=X),
    row("Softshrink", to=X),
    row("Hardshrink", to=X),
    row("Threshold", 0.5, -7.0, to=X),
    row("Softmax", -1, to=X),
    row("Softmax", 1, to=DEEP, label="channels"),
    row("Softmax2d", to=DEEP),
    row("LogSoftmax", 0, to=X),
    row("Softmin", 1, to=X),
    row("GLU", to=X),
    row("GLU", 1, to=DEEP, label="channels"),
]
