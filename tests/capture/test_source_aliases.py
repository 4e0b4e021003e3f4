"""Source capture and identity: a write shows in every name that holds the tensor, or is refused.

Where a condition on tensors decides which tensor a name holds, a graph cannot always know whom a
write concerns. Then it is a CaptureError that says so; it never gives another answer than eager.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from programs.compare import call, difference

import weft
from weft.errors import CaptureError

f64 = functools.partial(weft.asarray, dtype=weft.float64)
INPUTS = ([1.0, 2.0], [-1.0, -2.0], [0.5, 0.3])

# --- what is right --------------------------------------------------------------------------------


def one_tensor_under_two_names(x):
    if x.sum() > 0:
        t = x * 2
        a = b = t
    else:
        t = x * 3
        a = b = t
    a += 1
    return a, b


def swapped_on_one_side(x):
    a, b = x * 1.0, x * 2.0
    if x.sum() > 0:
        a, b = b, a
    a += 1
    return a, b


def swapped_and_returned(x):
    """After the `if`, b is the old b for certain: where it is a, the function has returned."""
    a, b = x * 1.0, x * 2.0
    if x.sum() > 0:
        a, b = b, a
        return a, b
    b -= b + x
    return a, b


def returned_from_a_loop(x):
    a, b = x * 1.0, x * 2.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        n = n + 1
        b += a
        if b.sum() > 4:
            a, b = b, a
            return a, b
        a, b = b, a
    b *= 0.5
    return a, b


def always_returned_from_a_loop(x):
    a, b = x * 1.0, x * 2.0
    while x.sum() > 0:
        b += a
        a = a * 2
        return a, b
    b += 1
    return a, b


def written_before_it_is_given_anew(x):
    a = x * 1.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        a += 1
        a = a * 2
        n = n + 1
    return a


def alias_in_the_first_iteration(x):
    a = x * 1.0
    b = a
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        a += 1
        b = b + a
        n = n + 1
    return a, b


def one_behind(x):
    before, now = x * 1.0, x * 2.0
    for _ in range(4):
        before = now
        now += 1
    return before, now


def rows_that_are_written(x):
    w = x * 1.0
    total = x.sum()
    for row in w:
        total = total * row
        w[-1] = total
        w = w * 2
    return total, w


def appended_after_the_write(x):
    items = []
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        t = x * n
        t += 1
        items.append(t)
        n = n + 1
    return weft.stack(items)


def the_same_on_both_sides(x):
    y = x * 2
    if x.sum() > 0:
        z, r = x, y
    else:
        z, r = -x, y
    return z + 1 if r is y else z + 2


def new_views_are_others(x):
    """A tensor that the body makes is no carried one."""
    h, g = x * 1.0, x
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        k = h[::-1]
        other = k if n > 1 else h * 2
        h = h * 2 if k is h or other is g else k * 3
        n = n + (2 if other is h else 1)
    return h


def new_in_an_inner_loop(x):
    h = x * 1.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        k = h
        while k.sum() < 10 * n:
            m = k + 1 + n
            k = k + 2 if m is h or m is k else m
        h = h + k.sum()
        n = n + 1
    return h


RIGHT = [
    *(one_tensor_under_two_names, swapped_on_one_side, swapped_and_returned, returned_from_a_loop),
    *(always_returned_from_a_loop, written_before_it_is_given_anew, alias_in_the_first_iteration),
    *(one_behind, rows_that_are_written, appended_after_the_write, the_same_on_both_sides),
    *(new_views_are_others, new_in_an_inner_loop),
]


@pytest.mark.parametrize("function", RIGHT, ids=lambda f: f.__name__)
def test_right(function: Callable[..., Any]) -> None:
    captured = weft.compile(function, capture="source")
    for numbers in (*INPUTS, *reversed(INPUTS)):
        want = call(function, (f64(numbers),), {}, second=True)
        got = call(captured, (f64(numbers),), {}, second=True)
        assert want.error is None
        found = difference(want, got, loose=True, gradients_near=1e-10)
        assert not found, f"{numbers}: {found}"
    assert len(captured.recordings) == 1


# --- what is refused ------------------------------------------------------------------------------


def the_other_is_written(x):
    a = x * 1.0
    y = a if x.sum() > 0 else a * 2
    a += 1
    return y, a


def one_of_two_is_written(x):
    a = x * 1.0
    y = a if x.sum() > 0 else a * 2
    y += 1
    return y, a


def decided_in_a_nested_if(x):
    a, b = x * 1.0, x * 2.0
    if b.sum() < 100:
        if a.sum() > 0:
            b = a
        a = a * 1.0 if a.sum() > 50 else a
    b += 1
    return a, b


def shared_on_one_side(x):
    if x.sum() > 0:
        a = b = x * 2
    else:
        a, b = x * 3, x * 4
    a += 1
    return a, b


def in_a_dict(x):
    a = x * 1.0
    held = {"k": a}
    if a.sum() > 0:
        held["k"] = a * 2
    a += 1
    return held["k"], a


def shared_after_a_loop(x):
    a, b = x * 1.0, x * 2.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        a = b = a * 2
        n = n + 1
    a += 1
    return a, b


def shared_in_the_next_iteration(x):
    a, b = x * 1.0, x * 2.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        a += 1
        b = b + a
        a = b
        n = n + 1
    return a, b


def from_outside_in_the_next_iteration(x):
    a, b = x * 1.0, x * 2.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 4:
        a += 1
        a = b
        n = n + 1
    return a, b


def through_another_name_iterations_before(x):
    a, b = x * 1.0, x * 2.0
    z = b
    n = weft.zeros((), dtype=weft.int64)
    while n < 4:
        a += 1
        a = b
        b = b * 2
        n = n + 1
    return a, b, z


def read_late(x):
    a, b, c = x * 1.0, x * 2.0, x * 0.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        a += 1
        c = c + b
        b = a
        n = n + 1
    return a, b, c


def appended_and_written(x):
    items = []
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        t = x * n
        items.append(t)
        t += 1
        n = n + 1
    return weft.stack(items)


def appended_and_written_later(x):
    items = []
    a = x * 1.0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        items.append(a)
        a += 1
        n = n + 1
    return weft.stack(items), a


def element_written(x):
    items = [x * 2.0]
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        items.append(x * n)
        n = n + 1
    t = items[1]
    t += 1
    return weft.stack(items)


def identity_of_one_of_two(x):
    y = x * 2
    r = x if x.sum() > 0 else y
    return x + 1 if r is x else x + 2


def identity_in_a_loop(x):
    y = x * 2
    r, z = x, x * 0
    n = weft.zeros((), dtype=weft.int64)
    while n < 3:
        z = z + 1 if r is x else z + 10
        r = y
        n = n + 1
    return z


def rows_of_one_of_two(x):
    """The loop goes over w, which w may still be when it is written."""
    w = x * 1.0
    total = x.sum() * 0
    for row in weft.unroll(w):
        total = total * 2 + row
        if total > 0:
            w = w * 3
        w[-1] = total
    return total, w


REFUSED = [
    *(the_other_is_written, one_of_two_is_written, decided_in_a_nested_if, shared_on_one_side),
    *(in_a_dict, shared_after_a_loop, shared_in_the_next_iteration, read_late, element_written),
    *(from_outside_in_the_next_iteration, through_another_name_iterations_before),
    *(appended_and_written, appended_and_written_later, identity_of_one_of_two),
    *(identity_in_a_loop, rows_of_one_of_two),
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_refused(function: Callable[..., Any]) -> None:
    """Eager runs them; a graph would give another answer on some inputs."""
    function(f64(INPUTS[0]))
    captured = weft.compile(function, capture="source")
    for numbers in INPUTS:
        with pytest.raises(CaptureError, match=r"written to|writes to|hold one tensor") as caught:
            captured(f64(numbers))
        assert f"in {function.__name__}" in str(caught.value)


def rows_of_a_copy(x):
    w = x * 1.0
    total = x.sum() * 0
    for row in weft.unroll(w.clone()):
        total = total * 2 + row
        if total > 0:
            w = w * 3
        w[-1] = total
    return total, w


#: What the refusal says of who is written, who else sees it, and what to do instead.
WORDS = {
    rows_of_one_of_two: r"'w' \(f64\[2\]\) is written to.* iterate over its rows"
    r"(.|\n)*w\[-1\] = total(.|\n)*for row in w.clone\(\)",
    one_of_two_is_written: r"'y' .*'a' may hold it, too(.|\n)*y = y.clone\(\)",
}


@pytest.mark.parametrize("function", WORDS, ids=lambda f: f.__name__)
def test_words(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match=WORDS[function]):
        weft.compile(function, capture="source")(f64(INPUTS[0]))


def test_a_loop_over_a_copy_is_the_way_around() -> None:
    test_right(rows_of_a_copy)


def test_leaf_that_a_name_holds_in_later_iterations() -> None:
    """Eager raises a GradientError in the second iteration; a graph must not run through."""

    def leaf(x):
        a = x * 1.0
        n = weft.zeros((), dtype=weft.int64)
        while n < 3:
            a += 1
            a = x
            n = n + 1
        return a

    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(weft.errors.GradientError):
        leaf(x)
    with pytest.raises(CaptureError, match="writes to"):
        weft.compile(leaf, capture="source")(x)
