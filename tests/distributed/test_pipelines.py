"""Pipeline parallel training: schedules, and numbers beside those of one process."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed, nn, optim
from weft.distributed.schedules import in_flight, order_of
from weft.errors import DistributedError, RangeError, ShapeError

rng = np.random.default_rng(0)
X = rng.normal(size=(10, 16, 6)).astype(np.float32)
Y = rng.normal(size=(10, 16, 3)).astype(np.float32)
TOKENS = rng.integers(0, 11, (10, 16, 5))
NEXT = rng.integers(0, 11, (10, 16, 5))


def mlp() -> nn.Sequential:
    sizes = (6, 12, 12, 12, 3)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def transformer() -> nn.Sequential:
    blocks = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(3)]
    return nn.Sequential(nn.Embedding(11, 8), *blocks, nn.Linear(8, 11))


def mse(out: Any, y: Any) -> Any:
    return ((out - y) ** 2).mean()


def entropy(out: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(out.reshape(-1, 11), y.reshape(-1))


def adam(parameters: Any) -> Any:
    return optim.Adam(parameters, lr=0.01)


def sgd(parameters: Any) -> Any:
    """Adam makes steps of what is 0 to rounding: the gradients of keys' biases."""
    return optim.SGD(parameters, lr=0.05, momentum=0.9)


MODELS = {
    "mlp": (mlp, adam, mse, X, Y),
    "transformer": (transformer, sgd, entropy, TOKENS, NEXT),
}


def filled(model: nn.Sequential) -> nn.Sequential:
    numbers = np.random.default_rng(3)
    for parameter in model.parameters():
        values = numbers.normal(size=parameter.shape).astype(np.float32) / 3
        parameter.data = weft.asarray(values)
    return model


def alone(kind: str) -> tuple[list[float], dict[str, Any]]:
    make, optimizer_of, loss_of, xs, ys = MODELS[kind]
    model = filled(make())
    optimizer = optimizer_of(model.parameters())
    losses = []
    for x, y in zip(xs, ys, strict=True):
        optimizer.zero_grad()
        loss = loss_of(model(weft.asarray(x)), weft.asarray(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in model.named_parameters()}


def piped(
    kind: str, schedule: str, axes: dict[str, int], micro_batches: int
) -> tuple[list[float], dict[str, Any], int, Any]:
    make, optimizer_of, loss_of, xs, ys = MODELS[kind]
    with distributed.Mesh(axes) as mesh:
        layers = make()
        if distributed.rank() == 0:  # the others get these
            filled(layers)
        data = "data" in axes
        chunks = 2 if schedule == "interleaved" else 1
        model = distributed.pipeline(
            layers, "pipe", micro_batches=micro_batches, schedule=schedule, chunks=chunks
        )
        if data:
            distributed.data_parallel(model, "data")
        part = slice(None)
        if data:
            half = 16 // axes["data"]
            part = slice(half * mesh.place("data"), half * (mesh.place("data") + 1))
    optimizer = optimizer_of(model.parameters())
    losses = []
    for x, y in zip(xs, ys, strict=True):
        optimizer.zero_grad()
        losses.append(model.backward(loss_of, weft.asarray(x[part]), weft.asarray(y[part])).item())
        optimizer.step()
    found = {n.removeprefix("stage."): p.detach().numpy() for n, p in model.named_parameters()}
    return losses, found, model.most_held, model(weft.asarray(xs[0])).numpy()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("schedule", "stages"),
    [*itertools.product(("gpipe", "1f1b"), (1, 2, 3)), ("interleaved", 1), ("interleaved", 2)],
)
def test_ten_steps_are_those_of_one_process(kind: str, schedule: str, stages: int) -> None:
    wanted, parameters = alone(kind)
    ranks = distributed.run_virtual(stages, piped, kind, schedule, {"pipe": stages}, 4)
    found: dict[str, Any] = {}
    for losses, mine, _, _ in ranks:
        np.testing.assert_allclose(losses, wanted, rtol=1e-4)
        assert not set(found) & set(mine)
        found |= mine
    assert set(found) == set(parameters)
    for name, value in found.items():
        np.testing.assert_allclose(value, parameters[name], rtol=2e-3, atol=2e-5, err_msg=name)
    most = [held for _, _, held, _ in ranks]
    chunks = 2 if schedule == "interleaved" else 1
    assert most == [sum(in_flight(schedule, stages, 4, i, chunks)) for i in range(stages)]
    assert len({out.tobytes() for _, _, _, out in ranks}) == 1


