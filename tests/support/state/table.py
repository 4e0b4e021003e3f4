"""What a row of the state tests is: a world, a function on it, and what is seen afterwards."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft


class World(types.SimpleNamespace):
    """What a row's function reads and writes; made anew for each run."""


@dataclass(frozen=True)
class Row:
    """A row.

    make        fills a world and gives the function
    calls       the arguments of the calls, made anew for each run
    modes       the ways of capture that can do it, and
    why         why there are others, or why it is not kept as a graph
    kept        whether it is kept as a graph
    """

    make: Callable[[World], Callable[..., Any]]
    calls: Callable[[], Sequence[tuple[Any, ...]]]
    modes: tuple[str, ...] = ("trace", "source")
    why: str = ""
    kept: bool = True

    @property
    def name(self) -> str:
        return self.make.__name__


def vectors(*numbers: float) -> Callable[[], list[tuple[Any, ...]]]:
    """Calls with one vector each, (n, n + 1)."""
    return lambda: [(weft.asarray([n, n + 1], dtype=weft.float64),) for n in numbers]


#: Both sides of `x.sum() > 0`, more than once each, and in a row.
BOTH = vectors(1, 2, -3, -4, 5, -6, 0.5)
FEW = vectors(1, 2, 3, 4)


def row(calls: Any = FEW, **more: Any) -> Callable[[Any], Row]:
    return lambda make: Row(make, calls, **more)


def seen(value: Any, known: dict[int, tuple[int, Any]] | None = None) -> Any:
    """All that can be told of a value: numbers, structure, and which objects are one."""
    known = {} if known is None else known
    if value is None or isinstance(value, (bool, int, float, str, bytes, type, range)):
        return value
    if id(value) in known:
        return f"again {known[id(value)][0]}"
    known[id(value)] = len(known), value  # kept alive: its id stays its own
    if isinstance(value, weft.Tensor):
        grad = seen(value.grad, known) if value.is_leaf else "computed"
        history = value.requires_grad, value.is_leaf
        return type(value).__name__, value.numpy(copy=True), history, grad
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return type(value).__name__, [(seen(k, known), seen(v, known)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(value)
    if isinstance(value, Sequence) or hasattr(value, "popleft"):
        return type(value).__name__, [seen(part, known) for part in value]
    if isinstance(value, weft.Generator):
        return "generator", seen(value._state, known)
    if isinstance(value, weft.nn.Module):
        return [(n, seen(p, known)) for n, p in value.state_dict().items()], value.training
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    own = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return type(value).__name__, seen({**getattr(value, "__dict__", {}), **own}, known)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and bool(np.allclose(a, b, rtol=1e-12, atol=1e-14, equal_nan=True))
        )
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)
