"""Source capture: containers that branches change, and loops whose bodies raise."""

from __future__ import annotations

import collections
import copy
import functools
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import PROGRAMS
from programs.compare import call, difference

import weft
from weft.errors import CaptureError

f64 = functools.partial(weft.asarray, dtype=weft.float64)
INPUTS = ([1.0, 2.0], [-1.0, -2.0], [0.5, 0.3])


def check(function: Callable[..., Any], graphs: int) -> None:
    """Eager and captured do the same; `graphs` recordings or paths are enough for all inputs."""
    captured = weft.compile(function, capture="source")
    for numbers in (*INPUTS, *reversed(INPUTS)):
        want = call(function, (f64(numbers),), {}, second=True)
        got = call(captured, (f64(numbers),), {}, second=True)
        found = difference(want, got, loose=True, gradients_near=1e-10)
        assert not found, f"{numbers}: {found}"
    assert len(captured.paths()) == graphs


# --- merged in one graph --------------------------------------------------------------------------


def appended_on_both_sides(x):
    items = []
    if x.sum() > 0:
        items.append(x * 2)
    else:
        items.append(x * 3)
    return items[0], len(items)


def made_and_changed_on_a_side(x):
    if x.sum() > 0:
        r = [x * 2]
        r.append(x * 3)
        return r[0] + r[1]
    return x


def left_behind_by_both_sides(x):
    base = [x]
    if x.sum() > 0:
        r = [*base, x * 2]
        r.append(x * 3)
    else:
        r = base + [x * 5]  # noqa: RUF005
        r.append(x * 7)
    r.append(x)
    return r


def one_list_under_two_names(x):
    rows = []
    if x.sum() > 0:
        r = [x * 2]
        r.append(x * 3)
        rows.append(r)
    else:
        r = [x * 4, x]
        rows.append(r)
    r.append(x)
    return r, rows


def one_list_where_the_other_side_raises(x):
    if x.sum() > -10:
        r = [x * 2]
        rows = [r]
    else:
        raise ValueError("too small")
    r.append(x)
    return rows


def rows_of_growing_length(x):
    """On the ways that go on, the list is known; where it is not, the function has returned."""
    rows = [[x]]
    for i in range(1, 4):
        row = [rows[-1][0] * 2]
        for j in range(1, i + 1):
            row.append(row[j - 1] + rows[-1][j - 1])
        if row[-1].sum() > 10:
            return row[-1]
        rows.append(row)
    return rows[-1][-1] - rows[-1][0] * len(rows)


def stacked_after_a_return(x):
    """The size of what is stacked is known inside of a branch only, also to its backward."""
    items = [x.sum()]
    if x[0] < 0:
        return x.sum()
    n = weft.zeros((), dtype=weft.int64)
    while n < x.sum():
        items.append(x[0] * n)
        n = n + 1
    return weft.stack(items).sum()


def array_with_the_same_elements(x):
    numbers = np.zeros(2)
    if x.sum() > 0:
        numbers[0] = 5.0
        y = x * 2
    else:
        numbers[0] = 5.0
        y = x
    return y + float(numbers[0])


def object_that_is_not_used_again(x):
    box = Box(word="a", value=x)
    if x.sum() > 0:
        box.word = "b"
        y = x * 2
    else:
        y = x * box.value
    return y if isinstance(box, Box) else x


def keys_deleted_on_both_sides(x):
    d = {"a": x, "b": 2, "c": 3}
    if x.sum() > 0:
        y = d.pop("a") * 2
    else:
        y = d.pop("a")
        del d["c"]
        d["c"] = 3
    return y * len(d)


def key_deleted_where_the_other_side_raises(x):
    d = {"a": 1, "b": 2}
    if x.sum() > 10:
        raise ValueError("large")
    else:
        del d["a"]
    return x * len(d)


def order_of_a_dict(x):
    d = {"a": 1, "b": 2}
    if x.sum() > 0:
        y = x * d["b"]
        d["a"] = d.pop("a")
    else:
        y = x
        d["a"] = d.pop("a")
    return y * (2 if list(d) == ["b", "a"] else 3)


