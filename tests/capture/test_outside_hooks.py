"""Hooks that were put on tensors outside of a recorded function: each runs once, as eagerly.

A row runs a few calls with other data, and changes the hooks between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import nn

Wrap = Callable[[Any], Any]


def leaf() -> Any:
    return weft.tensor([1.0, 2.0], requires_grad=True)


def data(k: int) -> Any:
    return weft.tensor([1.0 + k, 2.0 - k])


def toggled(w: Any, call: Callable[[Any], Any], calls: int = 6) -> list[Any]:
    """The gradients of `w` by calls between which hooks are put on it and taken away."""
    found: list[Any] = []
    handle = w.register_hook(lambda g: g * 2)
    for k in range(calls):
        w.grad = None
        if k == 2:
            handle.remove()
        if k == 3:
            handle = w.register_hook(lambda g: g * 5)
        if k == 4:
            w.register_hook(lambda g: g + 1)
        got = call(data(k))
        found.append((w.grad if got is None else got).tolist())
    return found


def of_a_closure(wrap: Wrap) -> list[Any]:
    w = leaf()
    f = wrap(lambda x: (w * x).sum())
    return toggled(w, lambda x: f(x).backward())


def of_an_argument(wrap: Wrap) -> list[Any]:
    w = leaf()
    f = wrap(lambda w, x: (w * x).sum())
    return toggled(w, lambda x: f(w, x).backward())


def of_a_parameter(wrap: Wrap) -> list[Any]:
    layer = nn.Linear(2, 1)
    layer.weight.data = weft.ones((1, 2))
    f = wrap(lambda x: layer(x).sum())
    return toggled(layer.weight, lambda x: f(x).backward())


def of_a_computed_tensor(wrap: Wrap) -> list[Any]:
    f = wrap(lambda v, x: (v * x).sum())
    found: list[Any] = []
    for k in range(4):
        w = leaf()
        v = w * 3
        v.retain_grad()
        handle = v.register_hook(lambda g: g * 2)
        seen: list[Any] = []
        v.grad_fn.register_prehook(lambda gs, seen=seen: seen.append(gs[0].tolist()))
        v.grad_fn.register_hook(lambda ins, outs, seen=seen: seen.append(ins[0].tolist()))
        if k == 2:
            handle.remove()
        f(v, data(k)).backward()
        found.append((w.grad.tolist(), v.grad.tolist(), seen))
    return found


def of_what_is_written(wrap: Wrap) -> list[Any]:
    def write(v: Any, x: Any) -> Any:
        v *= x
        return v.sum()

    f = wrap(write)
    found: list[Any] = []
    for k in range(3):
        w = leaf()
        v = w * 3
        v.register_hook(lambda g: g * 2)
        f(v, data(k)).backward()
        found.append(w.grad.tolist())
    return found


def of_gradients_of_gradients(wrap: Wrap) -> list[Any]:
    w = leaf()
    f = wrap(lambda x: (w * w * x).sum())

    def second(x: Any) -> Any:
        (g,) = weft.autograd.grad(f(x), [w], create_graph=True)
        return g + weft.autograd.grad(g.sum(), [w])[0]

    return toggled(w, second)


def of_what_grad_uses(wrap: Wrap) -> list[Any]:
    w = leaf()
    f = wrap(weft.grad(lambda x: (w * w * x * x).sum()))
    return toggled(w, lambda x: f(x).sum().backward())


def of_a_loop_and_a_branch(wrap: Wrap) -> list[Any]:
    w = leaf()

    def loop(x: Any) -> Any:
        while (x * x).sum() < 50:
            x = x * w * w + x
        if x[0] > 9:
            x = x * w
        return x.sum()

    f = wrap(loop)
    return toggled(w, lambda x: f(x).backward())


def after_accumulation(wrap: Wrap) -> list[Any]:
    w = leaf()
    seen: list[Any] = []
    f = wrap(lambda x: (w * x).sum())
    handle = w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    for k in range(4):
        if k == 2:
            handle.remove()
        f(data(k)).backward()
    return [*seen, w.grad.tolist()]


def put_on_inside(wrap: Wrap) -> list[Any]:
    w = leaf()

    def hooked(x: Any) -> Any:
        with w.register_hook(lambda g: g * 3):
            (w * x).sum().backward()
        return (w * x).sum()

    f = wrap(hooked)
    return toggled(w, lambda x: f(x).backward(), 2)


def put_on_for_good(wrap: Wrap) -> list[Any]:
    """Once in each call, also where the call runs as plain Python for another reason."""
    w = leaf()

    def hooked(x: Any) -> Any:
        x.requires_grad_()
        w.register_hook(lambda g: g * 2)
        w.register_post_accumulate_grad_hook(double)
        return (w * x).sum()

    def double(t: Any) -> None:
        t.grad = t.grad * 2

    f = wrap(hooked)
    found: list[Any] = []
    for k in range(4):
        w.grad = None
        f(data(k)).backward()
        found.append(w.grad.tolist())
    return found


def on_a_result(hook: Callable[..., Any], inside: bool = False) -> Callable[[Wrap], list[Any]]:
    """A hook on what a result is computed from; `hook(gradient, log, how much)`."""

    def row(wrap: Wrap) -> list[Any]:
        w = leaf()
        seen: list[Any] = []
        scale = [2.0]

        def hooked(x: Any) -> Any:
            y = w * x
            y.register_hook(lambda g: hook(g, seen, scale[0]))
            if inside:
                (y * y).sum().backward(retain_graph=True)
            return (y * y).sum()

        f = wrap(hooked)
        found: list[Any] = []
        for k in range(4):
            scale[0] = 2.0 + k // 2
            w.grad = None
            f(data(k)).backward()
            found.append(w.grad.tolist())
        return [*found, *[x.tolist() if isinstance(x, weft.Tensor) else x for x in seen]]

    row.__name__ = f"on_a_result_{hook.__name__}{'_inside' * inside}"
    return row


def that_scales(g: Any, seen: list[Any], scale: float) -> Any:
    return g * scale


def that_keeps(g: Any, seen: list[Any], scale: float) -> None:
    seen.append(g * scale)


def that_asks(g: Any, seen: list[Any], scale: float) -> None:
    seen.append(g.sum().item())


def that_decides(g: Any, seen: list[Any], scale: float) -> Any:
    return g * scale if g.sum() > 6 else g


OUTSIDE = [
    *[on_a_result(hook) for hook in (that_scales, that_keeps, that_asks, that_decides)],
    *[on_a_result(hook, True) for hook in (that_scales, that_keeps, that_asks, that_decides)],
    of_a_closure,
    of_an_argument,
    of_a_parameter,
    of_a_computed_tensor,
    of_what_is_written,
    of_gradients_of_gradients,
    of_what_grad_uses,
    of_a_loop_and_a_branch,
    after_accumulation,
    put_on_inside,
    put_on_for_good,
]


# --- with the backward inside --------------------------------------------------------------------


def inside_of_a_closure(wrap: Wrap) -> list[Any]:
    w = leaf()
    f = wrap(lambda x: (w * x).sum().backward())
    return toggled(w, f)


def inside_of_an_argument(wrap: Wrap) -> list[Any]:
    f = wrap(lambda w, x: (w * x).sum().backward())
    found: list[Any] = []
    for k in range(5):
        w = leaf()
        if k % 2 == 0:
            w.register_hook(lambda g, k=k: g * (k + 2))
        f(w, data(k))
        found.append(w.grad.tolist())
    return found


def inside_of_a_parameter(wrap: Wrap) -> list[Any]:
    layer = nn.Linear(2, 1)
    layer.weight.data = weft.ones((1, 2))
    f = wrap(lambda x: layer(x).sum().backward())
    return toggled(layer.weight, f)


def inside_by_grad(wrap: Wrap) -> list[Any]:
    w = leaf()
    f = wrap(lambda x: weft.autograd.grad((w * x).sum(), [w])[0])
    return toggled(w, f)


def inside_after_a_loop(wrap: Wrap) -> list[Any]:
    w = leaf()

    def loop(x: Any) -> None:
        while (x * x).sum() < 50:
            x = x * w * w + x
        x.sum().backward()

    f = wrap(loop)
    return toggled(w, f)


def inside_after_accumulation(wrap: Wrap) -> list[Any]:
    def double(t: Any) -> None:
        t.grad = t.grad * 2

    w = leaf()
    f = wrap(lambda x: (w * x).sum().backward())
    handle = w.register_post_accumulate_grad_hook(double)
    found: list[Any] = []
    for k in range(4):
        w.grad = None
        if k == 2:
            handle.remove()
        if k == 3:
            w.register_post_accumulate_grad_hook(double)
        f(data(k))
        found.append(w.grad.tolist())
    return found


def what_a_hook_reads_and_writes(wrap: Wrap) -> list[Any]:
    w, scale, seen = leaf(), [2.0], []

    class Scale:
        def __call__(self, g: Any) -> Any:
            return g + scale[0]

    def hook(g: Any) -> Any:
        seen.append(len(seen))
        return g * scale[0]

    w.register_hook(hook)
    w.register_hook(Scale())
    f = wrap(lambda x: (w * x).sum().backward())
    found: list[Any] = []
    for k in range(4):
        scale[0] = 2.0 + k // 2
        w.grad = None
        f(data(k))
        found.append((w.grad.tolist(), len(seen)))
    return found


def on_into_what_was_computed_outside(wrap: Wrap) -> list[Any]:
    """How it was computed counts, and its hooks do."""
    f = wrap(lambda v, w, x: (v * x).sum().backward())
    found: list[Any] = []
    for k in range(4):
        w = leaf()
        v = w + 1 if k % 2 == 0 else -w
        if k == 2:
            v.register_hook(lambda g: g * 7)
        f(v, w, data(k))
        found.append(w.grad.tolist())
    return found


def up_to_what_was_computed_outside(wrap: Wrap) -> list[Any]:
    f = wrap(lambda v, x: weft.autograd.grad((v * x).sum(), [v])[0])
    found: list[Any] = []
    for k in range(4):
        v = leaf() + 1
        if k % 2:
            v.register_hook(lambda g: g * 7)
        found.append(f(v, data(k)).tolist())
    return found


INSIDE = [
    inside_of_a_closure,
    inside_of_an_argument,
    inside_of_a_parameter,
    inside_by_grad,
    inside_after_a_loop,
    inside_after_accumulation,
    what_a_hook_reads_and_writes,
    on_into_what_was_computed_outside,
    up_to_what_was_computed_outside,
]


@pytest.mark.filterwarnings("ignore:.*continues into ops from outside")
@pytest.mark.parametrize("row", INSIDE, ids=lambda row: row.__name__)
def test_a_backward_inside_notices_each_hook(row: Callable[[Wrap], list[Any]]) -> None:
    expected = row(lambda function: function)
    assert row(weft.trace) == expected
    assert row(weft.compile) == expected


# --- with the backward outside -------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*cannot be kept as a graph")
@pytest.mark.parametrize("row", OUTSIDE, ids=lambda row: row.__name__)
def test_a_backward_outside_runs_each_hook_once(row: Callable[[Wrap], list[Any]]) -> None:
    expected = row(lambda function: function)
    assert row(weft.trace) == expected
    assert row(weft.compile) == expected
