"""Python's loops, construct by construct."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import itertools

import weft
from programs.table import Program, f64, i64, wild


def while_halving(x):
    while x.sum() > 1:
        x = x / 2
    return x


def while_counter(x, limit):
    """A Python counter beside a tensor condition."""
    n = 0
    while weft.abs(x).max() < limit and n < 8:
        x = x * 1.7
        n += 1
    return x, n


def while_true_break(x):
    total = weft.zeros_like(x)
    while True:
        x = x * 0.5
        if x < 0.1:
            break
        total += x
    return total


def while_else(x, wanted):
    """`else` runs unless the loop was left by break."""
    k = 0
    while k < x.shape[0]:
        if x[k] == wanted:
            found = x[k] * 10
            break
        k += 1
    else:
        found = -x.sum()
    return found, k


def for_else(x):
    for value in x:
        if value < 0:
            result = value
            break
    else:
        result = x.max()
    return result * 2


def continue_in_for(x):
    """Skip what is negative, stop at what is large."""
    total = 0.0
    for value in x:
        if value < 0:
            continue
        if value > 10:
            break
        total = total + weft.sqrt(value + 1)
    return total


def return_from_nested(x, limit):
    """Return out of two loops at once."""
    total = weft.zeros((), dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total = total + x[i, j]
            if total > limit:
                return total * 2, i, j
    return total, -1, -1


def nested_while(x, limit):
    """while inside while, with break, continue and return at different depths."""
    outer = 0
    while x < limit:
        outer += 1
        inner = 0
        while True:
            inner += 1
            x = x + inner
            if inner % 2 == 0:
                continue
            if x % 7 < 1:
                break
            if inner > 4:
                break
            if x > 3 * limit:
                return x, outer, inner
        if outer > 5:
            return -x, outer, inner
        x = x * 1.5
    return x, outer, -1


def nested_reference(x, limit):
    outer = 0
    while x < limit:
        outer, inner = outer + 1, 0
        while True:
            inner += 1
            x = x + inner
            if inner % 2 == 0:
                continue
            if x % 7 < 1 or inner > 4:
                break
            if x > 3 * limit:
                return x, outer, inner
        if outer > 5:
            return -x, outer, inner
        x = x * 1.5
    return x, outer, -1


def range_of_tensor(x, n):
    for i in range(n):
        x = x + 0.1 * i * x
    return x


def range_with_step(x, start, stop):
    total = weft.zeros_like(x)
    for i in range(start, stop, 2):
        total += x**2 * i
    for i in range(stop, start, -3):
        total = total - x * i
    return total


def long_range(x):
    """Many iterations with a Python bound."""
    for i in range(300):
        x = x + weft.sin(x) * 0.01 + i * 1e-5
    return x


def rows(x):
    total = weft.zeros_like(x[0])
    for row in x:
        total = weft.tanh(total + row)
    return total


def zip_of_tensors(x, y):
    total = 0.0
    for a, b in zip(x, y, strict=False):
        if a > b:
            total = total + a * b
        else:
            total = total - b
    return total


def enumerate_tensor(x):
    best, place = x[0], 0
    for i, value in enumerate(x):
        if value > best:
            best, place = value, i
    return best, place


def reversed_tensor(x):
    """A recursion from the end, as in a linear recurrence."""
    carry = weft.zeros_like(x[0])
    for value in reversed(x):
        carry = value + 0.5 * carry if value > 0 else 0.5 * carry
    return carry


def zip_enumerate_reversed(x, y):
    total = weft.zeros((), dtype=x.dtype)
    for i, (a, b) in enumerate(zip(reversed(x), y, strict=True), start=1):
        total = total + i * a / (1 + b * b)
    return total


def zero_iterations(x, n):
    """Loops that may not run at all: the last value of the loop's own name is kept."""
    last = weft.zeros((), dtype=x.dtype)
    for i in range(n):
        last = x * (i + 1)
    while last > 100:
        last = last / 10
    return last


def loop_variable_after(x):
    """The loop's names are there afterwards."""
    for i, value in enumerate(x):  # noqa: B007
        if value > 1:
            break
    return value * i


def two_exits(x):
    """One loop, left by its condition or by a break in a nested if."""
    n = 0
    while n < 6:
        n += 1
        if x > 1:
            x = x - 0.7
            if x < 0.5:
                break
        else:
            x = x * 1.9
    return x, n


