"""`.grad`: read, set, set to None, added to; and gradients that are there on some ways only."""

from __future__ import annotations

from typing import Any

import weft
from state.table import BOTH, World, row

f64 = weft.float64


def leaf(*numbers: float) -> Any:
    return weft.tensor(numbers, dtype=f64, requires_grad=True)


@row()
def set_to_none(w: World):
    w.p = leaf(1, 2)
    w.after = lambda: setattr(w.p, "grad", weft.ones(2, dtype=f64))

    def f(x):
        w.p.grad = None
        return x * 2

    return f


@row()
def set_to_a_tensor(w: World):
    w.p = leaf(1, 2)

    def f(x):
        w.p.grad = x * 2
        return w.p.grad + 1

    return f


@row()
def set_to_the_argument(w: World):
    w.p = leaf(1, 2)

    def f(x):
        w.p.grad = x
        return x

    return f


@row()
def moved(w: World):
    w.p, w.q = leaf(1, 2), leaf(3, 4)

    def f(x):
        (w.p * x).sum().backward()
        w.q.grad = w.p.grad
        w.p.grad = None
        return x

    return f


@row()
def accumulated(w: World):
    w.p = leaf(1, 2)

    def f(x):
        (w.p * x).sum().backward()
        if w.p.grad is not None:
            w.p.grad *= 0.5
        return w.p.grad * 1

    return f


@row()
def read_after_the_tensor_was_written(w: World):
    w.p = leaf(1, 2)
    w.after = lambda: setattr(w.p, "grad", None if w.p.grad is not None else w.p.detach())

    def f(x):
        if x.sum() > 0:
            with weft.no_grad():
                w.p += 1
            if w.p.grad is None:
                return x * 2
            return x * 3
        return x * 4

    return f


@row()
def of_an_argument(_w: World):
    def f(x):
        at = x.detach().requires_grad_()
        (at**3).sum().backward()
        return at.grad, at

    return f


@row(BOTH)
def none_on_one_side(w: World):
    w.p = leaf(1, 2)
    w.after = lambda: setattr(w.p, "grad", weft.ones(2, dtype=f64))

    def f(x):
        if x.sum() > 0:
            w.p.grad = None
        return x * 2

    return f


@row(BOTH)
def there_on_one_side(w: World):
    w.p = leaf(1, 2)
    w.after = lambda: setattr(w.p, "grad", None)

    def f(x):
        if x.sum() > 0:
            w.p.grad = x * 2
        return x * 2

    return f


@row(BOTH)
def backward_on_one_side(w: World):
    w.p = leaf(1, 2)

    def f(x):
        w.p.grad = None
        if x.sum() > 0:
            (w.p * x).sum().backward()
        return x * 2

    return f


@row(BOTH)
def used_on_one_side(w: World):
    """Who was not used has no gradient, not a zero one."""
    w.p, w.q, w.both = leaf(1, 2), leaf(3, 4), leaf(5, 6)

    def f(x):
        for p in (w.p, w.q, w.both):
            p.grad = None
        y = w.p * x * w.both if x.sum() > 0 else w.q * w.both - x
        y.sum().backward()
        return y.detach()

    return f


@row(BOTH)
def used_on_one_side_of_a_side(w: World):
    w.p, w.q, w.r = leaf(1, 2), leaf(3, 4), leaf(5, 6)

    def f(x):
        for p in (w.p, w.q, w.r):
            p.grad = None
        h = w.r * x
        if x.sum() > 0:
            h = h * w.p if x[0] > 1 else h.exp()
            h = weft.tanh(h)
        else:
            h = h + w.q
        h.sum().backward()
        return h.detach()

    return f


@row(BOTH)
def used_in_a_loop_that_may_not_be_entered(w: World):
    w.p, w.q = leaf(1, 2), leaf(3, 4)

    def f(x):
        w.p.grad = w.q.grad = None
        y = w.q * x
        while y.sum() < 20:
            y = y * y + w.p**2
        y.sum().backward()
        return y.detach()

    return f


@row(BOTH)
def used_in_some_iterations(w: World):
    w.p, w.q = leaf(1, 2), leaf(3, 4)

    def f(x):
        w.p.grad = w.q.grad = None
        y = w.q.sum()
        for v in weft.concat([x, x * 2]):
            if v > 2:
                y = y * w.p.sum() * 0.1
        y.backward()
        return y.detach()

    return f


@row(BOTH)
def overwritten_in_a_loop(w: World):
    """The start of the loop is used only if the loop is not entered."""
    w.p, w.q = leaf(1, 2), leaf(3, 4)

    def f(x):
        w.p.grad = w.q.grad = None
        y, n = w.p * 2, x.sum()
        while n > 0:
            y, n = w.q * n, n - 2
        y.sum().backward()
        return y.detach()

    return f


@row(BOTH)
def singular_where_it_is_not_used(w: World):
    """The slope of the root is infinite at 0; where the root is not used, that is nobody's."""
    w.p = leaf(0, 0)

    def f(x):
        w.p.grad = None
        y = w.p * 2
        length = weft.sqrt((y * y).sum())
        z = y / length * x if length > 0 else y * x
        z.sum().backward()
        with weft.no_grad():
            w.p += weft.clip(x, -1, 0)  # from the first negative x on, it is somewhere else
        return z.detach()

    return f


@row(BOTH)
def hook_on_one_side(w: World):
    """A hook is called where its tensor was used, and nowhere else."""
    w.p, w.q, w.calls = leaf(1, 2), leaf(3, 4), weft.zeros((), dtype=f64)

    def f(x):
        w.p.grad = w.q.grad = None

        def hook(g):
            w.calls += 1
            return g * 2

        h = w.p * 1
        h.register_hook(hook)
        y = h * x if x.sum() > 0 else w.q * x
        y.sum().backward()
        return y.detach()

    return f


@row(BOTH)
def unused_in_grad(w: World):
    w.p, w.q = leaf(1, 2), leaf(3, 4)

    def f(x):
        y = w.p * x if x.sum() > 0 else w.q * w.q
        found = weft.autograd.grad(y.sum(), [w.p, w.q], allow_unused=True)
        w.found = [None if g is None else g * 2 for g in found]
        filled = weft.autograd.grad(
            (w.p * x if x.sum() > 0 else w.q * w.q).sum(), [w.p, w.q], materialize_grads=True
        )
        return y.detach(), *filled

    return f


@row(BOTH)
def backward_outside(w: World):
    """The captured function gives a result; who called goes backward. The same holds there."""
    w.p, w.q = leaf(1, 2), leaf(3, 4)

    def after():
        w.p.grad = w.q.grad = None
        w.y.sum().backward()
        w.y = None

    w.after = after

    def f(x):
        w.y = w.p * x if x.sum() > 0 else w.q * x * 2
        return x

    return f


ROWS = [
    set_to_none,
    set_to_a_tensor,
    set_to_the_argument,
    moved,
    accumulated,
    read_after_the_tensor_was_written,
    of_an_argument,
    none_on_one_side,
    there_on_one_side,
    backward_on_one_side,
    used_on_one_side,
    used_on_one_side_of_a_side,
    used_in_a_loop_that_may_not_be_entered,
    used_in_some_iterations,
    overwritten_in_a_loop,
    singular_where_it_is_not_used,
    hook_on_one_side,
    unused_in_grad,
    backward_outside,
]
