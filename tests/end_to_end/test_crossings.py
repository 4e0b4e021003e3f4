"""Where features meet: gradients, loops, views, hooks and special numbers, compiled and eagerly.

Each row was found by crossing features at random, and was wrong once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import Tensor
from weft.errors import CaptureError, GradientError

Array = np.ndarray[Any, Any]
WAYS = [("source", "interpret"), ("source", "native"), ("trace", "native")]


def outcome(function: Callable[..., Any], arrays: list[Array]) -> list[Array]:
    """The results of a function of tensors that lie in memory as the arrays do, and gradients."""
    given = [weft.tensor(weft.asarray(a, copy=False), requires_grad=True) for a in arrays]
    found = weft.tree_leaves(function(*[x * 1 for x in given]))
    total = sum((x.astype(weft.float64) * 0.5).sum() for x in found if isinstance(x, Tensor))
    assert isinstance(total, Tensor)
    total.backward()
    return [np.asarray(x) for x in found] + [np.asarray(x.grad) for x in given]


def check(function: Callable[..., Any], arrays: list[Array]) -> None:
    """It does the same eagerly and compiled, in the first call and in the second."""
    want = outcome(function, arrays)
    for capture, backend in WAYS:
        compiled = weft.compile(function, capture=capture, backend=backend)
        for _ in range(2):
            got = outcome(compiled, arrays)
            assert len(got) == len(want)
            for a, b in zip(want, got, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-12, atol=0, err_msg=f"{capture} {backend}")


# --- views: what generated code is handed does not lie in memory as it prints --------------------

GRID = np.random.default_rng(0).standard_normal((3, 4))
LAYOUTS: dict[str, Array] = {
    "as it prints": GRID,
    "by columns": np.asfortranarray(GRID),
    "reversed": np.ascontiguousarray(GRID[::-1])[::-1],
    "with gaps": np.repeat(GRID, 2, axis=1)[:, ::2],
    "one row": np.broadcast_to(GRID[0], (3, 4)),
}


def powers(x: Tensor) -> Any:
    """A loop whose length the graph finds out: its backward takes what the loop has kept."""
    y, n = x, weft.zeros((), dtype=weft.int32)
    while n < 3:
        y = y * x
        n = n + 1
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_of_a_loop_over_a_view(layout: str) -> None:
    array = LAYOUTS[layout]
    check(powers, [array])
    # What comes back into the backward is a view, too.
    compiled = weft.compile(powers, backend="native")
    found = []
    for function in (powers, compiled):
        x = weft.tensor(weft.asarray(GRID), requires_grad=True)
        function(x).backward(weft.asarray(array, copy=False))
        assert x.grad is not None
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


# --- special numbers -----------------------------------------------------------------------------

PRODUCTS = [
    [np.nan],
    [np.inf],
    [-np.inf, 0.0, 2.0],
    [np.nan, 1.0, np.inf],
    [1e200, 1e200, 3.0],  # the product is infinite, that of two factors is not
    [1e-200, 1e-120, 3.0],  # the product has lost digits
    [0.0, 0.0, 2.0],
]


@pytest.mark.parametrize("numbers", PRODUCTS, ids=str)
@pytest.mark.parametrize("name", ["prod", "cumulative_prod"])
def test_gradient_of_products_of_special_numbers(name: str, numbers: list[float]) -> None:
    """No factor is divided out of a product that does not hold it."""
    with np.errstate(all="ignore"):
        check(lambda x: getattr(weft, name)(x, axis=0), [np.asarray(numbers)])


# --- hooks in branches and loops -----------------------------------------------------------------


def hook_on_one_side(x: Tensor) -> Any:
    if x.sum() > 0:
        y = x * 3
        y.register_hook(lambda g: g * 10)
        return y
    return x


def hook_in_each_iteration(x: Tensor) -> Any:
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        x = weft.sin(x) * 2
        x.register_hook(lambda g: weft.clip(g, -0.4, 0.4))
        x.register_hook(lambda g: None)
        n = n + 1
    return x


def hook_in_a_for_in_a_branch(x: Tensor) -> Any:
    if x.sum() > 0:
        for i in range(3):
            x = x * (i + 1)
            x.register_hook(lambda g: g + 1)
    return x


HOOKED = [hook_on_one_side, hook_in_each_iteration, hook_in_a_for_in_a_branch]


@pytest.mark.parametrize("function", HOOKED, ids=lambda f: f.__name__)
def test_hooks_in_branches_and_loops(function: Callable[..., Any]) -> None:
    for numbers in ([0.3, 0.4], [-0.2, -0.7]):
        check(function, [np.asarray(numbers)])


def hook_on_what_is_outside(x: Tensor) -> Any:
    y = x * 2
    if x.sum() > 0:
        y.register_hook(lambda g: g * 10)
    return y * 3


def hook_after_a_use(x: Tensor) -> Any:
    if x.sum() > 0:
        y = x * 2
        z = y * y
        y.register_hook(lambda g: g * 10)
        return y + z
    return x


def hook_that_prints(x: Tensor) -> Any:
    for _ in range(3):
        x = x * 2
        weft.print_grad(x, "x")
    return x


OUTSIDE = weft.asarray([2.0, 3.0], dtype=weft.float64)


def hook_that_uses_what_is_outside(x: Tensor) -> Any:
    for _ in range(3):
        x = x * 2
        x.register_hook(lambda g: g * OUTSIDE)
    return x


#: What a graph cannot do, with what the error says. The first was wrong on one side, once.
REFUSED = {
    hook_on_what_is_outside: r"on a tensor from outside(.|\n)*y.register_hook(.|\n)*to fix",
    hook_after_a_use: r"used already(.|\n)*y.register_hook(.|\n)*to fix",
    hook_that_prints: r"prints(.|\n)*weft.print\(x\)",
    hook_that_uses_what_is_outside: r"uses a tensor from outside(.|\n)*to fix",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_hooks_that_are_refused(function: Callable[..., Any]) -> None:
    arrays = [np.asarray([0.3, 0.4])]
    outcome(function, arrays)  # eagerly it runs
    compiled = weft.compile(function, capture="source", backend="interpret")
    with pytest.raises((CaptureError, GradientError), match=REFUSED[function]):
        outcome(compiled, arrays)
