"""Learning-rate schedules beside PyTorch's: whole sequences, for two parameter groups."""

from __future__ import annotations

import functools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from peer import figures

import weft
import weft.optim
from weft.optim import OptimizerError
from weft.optim.lr_scheduler import LRScheduler

EPOCHS = 40
Make = Callable[[Any, Any], Any]


def optimizer_of(library: Any, name: str = "SGD") -> Any:
    params = [library.tensor([float(i)], requires_grad=True) for i in range(2)]
    options = {"momentum": 0.9} if name == "SGD" else {}
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
    return getattr(library.optim, name)(groups, lr=0.5, **options)


def warm_up_then_cosine(s: Any, o: Any) -> Any:
    parts = [s.LinearLR(o, 0.1, total_iters=6), s.CosineAnnealingLR(o, 20, eta_min=0.001)]
    return s.SequentialLR(o, parts, [7])


def four_in_sequence(s: Any, o: Any) -> Any:
    parts = [
        s.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
        s.CosineAnnealingWarmRestarts(o, 3, 2),
        s.MultiStepLR(o, [0, 4], gamma=0.5),
        s.ExponentialLR(o, 0.8),
    ]
    return s.SequentialLR(o, parts, [5, 18, 30])


def sequence_in_sequence(s: Any, o: Any) -> Any:
    inner = s.SequentialLR(o, [s.LinearLR(o, 0.5, total_iters=3), s.StepLR(o, 2)], [4])
    return s.SequentialLR(o, [inner, s.ExponentialLR(o, 0.9)], [12])


#: (the module lr_scheduler, optimizer) -> schedule
CASES: dict[str, Make] = {
    "step": lambda s, o: s.StepLR(o, 7),
    "step_gamma": lambda s, o: s.StepLR(o, 3, gamma=0.7),
    "multi_step": lambda s, o: s.MultiStepLR(o, [3, 10, 10, 25], gamma=0.5),
    "multi_step_0": lambda s, o: s.MultiStepLR(o, [0, 5]),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "lambda": lambda s, o: s.LambdaLR(o, lambda epoch: 0.95**epoch),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 1 + e // 10]),
    "linear": lambda s, o: s.LinearLR(o),
    "linear_down": lambda s, o: s.LinearLR(o, 1.0, 0.1, total_iters=30),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 10),
    "cosine_min": lambda s, o: s.CosineAnnealingLR(o, 25, eta_min=0.01),
    "cosine_1": lambda s, o: s.CosineAnnealingLR(o, 1),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 6),
    "restarts_longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.001),
    "one_cycle": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=EPOCHS),
    "one_cycle_linear": lambda s, o: s.OneCycleLR(
        o, [1.0, 0.1], epochs=10, steps_per_epoch=5, anneal_strategy="linear", pct_start=0.4
    ),
    "one_cycle_three": lambda s, o: s.OneCycleLR(
        o, 1.0, total_steps=45, three_phase=True, div_factor=10, final_div_factor=100
    ),
    "one_cycle_rate_only": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=50, cycle_momentum=False),
    "constant": lambda s, o: s.ConstantLR(o),
    "constant_half": lambda s, o: s.ConstantLR(o, 0.5, total_iters=12),
    "polynomial": lambda s, o: s.PolynomialLR(o, 20),
    "polynomial_2": lambda s, o: s.PolynomialLR(o, 33, power=2.0),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.95),
    "multiplicatives": lambda s, o: s.MultiplicativeLR(o, [lambda e: 0.9, lambda e: 1 / e]),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 1.0, 5),
    "cyclic_uneven": lambda s, o: s.CyclicLR(
        o, [0.01, 0.1], [1.0, 0.5], 3, 6, mode="triangular2", base_momentum=0.7
    ),
    "cyclic_range": lambda s, o: s.CyclicLR(
        o, 0.01, 1.0, 4, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "cyclic_own": lambda s, o: s.CyclicLR(
        o, 0.01, 1.0, 4, scale_fn=lambda x: 1 / (1 + x), scale_mode="iterations"
    ),
    "chained": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.9), s.StepLR(o, 9)]
    ),
    "sequence": warm_up_then_cosine,
    "sequence_of_four": four_in_sequence,
    "sequence_in_sequence": sequence_in_sequence,
}
PLATEAUS: dict[str, Make] = {
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2),
    "plateau_max": lambda s, o: s.ReduceLROnPlateau(o, "max", factor=0.5, patience=1),
    "plateau_abs": lambda s, o: s.ReduceLROnPlateau(
        o, factor=0.5, patience=1, threshold=0.05, threshold_mode="abs"
    ),
    "plateau_max_abs": lambda s, o: s.ReduceLROnPlateau(
        o, "max", patience=0, threshold=0.1, threshold_mode="abs"
    ),
    "plateau_cooldown": lambda s, o: s.ReduceLROnPlateau(o, factor=0.3, patience=1, cooldown=3),
    "plateau_min": lambda s, o: s.ReduceLROnPlateau(
        o, factor=0.2, patience=0, min_lr=[0.01, 0.001], eps=1e-3
    ),
}
METRICS = np.abs(np.sin(np.arange(EPOCHS))) + 3 / (1 + np.arange(EPOCHS)) + 1


