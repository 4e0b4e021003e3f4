"""`functional_call` from several threads at once, on one module."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import weft
from weft import nn


class Slow(nn.Module):
    """Reads its parameter twice, and lets other threads run in between."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 1, bias=False)
        self.register_buffer("seen", weft.zeros(()))

    def forward(self, x: Any) -> Any:
        first = self.inner(x)
        time.sleep(0.001)
        self.seen += 1
        return first + self.inner(x)


def in_threads(work: Any, count: int) -> None:
    trouble: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]


def test_each_thread_has_its_own_parameters() -> None:
    module = Slow()
    own = module.inner.weight.tolist()

    def work(number: int) -> None:
        for i in range(10):
            value = float(10 * number + i)
            seen = weft.zeros(())
            params = {"inner.weight": weft.full((1, 1), value), "seen": seen}
            out = weft.functional_call(module, params, weft.ones((1, 1)))
            assert out.tolist() == [[2 * value]]
            assert float(seen) == 1

    in_threads(work, 6)
    assert module.inner.weight.tolist() == own
    assert float(module.seen) == 0


def test_gradients_and_maps_in_threads() -> None:
    module = Slow()

    def work(number: int) -> None:
        for i in range(5):
            value = float(10 * number + i)

            def loss(w: Any) -> Any:
                return (weft.functional_call(module, {"inner.weight": w}, weft.ones(1)) ** 2).sum()

            found = weft.grad(loss)(weft.full((1, 1), value))
            assert found.tolist() == [[8 * value]]

    in_threads(work, 4)


def test_a_call_in_a_call() -> None:
    """One thread may be in several at once."""
    inner, outer = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

    class Both(nn.Module):
        def forward(self, x: Any) -> Any:
            return weft.functional_call(inner, {"weight": weft.full((1, 1), 3.0)}, x)

    model = nn.Sequential(outer, Both())
    found = weft.functional_call(model, {"0.weight": weft.full((1, 1), 2.0)}, weft.ones((1, 1)))
    assert found.tolist() == [[6.0]]


def test_an_error_ends_the_turn() -> None:
    module = nn.Linear(1, 1)
    with pytest.raises(weft.errors.ShapeError):
        weft.functional_call(module, {"weight": weft.ones((1, 1))}, weft.ones((1, 5)))

    def work(_number: int) -> None:
        weft.functional_call(module, {"weight": weft.ones((1, 1))}, weft.ones((1, 1)))

    in_threads(work, 2)


def test_a_captured_function_in_a_call_with_other_types() -> None:
    """What it knows of the module's parameters is looked at again."""
    layer = nn.Linear(2, 2, bias=False)
    captured = weft.compile(lambda x: layer(x).sum())

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return captured(x)

    outer, x = Outer(), weft.ones((1, 2))  # before: to make a module counts as a change, too
    for _ in range(2):
        captured(x)
    wide = {"layer.weight": weft.ones((5, 2))}
    assert float(weft.functional_call(outer, wide, x)) == 10
    assert len(captured.recordings) == 2
    captured(x)
    assert len(captured.recordings) == 2