def element_added_to_a_set_on_both_sides(x):
    s = {1, 2}
    if x.sum() > 0:
        s.add(3)
        y = x * 2
    else:
        s ^= {2, 3, 4}
        s |= {2}
        s -= {4}
        y = x * 3
    return y * len(s), 3 in s


def attribute_deleted_on_both_sides(x):
    box = Box(word="a", value=x)
    if x.sum() > 0:
        y = x * box.value
        del box.word
    else:
        y = x
        del box.word
    return y * (2 if hasattr(box, "word") else 3) + len(box.__dict__)


def variable_deleted_on_both_sides(x):
    word = "a"
    if x.sum() > 0:
        y = x * len(word)
        del word
    else:
        y = x * 3
        del word
    try:
        return y * len(word)
    except UnboundLocalError:
        return y


def key_deleted_in_a_loop(x):
    n = weft.zeros((), dtype=weft.int64)
    total = x * 0
    while n < 3:
        d = {"a": 1, "b": 2}
        if (x * n).sum() > 1:
            del d["a"]
        else:
            total = total + d.pop("a")
        total = total + len(d)
        n = n + 1
    return total


ONE_GRAPH = [
    *(keys_deleted_on_both_sides, key_deleted_where_the_other_side_raises),
    *(order_of_a_dict, element_added_to_a_set_on_both_sides, attribute_deleted_on_both_sides),
    *(variable_deleted_on_both_sides, key_deleted_in_a_loop),
    *(array_with_the_same_elements, object_that_is_not_used_again),
    *(appended_on_both_sides, made_and_changed_on_a_side, left_behind_by_both_sides),
    *(one_list_under_two_names, one_list_where_the_other_side_raises, rows_of_growing_length),
    stacked_after_a_return,
]


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: f.__name__)
def test_one_graph(function: Callable[..., Any]) -> None:
    check(function, 1)


# --- asked ----------------------------------------------------------------------------------------


def length_of_a_dict(x):
    d = {}
    if x.sum() > 0:
        d["a"] = 1
    return x * len(d)


def in_a_dict(x):
    d = {}
    if x.sum() > 0:
        d["a"] = 1
    return x * (2 if "a" in d else 3)


def truth_of_a_dict(x):
    d = {}
    if x.sum() > 0:
        d["a"] = 1
    return x * 2 if d else x * 3


def copy_of_a_dict(x):
    d = {}
    if x.sum() > 0:
        d["a"] = 1
    return x * len({**d})


def returned_dict(x):
    d = {}
    if x.sum() > 0:
        d["a"] = 1
    return x, d


def equal_sets(x):
    s = set()
    if x.sum() > 0:
        s.add(1)
    return x * 2 if s == {1} else x * 3


def union_of_sets(x):
    s = set()
    if x.sum() > 0:
        s.add(1)
    return x * len(s | {5})


def length_of_a_deque(x):
    d = collections.deque()
    if x.sum() > 0:
        d.append("a")
    return x * len(d)


def list_of_words(x):
    words = ["a"]
    if x.sum() > 0:
        words.append("b")
    return x * len("".join(words))


class Box:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def attribute_of_an_object(x):
    box = Box(word="a", times=2)
    if x.sum() > 0:
        box.word = "bb"
    return x * len(box.word) * box.times


def attribute_that_one_side_adds(x):
    box = Box()
    if x.sum() > 0:
        box.word = x * 2
    return getattr(box, "word", None) if hasattr(box, "word") else x


def attribute_that_one_side_deletes(x):
    box = Box(word=x * 2, other=1)
    if x.sum() > 0:
        del box.word
    return x * len(box.__dict__)


def copy_of_an_object(x):
    box = Box(word="a")
    if x.sum() > 0:
        box.word = "bb"
    return x * len(copy.copy([box])[0].word)


def object_read_by_the_library(x):
    box = Box(word="a")
    if x.sum() > 0:
        box.word = "bb"
    return x * len(operator.attrgetter("word")(box))


