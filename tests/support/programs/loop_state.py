"""What loops carry: lists, tuples, dicts, writes, prints, changing shapes."""

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, wild


def append_then_stack(x):
    """Prefix sums as a list."""
    sums = []
    total = 0.0
    for value in x:
        total = total + value
        sums.append(total)
    return weft.stack(sums)


def append_then_join(x):
    """All functions that join the tensors of a list, inside of a loop and after it."""
    h, seen, total = x[0], [], 0.0
    for row in x:
        h = h * 0.5 + row
        seen.append(h)
        halves = []
        for k in range(3):
            halves.append(h * k)  # noqa: PERF401 (it is the loop that is tried)
        total = total + (weft.concat(halves) * weft.arange(6.0)).sum()
    while h.sum() > 0.1:
        h = h * 0.5
        seen.append(h)
    flat = weft.concat(seen)
    joined = [weft.stack(seen, axis=1), weft.stack(seen, axis=-1), flat, weft.hstack(seen)]
    joined += [weft.vstack(seen), weft.concat([*seen, flat]), weft.dstack(seen)]
    return joined, weft.block_diag(*seen).sum() + total


def append_in_while(x):
    """A list whose length the data decides, then its last and its sum."""
    seen = [x]
    while x > 1:
        x = x / 3
        seen.append(x)
    return weft.stack(seen).sum(), seen[-1], len(seen)


def comprehension(x, powers):
    parts = [x**p for p in powers if p > 0]
    table = {p: (x * p).sum() for p in powers}
    total = sum(part.sum() for part in parts)
    return total if total > 0 else table[powers[0]]


def comprehension_over_tensor(x):
    return weft.stack([value * 2 if value > 0 else -value for value in x if value.ndim == 0])


def nested_comprehension(x, y):
    grid = weft.stack([weft.stack([a * b for b in y]) for a in x])
    return grid.sum() if grid.max() > 1 else grid.min()


def tuple_state(x):
    state = (x, weft.ones_like(x), 0)
    while state[0].sum() > 0.5:
        a, b, n = state
        state = (a * 0.6, a + b, n + 1)
    return state


def dict_state(x):
    state = {"position": x, "speed": weft.zeros_like(x)}
    for _ in range(6):
        state["speed"] = state["speed"] - 0.1 * state["position"]
        if weft.abs(state["speed"]).max() > 0.23:
            state["speed"] = state["speed"] * 0.5
        state["position"] = state["position"] + state["speed"]
    return state


def list_state(x):
    """A list of fixed length, its places written in a loop on tensors."""
    memory = [weft.zeros_like(x), weft.ones_like(x)]
    n = 0
    while memory[1].sum() < 20:
        memory[0], memory[1] = memory[1], memory[0] + memory[1] * x
        n += 1
    return memory, n


def subscript_writes(x):
    """Prefix sums in place: each write reads the one before."""
    x = x.clone()
    for i in range(1, x.shape[0]):
        x[i] += x[i - 1]
    return x


def slices_in_loop(x):
    """Ladders of neighbours, by slices of a fixed size."""
    y = weft.zeros_like(x)
    for i in range(0, x.shape[0] - 1, 2):
        window = x[i : i + 2]
        if window[0] > window[1]:
            y[i : i + 2] = window[::-1]
        else:
            y[i : i + 2] = window * 2
    return y


def prints(x):
    """Prints come in order, and as often as eager has them."""
    n = 0
    print("start")
    while x > 1:
        x = x / 2
        n += 1
        if x > 2:
            print("large", n)
        else:
            print(f"small {n}")
    print("end")
    return x


def prints_values(x):
    for i, value in enumerate(x):
        if value > 0:
            print(i, f"{value.detach():.3f}")
    return x.sum()


def shrinking(x):
    """The shape changes in each round."""
    while x.sum() > 3.1:
        x = x[1:] if x.shape[0] > 1 else x / 2
    return x.sum()


