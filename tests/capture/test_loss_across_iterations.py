"""A value that one iteration computes and the next one differentiates: as eager, or refused.

Its history lies in the iteration before, which a body that is recorded once does not see. The loop
carries what the history keeps; where it cannot, a CaptureError says so. Never another number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.errors import CaptureError

INPUTS = ([1.0, 2.0], [0.5, 3.0], [0.1, 0.2], [2.0, -1.5])


def loss_of(w, x):
    return ((w * x) ** 2).sum()


def by_grad(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    while loss > 0.5:
        (g,) = weft.autograd.grad(loss, w)
        with weft.no_grad():
            w -= 0.1 * g
        loss = loss_of(w, x)
    return w.detach(), loss.detach()


def by_backward(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    while loss > 0.5:
        loss.backward()
        with weft.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        loss = ((w * x) ** 2).sum()
    return w.detach(), loss.detach()


def new_leaves(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    while loss > 0.5:
        (g,) = weft.autograd.grad(loss, w)
        w = (w - 0.1 * g).detach().requires_grad_()
        loss = loss_of(w, x)
    return w.detach(), loss.detach()


def until_return(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    while True:
        loss.backward()
        with weft.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        loss = loss_of(w, x)
        if loss < 0.5:
            return loss.detach()


def until_break(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    n = 0
    while True:
        (g,) = weft.autograd.grad(loss, w)
        with weft.no_grad():
            w -= 0.1 * g
        loss = loss_of(w, x)
        n += 1
        if loss < 0.5 or n > 9:
            break
    return loss.detach(), n


def over_rows(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    for row in weft.stack([x, x * 0.5, x * 2]):
        (g,) = weft.autograd.grad(loss, w)
        with weft.no_grad():
            w -= 0.05 * g
        loss = loss_of(w, row)
    return w.detach(), loss.detach()


def rows_and_break(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    for row in weft.stack([x, x * 0.5, x * 2]):
        (g,) = weft.autograd.grad(loss, w)
        with weft.no_grad():
            w -= 0.05 * g
        loss = loss_of(w, row)
        if loss < 0.3:
            break
    return w.detach(), loss.detach()


def in_a_branch(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    n = weft.zeros((), dtype=weft.int64)
    while n < 5:
        if loss > 1:
            (g,) = weft.autograd.grad(loss, w)
            with weft.no_grad():
                w -= 0.1 * g
        n = n + 1
        loss = loss_of(w, x)
    return w.detach(), loss.detach()


def backward_in_an_inner_loop(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    n = weft.zeros((), dtype=weft.int64)
    while n < 4:
        k = n * 0
        while k < 2:
            (g,) = weft.autograd.grad(loss, w, retain_graph=True)
            with weft.no_grad():
                w -= 0.01 * g
            k = k + 1
        n = n + 1
        loss = loss_of(w, x)
    return w.detach(), loss.detach()


def whole_loops_nested(x):
    total = x.sum() * 0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        w = weft.ones(2).requires_grad_()
        loss = loss_of(w, x + n)
        while loss > 0.5:
            (g,) = weft.autograd.grad(loss, w)
            with weft.no_grad():
                w -= 0.02 * g
            loss = loss_of(w, x + n)
        total = total + loss.detach()
        n = n + 1
    return total


def one_of_two_paths_is_hidden(x):
    """The new loss has a way of its own to w; the carried one must not be lost beside it."""
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    n = weft.zeros((), dtype=weft.int64)
    g = x * 0
    while n < 3:
        (g,) = weft.autograd.grad(loss * 2 + (w * x).sum(), w)
        with weft.no_grad():
            w -= 0.01 * g
        loss = loss_of(w, x)
        n = n + 1
    return g, w.detach()


def two_values(x):
    w = weft.ones(2).requires_grad_()
    y = w * x
    loss = weft.exp(y * 0.1).sum()
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        g, h = weft.autograd.grad(loss, [w, y])
        with weft.no_grad():
            w -= 0.1 * g + 0.01 * h
        y = w * x
        loss = weft.exp(y * 0.1).sum()
        n = n + 1
    return w.detach(), loss.detach(), y.detach()


def loss_and_its_gradient_outside(x):
    """The loop's result has a history itself."""
    w = weft.ones(2).requires_grad_()
    v = weft.ones(2).requires_grad_()
    loss = loss_of(w, x * v)
    total = loss * 0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        (g,) = weft.autograd.grad(loss, w, retain_graph=True)
        with weft.no_grad():
            w -= 0.01 * g
        loss = loss_of(w, x * v)
        total = total + loss
        n = n + 1
    return weft.autograd.grad(total, v)[0], total.detach()


