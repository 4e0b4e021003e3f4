"""Errors, writes, aliases and containers under conditions."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import weft
from programs.table import Program, f64, i64


def defined_on_one_path(x):
    """`extra` is there on one path only, and used on that path only."""
    if x.sum() > 0:
        extra = x * 3
        x = x + extra.mean()
    return x


def defined_later(x):
    if x[0] > 0:
        scale = 2.0
    else:
        scale = x[1]
    if x[1] > 0:
        offset = scale * x
    else:
        offset = x
    return offset + scale


def asserts(x):
    assert x.ndim == 1, "a vector"
    total = x.sum()
    assert total > 0, f"the sum is {total}"
    return x / total


def raises_in_a_branch(x, limit):
    if weft.abs(x).max() > limit:
        raise ValueError("too large")
    return x / limit


def try_finally(x):
    """The finally clause runs on both ways out."""
    log = []
    try:
        if x.sum() > 0:
            return x * 2
        x = x - 1
    finally:
        log.append("done")
    return x * len(log)


def return_out_of_with(x):
    """What the block binds after the jump is used after the block."""
    with weft.enable_grad(), weft.enable_grad():
        if x.sum() < 1:
            return x
        b = x * 0.7
    return b * b


def return_out_of_try(x):
    try:
        if x.sum() < 1:
            return x
        b = x * 0.7
    finally:
        c = x * 3
    return b * c


def break_out_of_with(x):
    total = x * 0
    for _ in range(4):
        with weft.enable_grad():
            if x.sum() < 1:
                break
            b = x * 0.7
        total = total + b
        x = x * b
    return total


def continue_out_of_try(x):
    total = x.sum() * 0
    for y in x:
        try:
            if y < 1:
                continue
            b = y * y
        finally:
            total = total + 1
        c = b + 1
        total = total + b * c
    return total


def jumps_out_of_nested_blocks(x):
    total = x.sum() * 0
    while total < 5:
        try:
            with weft.enable_grad():
                if x.sum() < 1:
                    break
                b = x.sum() * 0.7
            if b > 20:
                return b
            d = b * 2
        finally:
            c = x.sum() + 1
        x = x * 0.9
        total = total + b * c + d
    return total


def try_except(x, i):
    """An error of a Python value, caught."""
    table = {"a": 2.0, "b": 3.0}
    try:
        scale = table[i]
    except KeyError:
        scale = -1.0
    else:
        x = x + 1
    return x * scale if x.max() > 1 else x


def in_place_in_branch(x, i):
    """Subscripts written on one path, an augmented one on the other."""
    y = x.clone()
    if y[i] > 0:
        y[i] = -y[i]
    else:
        y[i] += 10.0
        y[0] *= 2
    return y


def alias_in_branch(x):
    """Two names of one tensor object: a write in place shows under both."""
    y = x * 1
    z = y
    if x.sum() > 0:
        z += 1
    return y, z


def rebinding_in_branch(x):
    """`z = z + 1` makes a new object: y stays."""
    y = x * 1
    z = y
    if x.sum() > 0:
        z = z + 1
    return y, z


def swap_in_branch(a, b):
    if a.sum() < b.sum():
        a, b = b, a
    (first, *rest), last = (a[0], a[1], a[2]), b
    return first * last, rest


def branch_of_containers(x):
    """Both branches give a tuple and a dict."""
    if x.max() > 1:
        pair, named = (x, x * 2), {"sum": x.sum(), "n": 1}
    else:
        pair, named = (-x, x / 2), {"sum": -x.sum(), "n": 2}
    return pair[0] + pair[1], named["sum"] * named["n"]


def not_of_vector(x):
    """The truth of a vector is an error, in every mode."""
    if x:
        return x * 2
    return x


def write_or_rebind(x):
    """One branch writes in place, the other gives the name another tensor."""
    b = x * 1.0
    if x.sum() > 0:
        b *= 0.8
    else:
        b = x + 1
    return b


def write_item_or_rebind(x):
    w = x * 1.0
    if x.sum() > 0:
        w = x * 2
    else:
        w[1] = 5.0
    return w


def write_then_return(x):
    a = x * 1.0
    if x.sum() > 0:
        a += 1
        return a
    return x * 3


def swap_then_write(x, n):
    """The write goes to what the name holds after the swap."""
    a, b = x * 1.0, x * 2.0
    c = weft.zeros((), dtype=weft.int64)
    while c < n:
        c = c + 1
        a, b = b, a
        b *= 0.8
    return a, b


def iterate_while_writing(x):
    """Later rows are read as they are by then."""
    w = x * 1.0
    total = x.sum()
    for element in w:
        total = total + element
        w[1] += 1.0
    return total


def reversed_while_writing(x):
    """The same from the end, with the places counted."""
    w = x * 1.0
    total = x.sum()
    for element in reversed(w):
        total = total + element
        w[0] += 1.0
    for i, (element, other) in enumerate(zip(w, x, strict=True)):
        total = total + i * element * other
        w[1] *= 2.0
    return total, w


def write_then_rebind_in_loop(x):
    a = x.sum()
    while True:
        if a > 3:
            break
        a *= 0.5
        a = a + 2
    return a


def return_in_nested_elif(x):
    a, b = x * 1.0, x * 2.0
    if x[1] > 0:
        if x[0] > 0:
            a, b = b, a
        elif x.sum() > 0.5:
            return a, b
        b = a * 1.0
    b = b + x.sum()
    return a, b


def while_true_on_python(x, leave):
    """A loop without end that Python values leave at once."""
    while True:
        if leave:
            break
        return x * 2
    return x


def defined_in_loop(x, n):
    """Without a pass of the loop, the name is not there."""
    for i in range(n):
        last = x * (i + 1)
    return last


PAIR = [(f64([1.0, 2.0]),), (f64([-1.0, -2.0]),), (f64([3.0, -0.5]),)]

JUMPS = [(f64([0.9, 1.6]),), (f64([0.2, 0.3]),), (f64([3.0, -0.5]),), (f64([40.0, 1.5]),)]
PROGRAMS = [
    Program("defined on one path", defined_on_one_path, PAIR, second_order=True),
    Program(
        "defined later",
        defined_later,
        [(f64([1.0, 2.0]),), (f64([-1.0, 2.0]),), (f64([1.0, -2.0]),), (f64([-1.0, -2.0]),)],
    ),
    Program(
        "asserts",
        asserts,
        [(f64([1.0, 2.0]),), (f64([-1.0, 0.5]),), (f64([[1.0]]),)],
        raises={1: AssertionError, 2: AssertionError},
        second_order=True,
    ),
    Program(
        "raises in a branch",
        raises_in_a_branch,
        [(f64([1.0, 2.0]), 3.0), (f64([5.0]), 3.0)],
        raises={1: ValueError},
    ),
    Program("try finally", try_finally, PAIR),
    Program(
        "try except",
        try_except,
        [(f64([1.0, 2.0]), "a"), (f64([0.9, 0.5]), "c"), (f64([-1.0, -3.0]), "b")],
    ),
    Program(
        "in place in a branch",
        in_place_in_branch,
        [(f64([1.0, -2.0, 3.0]), i64(k)) for k in (0, 1, 2)] + [(f64([1.0, -2.0]), 1)],
        second_order=True,
    ),
    Program("alias in a branch", alias_in_branch, PAIR),
    Program("rebinding in a branch", rebinding_in_branch, PAIR),
    Program(
        "swap in a branch",
        swap_in_branch,
        [
            (f64([1.0, 2.0, 3.0]), f64([4.0, 5.0, 6.0])),
            (f64([4.0, 5.0, 6.0]), f64([1.0, 2.0, 3.0])),
        ],
        second_order=True,
    ),
    Program("branches of containers", branch_of_containers, [*PAIR, (f64([0.5, -3.0]),)]),
    Program(
        "truth of a vector",
        not_of_vector,
        [(f64([1.0]),), (f64([0.0]),), (f64([1.0, 2.0]),)],
        raises={2: Exception},
        smooth=False,
    ),
    Program("write or rebind", write_or_rebind, PAIR, second_order=True),
    Program("write an item or rebind", write_item_or_rebind, PAIR),
    Program("write then return", write_then_return, PAIR),
    Program("swap then write", swap_then_write, [(f64([1.0, 2.0]), i64(n)) for n in (0, 2, 3)]),
    Program("iterate while writing", iterate_while_writing, PAIR),
    Program("reversed while writing", reversed_while_writing, PAIR, second_order=True),
    Program(
        "write then rebind in a loop", write_then_rebind_in_loop, [*PAIR, (f64([5.0]),)], kinks=(0,)
    ),
    Program(
        "return in a nested elif",
        return_in_nested_elif,
        [*PAIR, (f64([-1.0, 2.0]),), (f64([-1.0, 0.5]),)],
    ),
    Program(
        "while true on Python values", while_true_on_python, [(f64(1.0), True), (f64(1.0), False)]
    ),
    Program(
        "defined in a loop",
        defined_in_loop,
        [(f64(1.0), 2), (f64(1.0), 0)],
        raises={1: UnboundLocalError},
    ),
    Program("return out of with", return_out_of_with, JUMPS),
    Program("return out of try", return_out_of_try, JUMPS),
    Program("break out of with", break_out_of_with, JUMPS),
    Program("continue out of try", continue_out_of_try, JUMPS),
    Program("jumps out of nested blocks", jumps_out_of_nested_blocks, JUMPS),
]
