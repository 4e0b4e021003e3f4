"""What is made of a list that a loop of the graph appends to, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.torch as torch

JOINS: dict[str, Callable[[list[Any]], Any]] = {
    "stack": lambda ys: weft.stack(ys),
    "stack, axis 1": lambda ys: weft.stack(ys, axis=1),
    "stack, dim -1": lambda ys: weft.stack(ys, dim=-1),
    "stack, by position": lambda ys: weft.stack(ys, 2),
    "concat": lambda ys: weft.concat(ys),
    "concat, axis 1": lambda ys: weft.concat(ys, axis=1),
    "concat, axis -2": lambda ys: weft.concat(ys, axis=-2),
    "concat, flat": lambda ys: weft.concat(ys, axis=None),
    "vstack": lambda ys: weft.vstack(ys),
    "hstack": lambda ys: weft.hstack(ys),
    "torch.stack": lambda ys: torch.stack(ys, 1),
    "torch.cat": lambda ys: torch.cat(ys, -1),
}


def in_a_for(join: Callable[[list[Any]], Any], x: Any) -> Any:
    h, ys = x[0] * 0, []
    for i in range(x.shape[0]):
        h = h * 0.5 + x[i] * x[i]
        ys.append(h)
    return join(ys)


def in_a_while(join: Callable[[list[Any]], Any], x: Any) -> Any:
    h, ys = x[0] + 1, []
    while h.sum() < 60:
        h = h * h + x[0]
        ys.append(h)
    return join(ys)


def in_the_body_of_a_loop(join: Callable[[list[Any]], Any], x: Any) -> Any:
    h = x[0] * 0
    for row in x:
        ys = []
        for k in range(2):
            ys.append(h * k + row)  # noqa: PERF401 - it is about such a list
        h = join(ys).sum() * 0.1 + row
    return h


@pytest.mark.parametrize("program", [in_a_for, in_a_while, in_the_body_of_a_loop])
@pytest.mark.parametrize("name", JOINS)
def test_a_list_of_the_graph_is_joined(name: str, program: Any) -> None:
    make = torch.tensor if name.startswith("torch") else weft.tensor
    captured = weft.compile(lambda x: program(JOINS[name], x), backend="interpret")
    for scale in (1.0, 0.5, 1.0):
        x = make(np.arange(1.0, 13.0).reshape(2, 2, 3) * scale / 12, requires_grad=True)
        wanted, found = program(JOINS[name], x), captured(x)
        assert type(found) is type(wanted)
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
        weights = weft.arange(found.size if type(found) is weft.Tensor else found.numel())
        for y in (wanted, found):
            (y * weights.reshape(*y.shape)).sum().backward()
            if y is wanted:
                expected, x.grad = x.grad, None
        np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), rtol=1e-6)