def sum_of_an_array(x):
    numbers = np.zeros(2)
    if x.sum() > 0:
        numbers[0] = 5.0
    return x + np.sum(numbers)


def array_as_a_tensor(x):
    numbers = np.zeros(2)
    if x.sum() > 0:
        numbers[0] = 5.0
    return x + weft.tensor(numbers)


def variable_that_a_closure_writes(x):
    word = "a"

    def write():
        nonlocal word
        word = "bb"

    if x.sum() > 0:
        write()
    return x * len(word)


WORDS = {"a": 1, "b": 2}
SEEN = {1}
OUTSIDE = Box(word="a")


def key_deleted_outside(x):
    if x.sum() > 0:
        y = x * WORDS.pop("a")
    else:
        y = x * 3
        del WORDS["a"]
    y = y * len(WORDS)
    WORDS["a"] = 1
    return y


def element_added_outside(x):
    if x.sum() > 0:
        y = x * 2
        SEEN.add(2)
    else:
        y = x * 3
        SEEN.add(2)
    y = y * len(SEEN)
    SEEN.discard(2)
    return y


def attribute_deleted_outside(x):
    if x.sum() > 0:
        y = x * 2
        del OUTSIDE.word
    else:
        y = x * 3
        del OUTSIDE.word
    y = y * (2 if hasattr(OUTSIDE, "word") else 3)
    OUTSIDE.word = "a"
    return y


def a_tensor_or_none(x):
    y = None
    if x.sum() > 0:
        y = x * 2
    return x - 1 if y is None else y


def a_pair_or_a_tensor(x):
    total = x.sum()
    if total > 0:
        return total * x
    return x, total


def a_text_beside_a_tensor(x):
    if x.sum() > 0:
        return x * 2, "big"
    return -x, "small"


def a_name_of_a_row(x):
    name = "small"
    if x.sum() > 0:
        name = "large"
    return {"small": 1, "large": 2}[name] * x


ASKED = [
    a_tensor_or_none,
    a_pair_or_a_tensor,
    a_text_beside_a_tensor,
    a_name_of_a_row,
    *(key_deleted_outside, element_added_outside, attribute_deleted_outside),
    *(attribute_of_an_object, attribute_that_one_side_adds, attribute_that_one_side_deletes),
    *(copy_of_an_object, object_read_by_the_library, sum_of_an_array, array_as_a_tensor),
    variable_that_a_closure_writes,
    *(length_of_a_dict, in_a_dict, truth_of_a_dict, copy_of_a_dict, returned_dict, equal_sets),
    *(union_of_sets, length_of_a_deque, list_of_words),
]


@pytest.mark.parametrize("function", ASKED, ids=lambda f: f.__name__)
def test_asked(function: Callable[..., Any]) -> None:
    """No graph can hold these: each answer of the condition is a path of its own."""
    check(function, 2)


def test_a_list_of_the_graph_inside_of_what_the_library_reads() -> None:
    """Here each length is a path."""

    def shown(x):
        items = []
        while x.sum() < 10:
            x = x + 1
            items.append(x)
        return x * len(repr([items]))

    captured = weft.compile(shown, capture="source")
    for numbers in INPUTS:
        np.testing.assert_array_equal(captured(f64(numbers)), shown(f64(numbers)))


def test_inside_of_a_loop_it_is_an_error() -> None:
    def counted(x):
        total = x * 0
        n = weft.zeros((), dtype=weft.int64)
        while n < 2:
            d = {}
            if (x * n).sum() > 1:
                d["a"] = 1
            total = total + len(d)
            n = n + 1
        return total

    with pytest.raises(CaptureError, match="a dict holds 1 item where the condition holds"):
        weft.compile(counted, capture="source")(f64(INPUTS[0]))


# --- bodies that raise ----------------------------------------------------------------------------


def raised_at_once(x):
    while x.sum() < 0:
        raise ValueError("negative")
    return x * 2


