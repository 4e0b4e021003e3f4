"""`requires_grad`, `is_leaf` and `grad_fn`, asked in the body of a loop: as eagerly, or refused.

A body is recorded once. Where a carried tensor has a history in some iterations only, the first
iterations are recorded apart, or the loop is unrolled; a loop that can do neither is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import CaptureError

ROWS: dict[str, Callable[..., Any]] = {}


def row(function: Any) -> Any:
    ROWS[function.__name__] = function
    return function


def asked(x: Any, yes: float = 2.0, no: float = 3.0) -> float:
    return yes if x.requires_grad else no


def one() -> Any:
    return weft.tensor(1.0)


# --- weft.scan and its kin -----------------------------------------------------------------------


@row
def of_a_carry(x: Any, w: Any) -> Any:
    return weft.scan(lambda c, r: (c * asked(c) + r, c), x.sum(), weft.ones(3))[0]


@row
def of_a_carry_that_gets_a_history(x: Any, w: Any) -> Any:
    last, ys = weft.scan(lambda c, r: (c * asked(c) + r * w.sum(), c), one(), weft.ones(4))
    return last + (ys * ys).sum()


@row
def of_a_carry_that_loses_its_history(x: Any, w: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        return (c * asked(c) + r).detach(), c * w.sum()

    last, ys = weft.scan(body, x.sum(), weft.ones(3))
    return last + ys.sum()


@row
def from_the_end(x: Any, w: Any) -> Any:
    rows = weft.tensor([1.0, 2.0, 3.0, 4.0])

    def body(c: Any, r: Any) -> Any:
        return c * asked(c) + r * w.sum(), c * r

    last, ys = weft.scan(body, one(), rows, reverse=True)
    return last + (ys * rows).sum()


@row
def in_chunks(x: Any, w: Any) -> Any:
    return weft.scan(lambda c, r: (c * asked(c) + r * w.sum(), c), one(), weft.ones(7), unroll=2)[0]


@row
def of_carries_that_move_on(x: Any, w: Any) -> Any:
    def body(carry: Any, r: Any) -> Any:
        a, b, c = carry
        return (b, c, w.sum() * r), a * asked(a) + b * asked(b, 5.0, 7.0)

    last, ys = weft.scan(body, (one(), one() * 2, one() * 3), weft.arange(1.0, 7.0))
    return last[0] + (ys * ys).sum()


@row
def of_a_leaf(x: Any, w: Any) -> Any:
    return weft.scan(lambda c, r: (c * (2 if c.is_leaf else 3) + r, c), x, weft.ones(3))[0].sum()


@row
def of_what_made_it(x: Any, w: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        return c * (2 if c.grad_fn is None else 3) + r, c

    return weft.scan(body, x, weft.ones(3))[0].sum()


@row
def of_what_a_jvp_has_outside(x: Any, w: Any) -> Any:
    def f(v: Any) -> Any:
        last = weft.scan(lambda c, r: (c * asked(r * v) + r * v, c), one(), weft.ones(3))[0]
        rows = weft.scan(lambda c, r: (c + r * asked(r), c), one(), weft.ones(3) * v)[0]
        return last + rows + weft.cond(v > 0, lambda: v * asked(v), lambda: v)

    return weft.jvp(f, (x.sum(),), (w.sum(),))[1]


@row
def of_a_row(x: Any, w: Any) -> Any:
    return weft.scan(lambda c, r: (c + r * asked(r), c), one(), x)[0]


@row
def of_a_closure(x: Any, w: Any) -> Any:
    return weft.scan(lambda c, r: (c + r * asked(w), c), one(), x)[0]


@row
def of_what_is_computed(x: Any, w: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        y = (c * 2).sum() + 1
        return c + w * r * asked(y), y

    last, ys = weft.scan(body, weft.ones(2), weft.ones(3))
    return last.sum() + ys.sum()


@row
def of_what_always_has_one(x: Any, w: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        y = (c * 2).sum() + w.sum()
        return c + w * r * asked(y), y

    last, ys = weft.scan(body, weft.ones(2), weft.ones(3))
    return last.sum() + ys.sum()


@row
def of_what_is_cut(x: Any, w: Any) -> Any:
    return weft.scan(lambda c, r: (c * asked((c * r).detach()) + r, c), x.sum(), x)[0]


@row
def in_an_inner_scan(x: Any, w: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        inner = weft.scan(lambda d, s: (d * asked(d) + s, d), c, weft.ones(2))[0]
        return inner + r * w.sum(), c

    return weft.scan(body, one(), weft.ones(3))[0]


@row
def in_a_branch(x: Any, w: Any) -> Any:
    def body(c: Any, r: Any) -> Any:
        return weft.cond(r > 0, lambda: c * asked(c), lambda: c * 1) + r * w.sum(), c

    return weft.scan(body, one(), weft.ones(3))[0]


@row
def in_a_fori_loop(x: Any, w: Any) -> Any:
    return weft.fori_loop(0, 4, lambda i, c: c * asked(c) + w.sum(), one())


@row
def in_a_while_loop(x: Any, w: Any) -> Any:
    return weft.while_loop(lambda c: c < 50, lambda c: c * asked(c) * w.sum(), one())


@row
def in_its_condition(x: Any, w: Any) -> Any:
    return weft.while_loop(lambda c: c < asked(c, 30, 60), lambda c: c * 2 * w.sum(), one())


@row
def in_a_map(x: Any, w: Any) -> Any:
    return weft.map(lambda r: r * asked(r), x).sum()


@row
def under_no_grad(x: Any, w: Any) -> Any:
    with weft.no_grad():
        return weft.scan(lambda c, r: (c * asked(c) + r * w.sum(), c), x.sum(), weft.ones(3))[0]


@row
def inside_of_vmap(x: Any, w: Any) -> Any:
    def f(a: Any) -> Any:
        return weft.scan(lambda c, r: (c * asked(c) + r * w.sum(), c), a, weft.ones(3))[0]

    return weft.vmap(f)(weft.ones(2)).sum()


@row
def inside_of_grad(x: Any, w: Any) -> Any:
    def f(v: Any) -> Any:
        return weft.scan(lambda c, r: (c * asked(c) + r * v, c), one(), weft.ones(3))[0]

    return weft.grad(f)(x.sum()) * w.sum()


@row
def inside_of_jvp(x: Any, w: Any) -> Any:
    def f(v: Any) -> Any:
        return weft.scan(lambda c, r: (c * asked(c) + r * v, c), one(), weft.ones(3))[0]

    return weft.jvp(f, (x.sum(),), (w.sum(),))[1]


# --- Python's own loops --------------------------------------------------------------------------


@row
def in_a_for(x: Any, w: Any) -> Any:
    c = one()
    for _ in range(4):
        c = c * asked(c) + w.sum()
    return c


@row
def in_a_for_with_a_branch(x: Any, w: Any) -> Any:
    c = one()
    for r in weft.tensor([1.0, 0.5, 2.0]):
        if r > 0:
            c = c * asked(c)
        c = c + w.sum()
    return c


@row
def in_a_for_of_tensor_length(x: Any, w: Any) -> Any:
    c = w.detach().sum()
    for _ in range((x[1] * 2).astype(weft.int64)):
        c = c * asked(c) + w.sum()
    return c + w.sum()


@row
def in_a_while(x: Any, w: Any) -> Any:
    c = x.detach().sum() * 0 + 1
    while c < 50:
        c = c * asked(c) * w.sum()
    return c


@row
def in_the_condition_of_a_while(x: Any, w: Any) -> Any:
    c = x.detach().sum() * 0 + 1
    while c < asked(c, 30, 60):
        c = c * 2 * w.sum()
    return c


@row
def of_a_sum_in_place(x: Any, w: Any) -> Any:
    s = weft.zeros(())
    for _ in range(3):
        s += w.sum() * asked(s)
    return s


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value


@row
def of_an_attribute(x: Any, w: Any) -> Any:
    held = Held(weft.zeros(()))
    for _ in range(3):
        held.value = held.value * asked(held.value) + w.sum()
    return held.value


def outcome(run: Any, of_x: bool, of_w: bool, x: list[float]) -> Any:
    x = weft.tensor(x, requires_grad=of_x)
    w = weft.tensor([1.0, 0.75], requires_grad=of_w)
    y = run(x, w)
    if y.requires_grad:
        y.backward()
    grads = [None if t.grad is None else t.grad.tolist() for t in (x, w)]
    return y.item(), y.requires_grad, grads


@pytest.mark.filterwarnings("ignore:.*cannot be kept as a graph and runs as plain Python")
@pytest.mark.parametrize("of_w", [True, False])
@pytest.mark.parametrize("of_x", [True, False])
@pytest.mark.parametrize("name", ROWS)
def test_asked_as_eagerly(name: str, of_x: bool, of_w: bool) -> None:
    modes = {
        "trace": weft.trace(ROWS[name]),
        "interpret": weft.compile(ROWS[name], backend="interpret"),
        "native": weft.compile(ROWS[name], backend="native"),
    }
    for x in ([1.0, 2.0, 0.5], [1.5, 1.5, 0.25], [1.0, 2.0, 0.5]):
        want = outcome(ROWS[name], of_x, of_w, x)
        for mode, run in modes.items():
            got = outcome(run, of_x, of_w, x)
            np.testing.assert_allclose(got[0], want[0], rtol=1e-5, err_msg=mode)
            assert got[1] == want[1], mode
            for a, b in zip(got[2], want[2], strict=True):
                assert (a is None) == (b is None), (mode, a, b)
                if a is not None:
                    np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=mode)


def too_many(c: Any, w: Any) -> Any:
    def body(carry: Any, r: Any) -> Any:
        return (*carry[1:], w.sum() * r), carry[0] * asked(carry[0])

    return weft.scan(body, tuple([c * k for k in range(7)]), weft.ones(12))[1].sum()


def of_unknown_length(c: Any, w: Any) -> Any:
    return weft.fori_loop(0, (c + 3).astype(weft.int64), lambda i, c: c * asked(c) + w.sum(), c)


def that_may_not_cut(c: Any, w: Any) -> Any:
    c = c * w.sum()
    while c < 50:
        c = (c * asked(c) + 1).detach()
    return c


@pytest.mark.parametrize("function", [too_many, of_unknown_length, that_may_not_cut])
def test_what_cannot_be_recorded_apart_is_refused(function: Any) -> None:
    w = weft.tensor([1.0, 0.75], requires_grad=True)
    with pytest.raises(CaptureError, match="another in the first iteration"):
        weft.compile(function)(one(), w)
