"""Training loops: gradients inside, clipping, scaling, early stopping."""

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, wild
from weft import nn


def perceptron(points, labels):
    """Until all points are on their side, at most 20 rounds."""
    w = weft.zeros(points.shape[1], dtype=points.dtype)
    b = weft.zeros((), dtype=points.dtype)
    for epoch in range(20):
        mistakes = 0
        for x, y in zip(points, labels, strict=True):
            if y * (weft.vecdot(w, x) + b) <= 0:
                w = w + y * x
                b = b + y
                mistakes += 1
        if mistakes == 0:
            return w, b, epoch
    return w, b, -1


def perceptron_reference(points, labels):
    w, b = np.zeros(points.shape[1]), 0.0
    for epoch in range(20):
        mistakes = 0
        for x, y in zip(points, labels, strict=True):
            if y * (w @ x + b) <= 0:
                w, b, mistakes = w + y * x, b + y, mistakes + 1
        if mistakes == 0:
            return w, b, epoch
    return w, b, -1


def early_stopping(train, held_out, rate):
    """Fit y = a x + b; stop when the held-out loss has grown three times in a row."""
    params = {"a": weft.zeros((), dtype=train.dtype), "b": weft.zeros((), dtype=train.dtype)}
    best, bad, best_params = weft.inf, 0, params
    for _ in range(25):
        error = params["a"] * train[0] + params["b"] - train[1]
        params = {
            "a": params["a"] - rate * (error * train[0]).mean(),
            "b": params["b"] - rate * error.mean(),
        }
        loss = ((params["a"] * held_out[0] + params["b"] - held_out[1]) ** 2).mean()
        if loss < best:
            best, bad, best_params = loss, 0, params
        else:
            bad += 1
            if bad == 3:
                break
    return best_params["a"], best_params["b"], best


def clip_by_norm(x, target, limit):
    """Ten steps of momentum, each gradient clipped where it is too long."""
    speed = weft.zeros_like(x)
    for _ in range(10):
        g = 4 * (x - target) ** 3
        norm = weft.sqrt((g * g).sum())
        if norm > limit:
            g = g * (limit / norm)
        speed = 0.9 * speed - 0.05 * g
        x = x + speed
    return x


def loss_scaling(w, x, scale):
    """Steps in half precision: overflow halves the scale and skips the step."""
    good = 0
    for row in x:
        scaled = (w * row).sum().astype(weft.float16) * scale.astype(weft.float16)
        if weft.isfinite(scaled):
            w = w - 0.01 * scaled.astype(w.dtype) / scale * row
            good += 1
            if good % 2 == 0:
                scale = scale * 2
        else:
            scale = scale / 2
            good = 0
    return w, scale


def training_with_backward(x, y):
    """A linear layer trained by hand with backward() inside; returns the weights."""
    w = weft.zeros(x.shape[1], dtype=x.dtype).requires_grad_()
    for step in range(6):
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        with weft.no_grad():
            rate = 0.1 if loss > 0.5 else 0.02
            w -= rate * w.grad
        w.grad = None
        if step > 2 and loss < 0.05:
            break
    return w.detach()


def training_reference(x, y):
    w = np.zeros(x.shape[1])
    for step in range(6):
        error = x @ w - y
        w = w - (0.1 if (error**2).mean() > 0.5 else 0.02) * 2 * x.T @ error / len(y)
        if step > 2 and (error**2).mean() < 0.05:
            break
    return w


def optimizer_with_plateau():
    """A module with SGD whose rate is cut when the loss stops falling. A state of its own."""
    weft.manual_seed(3)
    model = nn.Linear(2, 1).to(weft.float64)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if loss > 1.0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return step


POINTS = f64([[0.0, 0.1], [0.2, 0.0], [3.0, 3.1], [2.9, 3.0], [0.1, 0.2]])

PROGRAMS = [
    Program(
        "perceptron",
        perceptron,
        [(POINTS, f64([1.0, 1.0, -1.0, -1.0, 1.0])), (POINTS, f64([1.0, -1.0, 1.0, -1.0, 1.0]))],
        kinks=(1,),
        reference=perceptron_reference,
    ),
    Program(
        "early stopping",
        early_stopping,
        [
            (f64([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]), f64([[1.5, 3.0], [2.5, 4.0]]), 0.1),
            (f64([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]), f64([[1.0, 2.0], [0.3, 0.2]]), 0.3),
        ],
        second_order=True,
    ),
    Program(
        "clipping branch",
        clip_by_norm,
        [(f64([1.0, 2.0]), f64([0.8, 1.9]), 1.0), (f64([5.0, 2.0]), f64([0.0, 0.0]), 2.0)],
        second_order=True,
    ),
    Program(
        "loss scaling",
        loss_scaling,
        [
            (f64([1.0, 2.0]), f64([[1.0, 1.0], [0.5, 2.0], [1.0, 0.0]]), f64(1024.0)),
            (f64([100.0, 2.0]), f64([[1.0, 1.0], [9.0, 2.0], [1.0, 0.0]]), f64(32768.0)),
        ],
        gradients=False,
    ),
    Program(
        "training with backward",
        training_with_backward,
        [
            (wild(4, 2), wild(4, seed=1)),
            (3 * wild(4, 2), 5 * wild(4, seed=1)),
            (wild(4, 2), 0.1 * wild(4, seed=2)),
        ],
        gradients=False,
        reference=training_reference,
    ),
    Program(
        "optimizer step",
        None,
        [(wild(4, 2), wild(4, 1)), (wild(4, 2), 4 * wild(4, 1, seed=2))],
        gradients=False,
        build=optimizer_with_plateau,
    ),
]