def gradient_of_what_the_rows_are_of(x):
    """A row's history lies outside of the loop, where the gradient goes on."""
    w = (x * 0 + 1).detach().requires_grad_()
    total = x * 0
    for row in w * x:
        (g,) = weft.autograd.grad(row * row + w.sum(), w, retain_graph=True)
        total = total + g
    return total


def no_grad_in_a_scan_that_starts_without_a_history(x):
    """Only the body gives the carry a history, of which `doubled` has no part."""
    w = (x * 0 + 0.5).detach().requires_grad_()

    def body(c, row):
        with weft.no_grad():
            doubled = c * 2
        return c * w + doubled + row, None

    return weft.autograd.grad(weft.scan(body, x * 0, weft.stack([x, x, x]))[0].sum(), w)[0]


def carried_by_a_function(x):
    w = weft.ones(2).requires_grad_()

    def step(carry, _):
        (g,) = weft.autograd.grad(carry[1], carry[0])
        w = (carry[0] - 0.1 * g).detach().requires_grad_()
        return (w, loss_of(w, x)), None

    (w, loss), _ = weft.scan(step, (w, loss_of(w, x)), length=3)
    return w.detach(), loss.detach()


RIGHT = [
    *(by_grad, by_backward, new_leaves, until_return, until_break, over_rows, rows_and_break),
    *(in_a_branch, backward_in_an_inner_loop, whole_loops_nested, one_of_two_paths_is_hidden),
    *(two_values, loss_and_its_gradient_outside, gradient_of_what_the_rows_are_of),
    *(no_grad_in_a_scan_that_starts_without_a_history, carried_by_a_function),
]


def _numbers(values: Any) -> list[Any]:
    return [np.asarray(v) for v in (values if isinstance(values, tuple) else (values,))]


