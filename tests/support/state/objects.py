"""Attributes, lists, dicts and names that are rebound."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np

import weft
from state.table import World, row

TOTAL: Any = None
CALLS = 0


class Slots:
    __slots__ = ("h", "n")


@dataclasses.dataclass
class Fields:
    h: Any
    n: int = 0


class Guarded:
    def __init__(self) -> None:
        self._h = weft.zeros(2, dtype=weft.float64)

    @property
    def h(self) -> Any:
        return self._h

    @h.setter
    def h(self, value: Any) -> None:
        self._h = value * 2


@row()
def counter(w: World):
    w.steps = 0

    def f(x):
        w.steps += 1
        return x * 2

    return f


@row()
def counter_that_is_used(w: World):
    w.steps = 0

    def f(x):
        w.steps += 1
        return x * w.steps

    return f


@row()
def hidden_state(w: World):
    w.h = weft.zeros(2, dtype=weft.float64)

    def f(x):
        w.h = weft.tanh(w.h + x)
        return w.h

    return f


@row()
def attribute_that_was_not_there(w: World):
    def f(x):
        if not hasattr(w, "h"):
            w.h = x * 0
        w.h = w.h + x
        return w.h * 2

    return f


@row()
def attribute_deleted(w: World):
    def f(x):
        w.cache = x * 2
        y = w.cache + 1
        del w.cache
        return y

    return f


@row()
def swapped(w: World):
    w.a, w.b = weft.zeros(2, dtype=weft.float64), weft.ones(2, dtype=weft.float64)

    def f(x):
        w.a, w.b = w.b, w.a
        return w.a + x

    return f


@row()
def argument_stored(w: World):
    """The very object: it is seen to be the same one."""

    def f(x):
        w.last = x
        w.both = (x, x * 2)
        return x

    return f


@row()
def one_tensor_under_two_names(w: World):
    w.a = w.b = weft.zeros(2, dtype=weft.float64)

    def f(x):
        w.a += x
        w.c = w.b
        w.b = w.b * 1
        return w.c + w.b

    return f


@row()
def slots(w: World):
    w.s = Slots()
    w.s.n = 0
    w.s.h = weft.zeros(2, dtype=weft.float64)

    def f(x):
        w.s.n = w.s.n + 1
        w.s.h = w.s.h + x
        return w.s.h

    return f


@row()
def dataclass(w: World):
    w.d = Fields(weft.zeros(2, dtype=weft.float64))

    def f(x):
        w.d.h = w.d.h * 0.5 + x
        w.d.n -= 1
        return Fields(w.d.h, w.d.n).h

    return f


@row()
def property_with_a_setter(w: World):
    w.g = Guarded()

    def f(x):
        w.g.h = w.g.h + x
        return w.g.h

    return f


@row()
def setattr_by_name(w: World):
    w.h0, w.h1 = weft.zeros(2, dtype=weft.float64), weft.zeros(2, dtype=weft.float64)

    def f(x):
        for i in range(2):
            setattr(w, f"h{i}", getattr(w, f"h{i}") + x * i)
        return w.h1

    return f


@row()
def closure(w: World):
    total, calls = weft.zeros(2, dtype=weft.float64), 0

    def f(x):
        nonlocal total, calls
        total = total + x
        calls += 1
        return total

    w.read = lambda: (total, calls)
    return f


@row()
def global_names(w: World):
    global TOTAL, CALLS
    TOTAL, CALLS = weft.zeros(2, dtype=weft.float64), 0

    def f(x):
        global TOTAL, CALLS
        TOTAL = TOTAL + x
        CALLS += 2
        return TOTAL * 2

    w.read = lambda: (TOTAL, CALLS)
    return f


# --- containers ----------------------------------------------------------------------------------


@row()
def list_grows(w: World):
    w.items = []

    def f(x):
        w.items.append(x * 2)
        return x

    return f


@row()
def list_window(w: World):
    w.items = [weft.zeros(2, dtype=weft.float64)] * 2

    def f(x):
        w.items = [*w.items[1:], x * 1]
        return w.items[0] + w.items[1]

    return f


@row()
def list_items(w: World):
    w.items = [weft.zeros(2, dtype=weft.float64) for _ in range(3)]

    def f(x):
        w.items[0] = w.items[1] + x
        w.items[1] += x
        w.items.reverse()
        w.items.insert(1, x * 3)
        return w.items.pop(2) + w.items[-1]

    return f


@row()
def list_cleared(w: World):
    w.items = [1, 2]

    def f(x):
        w.items.clear()
        w.items.extend([x, x * 2])
        return sum(w.items)

    return f


@row()
def dict_items(w: World):
    w.d = {"h": weft.zeros(2, dtype=weft.float64), "n": 0}

    def f(x):
        w.d["h"] = w.d["h"] + x
        w.d["n"] += 1
        w.d["new"] = {"x": x * 2}
        w.d.setdefault("first", x)
        w.d.update(last=x * 3)
        return w.d.pop("last")

    return f


@row()
def nested_containers(w: World):
    w.d = {"layers": [{"m": weft.zeros(2, dtype=weft.float64)} for _ in range(2)]}

    def f(x):
        for layer in w.d["layers"]:
            layer["m"] = layer["m"] * 0.9 + x
        w.d["layers"].append({"m": x * 2})
        return w.d["layers"][0]["m"]

    return f


@row()
def other_containers(w: World):
    w.groups = defaultdict(list)
    w.recent = deque(maxlen=2)
    w.order = OrderedDict(a=1, b=2)
    w.names = {"a"}
    w.counts = Counter()

    def f(x):
        w.groups["x"].append(x * 2)
        w.recent.append(x.detach())
        w.order.move_to_end("a")
        w.names.add("b")
        w.counts["calls"] += 1
        return x + len(w.names)

    return f


@row()
def what_is_in_the_arguments(w: World):
    """Objects of the caller are written to through the arguments, also those in containers."""

    def f(state, xs):
        state["h"] = state["h"] + xs[0]
        state["n"] += 1
        xs.append(state["h"] * 2)
        return state["h"]

    w.state = {"h": weft.zeros(2, dtype=weft.float64), "n": 0}
    w.xs = [weft.ones(2, dtype=weft.float64)]
    return lambda _x: f(w.state, w.xs)


@row()
def arrays(w: World):
    """An array of NumPy's is a value, too: what it holds at the time of the call."""
    w.a = np.zeros(2)

    def f(x):
        y = x + weft.asarray(w.a)
        w.a[...] = w.a + 1
        return y

    return f


ROWS = [
    counter,
    counter_that_is_used,
    hidden_state,
    attribute_that_was_not_there,
    attribute_deleted,
    swapped,
    argument_stored,
    one_tensor_under_two_names,
    slots,
    dataclass,
    property_with_a_setter,
    setattr_by_name,
    closure,
    global_names,
    list_grows,
    list_window,
    list_items,
    list_cleared,
    dict_items,
    nested_containers,
    other_containers,
    what_is_in_the_arguments,
    arrays,
]
