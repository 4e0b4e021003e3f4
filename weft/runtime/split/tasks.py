"""Segments and transfers as tasks of the dataflow executor."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.errors import DeviceError, WeftError
from weft.ir.graph import Node, Value
from weft.ops.placed import SEGMENT, TRANSFER
from weft.runtime.dataflow.tasks import Task, task_for
from weft.runtime.split.cost import node_seconds
from weft.runtime.split.devices import CPU, as_it_is, engine
from weft.runtime.split.measure import known_rates

__all__: list[str] = []

#: After so many changes of what was taken for constant, nothing is any more.
MOST_CHANGES = 3


@task_for(SEGMENT)
def _segment(node: Node) -> Task:
    """A segment is compiled once, when the graph is prepared."""
    (graph,) = node.graphs
    name = node.attrs["device"]
    device = engine(name)
    try:
        run = device.compile(graph)
    except WeftError:
        raise
    except Exception as error:
        raise _engine_error(node, name, "cannot compile", error) from error
    count = len(node.outputs)
    shared = device.get is as_it_is

    def call(values: list[Any], env: Any) -> Any:
        try:
            found = run(values)
        except WeftError:
            raise
        except Exception as error:
            raise _engine_error(node, name, "failed in", error) from error
        if not isinstance(found, (list, tuple)):
            raise _other(node, f"{name} gave {found!r:.40}, and {count} arrays are needed")
        if len(found) != count:
            raise _other(node, f"{name} gave {len(found)} results for {count}")
        if shared:
            for array, value in zip(found, node.outputs, strict=True):
                _check(node, name, array, value)
        return found[0] if count == 1 else tuple(found)

    rates = known_rates(device)
    seconds = rates.call + sum(node_seconds(inner, rates) for inner in graph.nodes)
    return Task(call, name, seconds)


def _engine_error(node: Node, name: str, what: str, error: Exception) -> DeviceError:
    (graph,) = node.graphs
    ops = list(dict.fromkeys(inner.op.name for inner in graph.nodes if inner.inputs))
    shown = ", ".join(ops[:6]) + (f" and {len(ops) - 6} more" if len(ops) > 6 else "")
    lines = [line for line in (str(error).strip() or type(error).__name__).splitlines() if line]
    first = " ".join(lines[:3])[:300]
    made = DeviceError(
        f"the engine {name} {what} a segment of {len(graph.nodes)} nodes ({shown}): {first}",
        op="segment",
        operands=[value.type for value in node.inputs],
        hint="place these nodes on another device; the error of the engine is above",
    )
    made.location = node.location or made.location
    return made


def _check(node: Node, name: str, array: Any, value: Value) -> None:
    """An array of an engine is what its segment says: machine code reads as much memory. What is on
    a GPU is no array of NumPy's."""
    kind = value.tensor_type
    if str(kind.device) != CPU:
        return
    same = isinstance(array, np.ndarray) and array.dtype == kind.dtype.numpy
    if same and array.ndim == kind.ndim:
        sizes = zip(kind.shape, array.shape, strict=True)
        if all(isinstance(n, Dim) or n == m for n, m in sizes):
            return
    made = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array)
    raise _other(node, f"{name} gave {made} for {kind}")


def _other(node: Node, what: str) -> DeviceError:
    made = DeviceError(
        what,
        op=node.op.name,
        hint="an engine's function gives a list of NumPy arrays, or what its get makes these of",
    )
    made.location = node.location or made.location
    return made


class _Kept:
    """What brings arrays to a device. One that comes again, as weights do in each call and in each
    iteration, is brought there a second time and kept then, so that nobody writes to it; from the
    third time on it is there."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        self._put = put
        self._seen: Any = None
        self._there: tuple[Any, Any] | None = None
        self._changes = 0

    def put(self, array: Any) -> Any:
        if self._put is as_it_is or self._changes == MOST_CHANGES:
            return self._put(array)
        there = self._there
        if there is not None:
            if there[0] is array:
                return there[1]
            self._there = None
            self._changes += 1
        made = self._put(array)
        if self._seen is not None and self._seen() is array:
            self._there = array, made
        elif isinstance(array, np.ndarray):
            self._seen = weakref.ref(array)
        return made


@task_for(TRANSFER)
def _transfer(node: Node) -> Task:
    source, target = engine(node.attrs["source"]), engine(node.attrs["target"])
    get, put = source.get, target.put
    far = source if source.name != CPU else target

    kept = _Kept(put)

    home = source.name != CPU and get is not as_it_is

    def call(values: list[Any], env: Any) -> Any:
        try:
            array = get(values[0])
            if home:
                _check(node, source.name, array, node.outputs[0])
            return kept.put(array)
        except WeftError:
            raise
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise _other(node, f"{far.name} cannot take or give an array: {first}") from error

    rates = known_rates(far)
    kind = node.inputs[0].tensor_type
    size = kind.nbytes if isinstance(kind.nbytes, int) else 0
    seconds = rates.latency + (size / rates.transfer if rates.transfer else 0.0)
    # A lane of its own: transfers overlap with what the device works at.
    return Task(call, f"{far.name} transfers" if seconds > 50e-6 else CPU, seconds)