@pytest.mark.parametrize("function", RIGHT, ids=lambda f: f.__name__)
def test_as_eager(function: Callable[..., Any]) -> None:
    compiled = weft.compile(function)
    for data in (*INPUTS, *reversed(INPUTS)):
        x = weft.tensor(data)
        for want, got in zip(_numbers(function(x)), _numbers(compiled(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert len(compiled.recordings) == 1


def test_parameters_and_an_optimizer_from_outside() -> None:
    def fit(compiles: bool) -> list[Any]:
        weft.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        steps = optim.SGD(model.parameters(), lr=0.1)

        def run(x: Any) -> Any:
            loss = ((model(x) - 1) ** 2).mean()
            while loss > 0.05:
                steps.zero_grad()
                loss.backward()
                steps.step()
                loss = ((model(x) - 1) ** 2).mean()
            return loss.detach()

        f = weft.compile(run) if compiles else run
        found = [f(weft.tensor([[a, 1.0], [0.3, b]])) for a, b in ((1.0, 2.0), (-1.0, 0.5))]
        return [*found, *[p.detach() for p in model.parameters()]]

    for want, got in zip(fit(False), fit(True), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


# --- what is refused ------------------------------------------------------------------------------


def longer_and_longer(x):
    """The history goes back through all iterations."""
    w = weft.ones(2).requires_grad_()
    y = w * x
    g = x * 0
    while y.sum() < 100:
        y = y * w + 1
        (g,) = weft.autograd.grad(y.sum(), w, retain_graph=True)
    return g


def another_loss_at_first(x):
    w = weft.ones(2).requires_grad_()
    loss = weft.sin(w * x).sum()
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        (g,) = weft.autograd.grad(loss, w)
        with weft.no_grad():
            w -= 0.1 * g
        loss = loss_of(w, x)
        n = n + 1
    return w.detach()


def gradients_of_gradients(x):
    w = weft.ones(2).requires_grad_()
    loss = loss_of(w, x)
    n = weft.zeros((), dtype=weft.int64)
    g = w
    while n < 3:
        (g,) = weft.autograd.grad(loss, w, create_graph=True)
        loss = loss_of(w, x)
        n = n + 1
    return weft.autograd.grad(g.sum(), w)[0]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (longer_and_longer, r"y.* is differentiated \(.*in longer_and_longer.*compute it in"),
        (another_loss_at_first, r"'loss' is differentiated \(.*SumBackward|'loss' is differ"),
        (gradients_of_gradients, r"create_graph"),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_refused(function: Callable[..., Any], words: str) -> None:
    """Eager runs them."""
    x = weft.tensor(INPUTS[0])
    function(x)
    with pytest.raises(CaptureError, match=f"(?s){words}"):
        weft.compile(function)(x)


def test_a_body_that_fails_from_the_second_iteration_on_is_not_left_silently() -> None:
    """The first iteration was taken for the whole loop."""

    def f(x: Any) -> Any:
        w = weft.ones(2).requires_grad_()
        loss = loss_of(w, x)
        while loss > 0.5:
            loss.backward()
            loss = loss.detach() * 0.9
        return loss

    assert f(weft.tensor([0.1, 0.1])) < 0.5
    with pytest.raises(weft.errors.GradientError):
        f(weft.tensor([1.0, 2.0]))
    with pytest.raises((CaptureError, weft.errors.GradientError)):
        weft.compile(f)(weft.tensor([1.0, 2.0]))


# --- an optimizer whose state begins in the loop --------------------------------------------------


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
@pytest.mark.parametrize("form", ["break", "condition"])
def test_a_fresh_optimizer_in_a_loop(kind: str, form: str) -> None:
    """Its first step makes its state: the first iteration stands before the loop."""

    def fit(compiles: bool) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        more = {"momentum": 0.9, "lr": 0.02} if kind == "SGD" else {"lr": 0.1}
        steps = getattr(optim, kind)([w], **more)

        def until_break(x: Any) -> Any:
            while True:
                steps.zero_grad()
                loss = ((w * x - 1) ** 2).sum()
                loss.backward()
                steps.step()
                if loss < 0.1:
                    break
            return loss.detach()

        def by_condition(x: Any) -> Any:
            loss = ((w * x - 1) ** 2).sum()
            while loss > 0.1:
                steps.zero_grad()
                loss.backward()
                steps.step()
                loss = ((w * x - 1) ** 2).sum()
            return loss.detach()

        f = until_break if form == "break" else by_condition
        f = weft.compile(f) if compiles else f
        inputs = ([1.0, 0.5], [1.0, 1.0], [2.0, 0.7], [-1.0, 0.3])  # no iteration for the first
        return [*[f(weft.tensor(x)) for x in inputs], w.detach()]

    for want, got in zip(fit(False), fit(True), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-3, atol=1e-4)


def test_a_fresh_optimizer_in_a_loop_of_a_tensors_length() -> None:
    def fit(compiles: bool) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        steps = optim.Adam([w], lr=0.1)

        def run(x: Any, n: Any) -> Any:
            for _ in range(n):
                steps.zero_grad()
                ((w * x - 1) ** 2).sum().backward()
                steps.step()
            return w * 1

        f = weft.compile(run) if compiles else run
        return [f(weft.tensor([1.0, 0.5]), weft.tensor(n)).detach() for n in (0, 1, 0, 3, 5)]

    for want, got in zip(fit(False), fit(True), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_a_dict_that_the_first_iteration_fills() -> None:
    def f(x: Any) -> Any:
        seen: dict[str, Any] = {}
        n = 0
        while x.sum() < 10:
            seen["before"] = seen.get("last", x)
            seen["last"] = x
            x = x * 2
            n += 1
        return x, n, *seen.values()

    compiled = weft.compile(f)
    for data in ([1.0, 2.0], [20.0, 0.0], [0.1, 0.3], [4.0, 4.0], [30.0, 1.0]):
        x = weft.tensor(data)
        for want, got in zip(_numbers(f(x)), _numbers(compiled(x)), strict=True):
            np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("form", ["if", "while"])
def test_a_fresh_optimizer_deeper_inside(form: str) -> None:
    """In a nested loop it is as eagerly; in an `if`, what only one side sets is named."""

    def made() -> tuple[Any, Any, Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        steps = optim.Adam([w], lr=0.1)

        def step(x: Any) -> None:
            steps.zero_grad()
            ((w * x - 1) ** 2).sum().backward()
            steps.step()

        def in_if(x: Any) -> Any:
            n = x.sum()
            while n < 9:
                if n > 3:
                    step(x)
                n = n + 1
            return n

        def in_while(x: Any) -> Any:
            n = x.sum()
            while n < 9:
                k = n * 0
                while k < n:
                    step(x)
                    k = k + 1
                n = n + 1
            return n

        return in_if if form == "if" else in_while, w, steps

    compiled, w, steps = made()
    if form == "if":
        with pytest.raises(CaptureError, match="None after another"):
            weft.compile(compiled)(weft.ones(2))
        return
    eager, expected, eager_steps = made()
    assert weft.compile(compiled)(weft.ones(2)).item() == eager(weft.ones(2)).item()
    np.testing.assert_allclose(w.numpy(), expected.numpy(), rtol=1e-6)
    for kept, other in zip(
        steps.state[w].items(), eager_steps.state[expected].items(), strict=True
    ):
        assert kept[0] == other[0]
        np.testing.assert_allclose(kept[1].numpy(), other[1].numpy(), rtol=1e-5)
