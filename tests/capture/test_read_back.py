"""What a function writes to objects from outside or to files, and reads in the same call."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

Made = tuple[Callable[[Any], Any], Callable[[], Any]]
INPUTS = [[1, 2], [1, 2], [-3, 1], [5, 5, 5], [1, 2]]


def _nothing() -> None:
    return None


def print_to_a_buffer() -> Made:
    def f(x: Any) -> Any:
        buffer = io.StringIO()
        print(x.sum().item(), "rows", x.shape[0], file=buffer)
        return buffer.getvalue()

    return f, _nothing


def redirected() -> Made:
    def f(x: Any) -> Any:
        buffer = io.StringIO()
        with contextlib.redirect_stdout(buffer):
            print("sum", x.sum().item())
        return buffer.getvalue()

    return f, _nothing


def print_to_a_buffer_from_outside() -> Made:
    buffer = io.StringIO()

    def f(x: Any) -> Any:
        print(x.sum().item(), file=buffer)
        buffer.write("|")
        return buffer.getvalue()

    return f, buffer.getvalue


def own_handler() -> Made:
    seen: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    logger = logging.getLogger(f"test {id(seen)}")
    logger.propagate = False
    logger.addHandler(Handler())
    logger.setLevel(logging.INFO)

    def f(x: Any) -> Any:
        logger.info("sum %.1f", x.sum().item())
        return len(seen), seen[-1]

    return f, lambda: list(seen)


def caught_warnings() -> Made:
    def f(x: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=1)
        return len(caught), x.tolist()

    return f, _nothing


def array_written_before_it_is_read() -> Made:
    array, places = np.zeros(3, np.float32), np.zeros(1, int)

    def f(x: Any) -> Any:
        before = weft.asarray(array) + 0
        array[0] = x.sum().item()
        between = weft.asarray(array)
        array[1:] += 1
        np.add(array, 1, out=array)
        places[0] = 1
        after = x.sum() + array, weft.ones(3) @ weft.asarray(array), weft.asarray([array, array])
        return before, between, *after, x[places], weft.stack([weft.asarray(array)] * 2)

    return f, lambda: (array.tolist(), places.tolist())


def array_of_values() -> Made:
    array = np.zeros(8, np.float32)

    def f(x: Any) -> Any:
        array[: x.shape[0]] = x.numpy()
        return weft.asarray(array) * 2

    return f, array.tolist


def dict_that_makes_its_items() -> Made:
    class Config(dict[str, Any]):
        def __getattr__(self, key: str) -> Any:
            return self[key]

        def __missing__(self, key: str) -> Any:
            self[key] = key
            return key

    config = Config(n=0)

    def f(x: Any) -> Any:
        return len(config["more"]), len(config), x * 2

    return f, lambda: list(config)


def numpy_result_after_an_effect() -> Made:
    numbers = itertools.count()
    return lambda x: (x + next(numbers), np.int64(3)), lambda: next(numbers)


def set_after_a_draw() -> Made:
    draws = random.Random(0)
    return lambda x: (x + draws.random(), {1, 2}), draws.random


CASES = [
    *(print_to_a_buffer, redirected, print_to_a_buffer_from_outside, own_handler, caught_warnings),
    *(array_written_before_it_is_read, array_of_values, dict_that_makes_its_items),
    *(numpy_result_after_an_effect, set_after_a_draw),
]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, weft.Tensor) else value


@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_as_eager(case: Callable[[], Made], capture: str) -> None:
    function, state = case()
    wanted = [_plain(function(weft.tensor(x, dtype="float32"))) for x in INPUTS], state()
    function, state = case()
    call = weft.compile(function) if capture == "source" else weft.trace(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", weft.CaptureWarning)
        found = [_plain(call(weft.tensor(x, dtype="float32"))) for x in INPUTS], state()
    assert found == wanted
