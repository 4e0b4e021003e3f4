"""`requires_grad`, set inside of a recorded function or asked inside of a transform: as eagerly.

A recording holds that a tensor from outside begins to learn, and what is set for a while. Where a
tensor stops to learn, the call runs as plain Python, the first one too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import nn
from weft.errors import CaptureError

Wrap = Callable[[Any], Any]


def on_arguments(body: Callable[[Any], Any]) -> Callable[[Wrap], list[Any]]:
    """Three calls of a function with a new tensor each, and a backward of what it gives."""

    def row(wrap: Wrap) -> list[Any]:
        f = wrap(body)
        found: list[Any] = []
        for k in range(3):
            x = weft.tensor([1.0 + k, 2.0])
            y = f(x)
            if y.requires_grad:
                y.sum().backward()
            grad = None if x.grad is None else x.grad.tolist()
            found.append((y.tolist(), y.requires_grad, y is x, x.requires_grad, x.is_leaf, grad))
        return found

    row.__name__ = body.__name__
    return row


def on_a_weight(body: Callable[[Any, Any, bool], Any]) -> Callable[[Wrap], list[Any]]:
    """Calls with one weight from outside, which has the grad that they leave it."""

    def row(wrap: Wrap) -> list[Any]:
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        w.register_hook(lambda g: g * 2)
        f = wrap(lambda x, on: body(w, x, on))
        found: list[Any] = []
        for k in range(6):
            y = f(weft.tensor([1.0 + k, 2.0]), k % 2 == 1)
            if y.requires_grad:
                y.backward()
            grad = None if w.grad is None else w.grad.tolist()
            found.append((y.item(), y.requires_grad, w.requires_grad, grad))
        return found

    row.__name__ = body.__name__
    return row


@on_arguments
def by_method(x: Any) -> Any:
    x.requires_grad_(True)
    return x * x


@on_arguments
def by_attribute(x: Any) -> Any:
    x.requires_grad = True
    return x * x


@on_arguments
def given_back(x: Any) -> Any:
    return x.requires_grad_()


@on_arguments
def after_a_use(x: Any) -> Any:
    y = x * 3
    x.requires_grad_()
    return x * x + y


@on_arguments
def after_a_write(x: Any) -> Any:
    x *= 2
    x.requires_grad_()
    return x * x


@on_arguments
def before_a_write(x: Any) -> Any:
    x.requires_grad_()
    with weft.no_grad():
        x *= 2
    return x * x


@on_arguments
def with_a_backward(x: Any) -> Any:
    x.requires_grad_()
    (x * x).sum().backward()
    return x.grad + 1


@on_arguments
def for_a_while(x: Any) -> Any:
    x.requires_grad_(True)
    (g,) = weft.autograd.grad((x * x).sum(), [x])
    x.requires_grad_(False)
    return g + x


@on_a_weight
def frozen_in_turns(w: Any, x: Any, on: bool) -> Any:
    w.requires_grad_(on)
    return (w * x).sum()


@on_a_weight
def frozen_after_a_use(w: Any, x: Any, on: bool) -> Any:
    y = w * x
    w.requires_grad = on
    return (y + w * w).sum()


@on_a_weight
def frozen_for_a_while(w: Any, x: Any, on: bool) -> Any:
    w.requires_grad_(False)
    y = w * x
    w.requires_grad_(True)
    return (y + w * w).sum()


def a_layer_is_frozen(wrap: Wrap) -> list[Any]:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    for p in model.parameters():
        p.data = weft.full(p.shape, 0.5)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.01)

    def step(x: Any, frozen: bool) -> None:
        model[0].requires_grad_(not frozen)
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()

    f = wrap(step)
    found: list[Any] = []
    for k in range(6):
        f(weft.tensor([[1.0, 1.0 + k]]), k % 3 == 0)
        found.append([(p.requires_grad, p.tolist()) for p in model.parameters()])
    return found


ROWS = [
    by_method,
    by_attribute,
    given_back,
    after_a_use,
    after_a_write,
    before_a_write,
    with_a_backward,
    for_a_while,
    frozen_in_turns,
    frozen_after_a_use,
    frozen_for_a_while,
    a_layer_is_frozen,
]


@pytest.mark.filterwarnings("ignore:.*requires_grad was set on a tensor from outside")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_it_is_set_as_eagerly(row: Callable[[Wrap], list[Any]]) -> None:
    expected = row(lambda function: function)
    assert row(weft.trace) == expected
    assert row(weft.compile) == expected


def a_gan_step(wrap: Wrap) -> list[Any]:
    """The discriminator is frozen for the generator's part."""
    weft.manual_seed(0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [weft.optim.Adam(m.parameters(), lr=0.1) for m in (first, second)]

    def step(x: Any) -> Any:
        made = first(x)
        optimizers[1].zero_grad()
        one = (second(made.detach()) ** 2 + second(x)).mean()
        one.backward()
        optimizers[1].step()
        for p in second.parameters():
            p.requires_grad_(False)
        optimizers[0].zero_grad()
        other = (second(made) - 1).square().mean()
        other.backward()
        optimizers[0].step()
        for p in second.parameters():
            p.requires_grad_(True)
        return one.detach(), other.detach(), (second(x) * 2).sum()

    f = wrap(step)
    found: list[Any] = []
    for k in range(4):
        *losses, y = f(weft.tensor([[1.0, k], [0.5, 2.0]]))
        y.backward()  # reaches the parameters again
        params = [*first.parameters(), *second.parameters()]
        found += [x.item() for x in losses]
        found += [v for p in params for v in (*p.flatten().tolist(), *p.grad.flatten().tolist())]
    return found


def a_residual(wrap: Wrap) -> list[Any]:
    """A network that is differentiated by its input, as in physics-informed networks."""
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))

    def residual(x: Any) -> Any:
        x.requires_grad_(True)
        u = model(x)
        (du,) = weft.autograd.grad(u.sum(), [x], create_graph=True)
        (ddu,) = weft.autograd.grad(du.sum(), [x], create_graph=True)
        loss = (ddu + u).square().mean()
        loss.backward()
        return loss.detach(), model(x)

    f = wrap(residual)
    found: list[Any] = []
    for k in range(3):
        x = weft.tensor([[0.1 * k], [0.7]])
        loss, u = f(x)
        u.sum().backward()  # goes on to x, which is a leaf now
        found += [loss.item(), x.requires_grad, *x.grad.flatten().tolist()]
        found += model[0].weight.grad.flatten().tolist()
    return found


