"""Numbers that every call gets anew: `time.time()`, `random.random()`, `np.random.randn()`.

Each is a call back into Python in the graph, in order with other effects, whose result is a number
of the graph. So the state of `random` changes as if Python ran the function. A clock is read when
all that was computed before it is done, and before all else: it takes what nobody has used yet as
operands.

Where a call that has drawn numbers is run by Python after all, their generators are set back first
(`weft.ops.effects.set_back`).
"""

# ruff: noqa: NPY002 (the generators of old code are the point here)
from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.device import CPU
from weft.base.dtypes import DType, float64, int64
from weft.base.pytree import tree_flatten
from weft.core.number import Number
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor
from weft.ir.types import TensorType
from weft.ops.creation import asarray
from weft.ops.effects import PY_CALL, Drawn, set_back
from weft.record.control.nested import graph_recorder, known_number
from weft.record.effects import effect, templated

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

_LIMIT = 1 << 63
#: Functions without arguments, and the dtype of what they give.
_CLOCKS: dict[Any, DType] = {
    **dict.fromkeys((time.time, time.perf_counter, time.monotonic), float64),
    **dict.fromkeys((time.process_time, time.thread_time), float64),
    **dict.fromkeys((time.time_ns, time.perf_counter_ns, time.monotonic_ns), int64),
    **dict.fromkeys((time.process_time_ns, time.thread_time_ns), int64),
}
#: Functions of numbers alone: how many they take at least and at most, and what they give.
_Draws = dict[str, tuple[int, int, DType]]
_OF_RANDOM: _Draws = {
    "random": (0, 0, float64),
    "uniform": (2, 2, float64),
    "triangular": (0, 3, float64),
    "gauss": (0, 2, float64),
    "normalvariate": (0, 2, float64),
    "lognormvariate": (2, 2, float64),
    "expovariate": (1, 1, float64),
    "betavariate": (2, 2, float64),
    "gammavariate": (2, 2, float64),
    "vonmisesvariate": (2, 2, float64),
    "paretovariate": (1, 1, float64),
    "weibullvariate": (2, 2, float64),
    "randint": (2, 2, int64),
    "randrange": (1, 3, int64),
}
_OF_NUMPY: _Draws = {
    "random": (0, 0, float64),
    "random_sample": (0, 0, float64),
    "rand": (0, 0, float64),
    "randn": (0, 0, float64),
    "standard_normal": (0, 0, float64),
    "uniform": (0, 2, float64),
    "normal": (0, 2, float64),
    "randint": (1, 2, int64),
}


def _clock(function: Any, dtype: DType) -> Callable[..., Any]:
    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not _may_record(hooks):
            return NotImplemented
        return _recorded(hooks, f"time.{function.__name__}()", True, function, (), dtype)

    return handle


def _draw(function: Any, of_numpy: bool, least: int, most: int, dtype: DType) -> Callable[..., Any]:
    state = _state_of_numpy if of_numpy else _state
    name = f"{'np.' if of_numpy else ''}random.{function.__name__}()"

    def drawn(*args: Any) -> Any:
        set_back(state)
        return function(*args)

    drawn.__name__ = drawn.__qualname__ = name.removesuffix("()")

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        fits = not kwargs and least <= len(args) <= most and _may_record(hooks)
        if not fits or not all(_is_number(x, dtype) for x in args):
            return NotImplemented
        return _recorded(hooks, name, False, drawn, args, dtype)

    return handle


def _state() -> Callable[[], object]:
    module = sys.modules["random"]
    state = module.getstate()
    return lambda: module.setstate(state)


def _state_of_numpy() -> Callable[[], object]:
    state = np.random.get_state()
    return lambda: np.random.set_state(state)


def _is_number(x: Any, dtype: DType) -> bool:
    """Whether a draw of this dtype may have such an argument: what it gives must fit in it."""
    if x.__class__ is Number:
        return dtype is float64 or x.kind == "int"
    return type(x) is int and -_LIMIT <= x < _LIMIT if dtype is int64 else type(x) in (int, float)


def _may_record(hooks: Hooks) -> bool:
    return hooks.watch.active and graph_recorder() is not None


def _unused() -> list[Tensor]:
    """The values of the graph that no node has used yet."""
    here = graph_recorder()
    assert here is not None
    used = {value for node in here.graph.nodes for value in node.inputs}
    return [
        symbolic(value, here)
        for node in here.graph.nodes
        for value in node.outputs
        if value not in used and isinstance(value.type, TensorType)
    ]


def _recorded(
    hooks: Hooks, name: str, clock: bool, function: Any, args: tuple[Any, ...], dtype: DType
) -> Number:
    hooks.watch.numbers = True
    tensors = _unused() if clock else []
    result = TensorType(dtype, (), CPU)
    build = templated(args, tensors if not clock else [])
    called = Drawn(name, clock, function, build, (result,), tree_flatten(result)[1], asarray)
    (made,) = effect(PY_CALL, tensors, {"function": called, "results": (result,)})
    return known_number(made)


#: For each clock what calls it in captured code.
CLOCKS = {function: _clock(function, dtype) for function, dtype in _CLOCKS.items()}
#: Modules whose functions draw; they are not loaded for this.
DRAWING = ("random", "numpy.random")


def draws_of(module: str) -> dict[Any, Callable[..., Any]]:
    """For each function of a module that draws what calls it in captured code."""
    of_numpy = module != "random"
    rows = _OF_NUMPY if of_numpy else _OF_RANDOM
    found = {getattr(sys.modules[module], name): row for name, row in rows.items()}
    return {function: _draw(function, of_numpy, *row) for function, row in found.items()}
