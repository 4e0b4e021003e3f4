"""Recurrent layers in captures: one loop for each layer and direction, the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base.pytree import tree_leaves
from weft.runtime.native import NativeProgram

STEPS, BATCH, INPUTS, HIDDEN = 11, 3, 4, 5  # more steps than a loop that is unrolled has

#: Options of the layer, and how many loops its forward is.
OPTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "plain": ({}, 1),
    "no_bias": ({"bias": False}, 1),
    "layers": ({"num_layers": 2, "batch_first": True}, 2),
    "both_ways": ({"bidirectional": True}, 2),
    "all": ({"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.4}, 4),
}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "RNN": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "LSTM": (nn.LSTM, {}),
    "GRU": (nn.GRU, {}),
}
CAPTURES = {
    "trace": lambda f: weft.trace(f, backend="native"),
    "source": lambda f: weft.compile(f, backend="native"),
    "interpret": lambda f: weft.compile(f, backend="interpret"),
}


def _values(*shape: int) -> weft.Tensor:
    return weft.asarray(np.random.default_rng(len(shape)).standard_normal(shape))


def _layer(kind: str, options: dict[str, Any]) -> Any:
    make, more = KINDS[kind]
    weft.manual_seed(3)
    return make(INPUTS, HIDDEN, **options, **more, dtype=weft.float64)


def _given(layer: Any, how: str) -> tuple[Any, Any, Any]:
    """The input, first states and lengths: with "ragged" those of several lengths."""
    if how == "unbatched":
        return _values(STEPS, INPUTS), None, None
    shape = (BATCH, STEPS) if layer.batch_first else (STEPS, BATCH)
    x = _values(*shape, INPUTS)
    if how == "zeros":
        return x, None, None
    places = layer.num_layers * (2 if layer.bidirectional else 1)
    state = _values(places, BATCH, HIDDEN)
    first = (state, state * 0.5) if isinstance(layer, nn.LSTM) else state
    lengths = weft.asarray([STEPS, 4, 0]) if how == "ragged" else None
    return x, first, lengths


def _run(layer: Any, x: Any, first: Any, lengths: Any) -> tuple[Any, ...]:
    """Results, and gradients of all parameters and of the input."""
    x = x.detach().requires_grad_()
    results = tree_leaves(layer(x, first, lengths))
    total = sum((y * y * y).sum() for y in results)
    grads = weft.autograd.grad(total, [x, *layer.parameters()])
    return (*results, *grads)


def _agree(found: Any, wanted: Any) -> None:
    for one, two in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(
            np.asarray(one.detach()), np.asarray(two.detach()), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "how"),
    [
        ("plain", "zeros"),
        ("plain", "unbatched"),
        ("no_bias", "states"),
        ("layers", "ragged"),
        ("all", "ragged"),
    ],
)
def test_a_capture_gives_what_eager_does(capture: str, kind: str, options: str, how: str) -> None:
    layer = _layer(kind, OPTIONS[options][0])
    given = _given(layer, how)
    weft.manual_seed(7)
    wanted = _run(layer, *given)
    captured = CAPTURES[capture](lambda *args: _run(layer, *args))
    weft.manual_seed(7)
    _agree(captured(*given), wanted)
    weft.manual_seed(7)
    _agree(captured(*given), wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_layer_is_a_loop(kind: str, options: str) -> None:
    layer = _layer(kind, OPTIONS[options][0])
    x, first, lengths = _given(layer, "states")
    graph = weft.make_graph(lambda x: _run(layer, x, first, lengths)[-1], x.type)
    loops = [node for node in graph.nodes if node.op.name == "scan"]
    assert len(loops) == 2 * OPTIONS[options][1]
    if options == "plain":
        assert NativeProgram(weft.optimize(graph)).calls == []


def test_no_steps_and_one() -> None:
    layer = _layer("LSTM", {})
    for steps in (0, 1):
        x = _values(steps, BATCH, INPUTS)
        _agree(weft.compile(layer, backend="native")(x), layer(x))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_second_derivatives_and_forward_mode(kind: str) -> None:
    layer = _layer(kind, {})
    x = _values(STEPS, 2, INPUTS)

    def loss(x: Any) -> Any:
        return (layer(x)[0] ** 3).sum()

    def second(x: Any) -> Any:
        return weft.grad(lambda x: (weft.grad(loss)(x) ** 2).sum())(x)

    def forward(x: Any) -> Any:
        return weft.jvp(lambda x: layer(x)[0], (x,), (x * 0.5,))

    for function in (second, forward):
        _agree(weft.compile(function, backend="native")(x), function(x))


def test_under_vmap() -> None:
    layer = _layer("GRU", {})
    x = _values(3, STEPS, 2, INPUTS)
    wanted = weft.stack([layer(part)[0] for part in x])
    mapped = weft.vmap(lambda part: layer(part)[0])
    _agree(mapped(x), wanted)
    _agree(weft.compile(mapped, backend="native")(x), wanted)


@pytest.mark.parametrize("backend", [None, "interpret"])
def test_an_lstm_with_projections(backend: str | None) -> None:
    """h is a projection; the second layer and the recurrence see that."""
    rng = np.random.default_rng(0)
    layer = nn.LSTM(4, 5, 2, proj_size=3)
    numbers = {name: rng.normal(size=p.shape) for name, p in layer.named_parameters()}
    for name, p in layer.named_parameters():
        p.data = weft.asarray(numbers[name], dtype="float32")
    given = rng.normal(size=(6, 2, 4))
    x = weft.asarray(given, dtype="float32")
    run = layer if backend is None else weft.compile(lambda x: layer(x), backend=backend)
    out, (h, c) = run(x)

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    wanted, ends = given, []
    for k in range(2):
        w = {name: numbers[f"{name}_l{k}"] for name in ("weight_ih", "weight_hh", "weight_hr")}
        bias = numbers[f"bias_ih_l{k}"] + numbers[f"bias_hh_l{k}"]
        state, cell, rows = np.zeros((2, 3)), np.zeros((2, 5)), []
        for step in wanted:
            gates = step @ w["weight_ih"].T + state @ w["weight_hh"].T + bias
            i, f, g, o = np.split(gates, 4, axis=1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            state = (sigmoid(o) * np.tanh(cell)) @ w["weight_hr"].T
            rows.append(state)
        wanted = np.stack(rows)
        ends.append((state, cell))
    np.testing.assert_allclose(out.detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
    for number, states in enumerate((h, c)):
        expected = np.stack([end[number] for end in ends])
        np.testing.assert_allclose(states.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    again, _ = layer(x, (h.detach(), c.detach()))
    assert again.shape == (6, 2, 3)
    with pytest.raises(weft.errors.RangeError, match="only an LSTM"):
        nn.GRU(4, 5, proj_size=2)
