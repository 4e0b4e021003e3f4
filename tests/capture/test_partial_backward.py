"""A compiled function with several results, some of which go backward: as eagerly.

The cotangent of a result that does not go backward is absent, not zero: no NaN of 0 * inf, no
gradient for leaves that only it depends on. What is freed is what eager frees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.autodiff.node import FreedError

Function = Callable[..., Any]


def separate(w: Any, v: Any) -> Any:
    return (w * w).sum(), (v * v * v).sum()


def infinite(w: Any, v: Any) -> Any:
    """The derivatives of the second result are infinite at 0."""
    return (w * v).sum(), (weft.log(w) + weft.sqrt(v)).sum()


def shared(w: Any, v: Any) -> Any:
    h = weft.sin(w * v)
    return h.sum(), (h * h).sum()


def shared_but_not_kept(w: Any, v: Any) -> Any:
    """The sum that both share keeps nothing, so that nothing of it is freed."""
    h = w + v
    return (h * 2).sum(), (h * h).sum()


def linear(w: Any, v: Any) -> Any:
    return (w + v).sum(), (w - v).sum()


def three(w: Any, v: Any) -> Any:
    """The second shares with both others, which share nothing with each other."""
    a, b = weft.sin(w), weft.cos(v)
    return a.sum(), (a * b).sum(), b.sum()


def beside_a_branch(w: Any, v: Any) -> Any:
    a = weft.exp(w) if w.sum() > 0 else w * 2
    return a.sum(), weft.log(v).sum()


def in_a_loop(w: Any, v: Any) -> Any:
    a, b = w * 1.0, v * 1.0
    for i in range(3):
        a = a * w
        if v.sum() > i:
            b = b * v
    return a.sum(), b.sum()


def joined(w: Any, v: Any) -> Any:
    """Both go through one concat: what does not arrive is zeros there."""
    both = weft.concat([w * 2, v * v])
    return both[:2].sum(), (both[2:] * w).sum()


FUNCTIONS = [
    separate,
    infinite,
    shared,
    shared_but_not_kept,
    linear,
    three,
    beside_a_branch,
    in_a_loop,
    joined,
]

#: Results that go backward, one after the other; negative numbers keep the history.
USES: dict[str, Function] = {
    "first": lambda r, _: r[0].backward(),
    "second": lambda r, _: r[1].backward(),
    "first, second": lambda r, _: (r[0].backward(), r[1].backward()),
    "second, first": lambda r, _: (r[1].backward(), r[0].backward()),
    "first twice": lambda r, _: (r[0].backward(), r[0].backward()),
    "first kept, second": lambda r, _: (r[0].backward(retain_graph=True), r[1].backward()),
    "first, both": lambda r, _: (r[0].backward(), (r[0] + r[1]).backward()),
    "both": lambda r, _: (r[0] * 2 + r[1]).backward(),
    "both, then last": lambda r, _: ((r[0] + r[1]).backward(), r[-1].backward()),
    "ends": lambda r, _: (r[0].backward(), r[-1].backward()),
    "second order": lambda r, at: _second_order(r[0], at),
    "second order of the other": lambda r, at: _second_order(r[1], at),
}


def _second_order(result: Any, at: Any) -> None:
    grads = weft.autograd.grad(result, at, create_graph=True, allow_unused=True)
    total = sum((g * g * 0.5).sum() for g in grads if g is not None)
    if isinstance(total, weft.Tensor) and total.requires_grad:
        total.backward()


def outcome(function: Function, use: Function, values: Any) -> Any:
    at = [weft.tensor(value, requires_grad=True) for value in values]
    results = function(*at)
    try:
        use(results, at)
    except FreedError:
        return FreedError
    return [None if x.grad is None else x.grad.numpy() for x in at]


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_some_results_go_backward(function: Function, use: str, backend: str) -> None:
    compiled = weft.compile(function, backend=backend)
    traced = weft.trace(function)
    for values in ([[0.0, 0.5], [0.0, 2.0]], [[0.3, -0.2], [0.7, 1.0]]):
        want = outcome(function, USES[use], values)
        for made in (compiled, traced) if backend == "interpret" else (compiled,):
            got = outcome(made, USES[use], values)
            if want is FreedError or got is FreedError:
                assert got is want
                continue
            for mine, theirs in zip(got, want, strict=True):
                assert (mine is None) == (theirs is None)
                if theirs is not None:
                    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_hook_of_a_result_that_stays_is_not_called() -> None:
    seen: list[str] = []

    def function(w: Any) -> Any:
        a, b = w * 2, w * 3
        b.register_hook(lambda g: g + 1)
        return a.sum(), b.sum()

    compiled = weft.compile(function, backend="native")
    for made in (function, compiled, compiled):
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        first, _ = made(w)
        first.backward()
        seen.append(str(w.grad))
    assert seen == ["tensor([2., 2.])"] * 3


def test_memory_is_freed_when_no_result_can_go_backward_any_more() -> None:
    compiled = weft.compile(three, backend="native")
    w, v = (weft.tensor([0.5, 1.0], requires_grad=True) for _ in range(2))
    first, second, third = compiled(w, v)
    node = first.grad_fn
    first.backward()
    assert not node.is_freed()
    third.backward()
    assert node.is_freed()
    assert not node.arrays
    with pytest.raises(FreedError):
        second.backward()
    (again, _, _) = compiled(w, v)
    again.backward()


@pytest.mark.parametrize("number", [0, 1])
def test_under_transforms(number: int) -> None:
    """The gradient of one result, for each element of a `vmap`, and the second derivative."""
    compiled = weft.compile(infinite, backend="native")
    w, v = weft.tensor([[0.0, 0.5], [1.0, 2.0]]), weft.tensor([[0.5, 0.0], [3.0, 1.0]])

    def of(function: Function) -> Function:
        return lambda a, b: function(a, b)[number]

    def slope(function: Function) -> Function:
        return lambda a, b: (weft.grad(of(function))(a, b) * b).sum()

    for make in (weft.grad, lambda f: weft.grad(f, argnums=1)):
        for wrapped in (of, slope):
            want = weft.vmap(make(wrapped(infinite)))(w, v).numpy()
            got = weft.vmap(make(wrapped(compiled)))(w, v).numpy()
            np.testing.assert_allclose(got, want, rtol=1e-5)
