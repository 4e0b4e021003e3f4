"""Writes to outside: seen, undone by a rollback, done again by a replay."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effect_objects import Box, Slotted, same, state

import weft
from weft.capture.hooks import run_watched
from weft.capture.watch.effects import replay
from weft.capture.watch.guard_code import compile_guards
from weft.capture.watch.watch import Watch

TOTAL = 0
LOG: list[Any] = []


class Watched:
    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, [value])


class Mapping(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, (value,))


def set_attribute(b: Any) -> None:
    b.value = 5
    b.new = [1, 2]


def add_to_attribute(b: Any) -> int:
    b.value += 3
    b.add(4)
    return b.value


def delete_attribute(b: Any) -> bool:
    del b.value
    return hasattr(b, "value")


def set_property(b: Any) -> Any:
    b.double = 10
    return b.double


def set_item(x: Any) -> Any:
    x["a"] = 5
    x["z"] = {"k": [1]}
    x["z"]["k"].append(2)
    return x["a"], len(x)


def delete_item(x: Any) -> Any:
    del x["a"]
    return "a" in x, list(x)


def list_methods(x: Any) -> Any:
    x.append(4)
    x.extend([5, 6])
    x.insert(0, 0)
    last = x.pop()
    x.remove(2)
    x.reverse()
    x.sort()
    x += [9]
    x[1] = 8
    del x[0]
    x[0:1] = [7, 7]
    x *= 2
    return last, x[-1], len(x), list(x)


def dict_methods(x: Any) -> Any:
    a = x.pop("a")
    b = x.setdefault("b", 9), x.setdefault("n", [1])
    x.update(c=3, d=4)
    x |= {"e": 5}
    last = x.popitem()
    return a, b, last, dict(x), x.get("c"), x.pop("nothing", None)


def set_methods(x: Any) -> Any:
    x.add(5)
    x.discard(1)
    x.update([7, 8])
    x |= {9}
    x -= {7}
    x.remove(8)
    return sorted(x), 5 in x


def deque_methods(x: Any) -> Any:
    x.append(4)
    x.appendleft(0)
    first = x.popleft()
    x.rotate(1)
    x.extend([7, 8])
    return first, x[0], list(x)


def ordered_methods(x: Any) -> Any:
    x.move_to_end("a")
    x["z"] = 1
    return list(x.items())


def clear(x: Any) -> Any:
    x.clear()
    return len(x)


def default_dict(x: Any) -> Any:
    x["new"].append(1)
    x["k"].append(2)
    return x["new"], sorted(x)


def nested(x: Any) -> Any:
    x[0]["k"][1] = 5
    x[0]["k"].append(6)
    return x[0]["k"]


def slots(x: Any) -> Any:
    x.a += 1
    x.b = 3
    return x.a, x.b


def custom_setattr(x: Any) -> Any:
    x.a = 1
    return x.a


def custom_setitem(x: Any) -> Any:
    x["a"] = 1
    return x["a"]


def array(x: Any) -> Any:
    x[0] = 5
    x += 1
    x.sort()
    x.__setitem__(1, 7)
    return x.sum()


def swap(x: Any) -> Any:
    x[0], x[1] = x[1], x[0]
    return x


def move(x: Any) -> Any:
    """Objects from outside that change places stay themselves."""
    x["b"] = x["a"]
    del x["a"]
    return x["b"]


def tensors(x: Any) -> Any:
    x["sum"] = x["t"] + 1
    x["all"] = (x["sum"], {"t": x["t"]}, 3)
    return x["sum"]


def shared(x: Any) -> Any:
    both = [1]
    x["p"] = both
    x["q"] = both
    both.append(2)
    return both


def callbacks(b: Any) -> Any:
    b.double_it = functools.partial(scaled, 2)
    b.method = b.add
    b.function = Box.add
    b.method(3)
    return b.double_it(b.value)


def scaled(k: int, x: Any) -> Any:
    return k * x


def set_by_name(b: Any) -> Any:
    setattr(b, "value", 7)  # noqa: B010
    vars(b)["other"] = 8
    b.__dict__.update(third=9)
    delattr(b, "third")
    return b.value, b.other


#: The function, and what makes its argument.
ROWS: list[tuple[Callable[[Any], Any], Callable[[], Any]]] = [
    (set_attribute, Box),
    (add_to_attribute, Box),
    (delete_attribute, Box),
    (set_property, Box),
    (set_by_name, Box),
    (callbacks, Box),
    (set_item, lambda: {"a": 1, "b": 2}),
    (delete_item, lambda: {"a": 1, "b": 2}),
    (list_methods, lambda: [3, 1, 2]),
    (dict_methods, lambda: {"a": 1, "b": 2}),
    (set_methods, lambda: {1, 2, 3}),
    (deque_methods, lambda: collections.deque([1, 2, 3], maxlen=5)),
    (ordered_methods, lambda: collections.OrderedDict(a=1, b=2)),
    (clear, lambda: [1, 2]),
    (clear, lambda: {"a": 1}),
    (clear, lambda: {1, 2}),
    (default_dict, lambda: collections.defaultdict(list, k=[1])),
    (nested, lambda: [{"k": [1, 2]}]),
    (slots, Slotted),
    (custom_setattr, Watched),
    (custom_setitem, Mapping),
    (array, lambda: np.array([3.0, 1.0, 2.0])),
    (swap, lambda: [Box(1), Box(2)]),
    (move, lambda: {"a": Box(1)}),
    (tensors, lambda: {"t": weft.ones(2)}),
    (shared, dict),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].__name__)
def test_effects_are_undone_and_done_again(row: Any) -> None:
    fn, make = row
    plain, mine, later = make(), make(), make()
    want = state(fn(plain))
    before = state(mine)
    watch = Watch()
    got = state(run_watched(watch, fn, (mine,), {}))
    assert watch.uncacheable == []
    assert got == want
    assert state(mine) == state(plain)
    effects, guards = watch.effects, watch.take_guards()
    assert effects
    watch.rollback()
    assert state(mine) == before
    # the same on the same object, and on another one that is equal
    for target in (mine, later):
        assert compile_guards(guards)((target,), {}) == -1
        replay(effects, (target,), {}, same)
        assert state(target) == state(plain)


def test_rollback_puts_the_very_objects_back() -> None:
    inner = [1]
    data = {"a": inner, "b": Box(inner)}
    held = data["b"]

    def f(d: Any) -> None:
        d["b"].value = 3
        d["a"].append(2)
        d.clear()

    watch = Watch()
    run_watched(watch, f, (data,), {})
    assert data == {}
    watch.rollback()
    assert data["a"] is inner
    assert data["b"] is held
    assert held.value is inner
    assert inner == [1]


def test_globals_and_closures() -> None:
    count = 0
    items: list[int] = []

    def f() -> int:
        nonlocal count
        global TOTAL
        count += 1
        TOTAL += 10
        TOTAL = TOTAL + count
        items.append(count)
        LOG.append("x")
        return count

    watch = Watch()
    assert run_watched(watch, f, (), {}) == 1
    assert (count, TOTAL, items, LOG) == (1, 11, [1], ["x"])
    guards = watch.take_guards()
    texts = [guard.description for guard in guards]
    assert "count == 0" in texts
    assert "global TOTAL == 0" in texts
    watch.rollback()
    assert (count, TOTAL, items, LOG) == (0, 0, [], [])
    assert compile_guards(guards)((), {}) == -1
    replay(watch.effects, (), {}, same)
    assert (count, TOTAL, items, LOG) == (1, 11, [1], ["x"])
    watch.rollback()
    items.clear()
    LOG.clear()
    globals()["TOTAL"] = 0


def test_reads_after_a_write_are_no_guards() -> None:
    def f(b: Any, d: Any, x: list[int]) -> Any:
        b.value = 3
        d["k"] = 4
        x[0] = 5
        return b.value + d["k"] + x[0]

    watch = Watch()
    run_watched(watch, f, (Box(1), {"k": 1}, [1, 2]), {})
    check = compile_guards(watch.take_guards())
    assert check((Box(8), {"k": 8}, [8, 8]), {}) == -1
    assert check((Box(8), {"z": 8}, [8, 8]), {}) == -1


def test_append_does_not_guard_what_is_there() -> None:
    def f(log: list[Any], x: int) -> None:
        log.append(x)

    watch = Watch()
    run_watched(watch, f, ([1], 2), {})
    check = compile_guards(watch.take_guards())
    assert check(([1, 2, 3], 2), {}) == -1
    log = [5]
    replay(watch.effects, (log, 2), {}, same)
    assert log == [5, 2]


def test_reading_what_was_there_before_the_append() -> None:
    def f(log: list[Any]) -> Any:
        log.append(3)
        return log[0], len(log)

    watch = Watch()
    run_watched(watch, f, ([1],), {})
    guards = watch.take_guards()
    check = compile_guards(guards)
    assert check(([1],), {}) == -1
    assert check(([2],), {}) >= 0
    assert check(([1, 3],), {}) >= 0


def test_the_length_after_a_write_depends_on_the_keys() -> None:
    def f(d: dict[str, int], s: set[int]) -> Any:
        d["c"] = 1
        s.add(3)
        return len(d), len(s)

    watch = Watch()
    run_watched(watch, f, ({"a": 1, "b": 2}, {1, 2}), {})
    check = compile_guards(watch.take_guards())
    assert check(({"a": 5, "b": 6}, {1, 2}), {}) == -1
    assert check(({"a": 5, "c": 6}, {1, 2}), {}) >= 0
    assert check(({"a": 5, "b": 6}, {1, 3}), {}) >= 0


def test_tensors_are_asked_for() -> None:
    def f(b: Any, x: Any) -> None:
        y = x * 2
        b.value = [y, (x, 1)]

    box, x = Box(), weft.ones(2)
    watch = Watch()
    run_watched(watch, f, (box, x), {})
    y = box.value[0]
    (effect,) = watch.effects
    assert [t is y or t is x for t in effect.tensors()] == [True, True]
    table = {id(y): weft.zeros(2), id(x): weft.ones(2)}
    other = Box()
    replay([effect], (other, x), {}, lambda t: table[id(t)])
    assert state(other.value) == [("tensor", [0, 0]), [("tensor", [1, 1]), 1]]
    replay([effect], (other, x), {}, lambda t: table[id(t)])
    assert other.value[0] is table[id(y)]
