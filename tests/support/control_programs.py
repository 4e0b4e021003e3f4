"""Programs with control flow, each with inputs that take every path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft

Inputs = list[tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Inputs]] = {}

Program = Callable[..., Any]


def program(*inputs: tuple[Any, ...]) -> Callable[[Program], Program]:
    def enter(function: Program) -> Program:
        PROGRAMS[function.__name__] = (function, list(inputs))
        return function

    return enter


V = [0.3, -0.7, 1.1]
W = [0.9, 0.4, -0.5]
M = [[0.2, -0.4, 0.1], [0.3, 0.5, -0.2], [-0.6, 0.1, 0.4]]


# --- branches ----------------------------------------------------------------------------------


@program((V, W), ([-1.0, -2.0, 0.5], W))
def branch(x: Any, w: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda: (x * w).sin(), lambda: x - w * w)


@program((V,), ([-1.0, -2.0, 0.5],))
def branch_with_operands(x: Any) -> Any:
    return weft.cond(
        x.sum() > 0, lambda a, b: {"p": a * b, "q": a}, lambda a, b: {"p": b, "q": a**3}, x, x.exp()
    )


@program((V, W), ([-1.0, -2.0, 0.5], W))
def branch_without_dependence(x: Any, w: Any) -> Any:
    return weft.cond(x.sum() > 0, lambda: weft.zeros_like(x), lambda: w * x) + x


@program((V, W), ([-1.0, -2.0, 0.5], W), ([-9.0, -2.0, 0.5], W))
def branch_in_branch(x: Any, w: Any) -> Any:
    def inner() -> Any:
        y = x * w
        return weft.cond(x.sum() < -5, lambda: y.tanh() * w, lambda: y * y * x)

    return weft.cond(x.sum() > 0, lambda: x.exp(), inner)


@program((0, V), (1, V), (2, V), (7, V), (-3, V))
def choice(i: Any, x: Any) -> Any:
    y = x * 2
    return weft.switch(i, [lambda: y.sin() * x, lambda: y, lambda: (x * y).exp()])


@program((V,), ([-1.0, -2.0, 0.5],))
def branch_with_numbers(x: Any) -> Any:
    a, b = weft.cond(x.sum() > 0, lambda: (x[0] * x[1], 2.0), lambda: (0.5, 3.0))
    return a * x + b


# --- while -------------------------------------------------------------------------------------


@program((V, 3), (V, 0), (V, 1))
def powers(x: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        i, y = c
        return i + 1, (y * x).sin() + y

    return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]


@program((V, W, 4), (V, W, 0))
def several_carries(x: Any, w: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        return {
            "i": c["i"] + 1,
            "a": c["b"] * w,
            "b": c["a"] + c["b"].tanh(),
            "flag": c["a"].sum() > 0,
            "unused": c["unused"] + 1.0,
        }

    init = {"i": 0, "a": x, "b": x * w, "flag": False, "unused": 0.0}
    out = weft.while_loop(lambda c: c["i"] < n, body, init)
    return out["a"], out["flag"] * out["b"], out["unused"] + x


@program(([2.0],), ([10.0],), ([0.0],))
def newton(a: Any) -> Any:
    def body(x: Any) -> Any:
        return 0.5 * (x + a / x)

    start = a.detach() * 0 + 1.5
    return weft.while_loop(
        lambda x: ((x * x - a).abs() > 1e-9).any() & (a > 0.1).all(), body, start
    )


@program((V, M, 3), (V, M, 0))
def invariants(x: Any, m: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        i, y = c
        decay = (m @ m).exp()  # depends on constants only
        return i + 1, (decay @ y).tanh()

    return weft.while_loop(lambda c: c[0] < n, body, (weft.asarray(0), x))[1]


@program((V, W, 3), (V, W, 0), (V, W, 6))
def branch_in_while(x: Any, w: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        i, y = c
        return i + 1, weft.cond(i % 2 == 0, lambda: y * w + x, lambda: (y * y).sin())

    return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]


@program((V, W, 3), (V, W, 0), (V, W, 2))
def while_in_while(x: Any, w: Any, n: Any) -> Any:
    def outer(c: Any) -> Any:
        i, y = c

        def inner(d: Any) -> Any:
            return d[0] + 1, (d[1] * w + y).sin()

        z = weft.while_loop(lambda d: d[0] < i, inner, (0, y * x))[1]
        return i + 1, z + y * 0.5

    return weft.while_loop(lambda c: c[0] < n, outer, (0, x))[1]


@program((V, W, 3), (V, W, 0))
def while_in_branch_in_while(x: Any, w: Any, n: Any) -> Any:
    def outer(c: Any) -> Any:
        i, y = c

        def twice() -> Any:
            return weft.while_loop(
                lambda d: d[0] < 2, lambda d: (d[0] + 1, d[1] * w + x), (0 * i, y)
            )[1]

        return i + 1, weft.cond(i % 2 == 0, twice, lambda: y.exp() * 0.1)

    return weft.while_loop(lambda c: c[0] < n, outer, (0, x))[1]


# --- for and scan ------------------------------------------------------------------------------


@program((V, 3), (V, 0))
def for_loop(x: Any, n: Any) -> Any:
    return weft.fori_loop(0, n, lambda i, y: y * x + i, x)


@program((V, W))
def for_known(x: Any, w: Any) -> Any:
    return weft.fori_loop(1, 4, lambda i, y: (y * w).sin() + i * x, x)


@program((M, V, W))
def rnn(xs: Any, h: Any, w: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        new = (h * w + x).tanh()
        return new, new * x

    return weft.scan(step, h, xs)


@program((M, V, W))
def rnn_reversed(xs: Any, h: Any, w: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        new = (c["h"] * w * x["a"] + x["b"]).sin()
        return {"h": new, "n": c["n"] + 1}, (new.sum(), c["n"])

    out, (ys, ns) = weft.scan(step, {"h": h, "n": 0}, {"a": xs, "b": xs * 2}, reverse=True)
    return out["h"], ys * ns.to(ys.device)


@program((V,))
def scan_without_xs(x: Any) -> Any:
    return weft.scan(lambda c, _: (c * x, c.sum()), x, None, length=3)


@program((M, W))
def mapped(xs: Any, w: Any) -> Any:
    return weft.map(lambda x: (x * w).exp() * x[0], xs)


@program((M, V))
def unrolled(xs: Any, h: Any) -> Any:
    return weft.scan(lambda c, x: (c * x + 1, c.sin() * x), h, xs, unroll=2)


@program((M, V, 2), (M, V, 0))
def while_in_scan(xs: Any, h: Any, n: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        y = weft.while_loop(lambda d: d[0] < n, lambda d: (d[0] + 1, (d[1] * x).sin() + c), (0, c))
        return y[1], y[1] * x

    return weft.scan(step, h, xs)


@program((M, V, 2), (M, V, 0))
def scan_in_while(xs: Any, h: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        i, h = c
        return i + 1, weft.scan(lambda c, x: ((c * x).tanh() + h, None), h, xs)[0]

    return weft.while_loop(lambda c: c[0] < n, body, (0, h))[1]


@program((M, V))
def branch_in_scan(xs: Any, h: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        y = weft.cond(x.sum() > 0, lambda: c * x, lambda: (c - x).sin())
        return y, weft.cond(c.sum() > 0.3, lambda: y * y, lambda: x)

    return weft.scan(step, h, xs)


# --- state -------------------------------------------------------------------------------------


@program((V, W, 3), (V, W, 0))
def written_in_while(x: Any, w: Any, n: Any) -> Any:
    total = x * 1

    def body(i: Any) -> Any:
        nonlocal total
        total += w * total * (i + 1)
        return i + 1

    weft.while_loop(lambda i: i < n, body, 0)
    return total


@program((V, W), ([-1.0, -2.0, 0.5], W))
def written_in_branch(x: Any, w: Any) -> Any:
    y = x * w

    def write() -> None:
        nonlocal y
        y *= x
        y[0] = w[1] * 3

    weft.cond(x.sum() > 0, write, lambda: None)
    return y


# --- gradients inside --------------------------------------------------------------------------


@program((V, W, 2), (V, W, 0))
def gradient_inside(x: Any, w: Any, n: Any) -> Any:
    def body(c: Any) -> Any:
        i, y = c
        z = y * 1.0
        loss = (z * w).sin().sum() * y.sum()
        (g,) = weft.autograd.grad(loss, z, create_graph=True)
        return i + 1, y - 0.1 * g

    if not x.requires_grad:
        x = x.detach().requires_grad_()
    return weft.while_loop(lambda c: c[0] < n, body, (0, x))[1]
