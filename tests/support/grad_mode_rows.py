"""Programs with `no_grad` and its kin around and inside of loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import no_grad

ROWS: dict[str, tuple[Callable[..., Any], list[list[float]]]] = {}
UP, DOWN, LARGE = [0.5, 1.5], [-0.5, -1.5], [3.0, 4.0]


def row(name: str, *inputs: list[float]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ROWS[name] = (function, list(inputs) or [UP, LARGE])
        return function

    return register


# --- gradients off around a loop or branch -----------------------------------------------------


@row("no_grad around for")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(3):
            t = t * 3
    return (w * t).sum()


@row("no_grad around for, result without history")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(3):
            t = t * 3
    return t, (w + t).sum()


@row("set_grad_enabled(False) around for")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with weft.set_grad_enabled(False):
        for _ in range(3):
            t = t * w
    return (w * t).sum()


@row("set_grad_enabled as a switch")
def _(w: Any, x: Any) -> Any:
    t = w * x
    weft.set_grad_enabled(False)
    for _ in range(3):
        t = t * w + x
    weft.set_grad_enabled(True)
    return (w * t).sum()


@no_grad()
def _tripled(t: Any) -> Any:
    for _ in range(3):
        t = t * 3
    return t


@row("@no_grad on a function with a loop")
def _(w: Any, x: Any) -> Any:
    return (w * _tripled(w * x)).sum()


@row("no_grad around a loop with a carry that passes through")
def _(w: Any, x: Any) -> Any:
    t = w * x
    u = x
    with no_grad():
        for _ in range(3):
            u = t
            t = t * 3
    return u, t, (w * u * t).sum()


@row("no_grad around a loop of one iteration that passes a value on")
def _(w: Any, x: Any) -> Any:
    t = w * x
    u = x
    with no_grad():
        for _ in range(1):
            u = t
            t = t * 3
    return u * 1, t, (w * u * t).sum()


@row("no_grad around while", UP, LARGE)
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        while t.sum() < 50:
            t = t * 2 + w
    return (w * t).sum()


@row("no_grad around a while that may not run", UP, [40.0, 50.0])
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        while t.sum() < 20:
            t = t * 2
    return (w * t).sum()


@row("no_grad around nested loops")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(2):
            for _ in range(2):
                t = t * w
            t = t + w
    return (w * t).sum()


@row("no_grad around the inner loop")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(2):
        with no_grad():
            u = t
            for _ in range(2):
                u = u * w
        t = t * u
    return t.sum()


@row("enable_grad inside of no_grad around a loop")
def _(w: Any, x: Any) -> Any:
    t = x * 1
    u = w * x
    with no_grad():
        for _ in range(2):
            with weft.enable_grad():
                t = t * w
            u = u * 2
    return (t * u).sum()


@row("enable_grad around a loop inside of no_grad")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        v = t * 2
        with weft.enable_grad():
            for _ in range(3):
                t = t * w * v
    return t.sum()


@row("no_grad around if", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        if x.sum() > 0:
            t = t * 3
            u = t - w
        else:
            u = t - w
    return (w * t).sum() + (w * u).sum()


@row("no_grad around scan")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        t, ys = weft.scan(lambda c, v: (c * v * w[0], c + w[1]), w[0] * 2, w * x)
    return t, ys, (w * t).sum() + (ys * w).sum()


@row("no_grad around map")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        ys = weft.map(lambda v: v * v * w[0], w * x)
    return ys, (ys * w).sum()


@row("no_grad around while_loop, fori_loop, cond, switch")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        a = weft.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + w, w * x)
        b = weft.fori_loop(0, 3, lambda i, c: c * w + i, w * x)
        c = weft.cond(x.sum() > 1, lambda: w * 2, lambda: w * x)
        d = weft.switch((x[0] > 1).astype(weft.int64), [lambda: w * w, lambda: w * x])
    return b, c, d, (w * (a + b + c + d)).sum()


@row("gradients taken in a loop under no_grad")
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        for _ in range(3):
            with weft.enable_grad():
                v = t.detach().requires_grad_()
                (g,) = weft.autograd.grad((v**3 * x).sum(), v)
            t = t - 0.1 * g
    return t, (w * t).sum()


@row("a gradient that arrives only if the loop is not entered", UP, [40.0, -50.0])
def _(w: Any, x: Any) -> Any:
    t = w * x
    with no_grad():
        while t.sum() < 20:
            t = t * 2 + 9
    return (t * t).sum() + (t.detach() * w[0]).sum()


@row("no gradient of zeros meets an inf where eager has none", [0.5, 1.5], [3.0, 4.0])
def _(w: Any, x: Any) -> Any:
    t, v = w * 1e6, w * x
    for _ in range(2):
        for _ in range(3):
            v = v.detach() * v
            t = t * t
    return (v * x).sum()


# --- gradients off inside of a loop or branch --------------------------------------------------


@row("no_grad inside of for")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        with no_grad():
            scale = (t * t).sum()
        t = t * w / (1 + scale)
    return t.sum()


@row("the whole body under no_grad")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        with no_grad():
            t = t * w
    return t, (t * w).sum()


@row("detach in a loop")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        t = t.detach() * w
    return (t * w).sum()


@row("detach ends a loop body")
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        t = (t * w).detach()
    return t, (t * w).sum()


@row("stop_gradient of the history in scan")
def _(w: Any, x: Any) -> Any:
    t, ys = weft.scan(lambda c, v: (weft.stop_gradient(c * w), c * v), w * x, x)
    return t, (ys * w).sum() + (t * w).sum()


# --- lists of the graph ------------------------------------------------------------------------


@row("a list is read under no_grad")
def _(w: Any, x: Any) -> Any:
    items = []
    t = w * x
    while t.sum() > -20:
        t = t - 5
        items.append(weft.tanh(t * w * 0.1))  # where it is flat, gradients are only rounding
    with no_grad():
        a = weft.stack(items).sum() + items[0].sum()
        items.append(w * 3)
    return a, a * w.sum() + weft.stack(items).sum()


@row("a list is made under no_grad")
def _(w: Any, x: Any) -> Any:
    with no_grad():
        items = []
        t = w * x
        while t.sum() > -20:
            t = t - 5
            items.append(t * w)
        t = weft.stack(items).mean(axis=0)
    return t, (t * w).sum()
