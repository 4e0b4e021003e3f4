"""Deep models: equal layers share kernels, and layers that only look equal do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.codegen import launch_table
from weft.runtime.native import NativeProgram

WIDTH, DEPTH = 8, 7


class Block(nn.Module):
    """A residual block; `slope` and `scale` are what layers may differ in."""

    def __init__(self, slope: float = 0.1, scale: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.slope, self.scale = slope, scale
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("shift", weft.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        inner = nn.functional.leaky_relu(self.first(self.norm(x)), self.slope)
        return x + self.dropout(self.second(inner)) * self.scale + self.shift


class Twin(Block):
    """Another class with the same graph."""


class Deep(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _blocks(**options: Any) -> list[Any]:
    return [Block(**options) for _ in range(DEPTH)]


def _other_numbers() -> Any:
    made = _blocks()
    made[2] = Block(slope=0.3)
    made[4] = Block(scale=0.5)
    made[5].norm.eps = 0.1
    return Deep(made)


def _tied() -> Any:
    made = _blocks()
    made[3].first.weight = made[1].first.weight
    return Deep([*made, made[0]])


def _frozen() -> Any:
    made = _blocks()
    for p in made[3].parameters():
        p.requires_grad = False
    made[5].first.bias.requires_grad = False
    return Deep(made)


def _hooked() -> Any:
    made = _blocks()
    made[2].register_forward_hook(lambda _module, _inputs, out: out * 2)
    made[4].register_forward_pre_hook(lambda _module, inputs: (inputs[0] + 1,))
    return Deep(made)


def _buffers() -> Any:
    made = _blocks()
    made[4].shift.copy_(weft.arange(WIDTH).astype(weft.float32) / 8)
    return Deep(made)


def _twins() -> Any:
    return Deep([Twin() if i % 2 else Block() for i in range(DEPTH)])


def _sequential() -> Any:
    return nn.Sequential(*_blocks(), nn.Linear(WIDTH, 3))


MODELS: dict[str, Callable[[], Any]] = {
    "equal": lambda: Deep(_blocks()),
    "sequential": _sequential,
    "other classes": _twins,
    "other numbers": _other_numbers,
    "dropout": lambda: Deep(_blocks(dropout=0.3)),
    "tied weights": _tied,
    "frozen": _frozen,
    "hooks": _hooked,
    "buffers": _buffers,
    "float64": lambda: Deep(_blocks()).double(),
}


def _step(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _data(number: int, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(number)
    return weft.tensor(rng.standard_normal((5, WIDTH)).astype(dtype)), weft.tensor(
        rng.integers(0, 3, 5)
    )


def _run(
    make: Callable[[], Any], way: Callable[[Any], Any], between: Callable[[Any], None] | None = None
) -> list[np.ndarray[Any, Any]]:
    """Losses, gradients and weights after some steps."""
    weft.manual_seed(3)
    model = make()
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)
    step = way(_step(model, optimizer))
    dtype = model.head.weight.dtype.numpy if isinstance(model, Deep) else np.float32
    found: list[Any] = []
    for number in range(3):
        if number == 2 and between is not None:
            between(model)
        found.append(step(*_data(number, dtype)).numpy())
        for p in model.parameters():
            found.append(np.zeros(()) if p.grad is None else np.array(p.grad.numpy()))
            found.append(np.array(p.detach().numpy()))
    return found


def _compiled(function: Any, **options: Any) -> Any:
    return weft.compile(function, backend="native", **options)


def _assert_equal(got: list[Any], wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        tolerance = 1e-10 if b.dtype == np.float64 else 2e-4
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_like_eager(name: str) -> None:
    _assert_equal(_run(MODELS[name], _compiled), _run(MODELS[name], lambda f: f))


def _replaced(model: Any) -> None:
    model.blocks[2] = nn.Identity()


def _set_in_place(model: Any) -> None:
    with weft.no_grad():
        model.blocks[3].first.weight.mul_(0.5)
        model.blocks[4].shift.add_(1.0)


def _number_changed(model: Any) -> None:
    model.blocks[3].slope = 0.7


def _hook_added(model: Any) -> None:
    model.blocks[3].register_forward_hook(lambda _module, _inputs, out: out * 3)


def _frozen_later(model: Any) -> None:
    model.blocks[1].first.weight.requires_grad = False


BETWEEN = (_replaced, _set_in_place, _number_changed, _hook_added, _frozen_later)


@pytest.mark.parametrize("between", BETWEEN, ids=lambda f: f.__name__.strip("_"))
def test_layers_changed_between_calls(between: Callable[[Any], None]) -> None:
    make = MODELS["equal"]
    _assert_equal(_run(make, _compiled, between), _run(make, lambda f: f, between))


def _program(depth: int) -> NativeProgram:
    weft.manual_seed(0)
    model = Deep([Block() for _ in range(depth)])
    step = _compiled(_step(model, weft.optim.AdamW(model.parameters(), lr=0.01)))
    step(*_data(0, np.float32))
    (made,) = step.programs
    assert isinstance(made.program, NativeProgram)
    return made.program


def test_depth_adds_launches_and_no_code() -> None:
    """Kernels are shared, and launched from a table."""
    short, deep = (_program(depth).generate() for depth in (8, 24))
    steps = [len(plan.root.steps) for _, plan in (short, deep)]
    assert steps[1] > 2.5 * steps[0]
    kernels = [set(plan.root.kernels) for _, plan in (short, deep)]
    assert len(kernels[1]) <= len(kernels[0]) + 2
    texts = [made.module.compact() for made, _ in (short, deep)]
    code = [[line for line in t.splitlines() if " constant [" not in line] for t in texts]
    assert len(code[1]) < 1.1 * len(code[0])
    assert code[1].count("define internal i32 @launch.table") <= 1


def test_a_step_that_is_not_equal_has_its_own_kernel() -> None:
    """Slopes and scales are constants in the code."""
    weft.manual_seed(0)
    model = _other_numbers()
    made = _compiled(lambda x: model(x))
    x = weft.ones((5, WIDTH))
    got = made(x).numpy()
    np.testing.assert_allclose(got, model(x).numpy(), rtol=1e-5, atol=1e-5)


def test_check_mode_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """In check mode each step has its own kernels, launched one by one."""
    monkeypatch.setenv("WEFT_CACHE", "0")
    checked = _run(MODELS["equal"], lambda f: _compiled(f, check=True))
    in_table = _run(MODELS["equal"], _compiled)
    _assert_equal(in_table, checked)
    monkeypatch.setattr(launch_table, "LEAST", 10_000)
    straight = _run(MODELS["equal"], _compiled)
    assert all(np.array_equal(a, b) for a, b in zip(in_table, straight, strict=True))


# --- memory ---------------------------------------------------------------------------------------


def test_large_parameters_moments_and_gradients_exist_once() -> None:
    """The second call writes to the arrays of the first one."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
    optimizer = weft.optim.AdamW(model.parameters(), lr=1e-3)

    @_compiled
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    def places() -> list[int]:
        found = []
        for p in (model[0].weight, model[2].weight):
            state = optimizer.state[p]
            large = (p, p.grad, state["exp_avg"], state["exp_avg_sq"])
            found += [x._data.ctypes.data for x in large]
        return found

    x = weft.ones((4, 1024))
    step(x)
    first = places()
    step(x)
    assert places() == first
    (made,) = step.programs
    assert len(made.program.in_place) >= 12  # parameters and moments, weights and biases


