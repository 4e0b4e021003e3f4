"""Recorded once, used again: a small tracer of Python values against plain Python.

Each program is run in two worlds of its own. In one it is called plainly. In the other its runs are
recorded, and a call that satisfies the guards of a recording gets the recorded result and effects.
Whatever is changed between the calls, both worlds must stay equal.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import operator
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from replay_world import Item, Recorded, Settings, outcome, state, world

import weft
from weft.capture.hooks import run_watched
from weft.capture.watch.watch import Watch

Step = Callable[[Any], Any]


T = typing.TypeVar("T")


class Table(typing.Generic[T]):
    def __init__(self, n: int) -> None:
        self.n = n + FACTOR


FACTOR = 1
PATTERN = re.compile("a+")


def deep_recursion(w: Any) -> int:
    def down(n: int) -> int:
        return 0 if n == 0 else w.step + down(n - 1)

    return down(300)


@contextlib.contextmanager
def raised(w: Any, by: int) -> Iterator[int]:
    w.level += by
    try:
        yield w.level
    finally:
        w.level -= by


def with_context(w: Any) -> Any:
    with raised(w, 3) as level:
        return level, w.level


def cache_by_key(w: Any) -> Any:
    if w.key not in w.cache:
        w.cache[w.key] = w.key * 10
    return w.cache[w.key]


def sort_items(w: Any) -> Any:
    w.items.sort()
    return [i.n for i in sorted(w.items, reverse=True)], max(w.items).n, w.items[0].n


def count_calls(w: Any) -> Any:
    w.calls += 1
    return w.calls % 2


def running_mean(w: Any) -> Any:
    w.history.append(w.x)
    return sum(w.history) / len(w.history)


def move_items(w: Any) -> Any:
    w.a, w.b = w.b, w.a
    w.a.append(w.b.pop() if w.b else 0)
    return w.a, w.b


def numpy_mix(w: Any) -> Any:
    w.array[0] += 1
    view = w.array * 2
    return float(view.sum()), w.array.shape


def view_written(w: Any) -> Any:
    view = w.array[1:]
    view[0] = 7
    return float(w.array.sum())


def keyword_named_function(w: Any) -> Any:
    def f(function: int, self: int = 1, **more: int) -> Any:
        return function + self, more

    return f(function=w.x, symbol=2)


def generator_reads_late(w: Any) -> Any:
    def values() -> Iterator[int]:
        for x in w.data:
            yield x * w.x

    gen = values()
    w.x = w.x + 1
    return list(gen)


def nested_defaults(w: Any) -> Any:
    settings = dataclasses.replace(w.settings, rate=w.settings.rate * 2)
    settings.sizes.append(3)
    return settings.rate, settings.sizes, w.settings.sizes is settings.sizes


def getters(w: Any) -> Any:
    return operator.attrgetter("item.n")(w), operator.itemgetter("k")(w.d), operator.add(w.x, 1)


def groups(w: Any) -> Any:
    pairs = itertools.groupby(sorted(w.data, key=lambda v: v % w.x), key=lambda v: v % w.x)
    return [(k, list(g)) for k, g in pairs], list(itertools.chain.from_iterable(w.nested))


def unfollowed_equality(w: Any) -> Any:
    return w.item in w.items, w.items.index(Item(2)), {Item(1): 1}.get(w.item)


def class_state(w: Any) -> Any:
    Item.scale = Item.scale + w.x
    result = w.item.total()
    Item.scale = 2
    return result


def pops(w: Any) -> Any:
    out = []
    while w.data:
        out.append(w.data.pop(0))
        if len(out) == 2:
            break
    return out


def same_list_twice(w: Any) -> Any:
    w.a.append(1)
    return len(w.b)


def aliased_attribute(w: Any) -> Any:
    w.item.n += 1
    return w.other.n


def exceptions(w: Any) -> Any:
    try:
        return w.d[w.key] / w.x
    except KeyError as error:
        return f"no {error}"
    except ZeroDivisionError:
        w.failures = getattr(w, "failures", 0) + 1
        return w.failures


def matching(w: Any) -> Any:
    match w.d:
        case {"k": [a, b, *rest]} if a < w.x:
            return a, b, rest
        case {"k": int(n)}:
            return n
        case _:
            return None


def text(w: Any) -> Any:
    return (
        f"{w.item!r:>10} {w.data} {w.x:03d} {w.settings}",
        "-".join([str(w.x), str(w.data)]),
        PATTERN.sub("b", w.s),
    )


def sets(w: Any) -> Any:
    w.names.add(w.s)
    w.names |= {"z"}
    return sorted(w.names), len(w.names & {"z", "q"}), w.s in w.names


def default_dicts(w: Any) -> Any:
    for word in w.s.split():
        w.groups[len(word)].append(word)
    return {k: list(v) for k, v in w.groups.items()}, collections.Counter(w.s)["a"]


def deletes(w: Any) -> Any:
    if "k" in w.d:
        del w.d["k"]
        w.d["m"] = 1
    return list(w.d)


def closures(w: Any) -> Any:
    return w.add(w.x), w.get()


def star(w: Any) -> Any:
    first, *rest = w.data
    return first, rest, max(*w.data, w.x), dict(**w.d, q=1), [*w.d]


def properties(w: Any) -> Any:
    class Temp:
        @property
        def value(self) -> int:
            return w.x * FACTOR

        @functools.cached_property
        def slow(self) -> int:
            return w.x + 1

    t = Temp()
    return t.value, t.slow, t.slow


def swap_methods(w: Any) -> Any:
    w.item.total = lambda: 5
    result = w.item.total()
    del w.item.total
    return result + w.item.total()


def ordered(w: Any) -> Any:
    w.od.move_to_end(w.key, last=False)
    return list(w.od.items())


def deques(w: Any) -> Any:
    w.q.append(w.x)
    w.q.rotate(1)
    return list(w.q), w.q[-1]


def generic(w: Any) -> Any:
    return Table[int](w.x).n


def setter(name: str, value: Any) -> Step:
    return lambda w: setattr(w, name, copy.deepcopy(value))


def doing(action: Callable[[Any], Any]) -> Step:
    return lambda w: action(w) and None


AGAIN: Step = lambda w: None  # noqa: E731

#: Changes that are made in both worlds, one before each further call.
STEPS: list[Step] = [
    AGAIN,
    setter("x", 3),
    doing(lambda w: w.data.append(5)),
    AGAIN,
    setter("d", {"k": [1, 2, 3]}),
    setter("d", {"k": 0}),
    setter("x", 0),
    setter("x", 2),
    doing(lambda w: w.item.__dict__.__setitem__("n", 4)),
    setter("key", "a"),
    setter("key", "z"),
    setter("data", [3, 1, 2]),
    doing(lambda w: setattr(w, "b", w.a)),
    doing(lambda w: setattr(w, "other", w.item)),
    AGAIN,
    setter("b", [3]),
    setter("other", Item(4)),
    setter("s", "aaa"),
    doing(lambda w: w.settings.sizes.append(9)),
    setter("settings", Settings(0.25)),
    setter("array", np.array([1.0, 2.0, 3.0])),
    setter("array", np.array([4.0, 2.0])),
    setter("items", [Item(1), Item(2)]),
    doing(lambda w: w.cells.__setitem__(0, 7)),
    setter("nested", [[1], []]),
    setter("key", "k"),
    setter("d", {"k": 4, "z": 1}),
    AGAIN,
]

PROGRAMS = [
    *(deep_recursion, with_context, cache_by_key, sort_items, count_calls, running_mean),
    *(move_items, numpy_mix, view_written, keyword_named_function, generator_reads_late),
    *(nested_defaults, getters, groups, unfollowed_equality, class_state, pops, same_list_twice),
    *(aliased_attribute, exceptions, matching, text, sets, default_dicts, deletes, closures, star),
    *(properties, swap_methods, ordered, deques, generic),
]
#: Programs that do what a later call could not know to be the same.
REFUSED = frozenset({"view_written", "unfollowed_equality"})
#: Programs that find other values at each call, since they left them there.
GROWING = frozenset(
    {
        *("count_calls", "running_mean", "numpy_mix", "deques", "nested_defaults", "closures"),
        *("default_dicts", "aliased_attribute", "sets"),
    }
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_worlds_stay_equal(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, mine = world(), world()
    recorded = Recorded(program)
    for step in (AGAIN, *STEPS):
        step(plain)
        step(mine)
        want, got = outcome(program, plain), outcome(recorded, mine)
        assert repr(got) == repr(want)
        assert state(mine) == state(plain)
    assert bool(recorded.refused) == (program.__name__ in REFUSED)
    if program.__name__ not in REFUSED | GROWING:
        assert recorded.hits
    if program is class_state:
        return  # both worlds have the one class
    monkeypatch.setitem(globals(), "FACTOR", 5)
    assert repr(outcome(recorded, mine)) == repr(outcome(program, plain))
    monkeypatch.setattr(Item, "scale", 6)
    assert repr(outcome(recorded, mine)) == repr(outcome(program, plain))
    monkeypatch.setattr(Item, "total", lambda self: -1)
    assert repr(outcome(recorded, mine)) == repr(outcome(program, plain))


def test_a_custom_function_is_followed() -> None:
    class Scaled(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * FACTOR

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * FACTOR

    watch = Watch()
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = run_watched(watch, lambda t: Scaled.apply(t), (x,), {})
    assert y.tolist() == [1, 2]
    assert "ScaledBackward" in repr(y.grad_fn)
    assert any(guard.text == "global FACTOR" for guard in watch.take_guards())
    assert watch.uncacheable == []


def test_no_grad_as_a_decorator_is_followed() -> None:
    @weft.no_grad()
    def f(x: Any) -> Any:
        return x * FACTOR

    watch = Watch()
    run_watched(watch, lambda x: f(x), (weft.ones(1),), {})
    assert watch.uncacheable == []
    assert any(guard.text == "global FACTOR" for guard in watch.take_guards())


def test_a_mode_that_is_left_changed_is_refused() -> None:
    def f() -> None:
        weft.set_grad_enabled(False)

    watch = Watch()
    try:
        run_watched(watch, f, (), {})
    finally:
        weft.set_grad_enabled(True)
    assert any("left changed" in reason for reason in watch.uncacheable)