def an_attack(wrap: Wrap) -> list[Any]:
    """The fast gradient sign method, as PyTorch's tutorial has it."""
    w = weft.tensor([1.0, -2.0], requires_grad=True)

    def attack(x: Any) -> Any:
        x.requires_grad = True
        loss = (w * x).square().sum()
        w.grad = None
        loss.backward()
        return x + 0.1 * weft.sign(x.grad)

    f = wrap(attack)
    found: list[Any] = []
    for k in range(3):
        x = weft.tensor([1.0, 0.5 + k])
        made = f(x)
        found += [*made.tolist(), *x.grad.tolist(), made.requires_grad]
    return found


@pytest.mark.parametrize("capture", [weft.trace, weft.compile])
@pytest.mark.parametrize("row", [a_gan_step, a_residual, an_attack])
def test_it_is_kept_as_a_graph(row: Callable[[Wrap], list[Any]], capture: Any) -> None:
    """A warning that it runs as plain Python is an error here."""
    made: list[Any] = []

    def wrap(function: Any) -> Any:
        made.append(capture(function))
        return made[0]

    assert row(wrap) == pytest.approx(row(lambda function: function), rel=1e-4, abs=1e-6)
    assert len(made[0].recordings) <= 2


def test_what_is_set_already_is_kept_as_a_graph() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @weft.compile
    def f(x: Any) -> Any:
        w.requires_grad_()
        return (w * x).sum()

    for k in range(3):
        w.grad = None
        f(weft.full((2,), float(k))).backward()
        assert w.grad.tolist() == [k, k]
    assert len(f.recordings) == 1


