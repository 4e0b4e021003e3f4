"""The results of each eager op call, to be compared with the captured graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from weft.autodiff.node import as_array
from weft.autodiff.tape import anomaly
from weft.base.source import SourceLocation, user_location
from weft.core.bind import Recorder, bind, recorder, recording
from weft.core.tensor import Tensor, wrap
from weft.inspect.compare.close import Difference, Tolerance
from weft.inspect.compare.locate import Finding, finding, first_difference
from weft.inspect.compare.runs import Event, copied
from weft.inspect.step.names import Names
from weft.ir.op import Op

__all__ = ["Stream", "forward_finding", "gradient_finding"]

Key = tuple[str, int, str]


def _key(where: SourceLocation, op: str) -> Key:
    return where.file, where.line, op


class Stream(Recorder):
    """Records the results of op calls, and their gradients, by line and op."""

    observes = True

    def __init__(self) -> None:
        self.forward: dict[Key, list[list[Any]]] = {}
        self.gradients: dict[Key, list[Any]] = {}

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        out = bind(op, *inputs, **attrs)
        where = user_location() if recorder() is None else None
        if where is not None:
            outputs = [copied(x) for x in (out if isinstance(out, tuple) else (out,))]
            self.forward.setdefault(_key(where, op.name), []).append(outputs)
        return out

    def _look(self, node: Any, _grads: Sequence[Any], g: Any) -> None:
        where = node.location
        if where is not None and not isinstance(g, tuple):
            value = g if isinstance(g, Tensor) else wrap(as_array(g))
            kept = self.gradients.setdefault(_key(where, node.forward_name()), [])
            kept.append(copied(value))

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        before = anomaly.on, anomaly.look
        anomaly.on, anomaly.look = True, self._look
        try:
            with recording(self):
                yield
        finally:
            anomaly.on, anomaly.look = before


def forward_finding(eager: Stream, events: list[Event], tolerance: Tolerance) -> Finding | None:
    """The first op of a captured graph whose result differs from the eager one."""
    seen: dict[Key, int] = {}
    for event in events:
        where = event.node.location
        if where is None or where.role == "backward" or event.node.graphs or not event.inputs:
            continue
        key = _key(where, event.node.op.name)
        number = seen[key] = seen.get(key, -1) + 1
        known = eager.forward.get(key)
        if known is None:
            continue
        if number >= len(known):
            often = Difference(f"is run more than {len(known)} times, as it is eagerly", 0.0)
            return finding("capture", event, often)
        if len(known[number]) == len(event.outputs):
            found = first_difference(known[number], event.outputs, tolerance)
            if found is not None:
                return finding("capture", event, found)
    return None


def gradient_finding(
    eager: Stream, names: Names, values: dict[str, Any], tolerance: Tolerance
) -> Finding | None:
    """The first op whose gradient differs from the eager one.

    values      the values of the captured graphs, by name
    """
    found: dict[Key, list[tuple[SourceLocation, str]]] = {}
    for where, op, ref in names.all_gradients():
        if ref.name in values:
            found.setdefault(_key(where, op), []).append((where, ref.name))
    for key, places in found.items():
        known = eager.gradients.get(key, [])
        if len(known) != len(places):
            continue
        for wanted, (where, name) in zip(known, places, strict=True):
            difference = first_difference([wanted], [values[name]], tolerance)
            if difference is not None:
                text = f"the gradient that arrives is another one: {difference.text}"
                return Finding("capture", key[2], where, (), text)
    return None
