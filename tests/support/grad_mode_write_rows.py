"""Rows beside those of `grad_mode_rows`: writes in place under `no_grad`, and a history on one side
only where Python can know which."""

from __future__ import annotations

from typing import Any

from grad_mode_rows import DOWN, LARGE, ROWS, UP, row

import weft
from weft import no_grad

__all__ = ["ROWS"]

# --- in-place writes under no_grad -------------------------------------------------------------


@row("in-place under no_grad in for")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for _ in range(3):
        with no_grad():
            t *= 0.5
    return t, (t * t * x).sum()


@row("in-place under no_grad around for")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    with no_grad():
        for _ in range(3):
            t *= x
    return t, (t * t * x).sum()


@row("indexed write under no_grad in for")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for i in range(2):
        with no_grad():
            t[i] = x[i] * 3
    return t, (t * t * x).sum()


@row("in-place under no_grad in while", UP, LARGE)
def _(w: Any, x: Any) -> Any:
    t = w * x
    while t.sum() < 30:
        with no_grad():
            t += w
    return t, (t * t * x).sum()


@row("in-place under no_grad in one arm", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    if x.sum() > 0:
        with no_grad():
            t *= 0.5
    return t, (t * t * x).sum()


@row("in-place under no_grad in one arm, with gradient in the other", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    if x.sum() > 0:
        with no_grad():
            t *= 0.5
    else:
        t *= w
    return t, (t * t * x).sum()


@row("in-place under no_grad in both arms", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    if x.sum() > 0:
        with no_grad():
            t *= 0.5
    else:
        with no_grad():
            t += 7
    return t, (t * t * x).sum()


@row("in-place under no_grad, then with gradient, in a loop")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for _ in range(3):
        with no_grad():
            t *= 0.5
        t *= w
    return t, (t * t * x).sum()


@row("in-place under no_grad in a branch in a loop", UP, LARGE, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * x
    for _ in range(3):
        if t.sum() > 2:
            with no_grad():
                t *= 0.5
    return t, (t * t * x).sum()


@row("in-place under no_grad in nested loops")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    for _ in range(2):
        for _ in range(2):
            with no_grad():
                t *= 0.5
        t = t * w
    return t, (t * t * x).sum()


@row("copy_, zero_ and clamp under no_grad in a loop")
def _(w: Any, x: Any) -> Any:
    t = w * 2
    u = w * 3
    for _ in range(2):
        with no_grad():
            t.copy_(x)
            u.zero_()
        u = u + w
    return t, u, (t * t * x * u).sum()


@row("in-place under no_grad on a tensor that had no history")
def _(w: Any, x: Any) -> Any:
    t = x * 2
    for _ in range(2):
        with no_grad():
            t *= w
    return t, (t * w).sum()


@row("copy_ under no_grad of a tensor with a history to one without")
def _(w: Any, x: Any) -> Any:
    t, u = x * 2, x * 1
    for _ in range(3):
        t = t * 1
        with no_grad():
            t.copy_(u)
        u = u * w
    return t, (t * u).sum()


@row("in-place by weft.cond and switch", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    t = w * 2
    u = w * 3

    def halve() -> Any:
        with no_grad():
            t.copy_(t * 0.5)
        return x * 1

    a = weft.cond(x.sum() > 0, halve, lambda: x * 2)

    def zero() -> Any:
        with no_grad():
            u.zero_()
        return x * 1

    b = weft.switch((x[0] > 0).astype(weft.int64), [zero, lambda: x * 1])
    return t, u, (t * t * a + u * b * w).sum()


@row("in-place by scan and fori_loop")
def _(w: Any, x: Any) -> Any:
    t = w * 2

    def body(c: Any, v: Any) -> Any:
        with no_grad():
            t.copy_(t * v)
        return c + v, c

    c, _ = weft.scan(body, x[0] * 1, x)
    return t, (t * t * c).sum()


# --- history on one side only: what Python can know ----------------------------------------------


@row("the last iteration detaches")
def _(w: Any, x: Any) -> Any:
    t = w * 1
    for k in range(3):
        t = t * w
        if k == 2:
            t = t.detach()
    return t, (t * w).sum()


@row("one iteration brings the history in, the last takes it away")
def _(w: Any, x: Any) -> Any:
    t, u = x * 1, x * 2
    for k in range(4):
        if k % 2 == 1:
            t = w * x
            u = u * w
        else:
            t = x * k
    return t, u, (u * w).sum()


@row("a counter of the outer loop decides in the inner one")
def _(w: Any, x: Any) -> Any:
    t = w * 1
    for k in range(3):
        for j in range(2):
            t = x * j if k > 0 else t * w
    return t, (t * w).sum()


@row("a counter decides in a loop under no_grad")
def _(w: Any, x: Any) -> Any:
    t, u = w * 1, w * x
    with no_grad():
        for k in range(4):
            if k < 2:
                u = x.sin()
            else:
                t = t * 0.5
    return t, u, (t * w).sum()


@row("a branch that Python decides in a loop")
def _(w: Any, x: Any) -> Any:
    t = x * 1
    learns = False
    for _ in range(3):
        t = t * w if learns else t * 2
    return t, (t * w).sum()


@row("a loop that does not run")
def _(w: Any, x: Any) -> Any:
    t = w * 1
    for _ in range(0):
        t = x * 1
    return t, (t * w).sum()


@row("sides of which both, or neither, have a history", UP, DOWN)
def _(w: Any, x: Any) -> Any:
    y, z = x * 1, w * 1
    if x.sum() > 0:
        y = x * 2
        z = w * 2
    return y, z, (y * z).sum()