def raised_in_a_for(x):
    for _ in range((x.sum() > 2).astype(weft.int64)):
        raise ValueError("large")
    return x * 2


def index_out_of_range_later(x):
    m = 1
    n = weft.zeros((), dtype=weft.int64)
    a = x * 1
    while n < x.sum() - 1:
        a = a + x[m]
        m = m + 1
        n = n + 1
    return a


def index_out_of_range_at_once(x):
    m = 1
    n = weft.zeros((), dtype=weft.int64)
    a = x * 1
    while n < x.sum():
        m = m + 1
        a = a + x[m]
        n = n + 1
    return a


def dead_where_the_loop_is_left(x):
    """ok has no value where the inner loop is followed by break, and the condition reads it."""
    ok = x[0] > 0
    n = weft.zeros((), dtype=weft.int64)
    while n < 2 and ok:
        n = n + 1
        if x[1] > 1:
            c = 0
            while True:
                c = c + 1
                if c > 2 or x[0] > c:
                    break
                ok = x[0] > 3
            break
        ok = x[0] > 0.7
    return x * n


LOOPS = [
    *(raised_at_once, raised_in_a_for, index_out_of_range_later, index_out_of_range_at_once),
    dead_where_the_loop_is_left,
]


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_loops(function: Callable[..., Any]) -> None:
    """An error is raised only where eager comes to the body that raises it."""
    check(function, 1)


def test_raised_in_a_loop_inside_of_try() -> None:
    def tried(x):
        try:
            while x.sum() < 0:
                raise ValueError("negative")
        except ValueError:
            return x * 3
        return x * 2

    with pytest.raises(CaptureError, match="inside of `try`"):
        weft.compile(tried, capture="source")(f64(INPUTS[0]))


def test_index_in_a_loop_that_is_not_entered_has_a_gradient() -> None:
    """What is the same in all iterations is not computed where there is none: it might fail."""

    def f(x, m):
        y = x.sum()
        while y < 0:
            y = y + x[m] * x[m]
        return y

    x = weft.tensor([1.0, 2.0], requires_grad=True)
    weft.compile(f, capture="source")(x, weft.asarray(7)).backward()
    assert x.grad.tolist() == [1.0, 1.0]


def root_of_zero(v):
    norm = weft.sqrt(weft.vecdot(v, v))
    if norm > 1e-8:
        return v / norm
    return v * v


def root_of_zero_in_a_loop(v):
    n = weft.zeros((), dtype=weft.int64)
    while n < 2:
        norm = weft.sqrt(weft.vecdot(v, v))
        v = v / (1 + norm) if norm > 1e-08 else v * v + v
        n = n + 1
    return v


@pytest.mark.parametrize("function", [root_of_zero, root_of_zero_in_a_loop])
def test_infinite_slope_on_a_way_that_is_not_taken(function: Callable[..., Any]) -> None:
    """Gradients of gradients: 0 times infinity must not get in from the other branch."""
    captured = weft.compile(function, capture="source")
    for numbers in ([0.0, 0.0], [1.0, 2.0]):
        want = call(function, (f64(numbers),), {}, second=True)
        got = call(captured, (f64(numbers),), {}, second=True)
        assert not difference(want, got, loose=True, gradients_near=1e-10)


def halves(x):
    found = [x]
    while x > 1:
        x = x / 2
        found.append(x * x)
    return weft.stack(found).sum()


def lists_of_other_lengths_in_a_for(x):
    total = x.sum() * 0
    for part in x:
        total = total + halves(part)
    return total


def lists_of_other_lengths_in_a_while(x):
    total = x.sum() * 0
    n = x[0]
    while n > 0:
        total = total + halves(n * x[1])
        n = n - 3
    return total


