"""A loop of the graph writes to a place outside of the function: what that held before is read, and
a later call may find something else there."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import weft

Tensor = weft.Tensor
HELD = SimpleNamespace(attribute=0, items={"k": 0}, numbers=[0], nested={"a": {"b": [0]}})
WIDE: Any = 0


def to_an_attribute(x: Tensor, v: Tensor) -> Tensor:
    n = weft.zeros((), dtype=weft.int64)
    while x > 0 and n < 3:
        n = n + 1
        HELD.attribute = v.sum() + n
    return x * 2


def to_an_item(x: Tensor, v: Tensor) -> Tensor:
    n = weft.zeros((), dtype=weft.int64)
    while x > 0 and n < 3:
        n = n + 1
        HELD.items["k"] = v.sum() + n
    return x * 2


def to_a_list(x: Tensor, v: Tensor) -> Tensor:
    n = weft.zeros((), dtype=weft.int64)
    while x > 0 and n < 3:
        n = n + 1
        HELD.numbers[0] = v.sum() + n
    return x * 2


def to_a_global(x: Tensor, v: Tensor) -> Tensor:
    global WIDE
    n = weft.zeros((), dtype=weft.int64)
    while x > 0 and n < 3:
        n = n + 1
        WIDE = v.sum() + n
    return x * 2


PLACES: dict[Callable[..., Tensor], tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    to_an_attribute: (lambda: HELD.attribute, lambda value: setattr(HELD, "attribute", value)),
    to_an_item: (lambda: HELD.items["k"], lambda value: HELD.items.update(k=value)),
    to_a_list: (lambda: HELD.numbers[0], lambda value: HELD.numbers.__setitem__(0, value)),
    to_a_global: (lambda: WIDE, lambda value: globals().update(WIDE=value)),
}


@pytest.mark.parametrize("start", [0, 1.5])
@pytest.mark.parametrize("function", PLACES, ids=lambda f: f.__name__)
def test_what_a_place_holds_before_a_loop(function: Callable[..., Tensor], start: float) -> None:
    """A loop without an iteration leaves a tensor of the call before as it is, not the number."""
    get, put = PLACES[function]
    found = []
    for call in (function, weft.compile(function, backend="interpret")):
        put(start)
        seen = []
        for number in (1.0, -1.0, 2.0, -1.0, -1.0):
            call(weft.tensor(number), weft.tensor([number, 1.0]))
            seen.append(float(get()))
        found.append(seen)
    assert found[1] == found[0]


def in_a_while(x: Tensor, change: Callable[[], None]) -> Tensor:
    n = weft.zeros((), dtype=weft.int64)
    while n < 2 and x > 0:
        n = n + 1
        change()
    return x * 2


def in_a_branch(x: Tensor, change: Callable[[], None]) -> Tensor:
    if x > 0:
        change()
    return x * 2


def counted_in_a_new_dict() -> None:
    HELD.nested["a"] = {"b": [HELD.nested["a"]["b"][0] + 1]}


def a_new_dict() -> None:
    HELD.nested["a"] = {"b": [7]}


class Counted:
    total = 0

    @classmethod
    def more(cls) -> None:
        cls.total += 1


@pytest.mark.filterwarnings("ignore:.*cannot be kept as a graph")
@pytest.mark.parametrize("around", [in_a_while, in_a_branch])
@pytest.mark.parametrize("change", [counted_in_a_new_dict, a_new_dict, Counted.more])
def test_containers_and_classes(
    change: Callable[[], None], around: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in a container that is replaced counts as read; attributes of classes are written."""
    found = []
    for capture in (lambda f: f, weft.compile):
        call = capture(lambda x: around(x, change))
        monkeypatch.setattr(Counted, "total", 0)
        HELD.nested["a"] = {"b": [0]}
        seen = []
        for step, number in enumerate((1.0, -1.0, 1.0, 1.0, -1.0)):
            if change is a_new_dict:
                HELD.nested["a"] = {"b": [step]}
            call(weft.tensor(number))
            seen.append((Counted.total, repr(HELD.nested)))
        found.append(seen)
    assert found[1] == found[0]
