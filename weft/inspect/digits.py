"""The last step of `weft demo`: training a network on handwritten digits.

The digits are those of scikit-learn: 1,797 images of 8 by 8 pixels. The source of `train` is shown,
and then run.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from weft import data, nn, optim
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.random import Generator, manual_seed, permutation

EPOCHS = 20
WIDTH = 24  # of the bar

Report = Callable[[int, float, float], None]


@dataclass(frozen=True, slots=True)
class Digits:
    """Images as rows of 64 numbers from 0 to 1, and their labels, for training and for testing."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load(test_part: float = 0.2, seed: int = 0) -> Digits | None:
    """The digits, split for training and testing; None if scikit-learn is not installed."""
    try:
        source: Any = importlib.import_module("sklearn.datasets")
    except ImportError:
        return None
    bunch = source.load_digits()
    images = asarray(bunch.data / 16, dtype="float32")
    labels = asarray(bunch.target, dtype="int64")
    order = permutation(len(labels), generator=Generator(seed))
    cut = int(len(labels) * test_part)
    rest, test = order[cut:], order[:cut]
    return Digits(images[rest], labels[rest], images[test], labels[test])


def train(digits: Digits, epochs: int, report: Report) -> nn.Module:
    """Train a network of two layers; calls `report` after each epoch."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    pairs = data.TensorDataset(digits.images, digits.labels)
    loader = data.DataLoader(pairs, batch_size=32, shuffle=True)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs * len(loader))
    for epoch in range(1, epochs + 1):
        losses = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        report(epoch, sum(losses) / len(losses), accuracy(model, digits))
    return model


def accuracy(model: nn.Module, digits: Digits) -> float:
    """The fraction of the test images that the model classifies correctly."""
    with no_grad():
        found = model(digits.test_images).argmax(axis=1)
    return float((found == digits.test_labels).astype("float64").mean())


class Progress:
    """A progress line that is updated on a terminal; elsewhere one line per report."""

    def __init__(self, epochs: int, stream: TextIO) -> None:
        self.epochs = epochs
        self.stream = stream
        self.over = stream.isatty()
        self.started = time.perf_counter()

    def __call__(self, epoch: int, loss: float, right: float) -> None:
        filled = WIDTH * epoch // self.epochs
        bar = "#" * filled + "." * (WIDTH - filled) if self.over else ""
        seconds = time.perf_counter() - self.started
        line = (
            f"    epoch {epoch:>2}/{self.epochs} {bar}  loss {loss:.4f}  "
            f"test accuracy {right:.1%}  {seconds:.1f} s"
        )
        self.stream.write(f"\r\x1b[K{line}" if self.over else f"{line}\n")
        if self.over and epoch == self.epochs:
            self.stream.write("\n")
        self.stream.flush()


def show(number: int, stream: TextIO | None = None) -> None:
    """Show `train` and run it, as step `number` of the tour."""
    out = stream or sys.stdout
    out.write(f"{number}. A network learns to read handwritten digits.\n\n")
    digits = load()
    if digits is None:
        out.write(
            "    scikit-learn, which has the digits, is not installed: this stop is left out.\n"
        )
        out.write('    To see it: pip install "weft[demo]"\n\n')
        return
    for line in inspect.getsource(train).splitlines():
        out.write(f"    {line}".rstrip() + "\n")
    out.write("\n")
    manual_seed(0)
    model = train(digits, EPOCHS, Progress(EPOCHS, out))
    right = accuracy(model, digits)
    out.write(
        f"\n    Of {len(digits.test_labels)} images it never saw, it reads {right:.1%} right.\n\n"
    )
