"""What programs with effects write to: objects outside of the function, a global, a variable of a
closure, the output, a log. Their state after each call must be as eagerly.

The text of the world stands in each such case; the functions here copy what is in it, put it back,
and show it as plain data.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import weft

WORLD = """import logging

logger = logging.getLogger("weft.fuzz")


class Item:
    def __init__(self, first, second=0):
        self.first = first
        self.second = second

    def __repr__(self):
        return "an item"


class World:
    def __init__(self):
        self.log = []
        self.numbers = [1, 2]
        self.d = {}
        self.n = 0
        self.last = None
        self.total = weft.zeros((), dtype=weft.float64)
        self.item = Item(0)


def counter():
    count = 0

    def tick(by=1):
        nonlocal count
        count = count + by
        return count

    return tick


s = World()
tick = counter()
G = 0


def grow(n):
    global G
    G = G + n


def noted(key, value):
    s.d[key] = value
    return value


"""
#: How a tensor prints its history: in a captured call it is another node, or none.
_HISTORY = re.compile(r"(, )?(grad_fn=<\w+>|requires_grad=True)")
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?|\bnan\b|-?\binf\b")


class World:
    """The world of one module of a case."""

    def __init__(self, space: dict[str, Any]) -> None:
        self.space = space
        self.output = io.StringIO()
        self.initial = self.state()

    def state(self) -> dict[str, Any]:
        """Copies of all that programs may have changed."""
        own = _copied(vars(self.space["s"]))
        (cell,) = self.space["tick"].__closure__
        return {"s": own, "G": _copied(self.space["G"]), "count": _copied(cell.cell_contents)}

    def put_back(self, state: dict[str, Any]) -> None:
        """Give everything its contents of before; containers from outside stay the same objects."""
        world = self.space["s"]
        for name, value in _copied(state["s"]).items():
            held = getattr(world, name)
            if type(held) is type(value) is list:
                held[:] = value
            elif type(held) is type(value) is dict:
                held.clear()
                held.update(value)
            else:
                setattr(world, name, value)
        self.space["G"] = _copied(state["G"])
        (cell,) = self.space["tick"].__closure__
        cell.cell_contents = _copied(state["count"])

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Keep what a call prints and logs."""
        self.output = io.StringIO()
        handler = logging.StreamHandler(self.output)
        logger = self.space["logger"]
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
        with contextlib.redirect_stdout(self.output):
            yield

    def seen(self) -> Any:
        """The state and the output as plain data: numbers in texts are numbers."""
        return {"state": shown(self.state()), "output": shown(self.output.getvalue())}


def _copied(value: Any) -> Any:
    if isinstance(value, weft.Tensor):
        made = value.detach().clone()
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_copied(part) for part in value])
    if type(value).__name__ == "Item":
        return type(value)(_copied(value.first), _copied(value.second))
    return value


def _kind(number: re.Match[str]) -> str:
    return "#" if number[0].lstrip("-").isdigit() else "#."


def shown(value: Any) -> Any:
    """Objects of the case's own class as dicts, texts as their numbers and what is between them."""
    if isinstance(value, str):
        value = _HISTORY.sub("", value)
        numbers = [float(text) for text in _NUMBER.findall(value)]
        return {"text": _NUMBER.sub(_kind, value), "numbers": np.asarray(numbers)}
    if isinstance(value, dict):
        return {str(key): shown(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([shown(part) for part in value])
    if type(value).__name__ == "Item":
        return {"Item": [shown(value.first), shown(value.second)]}
    return value
