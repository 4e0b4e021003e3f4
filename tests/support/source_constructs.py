"""Python constructs one by one, each a small function, with inputs that take every way."""

from __future__ import annotations

import dataclasses
import functools
from collections import namedtuple
from typing import Any

import weft

f64 = functools.partial(weft.asarray, dtype=weft.float64)
Pair = namedtuple("Pair", "low high")


@dataclasses.dataclass
class State:
    x: Any
    steps: Any = 0


def if_only(x):
    y = x
    if x.sum() > 0:
        y = y * x
    return y


def elif_chain(x):
    s = x.sum()
    if s > 4:
        y = x * x
    elif s > 0:
        y = weft.sin(x)
    else:
        y = -x
    return y


def returns_everywhere(x):
    if x.sum() > 4:
        return x * 2
    for v in x:
        if v < -1:
            return x * v
    while x.sum() < 3:
        x = x + 1
        if (x > 2).any():
            return x * x
    return x


def conditional_expression(x):
    return (x * x if x[0] > 0 else weft.exp(x)) + (1 if x[1] > 0 else 2)


def and_or_not(x):
    a, b = x[0] > 0, x[1] > 0
    if a and not b:
        return x * 2
    if (a or b) and x.sum() < 3:
        return x * 3
    return x * 5


def and_is_lazy(x):
    """The second part must not be evaluated where the first one decides."""
    i = (x > 0).sum()
    if i > 0 and x[i - 1] > 0.5:
        return x * 2
    return x


def chained_comparison(x):
    return x * 2 if 0 < x[0] <= x[1] < 3 else x


def membership(x):
    i = x.argmax()
    if i in (0, 2) and 5.0 not in x:
        return x * 2
    return x


def while_plain(x):
    n = 0
    while x.sum() < 10:
        x = x * 1.5
        n += 1
    return x, n


def while_else(x):
    n = 0
    while n < 4:
        if x[n % 2] > 3:
            y = x * n
            break
        x = x + 1
        n += 1
    else:
        y = -x
    return y


def break_and_continue(x):
    total = 0.0
    for v in x:
        if v < 0:
            continue
        if v > 3:
            break
        total = total + v * v
    return total


def nested_loops(x):
    total = x.sum() * 0
    i = 0
    while i < 3:
        j = 0
        while j < 3:
            j += 1
            if x[i % 2] * j > 2:
                break
            if j == 2:
                continue
            total = total + x[j % 2] * (i + 1)
        i += 1
    return total


def over_rows(x):
    h = weft.zeros_like(x[:1])
    for row in x:
        h = weft.tanh(h * 0.5 + row)
    return h


def over_zip_enumerate_reversed(x):
    total = x[0] * 0
    for i, (a, b) in enumerate(zip(x, reversed(x), strict=False)):
        total = total + a * b * (i + 1)
    return total


def over_range_of_a_tensor(x):
    n = (x > 0).sum() + 1
    y = x
    for i in range(n):
        y = y * x + i
    return y


def range_with_python_bounds(x):
    for i in range(1, 8, 3):
        x = x * i + x[i % 2]
    return x


def index_assignment(x):
    y = weft.zeros(4, dtype=x.dtype)
    for i in range(4):
        if x[i % 2] > 1:
            y[i] = x[i % 2] * i
        else:
            y[i] += 1
    return y


def augmented(x):
    y = x.clone()
    while y.sum() < 5:
        y += 1
        y *= 1.25
    return y


def walrus(x):
    n = 0
    while (s := (x * x).sum()) < 9:
        x = x * 1.5
        n += 1
    return x * s, n


def walrus_in_and(x):
    if x[0] > 0 and (m := x[1] * 2) > 1:
        return x * m
    return x