def python_loop_of_functions(x, steps):
    """Loops over Python lists of names and numbers are unrolled."""
    table = {"double": lambda v: v * 2, "sin": weft.sin, "norm": lambda v: v / (1 + v * v)}
    for name, times in steps:
        for _ in range(times):
            x = table[name](x)
        if x.max() > 3:
            x = x - 1
    return x


def product_of_ranges(x):
    total = weft.zeros((), dtype=x.dtype)
    for i, j in itertools.product(range(2), repeat=2):
        total = total + x[i] * x[j] if i != j else total - x[i]
    return total


PROGRAMS = [
    Program(
        "while",
        while_halving,
        [(f64([3.0, 4.0]),), (f64([0.1, 0.2]),), (f64([9.0, 9.0]),)],
        second_order=True,
    ),
    Program(
        "while with a counter",
        while_counter,
        [(f64([0.1, 0.2]), 1.0), (f64([5.0]), 1.0), (f64([1e-9]), 1.0)],
        second_order=True,
    ),
    Program("while true", while_true_break, [(f64(3.0),), (f64(0.01),)], second_order=True),
    Program(
        "while else",
        while_else,
        [(f64([1.0, 2.0, 3.0]), 2.0), (f64([1.0, 2.0]), 5.0)],
        smooth=False,
    ),
    Program("for else", for_else, [(f64([1.0, -2.0, 3.0]),), (f64([1.0, 2.0]),)]),
    Program(
        "continue and break",
        continue_in_for,
        [(f64([1.0, -2.0, 3.0]),), (f64([1.0, 20.0, 3.0]),), (f64([-1.0, -2.0]),)],
        second_order=True,
    ),
    Program(
        "return from nested loops",
        return_from_nested,
        [(wild(2, 3, low=0), 0.9), (wild(2, 3, low=0), 99.0), (wild(2, 3, low=0), 1.9)],
    ),
    Program(
        "nested while",
        nested_while,
        [
            (f64(1.2), 10.0),
            (f64(0.7), 60.0),
            (f64(20.0), 10.0),
            (f64(-9.3), 1.0),
            (f64(-300.3), 0.5),
            (f64(0.9), 1.0),
        ],
        reference=nested_reference,
    ),
    Program(
        "range of a tensor",
        range_of_tensor,
        [(wild(2), i64(0)), (wild(2), i64(5)), (wild(2), 3)],
        second_order=True,
    ),
    Program(
        "range with steps",
        range_with_step,
        [(f64(1.5), i64(1), i64(8)), (f64(1.5), i64(3), i64(3)), (f64(2.0), 0, 5)],
        second_order=True,
    ),
    Program("long range", long_range, [(f64([0.1, 2.0]),)]),
    Program("rows", rows, [(wild(4, 2),), (wild(1, 2),)], second_order=True),
    Program(
        "zip",
        zip_of_tensors,
        [(wild(3), wild(3, seed=1)), (wild(2), wild(4, seed=1))],
        second_order=True,
    ),
    Program(
        "enumerate",
        enumerate_tensor,
        [(f64([1.0, 3.0, 2.0]),), (f64([3.0, 1.0]),)],
        reference=lambda x: (x.max(), int(x.argmax())),
    ),
    Program("reversed", reversed_tensor, [(f64([1.0, -2.0, 3.0]),), (f64([-1.0]),)]),
    Program(
        "zip, enumerate, reversed",
        zip_enumerate_reversed,
        [(wild(3), wild(3, seed=1))],
        second_order=True,
    ),
    Program("zero iterations", zero_iterations, [(f64(2.0), i64(0)), (f64(900.0), i64(2))]),
    Program(
        "loop names afterwards", loop_variable_after, [(f64([0.5, 2.0, 3.0]),), (f64([0.1, 0.2]),)]
    ),
    Program("two exits", two_exits, [(f64(1.1),), (f64(3.0),), (f64(0.3),)]),
    Program(
        "loop of functions",
        python_loop_of_functions,
        [(wild(2), [("double", 2), ("sin", 1)]), (3 + wild(2), [("double", 1), ("norm", 2)])],
    ),
    Program("product of ranges", product_of_ranges, [(wild(2),)], second_order=True),
]
