"""Networks that both libraries have: dense, convolutional, recurrent, attention."""

from __future__ import annotations

from typing import Any

from nn_samples.table import indices, values

from training.table import Case, Setup, fill


def supervised(library: Any, model: Any, optimizer: Any, batches: list[Any]) -> Setup:
    """The training step as people write it."""
    F = library.F

    def train_step(*batch):
        *inputs, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(*inputs), y)
        loss.backward()
        optimizer.step()
        return loss

    given = [tuple(map(library.make, batch)) for batch in batches]
    return Setup(train_step, given, [model], [optimizer])


def classes(count: int, seed: int) -> Any:
    return indices(count, below=3, seed=seed)


# --- dense ---------------------------------------------------------------------------------------


def mlp(library: Any) -> Setup:
    nn = library.nn
    layers = nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)
    model = fill(nn.Sequential(*layers), library.make)
    optimizer = library.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.05)
    batches = [(values(6, 5, seed=s), classes(6, s)) for s in range(3)]
    return supervised(library, model, optimizer, batches)


# --- convolutions --------------------------------------------------------------------------------


def cnn(library: Any, p: float = 0.0) -> Setup:
    nn = library.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(4)
            self.pool = nn.MaxPool2d(2)
            self.drop = nn.Dropout(p)
            self.head = nn.Linear(36, 3)

        def forward(self, x):
            x = self.pool(self.norm(self.conv(x)).relu())
            return self.head(self.drop(x.flatten(1)))

    model = fill(Net(), library.make)
    optimizer = library.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    batches = [(values(4, 2, 6, 6, seed=s), classes(4, s)) for s in range(3)]
    return supervised(library, model, optimizer, batches)


# --- sequences of different lengths --------------------------------------------------------------


def gru(library: Any) -> Setup:
    """The lengths are tensors: one recording serves all. The width of batches is symbolic."""
    nn, run_gru = library.nn, library.run_gru

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 3, padding_idx=0)
            self.body = nn.GRU(3, 3, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x, lengths):
            states = run_gru(self.body, self.embed(x), lengths)
            return self.head(states.swapaxes(0, 1).flatten(1))

    model = fill(Net(), library.make)
    optimizer = library.optim.Adam(model.parameters(), lr=0.01)
    batches = [
        (indices(4, width, below=7, seed=s), 1 + indices(4, below=width, seed=s), classes(4, s))
        for s, width in enumerate((6, 3, 6, 3))
    ]
    return supervised(library, model, optimizer, batches)


# --- attention -----------------------------------------------------------------------------------


def transformer(library: Any, p: float = 0.0) -> Setup:
    nn = library.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(9, 4)
            layer = nn.TransformerEncoderLayer(4, 2, 6, p, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(4))
            self.head = nn.Linear(4, 3)

        def forward(self, x, lengths):
            padding = library.all.arange(x.shape[1])[None, :] >= lengths[:, None]
            states = self.body(self.embed(x), src_key_padding_mask=padding)
            return self.head(states[:, 0])

    model = fill(Net(), library.make)
    optimizer = library.optim.AdamW(model.parameters(), lr=0.01)
    batches = [
        (indices(3, 5, below=9, seed=s), 1 + indices(3, below=5, seed=s), classes(3, s))
        for s in range(3)
    ]
    return supervised(library, model, optimizer, batches)


CASES = [
    Case("mlp", mlp, True),
    Case("cnn", cnn, True),
    Case("cnn with dropout", lambda library: cnn(library, 0.25)),
    Case("gru", gru, True, (2, 2), why="the width of batches becomes symbolic"),
    Case("transformer", transformer, True),
    Case("transformer with dropout", lambda library: transformer(library, 0.1)),
]