def test_a_gradient_that_somebody_holds_is_not_written() -> None:
    w = weft.ones((512, 1024)).requires_grad_()

    @_compiled
    def step(x: Any) -> None:
        w.grad = None
        (w * x).sum().backward()

    step(weft.tensor(1.0))
    held, array = w.grad, w.grad.numpy()
    step(weft.tensor(2.0))
    assert held is not w.grad
    assert float(held.max()) == array.max() == 1.0
    assert float(w.grad.max()) == 2.0
    w.grad.add_(1.0)
    step(weft.tensor(3.0))
    assert float(w.grad.max()) == float(w.grad.min()) == 3.0


def test_gradients_still_add_up() -> None:
    w = weft.ones((512, 1024)).requires_grad_()
    step = _compiled(lambda x: (w * x).sum().backward())
    for number in range(4):
        step(weft.tensor(1.0))
        assert float(w.grad.max()) == float(w.grad.min()) == number + 1


def test_a_run_that_fails_leaves_no_half_written_gradient() -> None:
    """The new gradient was perhaps written over the old one."""
    w = weft.ones((512, 1024)).requires_grad_()
    table = weft.arange(4).astype(weft.float32)

    @_compiled
    def step(x: Any, i: Any) -> Any:
        w.grad = None
        (w * x).sum().backward()
        return table[i]

    good, bad = weft.tensor([1]), weft.tensor([9])
    step(weft.tensor(1.0), good)
    with pytest.raises(IndexError):
        step(weft.tensor(2.0), bad)
    assert w.grad is None or float(w.grad.min()) == float(w.grad.max()) == 1.0
    step(weft.tensor(3.0), good)
    assert float(w.grad.min()) == float(w.grad.max()) == 3.0
