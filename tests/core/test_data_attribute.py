"""`x.data`: read, a value without history; written, another value of the same tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import DTypeError, ShapeError
from weft.nn import Linear, Parameter

MODES: dict[str, Callable[..., Any]] = {
    "eager": lambda function: function,
    "trace": weft.trace,
    "compile": weft.compile,
    "native": lambda function: weft.compile(function, backend="native"),
}
in_all_modes = pytest.mark.parametrize("mode", MODES)


def tensor(*numbers: float) -> Any:
    return weft.tensor([float(n) for n in numbers])


@in_all_modes
def test_data_is_the_value_without_history(mode: str) -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @MODES[mode]
    def loss(x: Any) -> Any:
        return (w * w.data * x).sum()

    for x in (tensor(1, 1), tensor(3, 5)):
        w.grad = None
        loss(x).backward()
        np.testing.assert_array_equal(w.grad.numpy(), w.detach().numpy() * x.numpy())
    assert not w.data.requires_grad
    assert type(Parameter(tensor(1)).data) is weft.Tensor


@in_all_modes
def test_data_is_written_by_a_function(mode: str) -> None:
    """Also through +=; nobody else who has the old value or the new one sees a change."""
    w = Parameter(tensor(1, 2))
    kept, given = w.data, []

    @MODES[mode]
    def step(x: Any) -> Any:
        w.data = x * 2
        w.data += 1
        out = (w * x).sum()
        out.backward()
        return out.detach()

    for x in (tensor(1, 3), tensor(-2, 5), tensor(0, 4)):
        given.append(w.detach())
        w.grad = None
        out = step(x)
        np.testing.assert_array_equal(w.detach().numpy(), x.numpy() * 2 + 1)
        assert out.item() == ((x * 2 + 1) * x).sum().item()
        assert w.is_leaf
        assert w.requires_grad
        np.testing.assert_array_equal(w.grad.numpy(), x.numpy())
    np.testing.assert_array_equal(kept.numpy(), [1, 2])
    np.testing.assert_array_equal([g.numpy() for g in given], [[1, 2], [3, 7], [-3, 11]])


@in_all_modes
@pytest.mark.parametrize("control", ["branch", "loop"])
def test_data_is_written_under_control_flow(mode: str, control: str) -> None:
    w = Parameter(tensor(1, 2))

    def branch(x: Any) -> Any:
        if x.sum() > 0:
            w.data = x
        return (w * x).sum()

    def loop(x: Any) -> Any:
        n = x.sum()
        while n > 0:
            w.data = w.data + x
            n = n - 1
        return (w * x).sum()

    run = MODES[mode](branch if control == "branch" else loop)
    want = np.array([1.0, 2.0])
    for numbers in ([1.0, 1.0], [-3.0, 2.0], [2.0, 1.0]):
        x = np.array(numbers)
        if x.sum() > 0:
            want = x if control == "branch" else want + x * x.sum()
        out = run(tensor(*numbers))
        np.testing.assert_array_equal(w.detach().numpy(), want)
        assert out.item() == (want * x).sum()


@in_all_modes
def test_optimizers_and_compiled_steps_see_what_was_written(mode: str) -> None:
    layer = Linear(2, 1, bias=False)
    optimizer = weft.optim.SGD(layer.parameters(), lr=0.5)

    @MODES[mode]
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(3):
        x = tensor(i + 1, 2)
        layer.weight.data = weft.tensor([[10.0 * i, 1.0]])
        assert step(x).item() == 10 * i * (i + 1) + 2
        np.testing.assert_allclose(
            layer.weight.detach().numpy(), [[10 * i - 0.5 * (i + 1), 0]], atol=1e-6
        )


@in_all_modes
def test_another_shape_and_dtype(mode: str) -> None:
    """As in PyTorch, a leaf may change its type; what was compiled for the old one is not used."""
    layer = Linear(2, 1, bias=False)
    run = MODES[mode](lambda x: layer(x))
    layer.weight.data = weft.tensor([[1.0, 2.0]])
    assert run(tensor(3, 4)).tolist() == [11]
    layer.weight.data = weft.tensor([[1.0, 2.0], [0.5, 1.0]], dtype=weft.float64)
    out = run(weft.tensor([3.0, 4.0], dtype=weft.float64))
    assert out.tolist() == [11, 5.5]
    assert out.dtype is weft.float64
    assert layer.weight.requires_grad


def test_writing_data_keeps_history() -> None:
    w = weft.tensor([1.0, 1.0, 1.0], requires_grad=True)
    y = w * 2
    y.data = tensor(7, 7, 7)
    (y * y).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [28, 28, 28])  # as PyTorch has it


def test_a_value_with_history_is_written_without() -> None:
    w, v = Parameter(tensor(1, 1)), weft.tensor([2.0, 3.0], requires_grad=True)
    w.data = v * 2
    assert w.is_leaf
    w.sum().backward()
    assert v.grad is None
    w2 = w.data
    with weft.no_grad():
        w += 1  # values, not aliases
    assert w2.tolist() == [4, 6]


def test_what_data_cannot_be() -> None:
    w = Parameter(tensor(1, 2))
    with pytest.raises(DTypeError, match=r"\.data is a tensor, not float"):
        w.data = 3.0  # type: ignore[assignment]
    with pytest.raises(DTypeError, match="requires a gradient cannot hold int64"):
        w.data = weft.asarray([1, 2])
    y = w * 2
    with pytest.raises(ShapeError, match=r"stays f32\[2\]"):
        y.data = tensor(1, 2, 3)
    with pytest.raises(AttributeError):
        del y.data
    assert w.tolist() == [1, 2]
    integers = weft.asarray([1, 2])
    integers.data = tensor(0.5)
    assert integers.tolist() == [0.5]


#: (attribute, value, what is meant)
MISSPELT = [
    *(("gradd", None, "grad"), ("gard", tensor(1), "grad"), ("gradient", tensor(1), "grad")),
    *(("requires_gradient", True, "requires_grad"), ("require_grad", False, "requires_grad")),
    *(("requires_grad_", True, "requires_grad"), ("Data", tensor(1), "data")),
    *(("daat", np.ones(1), "data"), ("dtyp", weft.float64, "dtype"), ("shap", (3,), "shape")),
]
#: What people put on parameters.
OWN = [
    *(("is_bias", True), ("decay", False), ("lr_scale", 2.0), ("main_grad", tensor(1))),
    *(("grads", []), ("delta", tensor(1)), ("mask", tensor(1)), ("name", "w"), ("date", "May")),
    *(("grad_norm", tensor(1)), ("metadata", tensor(1)), ("sharded", True)),
]


@pytest.mark.parametrize(("name", "value", "meant"), MISSPELT, ids=[m[0] for m in MISSPELT])
@in_all_modes
def test_a_misspelt_part_of_the_state(mode: str, name: str, value: Any, meant: str) -> None:
    w = Parameter(tensor(1))

    def write(x: Any) -> Any:
        setattr(w, name, value)
        return x

    with pytest.raises(AttributeError, match=f"no '{name}': did you mean '{meant}'"):
        MODES[mode](write)(tensor(1))
    with pytest.raises(AttributeError):
        setattr(tensor(1), name, value)
    assert name not in vars(w)


@pytest.mark.parametrize(("name", "value"), OWN, ids=[o[0] for o in OWN])
def test_attributes_of_the_users_own(name: str, value: Any) -> None:
    w = Parameter(tensor(1))
    setattr(w, name, value)
    assert getattr(w, name) is value


@in_all_modes
def test_a_compiled_function_sets_attributes_of_the_users_own(mode: str) -> None:
    w = Parameter(tensor(1))

    @MODES[mode]
    def write(x: Any) -> Any:
        w.seen = True
        w.last = x * 2
        return x

    for number in (1.0, 4.0):
        w.__dict__.clear()
        write(tensor(number))
        assert w.seen
        assert w.last.tolist() == [2 * number]


# --- a leaf that a recorded function gives another value, and uses ------------------------------


def by_data(w: Any, x: Any) -> None:
    w.data = x


def by_copy(w: Any, x: Any) -> None:
    with weft.no_grad():
        w.copy_(x)


def by_items(w: Any, x: Any) -> None:
    with weft.no_grad():
        w[...] = x


def by_a_result(w: Any, x: Any) -> None:
    with weft.no_grad():
        w.copy_(x * 2)


def in_one_branch(w: Any, x: Any) -> None:
    if x.sum() > 4:
        w.data = x


@in_all_modes
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize("write", [by_data, by_copy, by_items, by_a_result, in_one_branch])
def test_a_leaf_is_written_then_used(mode: str, reads_first: bool, write: Any) -> None:
    """The numbers are those of each call, and the gradient arrives with a backward outside."""

    def run(function: Callable[..., Any]) -> list[Any]:
        w, v = Parameter(tensor(1, 2)), Parameter(tensor(3, -1))

        @function
        def loss(x: Any) -> Any:
            before = (w * v).sum() if reads_first else 0.0
            write(w, x)
            return before + (w * w * x * v).sum()

        found = []
        for numbers in ([1.0, 3.0], [2.0, 5.0], [4.0, 0.5]):
            w.grad = v.grad = None
            x = tensor(*numbers)
            out = loss(x)
            out.backward()
            x += 100  # nobody shares it
            found += [out.item(), w.tolist(), w.grad.tolist(), v.grad.tolist()]
        return found

    assert run(MODES[mode]) == run(lambda function: function)


@in_all_modes
def test_a_leaf_is_written_beside_a_new_one(mode: str) -> None:
    w = Parameter(tensor(1, 2))

    @MODES[mode]
    def both(x: Any) -> Any:
        w.data = x
        new = (x * 3).detach().requires_grad_()
        return (w * x + new * new).sum(), new

    for numbers in ([1.0, 3.0], [2.0, 5.0]):
        w.grad = None
        out, new = both(tensor(*numbers))
        out.backward()
        assert w.grad.tolist() == numbers
        assert new.grad.tolist() == [6 * n for n in numbers]
