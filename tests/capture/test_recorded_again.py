"""A function that is recorded again and again says so once: which guard, on which line, and what
to write instead."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import weft


def by_key(x: Any, i: int) -> Any:
    return {n: x * n for n in range(12)}[i]


def by_library(x: Any, i: int) -> Any:
    return x, json.dumps({"i": i})


def by_text(x: Any, i: int) -> Any:
    return by_length(x, "a" * (i + 1))


@weft.compile
def by_length(x: Any, text: str) -> Any:
    return x * len(text)


_seen: list[float] = []


def by_contents(x: Any, i: int) -> Any:
    _seen.append(i)
    return x * max(_seen)


def by_array(x: Any, a: Any) -> Any:
    return x * float(a.sum())


def by_item(x: Any, i: int) -> Any:
    return [x * n for n in range(12)][int((x * i).max().item())]


ROWS = {
    "key": (by_key, range(12), "i at ", "as a size, a key, or in code that is not followed"),
    "library": (by_library, range(12), "i at ", "hand over what is made of it"),
    "contents": (by_contents, range(12), "_seen at ", "as a running sum"),
    "array": (by_array, [np.ones(2) * i for i in range(12)], "a at ", "make a tensor of it"),
    "item": (by_item, range(12), "int of a tensor at ", "keep to tensors there"),
}


def _warned(function: Any, values: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in values:
            function(weft.ones(2), value)
    return [str(entry.message) for entry in caught]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("way", [weft.compile, weft.trace], ids=lambda way: way.__name__)
def test_the_warning_names_the_guard_the_line_and_another_way(name: str, way: Any) -> None:
    function, values, guard, advice = ROWS[name]
    _seen.clear()
    [text] = _warned(way(function), values)
    assert text.startswith(f"{function.__name__} was recorded ")
    assert guard in text
    assert advice in text
    assert f"{__file__}:" in text
    assert "(1 times)" not in text
    assert f"weft.{way.__name__}(limit=...)" in text


def test_texts_are_told_from_numbers() -> None:
    [text] = _warned(by_text, range(12))
    assert "text at " in text
    assert "use it in prints only" in text


@pytest.mark.parametrize("way", [weft.compile, weft.trace], ids=lambda way: way.__name__)
def test_the_limit_names_how_the_function_was_captured(way: Any) -> None:
    [text] = _warned(way(by_key, limit=3), range(6))
    assert f"limit=... of weft.{way.__name__} sets" in text