def weak_float(x):
    """A Python float carried through a loop on tensors, then beside a tensor."""
    rate = 1.0
    while x > 0.5:
        x = x - 0.1 * rate * x
        rate = rate * 0.98
    return x * rate


def larger(x, than):
    """A list whose length the data decides, and which may be empty."""
    found = []
    for value in x:
        if value > than:
            found.append(value * value)  # noqa: PERF401
    return found


def sum_if_any(x):
    found = larger(x, 1.0)
    mean = sum(found) / len(found) if len(found) > 0 else x[0]
    return (sum(found) if found else x.sum()), mean


def zip_list_that_may_be_empty(x):
    found = larger(x, 1.0)
    total = x.sum() * 0
    for a, b in zip(found, x, strict=False):
        total = total + a * b
    for a, b in zip(x, reversed(found), strict=False):
        total = total - a * b * 0.5
    return total


def list_read_in_branch(x):
    found = larger(x, 1.0)
    total = x.sum()
    if x[0] > 0:
        for a in found:
            total = total + a * a
        for a, b in zip(found, x, strict=False):
            total = total + a * b
    return total


PROGRAMS = [
    Program(
        "append then stack",
        append_then_stack,
        [(wild(4),), (wild(1),)],
        second_order=True,
        reference=np.cumsum,
    ),
    Program("sum of a list, if any", sum_if_any, [(f64([0.5, 2.0, 3.0]),), (f64([0.5, 0.2]),)]),
    Program(
        "zip of a list that may be empty",
        zip_list_that_may_be_empty,
        [(f64([0.5, 2.0, 3.0]),), (f64([0.5, 0.2]),), (f64([2.0]),)],
    ),
    Program(
        "a list read in a branch",
        list_read_in_branch,
        [(f64([0.5, 2.0, 3.0]),), (f64([-0.5, 2.0]),), (f64([0.5, 0.2]),)],
    ),
    Program(
        "append then join",
        append_then_join,
        [(wild(3, 2),), (wild(4, 2),), (wild(1, 2, low=1.0, high=2.0),)],
    ),
    Program("append in while", append_in_while, [(f64(30.0),), (f64(0.5),)]),
    Program("comprehensions", comprehension, [(wild(3), (1, 2, -1)), (-2 + wild(3), (-1, 1))]),
    Program(
        "comprehension over a tensor",
        comprehension_over_tensor,
        [(f64([1.0, -2.0]),), (f64([0.5, 1.5, -1.0]),)],
        reference=lambda x: np.where(x > 0, x * 2, -x),
    ),
    Program(
        "nested comprehension", nested_comprehension, [(wild(2), wild(3)), (2 + wild(2), wild(3))]
    ),
    Program(
        "tuple as state", tuple_state, [(f64([1.0, 2.0]),), (f64([0.1, 0.1]),)], second_order=True
    ),
    Program("dict as state", dict_state, [(f64([1.0, 2.0]),), (f64([0.1, 0.1]),)]),
    Program(
        "list as state", list_state, [(f64([1.0, 2.0]),), (f64([30.0, 2.0]),)], second_order=True
    ),
    Program(
        "subscript writes",
        subscript_writes,
        [(wild(4),), (wild(1),)],
        second_order=True,
        reference=np.cumsum,
    ),
    Program("slices in a loop", slices_in_loop, [(f64([2.0, 1.0, 3.0, 4.0, 5.0]),)]),
    Program("prints", prints, [(f64(9.0),), (f64(0.5),)]),
    Program("prints values", prints_values, [(f64([1.0, -1.0, 0.25]),), (f64([-1.0]),)]),
    Program(
        "shrinking",
        shrinking,
        [(f64([1.0, 2.0, 3.0]),), (f64([9.0]),)],
        supports=frozenset({"trace"}),
        why="the shape of the loop's state changes",
    ),
    Program("weak float", weak_float, [(f64(2.0),), (f64(0.1),)]),
]