def test_a_branch_of_the_graph_refuses() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)

    @weft.compile
    def f(x: Any) -> Any:
        if x.sum() > 1:
            w.requires_grad_(False)
        return (w * x).sum()

    with pytest.raises(CaptureError, match="set inside of a branch"):
        f(weft.ones(2))
    assert w.requires_grad


# --- asked inside of a transform -----------------------------------------------------------------


def of_an_argument(x: Any) -> Any:
    return x * 2 if x.requires_grad else x * 3


def of_a_result(x: Any) -> Any:
    y = weft.sin(x)
    return y * 2 if y.requires_grad else y * 3


def of_a_constant(x: Any) -> Any:
    y = x.detach()
    with weft.no_grad():
        z = x * 2
    return x * (2 if y.requires_grad or z.requires_grad or not z.is_leaf else 3)


def of_a_carry(x: Any) -> Any:
    for _ in range(3):
        x = x * 2 if x.requires_grad else x * 3
    return x


def in_a_while(x: Any) -> Any:
    s = x
    while s < 10:
        s = s * (2 if x.requires_grad else 3)
    return s


def in_a_branch(x: Any) -> Any:
    if x > 0.2:
        return x * 2 if x.requires_grad else x * 7
    return x


ASKS = (of_an_argument, of_a_result, of_a_constant, of_a_carry, in_a_while, in_a_branch)


def each(f: Any) -> Any:
    return lambda x: weft.stack([f(row) for row in x])


#: What a transform gives, and the same without it.
INSIDE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "vmap": (lambda f: lambda x: weft.vmap(f)(x), each),
    "jvp": (
        lambda f: each(lambda x: weft.jvp(f, (x,), (weft.ones_like(x),))[0]),
        each,
    ),
    "jvp of vmap": (
        lambda f: lambda x: weft.jvp(weft.vmap(f), (x,), (weft.ones_like(x),))[0],
        each,
    ),
    "grad of vmap": (
        lambda f: weft.grad(lambda x: weft.vmap(f)(x).sum()),
        lambda f: weft.grad(lambda x: each(f)(x).sum()),
    ),
    "vmap of grad": (
        lambda f: lambda x: weft.vmap(weft.grad(f))(x),
        lambda f: each(weft.grad(f)),
    ),
}


@pytest.mark.parametrize("transform", INSIDE)
@pytest.mark.parametrize("body", ASKS)
def test_asked_inside_of_a_transform(body: Any, transform: str) -> None:
    """It is True for what depends on a tensor that requires a gradient, as without transforms."""
    inside, without = INSIDE[transform]
    modes = [weft.compile(inside(body), backend="interpret")]
    if transform == "jvp" or body not in (in_a_while, in_a_branch):  # mapped conditions
        modes.append(inside(body))
    for wanted in (True, False, True):
        x = weft.tensor([0.1, 0.5, 1.5], dtype=weft.float64, requires_grad=wanted)
        expected = without(body)(x)
        for mode in modes:
            found = mode(x)
            assert found.tolist() == pytest.approx(expected.tolist())
            assert found.requires_grad == expected.requires_grad


@pytest.mark.parametrize(
    "use",
    [
        lambda x: (x * x).backward(),
        lambda x: weft.autograd.grad(x * x, x),
        lambda x: x.retain_grad(),
        lambda x: x.register_hook(print),
    ],
)
def test_history_of_an_argument_of_vmap_is_not_seen(use: Any) -> None:
    with pytest.raises(weft.errors.GradientError, match=r"weft\.grad\(f\)\(x\)"):
        weft.vmap(use)(weft.tensor([1.0, 2.0], requires_grad=True))


def test_only_leaves_change_it_inside_of_vmap() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(weft.errors.GradientError, match="only leaves"):
        weft.vmap(lambda x: x.requires_grad_(False))(x)