@pytest.mark.parametrize(
    "function", [lists_of_other_lengths_in_a_for, lists_of_other_lengths_in_a_while]
)
def test_lists_of_other_lengths_in_each_iteration(function: Callable[..., Any]) -> None:
    """A size that differs from iteration to iteration: the loop stays one, and has a gradient."""
    captured = weft.compile(function)
    slope = weft.compile(weft.grad(function))
    for numbers in ([8.0, 40.0, 3.0], [9.5, 2.0, 1.0], [0.5, 1.0, 0.25]):
        x = f64(numbers)
        np.testing.assert_allclose(captured(x).numpy(), function(x).numpy())
        np.testing.assert_allclose(slope(x).numpy(), weft.grad(function)(x).numpy())


def test_sets_of_tensors_in_any_order() -> None:
    """A set is gone through in the order of addresses: a branch may find another order."""
    rng = random.Random(0)
    program = next(p for p in PROGRAMS if p.name == "optimizer step")
    kept: list[Any] = []
    for _ in range(100):
        kept.append([weft.ones(rng.randint(1, 5)) for _ in range(rng.randint(0, 50))])
        if rng.random() < 0.5:
            del kept[: rng.randint(0, len(kept))]
        step = weft.compile(program.make())
        for given in program.calls():
            step(*given.args)


def _positive(x):
    found = []
    for v in x:
        if v > 0:
            found.append(v * 2)  # noqa: PERF401
    return found


def in_a_choice(x):
    return x * 2 if _positive(x) else x * 100


def in_an_if(x):
    found = _positive(x)
    if not found:
        return x * 3
    return x + weft.stack(found).sum()


def in_a_while(x):
    found, n = _positive(x), 0
    while found and n < 2:
        n += 1
        x = x * 5
    return x


def in_a_loop(x):
    for _ in range(2):
        x = x + (1 if _positive(x) else 7)
    return x


def in_or_and_and(x):
    found = _positive(x)
    return x * 2 if (found and x.sum() > 1) or len(found) == 1 else x * 3


def popped_while_there_are_any(x):
    found = _positive(x)
    while found:
        x = x + found.pop()
    return x


def asserted(x):
    assert _positive(x), "none is positive"
    return x * 2


def compared_with_none(x):
    return x * 2 if _positive(x) == [] else x * 3


@pytest.mark.parametrize(
    "function",
    [
        *(in_a_choice, in_an_if, in_a_while, in_a_loop, in_or_and_and),
        *(popped_while_there_are_any, asserted, compared_with_none),
    ],
)
@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_the_truth_of_a_list_that_a_loop_filled(function: Callable[..., Any], backend: Any) -> None:
    captured = weft.compile(function, backend=backend)
    for numbers in ([1.5, -0.7, 2.0], [-1.0, -2.0, -0.3], [-1.0, 0.25, -0.3], [-4.0, -2.0, -0.3]):
        x = f64(numbers)
        try:
            want = function(x).numpy()
        except AssertionError:
            with pytest.raises(AssertionError, match="none is positive"):
                captured(x)
            continue
        np.testing.assert_allclose(captured(x).numpy(), want)


def _doubled(x):
    out = []
    while x.sum() < 50:
        x = x * 2
        out.append(x)
    return out


def joined(x):
    out = _doubled(x)
    return weft.concat(out), weft.stack(out, axis=-1), weft.stack(out, dim=1)


def joined_as_rows(x):
    return weft.vstack(_doubled(x))


def joined_columns(x):
    out = []
    for part in x:
        out.append(weft.stack([part, part * 2]))  # noqa: PERF401
    return weft.concat(out, axis=0)


@pytest.mark.parametrize("function", [joined, joined_as_rows, joined_columns])
def test_functions_of_weft_take_a_list_that_a_loop_filled(function: Callable[..., Any]) -> None:
    captured = weft.compile(function, backend="interpret")
    for numbers in ([1.5, 0.7, 2.0], [10.0, 9.0, 8.0], [0.5, 0.25, 0.3]):
        x, y = f64(numbers), f64(numbers)
        x.requires_grad = y.requires_grad = True
        got, want = (weft.tree_leaves(f(z)) for f, z in ((captured, x), (function, y)))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy())
        sum((part**2).sum() for part in got).backward()
        sum((part**2).sum() for part in want).backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy())
