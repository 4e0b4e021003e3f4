"""Training over a mesh beside training in one process: models × ways to lay them out.

Run as a script, it checks all rows that fit on the ranks that MPI started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft import distributed, nn, optim
from weft.base.world import own_copy

STEPS = 10
F = nn.functional


class Classifier(nn.Module):
    """A transformer over tokens, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(16, 8)
        self.places = nn.Parameter(weft.zeros((4, 8)))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 16)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        return self.head(self.layer(self.tokens(x) + self.places))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(6, 8, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(8, 4)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        out, _ = self.cell(x)
        return self.head(self.dropout(out[:, -1]))


class Experts(nn.Module):
    """Tokens go to experts by a soft gate; each expert has a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.up = nn.Parameter(weft.randn(4, 6, 8) * 0.5)
        self.down = nn.Parameter(weft.randn(4, 8, 6) * 0.5)
        self.head = nn.Linear(6, 4)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        chances = weft.softmax(self.gate(x), axis=-1)
        given = weft.einsum("be,bd->ebd", chances, x)
        hidden = F.relu(weft.einsum("ebd,edh->ebh", given, self.up))
        return self.head(weft.einsum("ebh,ehd->bd", hidden, self.down))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


def batch(name: str, step: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(step)
    if name == "transformer":
        x = rng.integers(0, 16, (8, 4))
        return x, np.roll(x, 1, 1)
    shape = {"mlp": (8, 6), "experts": (8, 6), "cnn": (8, 2, 4, 4), "recurrent": (8, 5, 6)}[name]
    return rng.normal(size=shape).astype(np.float32), rng.integers(0, 4, 8)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "transformer": Classifier,
    "cnn": cnn,
    "recurrent": Recurrent,
    "experts": Experts,
}


#: How tensor parallelism cuts each of them.
RULES = {
    "mlp": {"0": "columns", "3": "rows"},
    "cnn": {"5": "rows"},
    "recurrent": {"cell": "gates", "head": "rows"},
    "experts": {"head": "rows"},
    "transformer": {
        "layer.self_attn": "heads",
        "layer.linear1": "columns",
        "layer.linear2": "rows",
        "tokens": "vocabulary",
        "head": "columns",
    },
}


def _experts(model: nn.Module) -> None:
    """Each rank along the axis of the batch has some of the experts."""
    for p in (model.up, model.down):
        distributed.shard(p, "data")


def _tensor(name: str) -> Callable[[nn.Module], Any]:
    return lambda model: distributed.tensor_parallel(model, "model", RULES[name])


#: Ways to lay out a model: the mesh, what is done to the model, and the axis that cuts the batch.
WAYS: dict[str, tuple[dict[str, int], Callable[[str], Callable[[nn.Module], Any]], str | None]] = {
    "data": ({"data": 2}, lambda _: lambda model: model, "data"),
    "data 4": ({"data": 4}, lambda _: lambda model: model, "data"),
    "fully sharded": ({"data": 2}, lambda _: distributed.fully_sharded, "data"),
    "fully sharded 4": ({"data": 4}, lambda _: distributed.fully_sharded, "data"),
    "tensor": ({"model": 2}, _tensor, None),
    "data × tensor": ({"data": 2, "model": 2}, _tensor, "data"),
    "sequence": ({"data": 2, "model": 2}, lambda _: lambda model: model, "data,model"),
    "experts": ({"data": 2}, lambda _: _experts, "data"),
    "fully sharded × tensor": (
        {"data": 2, "model": 2},
        lambda name: lambda model: distributed.fully_sharded(_tensor(name)(model)),
        "data",
    ),
}


def rows() -> list[tuple[str, str]]:
    """The models that each way is for."""
    only = {"sequence": ["transformer", "mlp"], "experts": ["experts"]}
    return [(model, way) for way in WAYS for model in only.get(way, MODELS)]


#: The ways of which machine code is tested, too.
NATIVE = ("data × tensor", "fully sharded")


def check(name: str, way: str, wanted: Any) -> Any:
    """Train on this rank and compare with one process; returns the program."""
    mesh, lay_out, data = WAYS[way]
    with distributed.Mesh(mesh):
        backend = "native" if way in NATIVE else None
        losses, values, program = train(name, lay_out(name), data, backend)
    np.testing.assert_allclose(losses, wanted[0], rtol=2e-4)
    for key, value in wanted[1].items():
        np.testing.assert_allclose(values[key], value, rtol=2e-3, atol=2e-5, err_msg=key)
    return program


def train(
    name: str, lay_out: Any = None, data: str | None = None, backend: str | None = None
) -> Any:
    """The losses and the parameters and buffers after some steps; the program, with a layout."""
    weft.manual_seed(3)
    model = MODELS[name]()
    if lay_out is not None:
        lay_out(model)
    # with this eps, gradients that are only rounding errors do not become steps
    optimizer = optim.Adam(model.parameters(), lr=0.02, eps=1e-3)

    @weft.compile(backend=backend)
    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        out = model(x)
        if out.ndim == 3:
            out, y = weft.reshape(out, (-1, out.shape[-1])), weft.reshape(y, (-1,))
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for number in range(STEPS):
        x, y = map(weft.asarray, batch(name, number))
        if data is not None:
            names = data.split(",")
            x = distributed.split(x, *names[: x.ndim])
            y = distributed.split(y, *names[: y.ndim])
        losses.append(float(step(x, y)))
    if lay_out is None:
        return losses, {k: v.numpy() for k, v in model.state_dict().items()}, None
    program = own_copy(step, None).programs[-1].program
    return losses, {k: distributed.full(v).numpy() for k, v in model.state_dict().items()}, program


if __name__ == "__main__":
    alone = {name: train(name) for name in sys.argv[1].split(",")}
    for model, way in rows():
        if model in alone and np.prod([*WAYS[way][0].values()]) == distributed.world_size():
            check(model, way, alone[model])
            if distributed.rank() == 0:
                sys.stdout.write(f"{model}: {way} agrees\n")
