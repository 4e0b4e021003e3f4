"""What the standard library and NumPy change in objects from outside happens in each call."""

from __future__ import annotations

import bisect
import collections
import heapq
import io
import queue
import random
import warnings
from typing import Any

import numpy as np
import pytest

import weft


class State:
    """All that a function from below may change."""

    def __init__(self) -> None:
        self.list: list[Any] = [3]
        self.counter: collections.Counter[str] = collections.Counter()
        self.queue: queue.Queue[Any] = queue.Queue()
        self.array = np.zeros(2)
        self.text = io.StringIO()
        self.numbers = iter(range(100))

    def shown(self) -> str:
        values = [
            value.tolist() if isinstance(value, weft.Tensor) else value for value in self.list
        ]
        queued = list(self.queue.queue), self.queue.unfinished_tasks
        return repr([values, self.counter, queued, self.array, self.text.getvalue()])


def _push(s: State, x: Any) -> None:
    heapq.heappush(s.list, -len(s.list))


def _insert(s: State, x: Any) -> None:
    bisect.insort(s.list, len(s.list))


def _push_between(s: State, x: Any) -> None:
    s.list.append(7)
    heapq.heappush(s.list, -len(s.list))
    s.list.append(9)
    s.list[0] -= 1


def _count(s: State, x: Any) -> None:
    s.counter.update("aab")
    s.counter.subtract("b")
    s.counter += collections.Counter(c=x.shape[0])


def _put(s: State, x: Any) -> None:
    s.queue.put(x.shape[0])
    if s.queue.qsize() > 2:
        s.queue.get()


def _into_an_array(s: State, x: Any) -> None:
    np.add(s.array, 1, out=s.array)
    s.array[0] += 1
    np.multiply(s.array, 2, out=s.array)


def _one_side(s: State, x: Any) -> None:
    if x.shape[0] > 2:
        heapq.heappush(s.list, 1)
    if x.sum() > 3:
        heapq.heappush(s.list, 2)


def _in_a_loop(s: State, x: Any) -> None:
    for i in range(3):
        heapq.heappush(s.list, i)


def _in_a_loop_of_the_graph(s: State, x: Any) -> None:
    while x.sum() > 1:
        heapq.heappush(s.list, 1)
        x = x / 2


def _either_side(s: State, x: Any) -> None:
    if x.sum() > 5:
        s.list.append(1)
        y = x * 2
        s.counter.update("b")
    else:
        y = x * 3
        s.counter.update("a")
    s.counter["n"] += int(y.sum())


def _a_value(s: State, x: Any) -> None:
    heapq.heappush(s.list, float(x.sum()))


def _a_tensor(s: State, x: Any) -> None:
    s.list.clear()
    heapq.heappush(s.list, x.sum())


def _what_cannot_be_undone(s: State, x: Any) -> None:
    s.text.write("a")
    heapq.heappush(s.list, next(s.numbers))
    random.shuffle(s.list)


SIZES = (2, 2, 3, 2, 2)
CHANGES = [_push, _insert, _push_between, _count, _put, _into_an_array, _one_side, _in_a_loop]
CHANGES += [_in_a_loop_of_the_graph, _either_side, _a_value, _a_tensor, _what_cannot_be_undone]


@pytest.mark.parametrize("dynamic", ["auto", True])
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_each_call_changes_them(change: Any, dynamic: Any) -> None:
    def run(compiles: bool) -> list[Any]:
        state, found = State(), []
        random.seed(0)

        def f(x: Any) -> Any:
            change(state, x)
            return x * 2

        call = weft.compile(f, dynamic=dynamic) if compiles else f
        for number, size in enumerate(SIZES):
            x = weft.ones(size) * (number + 1)
            found += [call(x).tolist(), state.shown()]
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", weft.CaptureWarning)
        assert run(True) == run(False)