def row(optimizer: Any) -> list[float]:
    """Rates and momenta of both groups."""
    momenta = [g["betas"][0] if "betas" in g else g["momentum"] for g in optimizer.param_groups]
    return [float(g["lr"]) for g in optimizer.param_groups] + momenta


def advance(optimizer: Any, schedule: Any, start: int, stop: int) -> list[list[float]]:
    rows = []
    for epoch in range(start, stop):
        rows.append(row(optimizer))
        optimizer.step()
        if type(schedule).__name__ == "ReduceLROnPlateau":
            schedule.step(METRICS[epoch])
        else:
            schedule.step()
        assert schedule.get_last_lr() == [float(g["lr"]) for g in optimizer.param_groups]
    return rows


def sequence(library: Any, make: Make, name: str = "SGD") -> Any:
    optimizer = optimizer_of(library, name)
    schedule = make(library.optim.lr_scheduler, optimizer)
    return np.array(advance(optimizer, schedule, 0, EPOCHS))


ALL = CASES | PLATEAUS


@functools.cache
def wanted() -> dict[str, Any]:
    def work(torch: Any) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of its own sequence in a sequence
            return {case: sequence(torch, make) for case, make in ALL.items()}

    return figures("schedulers", work)


@pytest.mark.parametrize("case", ALL)
def test_the_sequence_is_pytorch_s(case: str) -> None:
    np.testing.assert_allclose(sequence(weft, ALL[case]), wanted()[case], rtol=1e-12, atol=1e-16)


def test_one_cycle_turns_the_betas_of_adam() -> None:
    make = CASES["one_cycle"]
    want = figures("schedulers_betas", lambda torch: {"rows": sequence(torch, make, "Adam")})
    np.testing.assert_allclose(sequence(weft, make, "Adam"), want["rows"], rtol=1e-12)


def test_restarts_within_an_epoch() -> None:
    def work(library: Any) -> dict[str, Any]:
        optimizer = optimizer_of(library)
        schedule = library.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2)
        optimizer.step()
        rows = []
        for part in range(60):
            schedule.step(part / 4)
            rows.append(row(optimizer))
        return {"rows": np.array(rows)}

    want = figures("schedulers_within", work)
    np.testing.assert_allclose(work(weft)["rows"], want["rows"], rtol=1e-12, atol=1e-16)


def test_two_schedules_on_one_optimizer() -> None:
    def work(library: Any) -> dict[str, Any]:
        optimizer = optimizer_of(library)
        s = library.optim.lr_scheduler
        schedules = [s.ExponentialLR(optimizer, 0.9), s.StepLR(optimizer, 5), s.LinearLR(optimizer)]
        rows = []
        for _ in range(20):
            optimizer.step()
            for schedule in schedules:
                schedule.step()
            rows.append(row(optimizer))
        return {"rows": np.array(rows)}

    want = figures("schedulers_two", work)
    np.testing.assert_allclose(work(weft)["rows"], want["rows"], rtol=1e-12)


@pytest.mark.parametrize("case", ALL)
def test_saved_in_the_middle_and_loaded(case: str) -> None:
    middle = EPOCHS // 2 - 3
    whole = sequence(weft, ALL[case])
    optimizer = optimizer_of(weft)
    schedule = ALL[case](weft.optim.lr_scheduler, optimizer)
    advance(optimizer, schedule, 0, middle)
    saved = pickle.loads(pickle.dumps([schedule.state_dict(), optimizer.state_dict()]))
    advance(optimizer, schedule, middle, middle + 3)  # what was saved does not change
    optimizer = optimizer_of(weft)
    schedule = ALL[case](weft.optim.lr_scheduler, optimizer)
    schedule.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    assert (np.array(advance(optimizer, schedule, middle, EPOCHS)) == whole[middle:]).all()


