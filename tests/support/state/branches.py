"""Writes on one side of an `if` on a tensor, and inside of loops that tensors decide."""

from __future__ import annotations

import weft
from state.table import BOTH, World, row, vectors

f64 = weft.float64


@row(BOTH)
def tensor_on_one_side(w: World):
    w.h = weft.zeros(2, dtype=f64)

    def f(x):
        if x.sum() > 0:
            w.h += x
        return w.h * 2

    return f


@row(BOTH)
def attribute_on_one_side(w: World):
    w.h = weft.zeros(2, dtype=f64)

    def f(x):
        if x.sum() > 0:
            w.h = w.h + x
        return w.h * 2

    return f


@row(BOTH)
def number_on_one_side(w: World):
    w.steps, w.name = 0, "none"

    def f(x):
        if x.sum() > 0:
            w.steps += 1
        return x * 2

    return f


@row(BOTH)
def text_on_one_side(w: World):
    w.name = "none"

    def f(x):
        if x.sum() > 0:
            w.name = "above"
        else:
            w.name = "below"
        return x * 2

    return f


@row(BOTH)
def attribute_that_was_not_there_on_one_side(w: World):
    def f(x):
        if x.sum() > 0:
            w.h = x * 2
        return x

    return f


@row(BOTH)
def list_on_one_side(w: World):
    w.items = []

    def f(x):
        if x.sum() > 0:
            w.items.append(x * 2)
        return x

    return f


@row(BOTH)
def list_items_on_both_sides(w: World):
    w.items = [weft.zeros(2, dtype=f64), weft.ones(2, dtype=f64)]

    def f(x):
        if x.sum() > 0:
            w.items[0] = w.items[0] + x
        else:
            w.items[1] = w.items[1] - x
            w.items[0] += 1
        return w.items[0]

    return f


@row(BOTH)
def dict_on_one_side(w: World):
    w.d = {"n": weft.zeros((), dtype=f64)}

    def f(x):
        if x.sum() > 0:
            w.d["n"] = w.d["n"] + 1
            w.d["last"] = x * 1
        return w.d["n"]

    return f


@row(BOTH)
def none_on_one_side_of_an_attribute(w: World):
    w.h = None

    def f(x):
        if x.sum() > 0:
            w.h = x * 2
        else:
            w.h = None
        return x

    return f


@row(BOTH)
def early_return(w: World):
    w.h = weft.zeros(2, dtype=f64)

    def f(x):
        w.h = w.h + 1
        if x.sum() > 0:
            return w.h * x
        w.h = w.h * 2
        return w.h - x

    return f


@row(BOTH)
def random_on_one_side(w: World):
    weft.manual_seed(4)

    def f(x):
        if x.sum() > 0:
            x = x + weft.rand(2, dtype=f64)
        return x + weft.rand(2, dtype=f64)

    w.read = weft.get_rng_state
    return f


@row(vectors(1, 30, 5, 2))
def tensor_in_a_loop(w: World):
    w.h = weft.zeros(2, dtype=f64)

    def f(x):
        while x.sum() < 40:
            x = x * 2 + 1
            w.h += x
        return x * 1

    return f


@row(vectors(1, 30, 5, 2))
def attribute_in_a_loop(w: World):
    w.h, w.steps = weft.zeros(2, dtype=f64), weft.zeros((), dtype=weft.int64)

    def f(x):
        while x.sum() < 40:
            x = x * 2 + 1
            w.h = w.h + x
            w.steps = w.steps + 1
        return x * 1

    return f


@row(vectors(1, 30, 5, 2))
def number_in_a_loop(w: World):
    w.steps = 0

    def f(x):
        while x.sum() < 40:
            x = x * 2 + 1
            w.steps += 1
        return x * 1

    return f


LISTS = "how long a list from outside gets depends on tensors: an error that says so"


@row(vectors(1, 30, 5, 2), modes=("trace",), why=LISTS)
def list_in_a_loop(w: World):
    w.items = []

    def f(x):
        while x.sum() < 40:
            x = x * 2 + 1
            w.items.append(x.sum())
        return x * 1

    return f


@row(vectors(1, 30, 5, 2))
def closure_in_a_loop_with_a_branch(w: World):
    small, large = weft.zeros((), dtype=f64), weft.zeros((), dtype=f64)

    def f(x):
        nonlocal small, large
        while x.sum() < 40:
            x = x * 2 + 1
            if x[0] < 10:
                small = small + 1
            else:
                large += 1
                break
        return x * 1

    w.read = lambda: (small, large)
    return f


@row(vectors(1, 30, 5, 2))
def buffer_in_a_loop(w: World):
    w.norm = weft.nn.BatchNorm1d(2).to(f64)

    def f(x):
        rows = weft.stack([x, x * 2, -x])
        while rows.sum() < 60:
            rows = w.norm(rows) + rows + 3
        return rows.detach()

    return f


ROWS = [
    tensor_on_one_side,
    attribute_on_one_side,
    number_on_one_side,
    text_on_one_side,
    attribute_that_was_not_there_on_one_side,
    list_on_one_side,
    list_items_on_both_sides,
    dict_on_one_side,
    none_on_one_side_of_an_attribute,
    early_return,
    random_on_one_side,
    tensor_in_a_loop,
    attribute_in_a_loop,
    number_in_a_loop,
    list_in_a_loop,
    closure_in_a_loop_with_a_branch,
    buffer_in_a_loop,
]
