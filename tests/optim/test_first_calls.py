"""A captured training step is recorded once: what optimizers make lazily is there before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.optim
from tests.support.optim_cases import CASES, OWN, loss_of, snapshot, start

WAYS = {"compile": weft.compile, "trace": weft.trace}
#: These are recorded once more: their first step is another one.
TWICE = {("SGD", "dampening"), ("SGD", "momentum_decay")}
ROWS = [
    (name, case, options)
    for name, cases in {**CASES, **OWN}.items()
    for case, options in cases.items()
    if name != "LBFGS"  # its steps call closures as often as the data say
]


def steps(wrap: Any, name: str, options: dict[str, Any], change: Any = None) -> tuple[Any, ...]:
    """Five steps; gives losses, the last state, the keys of the state, and the recordings."""
    params = start(weft)
    optimizer = getattr(weft.optim, name)(params[:1] if change else params, **options)

    def step() -> Any:
        for p in params:  # some are not the optimizer's
            p.grad = None
        loss = loss_of(weft, params)
        loss.backward()
        optimizer.step()
        return loss.detach()

    captured = wrap(step)
    rows, keys = [], []
    for i in range(5):
        if change is not None and i == 3:
            change(optimizer, params)
        rows.append(float(captured()))
        keys.append([list(optimizer.state.get(p, {})) for p in params])
    return (
        np.array(rows),
        snapshot(params, optimizer),
        keys,
        len(getattr(captured, "recordings", [])),
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "case", "options"), ROWS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_step_is_recorded_once(name: str, case: str, options: dict[str, Any], way: str) -> None:
    losses, state, keys, _ = steps(lambda f: f, name, options)
    got = steps(WAYS[way], name, options)
    np.testing.assert_allclose(got[0], losses, rtol=1e-9)
    np.testing.assert_allclose(got[1], state, rtol=1e-7, atol=1e-12)
    assert got[2] == keys  # of the unused parameter, too, which has none
    assert got[3] == (2 if (name, case) in TWICE else 1)


def _group_added(optimizer: Any, params: Any) -> None:
    optimizer.add_param_group({"params": params[1:], "lr": 0.02})


def _state_loaded(optimizer: Any, params: Any) -> None:
    optimizer.load_state_dict(optimizer.state_dict())


def _state_forgotten(optimizer: Any, params: Any) -> None:
    optimizer.state.clear()


CHANGES = {"group added": _group_added, "loaded": _state_loaded, "forgotten": _state_forgotten}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop", "Adagrad"])
def test_changes_between_steps(name: str, change: str) -> None:
    options = {"lr": 0.05, **({"momentum": 0.9} if name == "SGD" else {})}
    eager = steps(lambda f: f, name, options, CHANGES[change])
    got = steps(weft.compile, name, options, CHANGES[change])
    np.testing.assert_allclose(got[0], eager[0], rtol=1e-9)
    np.testing.assert_allclose(got[1], eager[1], rtol=1e-7)
    assert got[2] == eager[2]
    assert got[3] <= 2


def test_the_state_is_empty_before_the_first_step_and_after_one_that_fails() -> None:
    w = weft.ones(2).requires_grad_()
    optimizer = weft.optim.Adam([w])

    @weft.compile
    def step(x: Any) -> Any:
        (w * x).sum().backward()
        optimizer.step()
        if x.shape[0] == 1:
            raise ValueError("too short")
        return w.sum()

    assert not optimizer.state
    with pytest.raises(ValueError, match="too short"):
        step(weft.ones(1))
    assert not optimizer.state
    step(weft.ones(2))
    assert list(optimizer.state[w]) == ["step", "exp_avg", "exp_avg_sq"]
    assert optimizer.state[w]["step"].item() == 1


def test_in_loops_and_under_conditions() -> None:
    """The first iteration of a loop is as all others, and a branch merges what was there before."""

    def train(x: Any, steps: int, w: Any, optimizer: Any) -> Any:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = ((w * x).sum() - 1) ** 2
            loss.backward()
            if loss < 100:
                optimizer.step()
        return loss.detach()

    found = []
    for wrap in (lambda f: f, weft.compile):
        w = weft.ones(3).requires_grad_()
        optimizer = weft.optim.Adam([w], lr=0.1)
        captured = wrap(train)
        for i in range(3):
            captured(weft.tensor([1.0, 2.0, 0.5]) * (i + 1), 4, w, optimizer)
        found.append((w.tolist(), optimizer.state[w]["step"].item()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    assert found[0][1] == found[1][1]
    assert len(captured.recordings) <= 2
