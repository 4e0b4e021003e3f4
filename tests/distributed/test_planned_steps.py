"""Plans that are applied whole: steps on a mesh beside those of one process."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed, nn, optim
from weft.distributed import Cluster
from weft.errors import DistributedError, ShapeError
from weft.nn import functional as F

STEPS = 3
rng = np.random.default_rng(0)
X = rng.normal(size=(STEPS, 16, 8)).astype(np.float32)
Y = rng.normal(size=(STEPS, 16, 4)).astype(np.float32)
TOKENS = rng.integers(0, 16, (STEPS, 16, 8))
NEXT = rng.integers(0, 16, (STEPS, 16, 8))


def mlp() -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise((8, 16, 16, 16, 4)):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def transformer() -> nn.Sequential:
    blocks = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(4)]
    return nn.Sequential(nn.Embedding(16, 8), *blocks, nn.Linear(8, 16))


def entropy(out: Any, y: Any) -> Any:
    return F.cross_entropy(out.reshape(-1, 16), y.reshape(-1))


def sgd(parameters: Any) -> Any:
    return optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters: Any) -> Any:
    return optim.Adam(parameters, lr=0.01)


class Net(nn.Module):
    """No list of layers, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.drop = nn.Linear(8, 16), nn.Linear(16, 4), nn.Dropout(0.3)

    def forward(self, x: Any) -> Any:
        return self.two(self.drop(weft.tanh(self.one(x))))


MODELS: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "mlp": (mlp, adam, F.mse_loss, X, Y),
    "net": (Net, adam, F.mse_loss, X, Y),
    "transformer": (transformer, sgd, entropy, TOKENS, NEXT),
}


def outlined(kind: str) -> Any:
    make, optimizer_of, loss_of, xs, ys = MODELS[kind]

    def build() -> Any:
        model = make()
        optimizer = optimizer_of(model.parameters())

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    specs = [weft.spec(x.shape[1:], weft.asarray(x).dtype) for x in (xs, ys)]
    return distributed.outline(build, *specs)


def trained(kind: str, plan: Any = None) -> Any:
    """Losses of some steps, and the weights after them: with a plan, or on one process."""
    make, optimizer_of, loss_of, xs, ys = MODELS[kind]
    weft.manual_seed(1)
    model = make()
    optimizer = optimizer_of(model.parameters())
    if plan is not None:
        step = plan.apply(model, optimizer, loss_of)
        model = step.model
    losses = []
    for x, y in zip(map(weft.asarray, xs), map(weft.asarray, ys), strict=True):
        if plan is not None:
            losses.append(step(x, y).item())
            continue
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if plan is None:
        return losses, {name: p.detach().numpy() for name, p in model.named_parameters()}
    with step._world.entered():
        whole = {name: distributed.full(p).numpy() for name, p in model.named_parameters()}
    return losses, {name.removeprefix("stage."): value for name, value in whole.items()}


PLANS: list[tuple[str, int, dict[str, Any]]] = [
    ("mlp", 2, {"data": 2, "micro_batch": 8}),
    ("mlp", 2, {"data": 2, "micro_batch": 2, "sharded": "state"}),
    ("mlp", 2, {"data": 2, "micro_batch": 4, "sharded": "all", "recompute": True}),
    ("mlp", 4, {"data": 2, "tensor": 2, "micro_batch": 8, "sharded": "all"}),
    ("mlp", 2, {"pipeline": 2, "micro_batch": 4, "schedule": "gpipe"}),
    ("mlp", 4, {"pipeline": 2, "data": 2, "micro_batch": 2, "sharded": "all"}),
    ("mlp", 4, {"pipeline": 2, "data": 2, "micro_batch": 2, "sharded": "state"}),
    ("mlp", 2, {"pipeline": 2, "micro_batch": 4, "schedule": "interleaved", "chunks": 2}),
    ("net", 4, {"data": 2, "tensor": 2, "micro_batch": 8, "sharded": "state"}),
    ("transformer", 2, {"tensor": 2, "micro_batch": 16, "sequence": True}),
    ("transformer", 4, {"tensor": 2, "data": 2, "micro_batch": 4, "recompute": True}),
    ("transformer", 4, {"pipeline": 2, "tensor": 2, "micro_batch": 4, "sequence": True}),
    (
        "transformer",
        8,
        {"pipeline": 2, "tensor": 2, "data": 2, "micro_batch": 2, "recompute": True, "chunks": 2}
        | {"schedule": "interleaved", "sharded": "all"},
    ),
]


@pytest.mark.parametrize(("kind", "ranks", "pins"), PLANS, ids=str)
def test_steps_are_those_of_one_process(kind: str, ranks: int, pins: dict[str, Any]) -> None:
    degrees = {"data": 1, "tensor": 1, "pipeline": 1}
    plan = distributed.plan(outlined(kind), Cluster.cpus(ranks), **{**degrees, **pins})
    losses, weights = trained(kind)
    found: dict[str, Any] = {}
    for mine, parts in distributed.run_virtual(ranks, trained, kind, plan):
        np.testing.assert_allclose(mine, losses, rtol=1e-4)
        found |= parts
    assert set(found) == set(weights)
    for name, value in found.items():
        np.testing.assert_allclose(value, weights[name], rtol=2e-3, atol=2e-5, err_msg=name)


def _applied(model: Any, pins: dict[str, Any], size: int = 16) -> Any:
    plan = distributed.plan(outlined("mlp"), Cluster.cpus(2), **pins)
    step = plan.apply(model, adam(model.parameters()), F.mse_loss)
    return step(weft.ones((size, 8)), weft.ones((size, 4)))


TWO_STAGES: dict[str, Any] = {"pipeline": 2, "micro_batch": 4}
ERRORS: dict[str, tuple[Any, type[Exception]]] = {
    "a Net cannot be cut": (lambda: _applied(Net(), TWO_STAGES), DistributedError),
    "the children of this one are a, b": (
        lambda: _applied(nn.Sequential({"a": nn.Linear(8, 8), "b": nn.Linear(8, 4)}), TWO_STAGES),
        DistributedError,
    ),
    "cannot be cut into 4 micro-batches": (lambda: _applied(mlp(), TWO_STAGES, 6), ShapeError),
    "does not fall into the 4 micro-batches": (
        lambda: _applied(mlp(), {"data": 2, "micro_batch": 2}, 12),
        ShapeError,
    ),
}


@pytest.mark.parametrize("words", ERRORS)
def test_plans_that_do_not_fit_are_refused(words: str) -> None:
    call, kind = ERRORS[words]
    with pytest.raises(kind, match=words):
        distributed.run_virtual(2, call, timeout=20)
    with pytest.raises(DistributedError, match=r"has 2 ranks, but there (is|are)"):
        distributed.run_virtual(3, _applied, mlp(), TWO_STAGES)
