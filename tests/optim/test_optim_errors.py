"""Mistakes with optimizers are named; an optimizer shows its groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from optim_cases import leaf

import weft
import weft.optim
from weft.optim import OptimizerError

ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "empty": (lambda: weft.optim.SGD([]), OptimizerError, "no parameters"),
    "one tensor": (lambda: weft.optim.SGD(leaf()), TypeError, r"write \[x\]"),
    "no tensor": (lambda: weft.optim.SGD([leaf(), 3]), TypeError, "number 1 is int 3"),
    "twice": (lambda: weft.optim.SGD([leaf()] * 2), ValueError, "parameter 1 .* given twice"),
    "in two groups": (
        lambda: (lambda x: weft.optim.SGD([{"params": [x]}, {"params": [x]}]))(leaf()),
        OptimizerError,
        "given twice",
    ),
    "no leaf": (lambda: weft.optim.SGD([leaf() * 2]), ValueError, "result of an op"),
    "set": (lambda: weft.optim.SGD([{"params": {leaf()}}]), TypeError, "order of a set"),
    "no params": (lambda: weft.optim.SGD([{"lr": 1}]), TypeError, "the key 'params'"),
    "half named": (
        lambda: weft.optim.SGD([("x", leaf()), leaf()]),
        OptimizerError,
        "some have none",
    ),
    "lr": (lambda: weft.optim.SGD([leaf()], lr=-1), ValueError, "lr must not be negative"),
    "lr of a group": (
        lambda: weft.optim.SGD([{"params": [leaf()], "lr": -1}]),
        ValueError,
        "lr must not be negative",
    ),
    "nesterov": (lambda: weft.optim.SGD([leaf()], nesterov=True), ValueError, "nesterov needs"),
    "betas": (lambda: weft.optim.Adam([leaf()], betas=(0.9, 1.0)), ValueError, "betas are"),
    "eps": (lambda: weft.optim.Adam([leaf()], eps=-1), ValueError, "eps must not"),
    "rho": (lambda: weft.optim.Adadelta([leaf()], rho=2), ValueError, "rho must not exceed 1"),
    "alpha": (lambda: weft.optim.RMSprop([leaf()], alpha=-1), ValueError, "alpha must not"),
    "accumulator": (
        lambda: weft.optim.Adagrad([leaf()], initial_accumulator_value=-1),
        ValueError,
        "initial_accumulator_value must not",
    ),
    "no closure": (lambda: weft.optim.LBFGS([leaf()]).step(), OptimizerError, "closure"),
    "two groups": (
        lambda: weft.optim.LBFGS([{"params": [leaf()]}, {"params": [leaf()]}]),
        OptimizerError,
        "one group",
    ),
    "line search": (
        lambda: weft.optim.LBFGS([leaf()], line_search_fn="weak"),
        OptimizerError,
        "no line search 'weak'",
    ),
    "no state dict": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict({"weight": 1}),
        OptimizerError,
        "'state' and 'param_groups'",
    ),
    "groups differ": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict({"state": {}, "param_groups": []}),
        OptimizerError,
        "0 parameter groups, the optimizer 1",
    ),
    "params differ": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict(
            {"state": {}, "param_groups": [{"params": [0, 1]}]}
        ),
        OptimizerError,
        "has 2 parameters, the optimizer's 1",
    ),
    "unknown state": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict(
            {"state": {7: {}}, "param_groups": [{"params": [0]}]}
        ),
        OptimizerError,
        "parameter 7",
    ),
    "state of another shape": (
        lambda: weft.optim.Adam([leaf()]).load_state_dict(
            {"state": {0: {"exp_avg": weft.ones((2, 1))}}, "param_groups": [{"params": [0]}]}
        ),
        OptimizerError,
        r"exp_avg has shape \(2, 1\)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    action, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        action()


def test_a_gradient_of_another_type_is_named() -> None:
    x = leaf()
    x._grad = weft.ones(3)  # past the check of x.grad = …
    with pytest.raises(weft.errors.ShapeError, match=r"g has shape \(3,\)"):
        weft.optim.SGD([x]).step()
    x._grad = weft.ones(2, dtype=weft.float64)
    with pytest.raises(weft.errors.DTypeError, match="different dtypes"):
        weft.optim.Adam([x]).step()


def test_repr() -> None:
    shown = repr(weft.optim.SGD([leaf()], lr=0.1, momentum=0.9))
    assert shown.startswith("SGD (\nParameter Group 0: 1 tensors, 2 numbers\n    dampening: 0\n")