def test_resumed_by_last_epoch() -> None:
    def work(library: Any) -> dict[str, Any]:
        found = {}
        for name, make in {
            "step": lambda s, o, **k: s.StepLR(o, 3, **k),
            "exponential": lambda s, o, **k: s.ExponentialLR(o, 0.9, **k),
            "linear": lambda s, o, **k: s.LinearLR(o, total_iters=20, **k),
        }.items():
            optimizer = optimizer_of(library)
            advance(optimizer, make(library.optim.lr_scheduler, optimizer), 0, 8)
            again = make(library.optim.lr_scheduler, optimizer, last_epoch=7)
            found[name] = np.array(advance(optimizer, again, 8, 20))
        return found

    want = figures("schedulers_resumed", work)
    for name, rows in work(weft).items():
        np.testing.assert_allclose(rows, want[name], rtol=1e-12)


def test_a_rate_that_is_a_tensor_stays_that_tensor() -> None:
    rate = weft.tensor(0.5, dtype=weft.float64)
    x = weft.tensor([1.0], requires_grad=True)
    optimizer = weft.optim.SGD([x], lr=rate)
    schedule = weft.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == 0.25
    assert schedule.get_last_lr() == [0.25]
    x.grad = weft.tensor([2.0])
    optimizer.step()
    assert x.tolist() == [0.5]


def test_a_plateau_of_tensors() -> None:
    optimizer = optimizer_of(weft)
    schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    for _ in range(3):
        schedule.step(weft.tensor(1.0))
    assert schedule.get_last_lr() == [0.125, 0.005]


def test_a_schedule_of_your_own() -> None:
    class Halved(LRScheduler):
        def get_lr(self) -> list[float]:
            return [rate / 2 if self.last_epoch else rate for rate in self.rates()]

    optimizer = optimizer_of(weft)
    schedule = Halved(optimizer)
    schedule.step()
    assert schedule.get_last_lr() == [0.25, 0.01]


s = weft.optim.lr_scheduler
ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no optimizer": (lambda o: s.StepLR([1], 2), TypeError, "given an optimizer, not list"),
    "no initial": (lambda o: s.StepLR(o, 2, last_epoch=3), OptimizerError, "no initial_lr"),
    "step size": (lambda o: s.StepLR(o, 0), ValueError, "at least 1"),
    "lambdas": (lambda o: s.LambdaLR(o, [abs]), OptimizerError, "1 values, and .* 2 parameter"),
    "factor": (lambda o: s.LinearLR(o, 0.0), ValueError, "factors are above 0"),
    "T_0": (lambda o: s.CosineAnnealingWarmRestarts(o, 0), ValueError, "T_0 must be"),
    "epoch": (
        lambda o: s.CosineAnnealingWarmRestarts(o, 2).step(-1),
        ValueError,
        "there is no epoch -1",
    ),
    "total": (lambda o: s.OneCycleLR(o, 1.0), ValueError, "number of steps is not known"),
    "pct_start": (lambda o: s.OneCycleLR(o, 1.0, 5, pct_start=2), ValueError, "pct_start"),
    "way": (lambda o: s.OneCycleLR(o, 1.0, 5, anneal_strategy="x"), ValueError, "'cos' or"),
    "max_lr": (lambda o: s.OneCycleLR(o, [1.0], 5), ValueError, "max_lr has 1 values"),
    "beyond the end": (
        lambda o: [schedule.step() for schedule in [s.OneCycleLR(o, 1.0, 4)] for _ in range(5)],
        OptimizerError,
        "step 5 of a cycle of 4",
    ),
    "mode": (lambda o: s.ReduceLROnPlateau(o, "more"), ValueError, "mode is one of"),
    "plateau factor": (lambda o: s.ReduceLROnPlateau(o, factor=1), ValueError, "below 1"),
    "min_lr": (lambda o: s.ReduceLROnPlateau(o, min_lr=[0]), ValueError, "min_lr has 1"),
    "milestones": (
        lambda o: s.SequentialLR(o, [s.StepLR(o, 2)], [3]),
        OptimizerError,
        "1 schedules need 0 milestones",
    ),
    "plateau in sequence": (
        lambda o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []),
        OptimizerError,
        "needs more than the epoch",
    ),
    "another optimizer": (
        lambda o: s.SequentialLR(o, [s.StepLR(optimizer_of(weft), 2)], []),
        OptimizerError,
        "another optimizer",
    ),
    "another state": (
        lambda o: s.StepLR(o, 2).load_state_dict(s.ExponentialLR(o, 0.5).state_dict()),
        OptimizerError,
        "no state dict of StepLR",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    action, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        action(optimizer_of(weft))


def test_adagrad_has_no_momentum_to_cycle() -> None:
    optimizer = weft.optim.Adagrad([weft.tensor([1.0], requires_grad=True)])
    with pytest.raises(OptimizerError, match="no momentum to cycle"):
        weft.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 5)
