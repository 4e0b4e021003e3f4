"""The rows of the table in docs/control_flow.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import weft

ROWS: dict[str, tuple[Callable[..., Any], list[list[float]]]] = {}
UP, DOWN, LARGE = [0.5, 1.5], [-0.5, -1.5], [30.0, 40.0]


def row(name: str, *inputs: list[float]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ROWS[name] = (function, list(inputs) or [UP, DOWN, LARGE])
        return function

    return register


@row("`if` on a tensor")
def _(x: Any) -> Any:
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y * y


@row("early return")
def _(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x**3


@row("conditional expression")
def _(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x - 1


@row("`while` on a tensor", UP, LARGE, [200.0, 1.0])
def _(x: Any) -> Any:
    while x.sum() < 100:
        x = x * 2
    return x


@row("`while` with break", UP, LARGE, [200.0, 1.0])
def _(x: Any) -> Any:
    while True:
        x = x * 2
        if x.sum() > 100:
            break
    return x * x


@row("`continue` in a loop")
def _(x: Any) -> Any:
    total = x.sum() * 0
    for i in range(5):
        x = x - 0.3 * i
        if x.sum() > 0:
            continue
        total = total + x.sum() ** 2
    return total


@row("`return` inside a loop")
def _(x: Any) -> Any:
    for _ in range(10):
        x = x * 2
        if x.sum() > 50:
            return x * x
    return -x


@row("`for` over range of a tensor")
def _(x: Any) -> Any:
    total = x
    for i in range(weft.abs(x).sum().astype(weft.int64)):
        total = total * 0.9 + i
    return total


@row("`and`, `or`, `not`")
def _(x: Any) -> Any:
    if x.sum() > 0 and not (x.max() > 10):
        return x * 2
    return x * 3 if x.sum() < -1 or x.max() > 100 else x


@row("chained comparison")
def _(x: Any) -> Any:
    return x * 2 if 0 < x.sum() < 10 else x * 5


@row("`assert` on a tensor", UP, LARGE, DOWN)
def _(x: Any) -> Any:
    assert x.sum() > 0, "must be positive"
    return x * 2


@row("list grown in a tensor loop", UP, LARGE)
def _(x: Any) -> Any:
    out = []
    while x.sum() < 100:
        x = x * 2
        out.append(x)
    return weft.stack(out).sum(axis=0)


@row("gradient through `while`", UP, [3.0, 4.0], LARGE)
def _(x: Any) -> Any:
    y = x
    while (y * y).sum() < 1000:
        y = y * y + x
    return y


@row("`elif` chain", UP, DOWN, LARGE, [-30.0, 0.0])
def _(x: Any) -> Any:
    s = x.sum()
    if s < -10:
        y = x
    elif s < 0:
        y = x * 2
    elif s < 10:
        y = x * 3
    else:
        y = x * 4
    return y * s


@row("`for` over a tensor")
def _(x: Any) -> Any:
    total = x[0] * 0
    for part in x:
        if part > 0:
            total = total + part**2
        else:
            total = total - part
    return total


@row("`zip`, `enumerate`, `reversed` of tensors")
def _(x: Any) -> Any:
    total = x[0] * 0
    for i, (a, b) in enumerate(zip(x, x * 2, strict=True)):
        total = total * 0.5 + a * b * i
    for c in reversed(x):
        total = total * 0.5 + c
    return total


@row("`while` with else", UP, LARGE)
def _(x: Any) -> Any:
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
        if n > 4:
            break
    else:
        x = -x
    return x


@row("`for` with else")
def _(x: Any) -> Any:
    for part in x:
        if part > 20:
            x = x * 2
            break
    else:
        x = x - 1
    return x


@row("nested loops with break and continue")
def _(x: Any) -> Any:
    total = x.sum() * 0
    i = 0
    while i < 4:
        i += 1
        for part in x:
            if part < 0:
                continue
            if part > 10:
                break
            total = total + part * i
        if total > 5:
            break
    return total


@row("tuple and dict as loop state", UP, LARGE)
def _(x: Any) -> Any:
    pair = (x, x * 0)
    state = {"n": x.sum() * 0, "parts": [x]}
    while state["n"] < 3:
        pair = (pair[0] * 1.5, pair[0] + pair[1])
        state = {"n": state["n"] + 1, "parts": [state["parts"][0] + pair[1]]}
    return pair[1] * state["parts"][0]


@dataclass
class State:
    x: Any
    n: Any


@row("dataclass as loop state", UP, LARGE)
def _(x: Any) -> Any:
    state = State(x, x.sum() * 0)
    while state.n < 3:
        state = State(state.x * 1.5, state.n + 1)
    return state.x


@row("augmented and subscript assignment", UP, DOWN)
def _(x: Any) -> Any:
    y = x * 1
    i = 0
    while y.sum() < 20:
        y[i % 2] = y[i % 2] + 3
        y *= 1.1
        i += 1
    return y


@row("walrus")
def _(x: Any) -> Any:
    if (s := x.sum()) > 0:
        return x * s
    return x - s


@row("`in` a tensor", [1.0, 2.0], DOWN)
def _(x: Any) -> Any:
    return x * 2 if 2.0 in x else x * 3


@row("closure and nonlocal")
def _(x: Any) -> Any:
    total = x * 0

    def add(y: Any) -> None:
        nonlocal total
        if y.sum() > 0:
            total = total + y * y

    for k in range(3):
        add(x - k)
    return total


def power(x: Any, n: int) -> Any:
    if n == 0:
        return x * 0 + 1
    half = power(x, n // 2)
    square = half * half
    return square * x if n % 2 else square


@row("recursion that Python knows the depth of")
def _(x: Any) -> Any:
    return power(x, 5) if x.sum() > 0 else power(x, 2)


@row("`no_grad` inside")
def _(x: Any) -> Any:
    with weft.no_grad():
        scale = x * 2 if x.sum() > 0 else x * 3
    return x * scale


class Holder:
    last: Any = None
    count = 0


HOLDER = Holder()


@row("writes to an attribute in one branch")
def _(x: Any) -> Any:
    if HOLDER.last is None:
        HOLDER.last = x.detach() * 0
    if x.sum() > 0:
        HOLDER.last = x.detach() * 2
    return x * HOLDER.last


@row("random numbers in a loop", UP, DOWN)
def _(x: Any) -> Any:
    total = x * 0
    while total.sum() < 10:
        total = total + weft.rand(2, dtype=weft.float64) + x * x
    return total


@row("backward inside of a branch")
def _(x: Any) -> Any:
    w = x.detach().requires_grad_()
    if w.sum() > 0:
        (g,) = weft.autograd.grad((w**3).sum(), w)
    else:
        (g,) = weft.autograd.grad((w**2).sum(), w)
    return g * x
