"""Which carries of a scan have a gradient after 0, 1, 2, … iterations.

A name that takes another's value in each iteration, `x, y = y, x`, has a history after an even or
odd number of iterations only; one that gets its history through others, `x, y = y, v`, after a few;
and a branch on the counter, `if i == 3`, after those that take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.core.quiet import quietly
from weft.ir.graph import Graph, Node, Value
from weft.ir.literal import CONSTANT
from weft.ir.types import TensorType
from weft.ops.cards import ARANGE, IF, SCAN, STOP_GRADIENT, WHILE

#: Values of a graph whose numbers are known while it is recorded.
Known = dict[Value, Any]
#: The values that depend on active inputs; see `gradient_flow.active_values`.
Active = Callable[[Graph, Sequence[bool], Known | None], set[Value]]

#: Maximum iterations whose branches are followed one by one.
MOST_STEPS = 1024
#: Of a loop of unknown length, at least so many.
LEAST_STEPS = 64


def constants(values: Iterable[Value]) -> Known:
    """The values that are small constants: numbers, and the range of a `for`."""
    found: Known = {}
    for value in values:
        node, kind = _source(value), value.type
        if not isinstance(kind, TensorType) or kind.dtype.kind not in ("bool", "int"):
            continue
        if node is None:
            continue
        if node.op is CONSTANT:
            found[value] = node.attrs["value"].array
        elif node.op is ARANGE and isinstance(kind.shape[0], int):
            found[value] = quietly(node.op.kernels[np.ndarray][kind.dtype.numpy], **node.attrs)
    return found


def _source(value: Value) -> Node | None:
    node = value.node
    while node is not None and node.op is STOP_GRADIENT:
        node = node.inputs[0].node
    return node


def _begin_of_range(value: Value) -> Any:
    """The first numbers of a range whose length is not known; None if it is no such range."""
    node = _source(value)
    if node is None or node.op is not ARANGE:
        return None
    start, step = node.attrs["start"], node.attrs["step"]
    if isinstance(start, Dim) or isinstance(step, Dim):
        return None
    return start + step * np.arange(MOST_STEPS)


class Scalars:
    """The integers and conditions of a graph that follow from known values."""

    def __init__(self, graph: Graph) -> None:
        self._constants = constants([value for node in graph.nodes for value in node.outputs])
        self._nodes = [node for node in graph.nodes if self._is_scalar(node)]

    @staticmethod
    def _is_scalar(node: Node) -> bool:
        kind = node.outputs[0].type if len(node.outputs) == 1 else None
        if not isinstance(kind, TensorType) or kind.shape or not node.inputs or node.graphs:
            return False
        return kind.dtype.kind in ("bool", "int")

    def values(self, known: Known) -> Known:
        found = {**known, **self._constants}
        for node in self._nodes:
            if not all(v in found for v in node.inputs):
                continue
            inputs = [found[value] for value in node.inputs]
            try:
                kernel = node.op.kernels[np.ndarray][inputs[node.op.dispatch_on].dtype]
                found[node.out] = np.asarray(quietly(kernel, *inputs, **node.attrs))
            except Exception:
                continue  # it fails when it is run, on the user's line
        return found


class ScanSteps:
    """The iterations of a scan.

    states   which carries are active after each
    counts   whether a branch in the body may depend on known values: then iterations differ
    period   the last so many states repeat from here on; 0: not known yet
    """

    def __init__(
        self, node: Node, operands: list[bool], given: Known | None, active: Active
    ) -> None:
        self._active = active
        self._consts, carries = node.attrs["consts"], node.attrs["carries"]
        self._end = end = self._consts + carries
        (self._body,) = node.graphs
        self._operands = operands
        self.states = [operands[self._consts : end]]
        self.period = 0
        length = node.attrs["length"]
        self._last = length - 1 if node.attrs["reverse"] else None
        known = constants(node.inputs)
        known.update((v, x) for v, x in (given or {}).items() if v in node.inputs)
        pairs = list(zip(node.inputs, self._body.inputs, strict=True))
        self._rows = {inner: known[x] for x, inner in pairs[end:] if x in known}
        if not isinstance(length, int) and self._last is None:
            begun = {inner: _begin_of_range(x) for x, inner in pairs[end:]}
            self._rows.update((inner, row) for inner, row in begun.items() if row is not None)
        self._held = {inner: known[x] for x, inner in pairs[:end] if x in known}
        chooses = any(part.op is IF for graph in self._body.walk() for part in graph.nodes)
        short = not isinstance(length, int) or length <= MOST_STEPS
        self.counts = bool(self._rows or self._held) and short and chooses
        if self.counts:
            self._scalars = Scalars(self._body)
            self._deciding = _deciding(self._body)
            self._found: dict[Any, list[bool]] = {}
            self._final: dict[Any, bool] = {}

    def state(self, step: int) -> list[bool]:
        """Which carries are active after so many iterations."""
        while len(self.states) <= step and not self.period:
            self._add()
        return self.states[self._place(step)]

    def _place(self, step: int) -> int:
        if step < len(self.states):
            return step
        first = len(self.states) - self.period
        return first + (step - first) % self.period

    def settled(self, least: int) -> list[bool] | None:
        """The same after any number of iterations that is not less than this; None if it is not the
        same, or may not be."""
        self.counts = False
        for step in range(min(least, MOST_STEPS) + 1):
            found = self.state(step)
            if self.state(step + 1) == found:
                return found
        return None

    def alike(self, now: int) -> tuple[int, int | None, int]:
        """Other numbers of iterations after which the same carries are active as after `now`.

        From the first to the second, of which None says that there is no end; if the third is not
        1, only those that differ from `now` by a multiple of it.
        """
        if self.counts and now > MOST_STEPS // 2:
            self.state(MOST_STEPS)
        elif self.counts:
            self.state(max(2 * now, LEAST_STEPS))
        else:
            while not self.period:
                self._add()
        found, count = self.state(now), len(self.states)
        first = count - self.period
        if self.period > 1 and now >= first:
            return first, None, self.period
        low = high = min(now, count - 1)
        while low and self.states[low - 1] == found:
            low -= 1
        while high + 1 < count and self.states[high + 1] == found:
            high += 1
        if low == high < count - 1:
            for every in (2, 3, 4):
                start = self._repeats(every) if 2 * every < count else count
                if start <= now:
                    return start, count - 1, every
        ends = self.period == 1 and high == count - 1
        return low, None if ends else high, 1

    def _repeats(self, every: int) -> int:
        """After how many iterations the states so far begin to repeat."""
        start = len(self.states) - every
        while start and self.states[start - 1] == self.states[start - 1 + every]:
            start -= 1
        return start

    # --- one more iteration -------------------------------------------------------------------

    def _add(self) -> None:
        carried = self.states[-1]
        if not self.counts:
            after = self._after(carried, None)
            if after in self.states:
                self.period = len(self.states) - self.states.index(after)
                return
        elif self._is_final(carried):
            self.period = 1
            return
        else:
            after = self._after_choices(carried)
        self.states.append(after)

    def _flags(self, carried: list[bool]) -> list[bool]:
        return [*self._operands[: self._consts], *carried, *self._operands[self._end :]]

    def _after(self, carried: list[bool], now: Known | None) -> list[bool]:
        active = self._active(self._body, self._flags(carried), now)
        return [value in active for value in self._body.outputs[: len(carried)]]

    def _after_choices(self, carried: list[bool]) -> list[bool]:
        """The state after the iteration whose numbers are known."""
        step, body = len(self.states) - 1, self._body
        at = step if self._last is None else self._last - step
        rows = {inner: row[at] for inner, row in self._rows.items() if at < len(row)}
        now = self._scalars.values({**self._held, **rows})
        ends = zip(body.inputs[self._consts : self._end], body.outputs, strict=False)
        self._held = {v: x for v, x in self._held.items() if v.index < self._consts}
        self._held |= {v: now[out] for v, out in ends if out in now}
        key = (*carried, *[now[v].item() if v in now else None for v in self._deciding])
        if key not in self._found:
            self._found[key] = self._after(carried, now)
        return self._found[key]

    def _is_final(self, carried: list[bool]) -> bool:
        """Whether the state stays as it is, whichever branches are taken."""
        key = tuple(carried)
        if key not in self._final:
            stays = self._after(carried, None) == carried
            flags = self._flags(carried)
            self._final[key] = stays and not self._choice_matters(self._body, flags)
        return self._final[key]

    def _choice_matters(self, graph: Graph, inputs: Sequence[bool]) -> bool:
        active = self._active(graph, inputs, None)
        for node in graph.nodes:
            inside = [part.op for nested in node.graphs for g in nested.walk() for part in g.nodes]
            if node.op is IF:
                flags = [value in active for value in node.inputs[1:]]
                sides = [self._active(side, flags, None) for side in node.graphs]
                given = [
                    [value in found for value in side.outputs]
                    for side, found in zip(node.graphs, sides, strict=True)
                ]
                if given[0] != given[1]:
                    return True
                if any(self._choice_matters(side, flags) for side in node.graphs):
                    return True
            elif IF in inside:
                return True
        return False


def _deciding(body: Graph) -> list[Value]:
    """The values on which it depends what branches in a body do."""
    found: dict[Value, None] = {}
    for node in body.nodes:
        inner = [part for graph in node.graphs for g in graph.walk() for part in g.nodes]
        if any(part.op in (IF, SCAN, WHILE) for part in inner):
            found.update(dict.fromkeys(node.inputs))
        elif node.op is IF:
            found[node.inputs[0]] = None
    return [v for v in found if isinstance(v.type, TensorType) and not v.type.shape]
