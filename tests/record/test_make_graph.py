"""`make_graph`: every function recorded and interpreted gives what it gives eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_cases import CASES, NEED_NUMBERS, same
from op_calls import flat, function, tensors
from samples.table import Row

import weft
from weft.base.dtypes import DType


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_recorded_is_eager(row: Row, dtype: DType) -> None:
    for sample in row.samples(dtype):
        args, kwargs = tensors(sample.args), tensors(sample.kwargs)
        want = function(row.name)(*args, **kwargs)
        if not flat(want) or row.name in NEED_NUMBERS:
            continue
        graph = weft.make_graph(function(row.name), *args, **kwargs)
        same(graph(*args, **kwargs), want)


def test_the_graph_of_a_function() -> None:
    graph = weft.make_graph(lambda x, y: x * y + x.sum(), weft.spec(2), weft.spec(2))
    assert [node.op.name for node in graph.nodes] == ["multiply", "sum", "add"]
    assert [value.name for value in graph.inputs] == ["x", "y"]
    locations = [node.location for node in graph.nodes]
    assert all(where is not None and where.file == __file__ for where in locations)


def test_trees_in_and_out() -> None:
    def f(batch: dict[str, Any], scale: float = 2.0) -> dict[str, Any]:
        return {"sum": batch["a"] + batch["b"][0], "scale": scale, "both": (batch["a"], None)}

    batch = {"a": weft.ones(2), "b": [weft.ones(2)]}
    graph = weft.make_graph(f, batch, scale=3.0)
    assert [value.name for value in graph.inputs] == ["batch_a", "batch_b_0"]
    result = graph(batch, scale=3.0)
    assert result["sum"].tolist() == [2, 2]
    assert result["scale"] == 3.0
    assert result["both"][1] is None
    with pytest.raises(weft.errors.CaptureError, match=r"recorded for 3\.0, not 4\.0"):
        graph(batch, scale=4.0)
    with pytest.raises(weft.errors.CaptureError, match="arguments of the form"):
        graph(batch)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_graph_for_any_size(n: int) -> None:
    def f(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
        h = weft.tanh(x @ w)
        return (h - h.mean(axis=0)).reshape(-1) * x.shape[0]

    graph = weft.make_graph(f, weft.spec(("B", 3)), weft.spec((3, 2)))
    assert str(graph.outputs[0].type) == "f32[2*B]"
    x, w = weft.randn(n, 3), weft.randn(3, 2)
    np.testing.assert_array_equal(graph(x, w).numpy(), f(x, w).numpy())


def test_sizes_that_contradict_are_refused() -> None:
    graph = weft.make_graph(lambda x, y: x + y, weft.spec("B"), weft.spec("B"))
    with pytest.raises(weft.errors.ShapeError, match="B"):
        graph(weft.ones(2), weft.ones(3))


def test_parameters_are_inputs_and_what_is_written_is_written() -> None:
    layer = weft.nn.BatchNorm1d(3)
    eager = weft.nn.BatchNorm1d(3)
    x = weft.randn(4, 3)
    before = layer.running_mean.numpy(copy=True)
    graph = weft.make_graph(layer, weft.spec((4, 3)))
    np.testing.assert_array_equal(layer.running_mean.numpy(), before)
    for _ in range(2):
        same(graph(x), eager(x))
    same(layer.running_mean, eager.running_mean)
    same(layer.num_batches_tracked, eager.num_batches_tracked)


def test_a_training_step_is_one_graph() -> None:
    weft.manual_seed(0)
    layer = weft.nn.Linear(3, 2)
    twin = weft.nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())

    def step(model: Any, optimizer: Any, x: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    one = weft.optim.SGD(layer.parameters(), lr=0.1)
    two = weft.optim.SGD(twin.parameters(), lr=0.1)
    x = weft.randn(4, 3)
    graph = weft.make_graph(lambda x: step(layer, one, x), weft.spec((4, 3)))
    assert layer.weight.grad is None
    for _ in range(3):
        same(graph(x), step(twin, two, x))
        same(list(layer.parameters()), list(twin.parameters()))
        same([p.grad for p in layer.parameters()], [p.grad for p in twin.parameters()])


def test_random_numbers_are_those_of_eager_code() -> None:
    graph = weft.make_graph(lambda x: x + weft.randn(3) * weft.rand(3), weft.spec(3))
    x = weft.zeros(3)
    weft.manual_seed(5)
    got = [graph(x), graph(x)]
    weft.manual_seed(5)
    want = [weft.randn(3) * weft.rand(3) for _ in range(2)]
    same(got, want)


def test_gradients_through_a_graph() -> None:
    graph = weft.make_graph(lambda x: (x**3).sum(), weft.spec(2))
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    (first,) = weft.autograd.grad(graph(x), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    assert first.tolist() == [3, 12]
    assert second.tolist() == [6, 12]


def test_no_grad_and_detach_hold_in_the_graph() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        with weft.no_grad():
            scale = x * 2
        return (x * scale + x.detach() ** 2).sum()

    x = weft.tensor([1.0, 2.0], requires_grad=True)
    graph = weft.make_graph(f, x)
    (got,) = weft.autograd.grad(graph(x), x)
    (want,) = weft.autograd.grad(f(x), x)
    assert got.tolist() == want.tolist() == [2, 4]


@pytest.mark.parametrize(
    "ask",
    [bool, int, float, lambda x: x.item(), lambda x: x.numpy(), lambda x: [0, 1][x.astype(int)]],
    ids=["bool", "int", "float", "item", "numpy", "index"],
)
def test_questions_have_no_answer_in_a_graph(ask: Any) -> None:
    with pytest.raises(weft.errors.CaptureError, match="asks a symbolic tensor"):
        weft.make_graph(ask, weft.spec(()))


def test_after_an_error_all_is_as_before() -> None:
    weight = weft.ones(2)

    def f(x: weft.Tensor) -> weft.Tensor:
        nonlocal weight
        weight += x
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        weft.make_graph(f, weft.spec(2))
    assert weight.tolist() == [1, 1]
    assert (weight + 1).tolist() == [2, 2]


def test_a_symbolic_tensor_that_leaks_says_so() -> None:
    kept: list[weft.Tensor] = []
    weft.make_graph(lambda x: kept.append(x * 2) or x, weft.spec(2))
    with pytest.raises(weft.errors.CaptureError, match="nobody records"):
        kept[0] + 1
    with pytest.raises(weft.errors.CaptureError, match="has no numbers"):
        kept[0].numpy()


def test_shape_errors_name_the_line() -> None:
    with pytest.raises(weft.errors.ShapeError, match="matmul") as caught:
        weft.make_graph(lambda x: x @ x, weft.spec((2, 3)))
    assert "test_make_graph.py" in str(caught.value)


@pytest.mark.parametrize("values", [[1.0, -1.0, 2.0], [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
def test_one_mask_selects_the_same_number_twice(values: list[float]) -> None:
    def f(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        mask = x > 0
        return (x[mask] * y[mask]).sum() + x[mask].shape[0]

    graph = weft.make_graph(f, weft.spec(3), weft.spec(3))
    x, y = weft.asarray(values), weft.asarray([1.0, 2.0, 3.0])
    same(graph(x, y), f(x, y))


class Exp(weft.Function):
    """Saves its own result, an argument it changes the gradient of, and a Python number."""

    @staticmethod
    def forward(ctx: Any, x: weft.Tensor, scale: float) -> Any:
        y = weft.exp(x * scale)
        ctx.save_for_backward(x, y, x + 1)
        ctx.scale = scale
        return y, (x * 2).detach()

    @staticmethod
    def backward(ctx: Any, g: weft.Tensor, h: weft.Tensor) -> Any:
        x, y, more = ctx.saved_tensors
        return g * y * ctx.scale * x + h * more, None


@pytest.mark.parametrize("way", ["outside", "inside", "branch", "loop", "trace"])
def test_a_function_of_ones_own_in_a_graph(way: str) -> None:
    def f(x: weft.Tensor) -> Any:
        if way == "branch":
            return weft.cond(x.sum() > 0, lambda: Exp.apply(x, 0.5)[0], lambda: x).sum()
        if way == "loop":
            return weft.fori_loop(0, 3, lambda i, v: Exp.apply(v, 0.5)[0], x).sum()
        y, z = Exp.apply(x, 0.5)
        return (y * y).sum() + z.sum()

    def gradients(call: Any, x: weft.Tensor) -> Any:
        (first,) = weft.autograd.grad(call(x), x, create_graph=True)
        (second,) = weft.autograd.grad((first**2).sum(), x)
        return first, second

    x = weft.tensor([0.3, 0.7], dtype=weft.float64, requires_grad=True)
    want = gradients(f, x)
    if way == "trace":
        traced = weft.trace(f)
        got = [gradients(traced, x) for _ in range(2)][-1]
    elif way == "inside":
        got = weft.make_graph(lambda x: gradients(f, x), x)(x)
    else:
        got = gradients(weft.make_graph(f, x), x)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
