"""Runs that cannot be done again are refused, and what they changed is put back."""

# ruff: noqa: C416, NPY002

from __future__ import annotations

import collections
import datetime
import heapq
import io
import os
import queue
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from effect_objects import Box

import weft
from weft.capture.hooks import run_watched
from weft.capture.watch.watch import Watch


def store_object(b: Any) -> None:
    b.value = Box(2)


def store_function(b: Any) -> None:
    b.value = lambda: b


def store_in_list(x: Any) -> None:
    x.append([1, {"k": Box(2)}])


def advance(it: Any) -> Any:
    return next(it)


def loop_over(it: Any) -> Any:
    return [x for x in it]


def shuffled(x: Any) -> Any:
    random.shuffle(x)
    return x


def sourceless(f: Any) -> Any:
    return f(1)


namespace: dict[str, Any] = {}
exec("def no_source(x):\n    return x", namespace)

REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (lambda: time.time(), (), "time.time"),
    (lambda: time.perf_counter() > 0, (), "time.perf_counter"),
    (lambda: random.random(), (), "random"),
    (lambda: np.random.rand(2), (), "random"),
    (lambda: np.random.default_rng(0).random(), (), "random"),
    (lambda: os.environ.get("HOME"), (), "environ"),
    (lambda: os.getenv("HOME"), (), "getenv"),
    (lambda: os.urandom(2), (), "urandom"),
    (lambda: open(__file__).close(), (), "open"),
    (lambda: datetime.datetime.now(), (), "now"),
    (lambda: datetime.date.today(), (), "today"),
    (lambda: uuid.uuid4(), (), "uuid"),
    (lambda: id([]), (), "id()"),
    (lambda: weft.Generator().state, (), "seed"),
    (lambda: weft.Generator(0).seed(), (), "seed"),
    (lambda f: f.write("x"), (io.StringIO(),), "StringIO"),
    (advance, (iter([1, 2]),), "the iterator args[0] from outside is advanced"),
    (loop_over, ((x for x in [1]),), "the iterator args[0] from outside is advanced"),
    (shuffled, ([1, 2, 3],), "random"),
    (sourceless, (namespace["no_source"],), "no_source cannot be watched"),
    (store_object, (Box(),), "stores an object of class Box, made during the run"),
    (store_function, (Box(),), "<lambda>, made during the run"),
    (store_in_list, ([],), "stores an object of class Box"),
    (lambda: eval("1"), (), "eval()"),
    (lambda: globals(), (), "globals()"),
    (lambda: repr(Box()), (), "the address of a Box"),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[2].replace(" ", "-"))
def test_a_run_is_refused(row: Any) -> None:
    fn, args, reason = row
    watch = Watch()
    run_watched(watch, fn, args, {})
    assert any(reason in text for text in watch.uncacheable)
    line = fn.__code__.co_firstlineno
    assert any(f"{__file__}:{line}" in text or __file__ in text for text in watch.uncacheable)


def test_what_the_library_changes_is_put_back() -> None:
    import heapq

    def f(x: list[int]) -> None:
        heapq.heappush(x, 0)

    data = [1, 2]
    watch = Watch()
    run_watched(watch, f, (data,), {})
    assert any("heappush changes args[0]" in text for text in watch.uncacheable)
    watch.rollback()
    assert data == [1, 2]


def test_an_error_leaves_effects_that_can_be_undone() -> None:
    def f(b: Any) -> None:
        b.value = 5
        raise ValueError("stop")

    box = Box()
    watch = Watch()
    with pytest.raises(ValueError, match="stop"):
        run_watched(watch, f, (box,), {})
    assert box.value == 5
    watch.rollback()
    assert box.value == 1


class Outside:
    """Objects that a compiled function finds."""

    def __init__(self) -> None:
        self.count = collections.Counter()
        self.numbers = [3]
        self.array = np.zeros(2)
        self.queue: Any = queue.Queue()
        self.names: dict[str, int] = {}
        self.made: list[int] = []

    def state(self) -> Any:
        held = list(self.queue.queue)
        return [self.count, self.numbers, self.array.tolist(), held, self.names, self.made]


def pushed_to_a_list_of_the_run(o: Any) -> None:
    o.made = [*o.made, len(o.made)]
    heapq.heappush(o.made, -1)


def pushed_between_others(o: Any) -> None:
    o.numbers.append(1)
    heapq.heappush(o.numbers, -1)
    o.numbers.append(2)


def negated_in_a_view(o: Any) -> None:
    np.negative(o.array[:1], o.array[:1])
    o.array += 1


CHANGES: dict[str, Callable[[Any], Any]] = {
    f.__name__: f for f in (pushed_to_a_list_of_the_run, pushed_between_others, negated_in_a_view)
}
CHANGES |= {
    "heappush of a value": lambda o: heapq.heappush(o.numbers, weft.ones(2).sum().item()),
    "a filled view": lambda o: o.array[:1].fill(o.array[0] + 2),
    "an item of a view": lambda o: o.array[:1].__setitem__(0, o.array[0] + 2),
    "two": lambda o: (heapq.heappush(o.numbers, 0), o.count.update("ab"), o.names.update(a=1)),
}


@pytest.mark.filterwarnings("ignore:.*cannot be kept as a graph")
@pytest.mark.parametrize("capture", [weft.compile, weft.trace])
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_library_changes_is_changed_once_in_each_call(name: str, capture: Any) -> None:
    change = CHANGES[name]
    eager, captured = Outside(), Outside()
    f = capture(lambda x: (change(captured), x * 2)[1])
    for size in (2, 2, 3, 2, 2):
        change(eager)
        f(weft.ones(size))
        assert captured.state() == eager.state()
