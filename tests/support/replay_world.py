"""A small world of Python objects, and a tracer of values over it."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.capture.hooks import run_watched
from weft.capture.watch.effects import Now, replay, template_of
from weft.capture.watch.guard_code import compile_guards
from weft.capture.watch.watch import Watch


class Recorded:
    """A function whose runs are recorded and used again."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.kept: list[tuple[Any, ...]] = []
        self.recordings = self.hits = 0
        self.refused: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for check, effects, result in self.kept:
            if check(args, kwargs) < 0:
                self.hits += 1
                made = result(Now(args, kwargs, lambda tensor: tensor))
                replay(effects, args, kwargs, lambda tensor: tensor)
                return made
        watch = Watch()
        result = run_watched(watch, self.function, args, kwargs)
        self.recordings += 1
        if watch.uncacheable:
            self.refused += watch.uncacheable
            return result
        kept = template_of(result, watch.origin_of)
        now = list(watch.effects)
        guards = watch.take_guards()
        watch.rollback()  # as a tracer does: then the effects are replayed
        number = compile_guards(guards)(args, kwargs)
        # The order of a set that was written to cannot be put back; then it is recorded anew.
        assert number < 0 or guards[number].kind == "order"
        self.kept.append((compile_guards(guards), now, kept))
        replay(now, args, kwargs, lambda tensor: tensor)
        return result


class World(types.SimpleNamespace):
    """What a program works on. `call` calls the program with arguments from the world."""


class Item:
    scale = 2

    def __init__(self, n: int = 1, **more: Any) -> None:
        self.n = n
        vars(self).update(more)

    def total(self) -> int:
        return self.n * self.scale

    def __repr__(self) -> str:
        return f"Item({self.n})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Item) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __lt__(self, other: Any) -> bool:
        return self.n < other.n


@dataclasses.dataclass
class Settings:
    rate: float = 0.5
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1, 2])
    inner: Any = None


def world() -> World:
    data = [3, 1, 2]
    item = Item(1)
    level = [0]

    def add(n: int) -> int:
        level[0] += n
        return level[0]

    return World(
        x=2,
        step=1,
        level=0,
        key="k",
        s="aab b",
        calls=0,
        data=data,
        nested=[[1], [2, 3]],
        history=[1],
        a=[1, 2],
        b=[3],
        d={"k": 4, "z": 1},
        cache={},
        names={"x"},
        groups=collections.defaultdict(list),
        od=collections.OrderedDict(a=1, k=2),
        q=collections.deque([1, 2], maxlen=3),
        item=item,
        other=Item(1),
        items=[Item(3), Item(1), Item(2)],
        settings=Settings(),
        array=np.array([1.0, 2.0, 3.0]),
        add=add,
        get=lambda: level[0],
        cells=level,
    )


def outcome(call: Callable[[Any], Any], w: Any) -> Any:
    try:
        return "ok", call(w)
    except Exception as error:
        return type(error).__name__, str(error)


def state(w: Any) -> str:
    parts = {k: sorted(v) if isinstance(v, set) else v for k, v in sorted(vars(w).items())}
    return repr({k: v for k, v in parts.items() if not callable(v)})