def containers_as_state(x):
    pair, table, state = (x, 0), {"a": x, "n": 0}, State(x)
    bounds = Pair(x * 0, x)
    while (table["a"] < 4).any():
        pair = (pair[0] + 1, pair[1] + 1)
        table = {"a": table["a"] * 1.5 + 1, "n": table["n"] + 1}
        state = State(state.x + table["a"], state.steps + 2)
        bounds = Pair(bounds.high, bounds.low + bounds.high)
    return pair, table, state.x, state.steps, tuple(bounds)


def mutated_containers(x):
    """Objects from before the loop, written to inside of it."""
    table, state, items = {"sum": x.sum() * 0}, State(x), [x, x * 2]
    while state.steps < 3:
        table["sum"] = table["sum"] + state.x.sum()
        if state.x[0] > 1:
            state.x = state.x / 2
        else:
            items[0] = items[0] + state.x
        state.steps += 1
    return table["sum"], state.x, items[0]


def append_each_time(x):
    seen = []
    for i in range(5):
        x = weft.tanh(x * (i + 1))
        seen.append(x)
    return weft.stack(seen), seen[1], seen[-1], len(seen)


def append_in_while(x):
    seen = [x]
    while x.sum() > 1:
        x = x / 3
        seen.append(x)
    return weft.stack(seen).sum(axis=0), len(seen)


def append_sometimes(x):
    kept = []
    for v in x:
        if v > 0:
            kept.append(v * v)  # noqa: PERF401
    return kept


def names_of_one_way(x):
    """Fine as long as nobody uses them."""
    if x.sum() > 0:
        only = x * 2
        y = only
    else:
        other = x * 3
        y = other + 1
    return y


def closures(x):
    scale = x.sum()
    count = 0

    def apply(v):
        nonlocal count
        count += 1
        return v * scale

    while count < 3:
        x = apply(x) if x[0] < 5 else apply(x * 0.5)
    return x, count


def recursion(x, depth=3):
    if depth == 0:
        return x
    return recursion(x * x if x.sum() < 2 else x / 2, depth - 1)


def comprehensions(x):
    scaled = [x * i for i in range(3) if i != 1]
    return sum(scaled) if x[0] > 0 else weft.stack([v * 2 for v in scaled]).sum(axis=0)


def without_gradient(x):
    with weft.no_grad():
        limit = (x * x).sum()
        while limit > 1:
            limit = limit / 2
    return x * limit


def gradient_inside(x):
    y = x.detach()
    for _ in range(4):
        y.requires_grad = True
        (g,) = weft.autograd.grad((y**4).sum() / 4, [y])
        y = y.detach() - 0.1 * g
    return y * x


def partials(x):
    def power(n, v):
        return v**n if v.sum() > 0 else v * n

    return functools.partial(power, 3)(x) + (lambda v: v if v[0] > 0 else -v)(x)


def python_numbers(x):
    """Numbers that tensors decide stay numbers: weak beside tensors, exact beside numbers."""
    rate, count = 0.1, 0
    while x.sum() < 4:
        x = x + rate
        rate = rate * 2 if x[0] > 0 else 0.25
        count += 1
    return x.astype(weft.float32) * rate, rate, count, count // 2, count > 2


def minmax(x):
    n = 0
    for v in x:
        n = max(n, 3) if v > 0 else min(n, 2)
    return x * n


IN = [f64([1.0, 2.0]), f64([-1.0, 0.5]), f64([0.25, -3.0]), f64([4.0, 3.0])]

CONSTRUCTS = [
    *(if_only, elif_chain, returns_everywhere, conditional_expression, and_or_not, and_is_lazy),
    *(chained_comparison, membership, while_else, break_and_continue, nested_loops, over_rows),
    *(over_zip_enumerate_reversed, over_range_of_a_tensor, range_with_python_bounds),
    *(index_assignment, augmented, walrus_in_and, mutated_containers, append_each_time),
    *(append_in_while, append_sometimes, names_of_one_way, closures, recursion, comprehensions),
    *(without_gradient, gradient_inside, partials, minmax),
]
#: Those that need numbers above zero.
POSITIVE = [while_plain, walrus, containers_as_state, python_numbers]
