"""Slices whose bounds are Python ints that change from call to call (docs/sizes.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.base.asked_sizes import AskedSizes, asking
from weft.base.dim_algebra import dim_max


class World:
    """What the programs of one run keep between calls."""

    def __init__(self) -> None:
        self.data = weft.arange(60.0).reshape(20, 3).clone()
        self.weight = weft.ones((20, 3), requires_grad=True)
        self.order = weft.tensor(np.random.RandomState(0).permutation(20))
        self.at = {"i": 0}


#: name -> (program of a world, an int and a tensor of 4 rows; its recordings)
PROGRAMS: dict[str, tuple[Callable[[World, int, Any], Any], int]] = {}


def program(recordings: int) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        PROGRAMS[function.__name__] = (function, recordings)
        return function

    return register


# The first call and one for all others; the clamped batch; the empty one beyond the end; negative
# ints are guards.


@program(5)
def read(o: World, i: int, x: Any) -> Any:
    return o.data[i : i + 4] * 2, o.data[i : i + 4].sum(axis=0)


@program(5)
def by_positions(o: World, i: int, x: Any) -> Any:
    return o.data[o.order[i : i + 4]]


@program(2)  # the clamped batch is an error
def added(o: World, i: int, x: Any) -> Any:
    return o.data[i : i + 4] + x


@program(2)
def write(o: World, i: int, x: Any) -> Any:
    o.data[i : i + x.shape[0]] = x + i
    return o.data.sum()


@program(5)
def write_a_number(o: World, i: int, x: Any) -> Any:
    o.data[i : i + 4] = 7
    o.data[i : i + 4] *= 2
    return o.data.sum()


@program(5)
def gradient(o: World, i: int, x: Any) -> Any:
    return weft.grad(lambda w: (w[i : i + 4] ** 2 * o.data[i : i + 4]).sum())(o.weight)


@program(5)
def backward(o: World, i: int, x: Any) -> Any:
    o.weight.grad = None
    (o.weight[i : i + 4] ** 2).sum().backward()
    return o.weight.grad


@program(5)
def gradient_of_written(o: World, i: int, x: Any) -> Any:
    def loss(w: Any) -> Any:
        h = w * 1
        h[i : i + 4] = h[i : i + 4] ** 2 * 3
        return (h * o.data).sum()

    return weft.grad(loss)(o.weight)


@program(5)
def mapped(o: World, i: int, x: Any) -> Any:
    return weft.vmap(lambda column: column[i : i + 4].sum() * i, in_axes=1)(o.data)


@program(5)
def counter_in_a_dict(o: World, i: int, x: Any) -> Any:
    o.at["i"] = i
    j = o.at["i"]
    return o.data[j : j + 4].sum(), o.at["i"]


@program(4)
def prefixes(o: World, i: int, x: Any) -> Any:
    return o.data[:i] * 2, o.data[i:].sum(axis=0)


@program(4)
def written_prefixes(o: World, i: int, x: Any) -> Any:
    o.data[:i] = 7
    o.data[i:] *= 2
    return o.data.sum()


@program(4)
def prefix_gradient(o: World, i: int, x: Any) -> Any:
    return weft.grad(lambda w: (w[: i + 1] ** 3).sum())(o.weight)


@program(5)
def parts_of_an_index(o: World, i: int, x: Any) -> Any:
    at = weft.tensor([0, 2])
    return o.data[i : i + 4, None, :2].sum(), o.data.T[..., i : i + 4], o.data[i : i + 4, at]


@program(5)
def after_a_question(o: World, i: int, x: Any) -> Any:
    if (x.sum() > 0).item():
        return o.data[i : i + 4].sum()
    return x


@program(4)
def multiple(o: World, i: int, x: Any) -> Any:
    return o.data[2 * i : 2 * i + 4 : 2], o.data[2 * i : 2 + i * 2]


@program(4)
def from_the_end(o: World, i: int, x: Any) -> Any:
    return o.data[-i - 2 :].sum(), o.data[-i - 2 : -i - 1]


@program(5)
def product(o: World, i: int, x: Any) -> Any:
    return o.data[i : i + 4] @ x.T


@program(2)
def made(o: World, i: int, x: Any) -> Any:
    return weft.zeros(1, i), weft.ones((i, 2)) * i, weft.full((i,), i), weft.arange(i), weft.eye(i)


@program(2)
def joined(o: World, i: int, x: Any) -> Any:
    rows = weft.concat([weft.zeros((i, 3)), x])
    return rows.mean(axis=0), weft.tril(weft.ones((i, i))).sum(), x[:1].expand(i, 3)


@program(3)
def positions(o: World, i: int, x: Any) -> Any:
    return weft.arange(i, i + 4), weft.arange(0, i, 2), (weft.arange(i) * x.sum()).sum()


CALLS = [3, 4, 8, 0, 1, 16, 18, 17, 2, 20, 25, -3]


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_give_what_plain_python_gives(name: str) -> None:
    natively = "gradient_of_written", "written_prefixes", "write", "from_the_end", "product"
    backend = "native" if name in natively else "interpret"
    check(name, CALLS, backend, PROGRAMS[name][1])


@pytest.mark.parametrize("name", ["read", "write", "prefixes", "backward"])
def test_all_positions_on_the_axis_are_two_recordings(name: str) -> None:
    check(name, [0, 1, 5, 2, 16, 4], "interpret", 2)


def check(name: str, calls: list[int], backend: str, limit: int) -> None:
    function = PROGRAMS[name][0]
    captured = weft.compile(function, backend=backend)
    mine, theirs, x = World(), World(), weft.ones((4, 3))
    for i in calls:
        try:
            expected = function(theirs, i, x)
        except weft.errors.WeftError as error:
            with pytest.raises(type(error)):
                captured(mine, i, x)
            continue
        got = captured(mine, i, x)
        for a, b in zip(
            weft.tree_leaves([got, mine.data]),
            weft.tree_leaves([expected, theirs.data]),
            strict=True,
        ):
            assert type(a) is type(b)
            if isinstance(a, weft.Tensor):
                assert a.shape == b.shape
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), err_msg=str(i))
            else:
                assert a == b
    reasons = [str(r) for r in captured.recordings]
    assert len(captured.recordings) == limit, reasons


@pytest.mark.parametrize("bound", [np.int64(3), True, np.array(3), 10**12, -(10**12), 2.0, "3"])
def test_other_bounds_are_as_in_plain_python(bound: Any) -> None:
    captured = weft.compile(lambda x, i: x[i:], backend="interpret")
    x = weft.arange(6.0)
    for i in (1, 2, bound, 4):
        try:
            expected = x[i:].numpy()
        except Exception as error:
            with pytest.raises(type(error)):
                captured(x, i)
            continue
        np.testing.assert_array_equal(captured(x, i).numpy(), expected)


def test_symbolic_sizes_and_changing_bounds() -> None:
    def window(x: Any, i: int) -> Any:
        return x[i : i + 2].sum(), x[:i] * x.shape[0], x[i:]

    captured = weft.compile(window, backend="interpret")
    for n, i in ((9, 1), (8, 2), (7, 0), (6, 4), (20, 11), (5, 2)):
        x = weft.arange(float(n))
        for a, b in zip(captured(x, i), window(x, i), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy())
    assert len(captured.recordings) == 2, captured.recordings


def _last_but_one(y: Any) -> Any:
    return y[..., y.shape[-1] - 2 : y.shape[-1] - 1] * y.sum()


def _replaced(y: Any) -> Any:
    y = y + 0
    y[:, y.shape[1] - 2 :] = y[:, : y.shape[1] - (y.shape[1] - 2)] + 3
    return y


#: Slices whose bounds are computed of sizes of an axis that is computed of others.
COMPUTED = {
    "of the axis": _last_but_one,
    "without the first": lambda x: _last_but_one((x * 2)[:, 1:]),
    "every second": lambda x: _last_but_one((x * 2)[:, ::2]),
    "written": lambda x: _replaced(x[:, ::2]),
    "reflected": lambda x: F.pad(F.max_pool1d(x, 2, padding=1), (1, 1), mode="reflect"),
    "around": lambda x: F.pad(F.max_pool1d(x, 2, padding=1), (1, 1), mode="circular"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_bounds_of_computed_sizes(name: str) -> None:
    function = COMPUTED[name]
    total = weft.compile(
        lambda x: weft.grad(lambda x: (function(x) ** 2).sum())(x), backend="native"
    )
    for length in (8, 12, 7, 9, 14, 6):
        x = weft.asarray(np.random.default_rng(length).standard_normal((2, length)))
        want = weft.grad(lambda x: (function(x) ** 2).sum())(x)
        np.testing.assert_allclose(total(x).numpy(), want.numpy(), rtol=1e-12)
    assert len(total.recordings) <= 3  # the gradient of a padding may ask whether it is even


def test_questions_about_quotients_are_bounds_of_names() -> None:
    T = weft.dim("T")
    asked = AskedSizes({"T": 12})
    with asking(asked):
        assert (T + 1) // 2 - (T + 1) // 2 // 3 > 2  # it falls nowhere: 4 for 12, 3 from 8 on
        assert not T // 3 > 4
        assert dim_max(T - 3, 0) >= 4
        assert (T % 5) < 3  # says nothing of the smallest
    numbers = [n for n in range(100) if all(fact.holds({"T": n}) for fact in asked.facts[:3])]
    assert asked.bounds() == {"T": (min(numbers), max(numbers))}


@pytest.mark.parametrize("period", [1, 2, None])
def test_bounds_that_leave_one_number(period: int | None) -> None:
    """Of one element, v[1:] is empty: a program for numbers of at least 1 knows that."""

    def f(v: Any, m: int) -> Any:
        return v[m if period is None else m % period :].sum() * 2

    compiled, v = weft.compile(f), weft.tensor([2.0])
    for m in (0, 1, 0, 3, 2):
        assert compiled(v, m).item() == f(v, m).item()