def test_with_data_parallel_on_one_mesh() -> None:
    wanted, parameters = alone("mlp")
    ranks = distributed.run_virtual(4, piped, "mlp", "1f1b", {"data": 2, "pipe": 2}, 4)
    for first, second in ((0, 2), (1, 3)):
        both = (np.array(ranks[first][0]) + np.array(ranks[second][0])) / 2
        np.testing.assert_allclose(both, wanted, rtol=1e-4)
        for name, value in ranks[first][1].items():
            np.testing.assert_array_equal(value, ranks[second][1][name])
            np.testing.assert_allclose(value, parameters[name], rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 4, 7, 10])
@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3)])
def test_schedules_come_to_an_end(schedule: str, chunks: int, stages: int, count: int) -> None:
    """Each device runs each forward and each backward once, when its operand can be there."""
    if schedule == "interleaved" and count % stages:
        return
    orders = [order_of(schedule, stages, count, device, chunks) for device in range(stages)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len(orders[0]) == len(set(orders[0])) == 2 * count * chunks
    last = stages * chunks - 1
    done: set[tuple[bool, int, int]] = set()
    held = most = 0
    while any(orders):
        before = len(done)
        for device, order in enumerate(orders):
            if order:
                forward, i, chunk = order[0]
                stage = chunk * stages + device
                needs = forward, i, stage - 1 if forward else stage + 1
                if not forward and stage == last:
                    needs = True, i, stage
                if needs in done or (forward and stage == 0):
                    done.add((forward, i, stage))
                    order.pop(0)
                    held += (1 if forward else -1) if device == 0 else 0
                    most = max(most, held)
        assert len(done) > before
    assert most == sum(in_flight(schedule, stages, count, 0, chunks))


def test_stages_have_about_as_many_parameters() -> None:
    def sizes() -> int:
        layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)], nn.Linear(4, 40))
        with distributed.Mesh({"pipe": 2}):
            return len(distributed.pipeline(layers, "pipe").stage)

    assert distributed.run_virtual(2, sizes) == [4, 1]


def test_a_state_of_all_stages_is_read_by_each() -> None:
    whole = filled(mlp()).state_dict()

    def loaded() -> bool:
        with distributed.Mesh({"pipe": 2}):
            model = distributed.pipeline(mlp(), "pipe")
        model.load_state_dict({f"stage.{name}": x for name, x in whole.items()})
        return all(
            bool(weft.all(x == whole[name.removeprefix("stage.")]))
            for name, x in model.state_dict().items()
        )

    assert distributed.run_virtual(2, loaded) == [True, True]


def _shared() -> Any:
    layer = nn.Linear(4, 4)
    return distributed.pipeline(nn.Sequential(layer, nn.Tanh(), layer), "ranks", cuts=[1])


def _backward(x: Any, loss: Any = mse) -> Any:
    return distributed.pipeline(mlp(), "ranks", micro_batches=4).backward(loss, x, x)


ERRORS: dict[str, tuple[Any, type[Exception]]] = {
    "schedule is 'zb'": (
        lambda: distributed.pipeline(mlp(), "ranks", schedule="zb"),
        RangeError,
    ),
    "chunks is 2 with the schedule '1f1b'": (
        lambda: distributed.pipeline(mlp(), "ranks", chunks=2),
        RangeError,
    ),
    "3 micro-batches are not a multiple of 2 ranks": (
        lambda: distributed.pipeline(
            mlp(), "ranks", schedule="interleaved", chunks=2, micro_batches=3
        ),
        RangeError,
    ),
    "micro_batches is 0": (
        lambda: distributed.pipeline(mlp(), "ranks", micro_batches=0),
        RangeError,
    ),
    "not of a Linear": (lambda: distributed.pipeline(nn.Linear(2, 2), "ranks"), DistributedError),
    "do not make 2 stages": (
        lambda: distributed.pipeline(mlp(), "ranks", cuts=[7]),
        RangeError,
    ),
    "1 layers cannot be 2 stages": (
        lambda: distributed.pipeline(nn.Sequential(nn.Tanh()), "ranks"),
        RangeError,
    ),
    "no axis 'pipe'": (lambda: distributed.pipeline(mlp(), "pipe"), DistributedError),
    "2.weight of stage 1 is 0.weight of stage 0": (_shared, DistributedError),
    "cannot be cut into 4 micro-batches": (lambda: _backward(weft.ones((6, 6))), ShapeError),
    "the loss is no number": (
        lambda: _backward(weft.ones((4, 6)), lambda out, y: out),
        ShapeError,
    ),
}


@pytest.mark.parametrize("words", ERRORS)
def test_errors(words: str) -> None:
    call, kind = ERRORS[words]
    with pytest.raises(kind, match=words):
        distributed.run_virtual(2, call, timeout=20)
