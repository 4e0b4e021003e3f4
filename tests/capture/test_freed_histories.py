"""A backward pass without retain_graph frees what it goes through, in compiled loops as eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft


def of_an_outer_loss(w: Any, n: Any) -> None:
    loss, k = (w**2).sum(), 0
    while k < n:
        loss.backward()
        k += 1


def of_an_outer_loss_in_a_for(w: Any, n: Any) -> None:
    loss = (w**2).sum()
    for _ in range(n):
        loss.backward()


def of_an_outer_loss_kept(w: Any, n: Any) -> None:
    loss, k = (w**2).sum(), 0
    while k < n:
        loss.backward(retain_graph=True)
        k += 1


def of_an_outer_part(w: Any, n: Any) -> None:
    h, k = w**2, 0
    while k < n:
        (h * (k + 1)).sum().backward()
        k += 1


def of_an_outer_sum(w: Any, n: Any) -> None:
    """An addition keeps nothing: nothing is freed."""
    h, k = w + 1, 0
    while k < n:
        (h * h).sum().backward()
        k += 1


def twice_in_an_iteration(w: Any, n: Any) -> None:
    k = 0
    while k < n:
        loss = (w**2).sum()
        loss.backward()
        if n > 2:
            loss.backward()
        k += 1


def on_both_sides(w: Any, n: Any) -> None:
    loss = (w**2).sum()
    if n > 1:
        loss.backward()
    else:
        (2 * loss).backward()


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize(
    ("program", "fails"),
    [
        (of_an_outer_loss, lambda n: n > 1),
        (of_an_outer_loss_in_a_for, lambda n: n > 1),
        (of_an_outer_loss_kept, lambda n: False),
        (of_an_outer_part, lambda n: n > 1),
        (of_an_outer_sum, lambda n: False),
        (twice_in_an_iteration, lambda n: n > 2),
        (on_both_sides, lambda n: False),
    ],
)
def test_a_history_is_freed_as_eagerly(program: Any, fails: Any, backend: Any) -> None:
    """Without retain_graph, a second backward through the same history is an error."""

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)

        def f(n: Any) -> Any:
            w.grad = weft.zeros(2)
            program(w, n)
            return n + 0

        found: list[Any] = []
        called = wrap(f)
        for n in (1, 2, 0, 3, 1, 5):
            if fails(n):
                with pytest.raises(weft.errors.GradientError, match="retain_graph"):
                    called(weft.tensor(n))
                continue
            called(weft.tensor(n))
            assert w.grad is not None
            found.append(w.grad.tolist())
        return found

    assert run(lambda f: weft.compile(f, backend=backend)) == run(lambda f: f)


class Box:
    """An attribute that is a number first, then a tensor with a history: SAC's temperature."""

    kept: Any = 0.5


def beside_it(w: Any, v: Any, box: Any) -> Any:
    loss = (w * v).sum()
    loss.backward()
    return [loss, w.exp().sum(), (v * 2).sum()]


def of_both(w: Any, v: Any, box: Any) -> Any:
    """`h` is kept, so that both can be differentiated; the loss inside frees its own part."""
    h = w * v
    (h * h).sum().backward(retain_graph=True)
    return [h.sum(), (h * 3).sum()]


def on_an_attribute(w: Any, v: Any, box: Any) -> Any:
    loss = (box.kept * w).sum()
    loss.backward()
    box.kept = v.exp()
    return [loss]


def on_an_attribute_by_item(w: Any, v: Any, box: Any) -> Any:
    loss = (box.kept * w).sum()
    loss.backward()
    box.kept = v.exp()
    return [(v * loss.item()).sum()]


def by_grad(w: Any, v: Any, box: Any) -> Any:
    (g,) = weft.autograd.grad((box.kept * w).sum(), [w])
    box.kept = v.exp() * g
    return [box.kept.sum()]


@pytest.mark.filterwarnings("ignore:.*continues into ops from outside")
@pytest.mark.parametrize("capture", [weft.compile, weft.trace])
@pytest.mark.parametrize(
    "program", [beside_it, of_both, on_an_attribute, on_an_attribute_by_item, by_grad]
)
def test_results_beside_one_that_was_freed_keep_their_histories(program: Any, capture: Any) -> None:
    def run(f: Any) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        v = weft.tensor([0.5, -1.0], requires_grad=True)
        box = Box()
        found: list[Any] = []
        for _ in range(4):
            for result in f(w, v, box):
                try:
                    result.backward(retain_graph=True)
                    found.append("went")
                except weft.errors.GradientError as error:
                    found.append(type(error).__name__)
            for x in (w, v):
                found += [None] if x.grad is None else x.grad.tolist()
        return found

    assert run(capture(program)) == pytest.approx(run(program))


def test_a_loss_of_a_loop_that_trains_is_given_out() -> None:
    """Nobody asks for its gradient, which eagerly was freed; that of another result is there."""

    def run(wrap: Any) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        optimizer = weft.optim.SGD([w], lr=0.1)

        def train(x: Any) -> Any:
            loss, n = weft.tensor(10.0), 0
            while loss > 0.5 and n < 30:
                optimizer.zero_grad()
                loss = (w * x).square().mean()
                loss.backward()
                optimizer.step()
                n += 1
            return loss, (w * x).sum()

        f = wrap(train)
        found: list[Any] = []
        for k in range(3):
            loss, other = f(weft.tensor([1.0, 1.5 + k]))
            with pytest.raises(weft.errors.GradientError, match=r"went through|is written to"):
                loss.backward()
            w.grad = None
            other.backward()
            found += [loss.item(), other.item(), *w.grad.tolist(), *w.tolist()]
        return found

    expected = run(lambda f: f)
    assert run(weft.compile) == pytest.approx(expected, rel=1e-5)
