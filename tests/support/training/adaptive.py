"""Models whose depth depends on the numbers: `while` and `if` on tensors."""

from __future__ import annotations

from typing import Any

from nn_samples.table import indices, values

from training.networks import classes, supervised
from training.table import Case, Setup, fill


def implicit(library: Any) -> Setup:
    """A layer whose output is the z with z = tanh(W z + U x): iterated until it moves no more."""
    nn = library.nn

    class Implicit(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4, bias=False)
            self.outer = nn.Linear(3, 4)

        def forward(self, x):
            into = self.outer(x)
            z, new = into, (self.inner(into) + into).tanh()
            while ((new - z) ** 2).sum() > 1e-12:
                z, new = new, (self.inner(new) + into).tanh()
            return new

    model = fill(nn.Sequential(Implicit(), nn.Linear(4, 3)), library.make, scale=0.6)
    optimizer = library.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = [(values(4, 3, seed=s), classes(4, s)) for s in range(3)]
    return supervised(library, model, optimizer, batches)


def early_exit(library: Any) -> Setup:
    """An answer that is sure enough is given at once. Then the layers behind have no gradient."""
    nn, F = library.nn, library.F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 5)
            self.exit = nn.Linear(5, 3)
            self.second = nn.Linear(5, 5)
            self.last = nn.Linear(5, 3)

        def forward(self, x):
            hidden = self.first(x).tanh()
            out = self.exit(hidden)
            if (F.softmax(out, -1) ** 2).sum() > 2.2:
                return out
            return self.last(self.second(hidden).tanh()) + out

    model = fill(Net(), library.make)
    optimizer = library.optim.Adam(model.parameters(), lr=0.05)
    batches = [(values(4, 3, seed=s) * scale, classes(4, s)) for s, scale in enumerate((1, 4, 2))]
    return supervised(library, model, optimizer, batches)


def cell_by_hand(library: Any) -> Setup:
    """A cell over sequences, as many times as the longest of the batch is long."""
    nn = library.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(2, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, x, lengths):
            h = 0 * x[:, :2].flatten(1)
            t = 0
            while t < lengths.max():
                going = (lengths > t)[:, None]
                h = library.all.where(going, self.cell(x[:, t], h), h)
                t = t + 1
            return self.head(h)

    model = fill(Net(), library.make)
    optimizer = library.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = [
        (values(3, 6, 2, seed=s), 1 + indices(3, below=5, seed=s), classes(3, s)) for s in range(3)
    ]
    return supervised(library, model, optimizer, batches)


CASES = [
    Case("implicit", implicit, True, (14, 1), (20, 2), "a trace has a path for each depth"),
    Case(
        "early exit", early_exit, True, (2, 2), (17, 17), "the way out has no gradients behind it"
    ),
    Case("cell by hand", cell_by_hand, True, (2, 1), (3, 2), "a trace has a path for each length"),
]
