"""Optimizers beside PyTorch's: ten steps on the same weights, parameters and state after each."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from optim_cases import ALL, CASES, STEPS, closure_for, loss_of, start, train
from peer import figures

import weft
import weft.optim


@functools.cache
def wanted(name: str) -> dict[str, Any]:
    def work(torch: Any) -> dict[str, Any]:
        found = {}
        for case, options in CASES[name].items():
            found[case], found[f"{case}.loss"] = train(torch, name, options)
        return found

    return figures(f"optim_{name.lower()}", work)


@pytest.mark.parametrize(("name", "case"), ALL, ids=[f"{n}-{c}" for n, c in ALL])
def test_ten_steps_are_pytorch_s(name: str, case: str) -> None:
    rows, losses = train(weft, name, CASES[name][case])
    rtol = 1e-7 if name == "LBFGS" else 1e-11  # a quotient of differences magnifies rounding
    np.testing.assert_allclose(losses, wanted(name)[f"{case}.loss"], rtol=rtol, atol=1e-13)
    assert rows.shape == wanted(name)[case].shape  # the same state is kept
    np.testing.assert_allclose(rows, wanted(name)[case], rtol=rtol, atol=1e-12)


def test_a_loss_that_falls() -> None:
    for name, cases in CASES.items():
        _, losses = train(weft, name, {**cases["defaults"], "lr": 0.05})
        assert losses[-1] < losses[0], name


# --- parameters, groups, gradients -------------------------------------------------------------


def test_groups_have_options_of_their_own() -> None:
    def work(library: Any) -> dict[str, Any]:
        params = start(library)
        optimizer = library.optim.SGD(
            [{"params": params[0]}, {"params": params[1:2], "lr": 0.5, "momentum": 0.5}], lr=0.01
        )
        for step in range(STEPS):
            if step == 5:
                optimizer.add_param_group({"params": params[2:], "weight_decay": 0.1})
            optimizer.zero_grad()
            (loss_of(library, params) + (params[2] ** 2).sum()).backward()
            optimizer.step()
        return {str(i): p.detach().numpy() for i, p in enumerate(params)}

    want = figures("optim_groups", work)
    for key, value in work(weft).items():
        np.testing.assert_allclose(value, want[key], rtol=1e-12)


def test_parameters_without_a_gradient_stay() -> None:
    for name, cases in CASES.items():
        params = start(weft)
        optimizer = getattr(weft.optim, name)(params, **cases["defaults"])
        optimizer.step(closure_for(weft, params, optimizer))
        assert params[2].grad is None
        assert params[2].tolist() == [1, 1]
        assert params[2] not in optimizer.state


def test_zero_grad() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([x], lr=0.1)
    (x * x).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert x.grad is None
    optimizer.step()
    assert x.tolist() == [1, 2]


def test_closure_runs_with_gradients_on() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([x], lr=0.25)

    def closure() -> Any:
        loss = (x * x).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert float(optimizer.step(closure)) == 5
    assert x.tolist() == [0.5, 1]


def test_a_learning_rate_that_is_a_tensor() -> None:
    rate = weft.tensor(0.1, dtype=weft.float64)
    for name in CASES:
        rows, _ = train(weft, name, {"lr": 0.1})
        same, _ = train(weft, name, {"lr": rate})
        np.testing.assert_allclose(rows, same, rtol=1e-14)


def test_names_of_parameters_are_kept() -> None:
    x, y = (weft.tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer = weft.optim.SGD([("x", x), ("y", y)], lr=0.1)
    assert optimizer.param_groups[0]["params"] == [x, y]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["x", "y"]


def test_an_optimizer_of_your_own() -> None:
    class SignDescent(weft.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
            state["steps"] = state.get("steps", 0) + 1
            p -= group["lr"] * weft.sign(grad)

    x = weft.tensor([1.0, -2.0], requires_grad=True)
    optimizer = SignDescent([x], lr=0.5)
    (x * x).sum().backward()
    optimizer.step()
    assert x.tolist() == [0.5, -1.5]
    assert optimizer.state[x] == {"steps": 1}
    with pytest.raises(NotImplementedError, match="no update rule"):
        weft.optim.Optimizer([x], {}).step()
