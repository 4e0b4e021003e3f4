"""Cases of each optimizer, and a small training to run them on, for Weft and PyTorch alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
import weft.optim

STEPS = 10
Options = dict[str, Any]

#: What is compared, by optimizer: a name and the options of each case.
CASES: dict[str, dict[str, Options]] = {
    "SGD": {
        "plain": {"lr": 0.1},
        "defaults": {},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.3},
        "maximize": {"lr": 0.01, "maximize": True, "weight_decay": 0.1},
        "momentum": {"lr": 0.05, "momentum": 0.9},
        "dampening": {"lr": 0.1, "momentum": 0.8, "dampening": 0.4},
        "momentum_decay": {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.2},
        "nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
        "nesterov_all": {
            **{"lr": 0.01, "momentum": 0.7, "nesterov": True, "weight_decay": 0.1},
            "maximize": True,
        },
    },
    "Adam": {
        "defaults": {},
        "betas": {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "amsgrad": {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.6)},
        "amsgrad_decay": {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "AdamW": {
        "defaults": {},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.3},
        "amsgrad": {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.6)},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "RMSprop": {
        "defaults": {},
        "alpha": {"lr": 0.05, "alpha": 0.5, "eps": 1e-3},
        "weight_decay": {"lr": 0.05, "weight_decay": 0.2},
        "centered": {"lr": 0.05, "centered": True},
        "momentum": {"lr": 0.02, "momentum": 0.9},
        "all": {"lr": 0.02, "momentum": 0.9, "centered": True, "weight_decay": 0.1},
        "maximize": {"lr": 0.02, "maximize": True},
    },
    "Adagrad": {
        "defaults": {},
        "lr_decay": {"lr": 0.2, "lr_decay": 0.1},
        "start": {"lr": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3},
        "weight_decay": {"lr": 0.2, "weight_decay": 0.2},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "Adadelta": {
        "defaults": {},
        "rho": {"lr": 0.5, "rho": 0.6, "eps": 1e-3},
        "weight_decay": {"weight_decay": 0.2},
        "maximize": {"maximize": True},
    },
    "NAdam": {
        "defaults": {},
        "betas": {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "momentum_decay": 0.1},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "decoupled": {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "RAdam": {
        "defaults": {},
        "betas": {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "decoupled": {"lr": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "Adamax": {
        "defaults": {},
        "betas": {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "ASGD": {
        "defaults": {},
        "means": {"lr": 0.1, "lambd": 0.01, "alpha": 0.6, "t0": 4.0},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "maximize": {"lr": 0.02, "maximize": True},
    },
    "Rprop": {
        "defaults": {},
        "etas": {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (0.05, 0.2)},
        "maximize": {"lr": 0.02, "maximize": True},
    },
    "Adafactor": {
        "defaults": {},
        "options": {"lr": 0.2, "beta2_decay": -0.5, "eps": (1e-4, 0.1), "d": 1.5},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "LBFGS": {
        "defaults": {},
        "short": {"lr": 0.3, "max_iter": 2},
        "history": {"lr": 0.5, "max_iter": 3, "history_size": 2},
        "evaluations": {"max_iter": 10, "max_eval": 4},
        "strong_wolfe": {"max_iter": 2, "line_search_fn": "strong_wolfe"},
        "strong_wolfe_history": {
            **{"max_iter": 3, "history_size": 2, "line_search_fn": "strong_wolfe"},
        },
        "strong_wolfe_far": {"lr": 20.0, "max_iter": 2, "line_search_fn": "strong_wolfe"},
        "tolerance": {"max_iter": 20, "tolerance_grad": 0.05, "tolerance_change": 1e-3},
    },
}
#: Those that PyTorch has not.
OWN: dict[str, dict[str, Options]] = {
    "Lion": {
        "defaults": {"lr": 0.05},
        "options": {"lr": 0.05, "betas": (0.5, 0.8), "weight_decay": 0.2},
        "maximize": {"lr": 0.02, "maximize": True},
    }
}
#: Those whose rules are plain ops, not cards.
PLAIN = {"LBFGS", "Adafactor"}
ALL = [(name, case) for name, cases in CASES.items() for case in cases]

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 2))
WEIGHTS = [RNG.standard_normal((3, 2)), RNG.standard_normal(2), np.ones(2)]  # the last is unused


def start(library: Any) -> list[Any]:
    """The weights, as parameters of Weft or PyTorch."""
    dtype = library.float64
    return [library.tensor(w, dtype=dtype, requires_grad=True) for w in WEIGHTS]


def loss_of(library: Any, params: list[Any]) -> Any:
    x, y = (library.tensor(a, dtype=library.float64) for a in (X, Y))
    error = library.tanh(x @ params[0] + params[1]) - y
    return (error * error).sum()


def closure_for(library: Any, params: list[Any], optimizer: Any) -> Callable[[], Any]:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(library, params)
        loss.backward()
        return loss.detach()

    return closure


def array(value: Any) -> Any:
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


#: State that is the same thing in other clothes, or not kept: PyTorch's scratch list.
NOT_COMPARED = {"al", "ro", "H_diag", "t", "prev_loss", "old_dirs", "old_stps"}


def snapshot(params: list[Any], optimizer: Any) -> Any:
    """All parameters and all of their state, as one row of numbers."""
    parts = [array(p) for p in params]
    for p in params[:-1]:  # PyTorch's Adagrad has state for the unused one, too
        state = optimizer.state.get(p, {})
        kept = {k: v for k, v in state.items() if v is not None and k not in NOT_COMPARED}
        parts += [array(kept[key]) for key in sorted(kept)]
    return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])


def train(library: Any, name: str, options: Options, steps: int = STEPS) -> Any:
    """One row for each step, and the losses."""
    params = start(library)
    optimizer = getattr(library.optim, name)(params, **options)
    closure = closure_for(library, params, optimizer)
    rows, losses = [], []
    for _ in range(steps):
        losses.append(float(optimizer.step(closure)))
        rows.append(snapshot(params, optimizer))
    return np.stack(rows), np.array(losses)


def leaf() -> Any:
    return weft.tensor([1.0, 2.0], requires_grad=True)
