"""A unit over the devices of the tensor axis: which weights are cut, what is sent, what it costs.

For each weight matrix, all axes that the devices divide are tried, and leaving it whole. Given
these decisions, layouts go through the nodes in their order: a node is cut where an operand is, as
its card says, or runs whole, whichever costs less; sums over devices are put off while that moves
no more. A branch of the search ends where it costs more than the best decision so far, so the best
is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from weft.distributed.planning.cluster import Processor
from weft.distributed.planning.links import Group
from weft.distributed.planning.pattern import BACKWARD, FORWARD, ONCE, Entry, Pattern
from weft.distributed.planning.splits import OPEN, PARTS, WHOLE, Split
from weft.ir.types import TensorType
from weft.ops.cards import LINEAR, MATMUL

__all__ = ["Spread", "spread"]


@dataclass
class Spread:
    """What one device does and keeps of a unit.

    seconds    of kernels, by phase: once per step, forward, backward
    talk       seconds of collectives along the tensor axis, by phase
    flops      of products, by phase
    layouts    for each weight, the axis that is cut, or WHOLE
    weights, gradients, states, kept   bytes, once per device
    stored     bytes from the forward to the backward of one micro-batch
    taken      bytes of what comes from the unit before
    sums       how many collectives there are, by phase
    update     bytes that the optimizer reads and writes
    learned    bytes of the gradient of each weight, by its place
    """

    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    talk: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    flops: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    sums: list[int] = field(default_factory=lambda: [0, 0, 0])
    layouts: dict[int, int] = field(default_factory=dict)
    weights: float = 0.0
    gradients: float = 0.0
    states: float = 0.0
    kept: float = 0.0
    stored: float = 0.0
    taken: float = 0.0
    given: float = 0.0
    update: float = 0.0

    @property
    def forward(self) -> float:
        return self.seconds[FORWARD] + self.talk[FORWARD]

    @property
    def backward(self) -> float:
        return self.seconds[BACKWARD] + self.talk[BACKWARD]


#: Layouts of operands and results; seconds of kernels and of collectives, how many of these, flops.
_Choice = tuple[tuple[int, ...], tuple[int, ...], float, float, int, float]


@dataclass
class _State:
    """A decision so far: layouts by value, conversions that were made, costs."""

    layouts: dict[int, int]
    converted: dict[tuple[int, int], tuple[int, ...]]  # by value and phase
    open_bytes: dict[int, float]
    seconds: list[float]
    talk: list[float]
    flops: list[float]
    sums: list[int]

    def copy(self) -> _State:
        return _State(
            self.layouts.copy(),
            self.converted.copy(),
            self.open_bytes.copy(),
            self.seconds[:],
            self.talk[:],
            self.flops[:],
            self.sums[:],
        )


def spread(
    pattern: Pattern,
    processor: Processor,
    group: Group,
    *,
    border: int = WHOLE,
    pinned: Mapping[int, int] | None = None,
    repeats: int = 1,
    least_memory: bool = False,
) -> Spread | None:
    """The best way to lay a unit out over a group of devices; None if pinned layouts do not fit.

    border        the layout of what units pass on: WHOLE, or an axis
    pinned        layouts of weights, by place
    repeats       how often the forward runs for one backward: 2 with recomputation
    least_memory  prefer decisions that keep less on a device
    """
    search = _Search(pattern, processor, group, border, dict(pinned or {}), repeats, least_memory)
    search.go(0, search.begin())
    return search.result()


class _Search:
    def __init__(
        self,
        pattern: Pattern,
        processor: Processor,
        group: Group,
        border: int,
        pinned: dict[int, int],
        repeats: int,
        least_memory: bool,
    ) -> None:
        self.pattern = pattern
        self.processor = processor
        self.group = group
        self.n = group.size
        self.border = border
        self.pinned = pinned
        self.weights_of_phase = (0.0, float(repeats), 1.0)
        self.least_memory = least_memory
        self.best: _State | None = None
        self.best_cost = float("inf")
        self.is_weight = set(pattern.weights)
        self.rate = processor.bandwidth * processor.streamed
        self.chosen: dict[tuple[object, ...], _Choice] = {}
        self.products: dict[tuple[int, int, int, int, str, int], float] = {}

    def begin(self) -> _State:
        pattern = self.pattern
        layouts: dict[int, int] = {}
        for place, value in pattern.outside.items():
            if place in self.is_weight:
                if len(pattern.shapes[place]) < 2 or self.n == 1:
                    layouts[place] = self.pinned.get(place, OPEN if self.n > 1 else WHOLE)
            elif place == pattern.takes:
                layouts[place] = self.border if self._divides(place, self.border) else WHOLE
            elif value.node is None:
                sized = (
                    isinstance(value.type, TensorType) and value.type.shape != pattern.shapes[place]
                )
                layouts[place] = WHOLE if sized else OPEN
            elif value.type == self._border_type():
                layouts[place] = self.border if self._divides(place, self.border) else WHOLE
            elif isinstance(value.type, TensorType) and value.type.shape == pattern.shapes[place]:
                layouts[place] = OPEN  # does not depend on the batch: of parameters, or a constant
            else:
                layouts[place] = WHOLE
        zeros = [0.0, 0.0, 0.0]
        return _State(layouts, {}, {}, zeros[:], zeros[:], zeros[:], [0, 0, 0])

    def _border_type(self) -> object:
        unit = self.pattern.unit
        for value in (unit.gives, unit.takes):
            if value is not None:
                return value.type
        return None

    def _divides(self, place: int, layout: int) -> bool:
        return layout < 0 or self._cuttable(self.pattern.shapes[place], layout)

    def _cuttable(self, shape: tuple[int, ...], axis: int) -> bool:
        return axis < len(shape) and shape[axis] % self.n == 0 and shape[axis] >= self.n

    # --- the search ----------------------------------------------------------------------------

    def go(self, at: int, state: _State) -> None:
        """Go on from a node with the decisions made so far."""
        entries = self.pattern.entries
        while at < len(entries):
            entry = entries[at]
            open_weight = next((i for i in entry.inputs if i not in state.layouts), None)
            if open_weight is not None:
                for layout in self._options(open_weight):
                    branch = state.copy()
                    branch.layouts[open_weight] = layout
                    self.go(at, branch)
                return
            self._run(entry, state)
            if self._cost(state) >= self.best_cost:
                return
            at += 1
        self._finish(state)
        cost = self._cost(state)
        if cost < self.best_cost:
            self.best, self.best_cost = state, cost

    def _options(self, place: int) -> Iterator[int]:
        if place in self.pinned:
            yield self.pinned[place]
            return
        if place in self.is_weight and self.n > 1:
            shape = self.pattern.shapes[place]
            for axis in reversed(range(len(shape))):
                if self._cuttable(shape, axis):
                    yield axis
        yield WHOLE

    def _cost(self, state: _State) -> float:
        spent = 0.0
        for phase in (FORWARD, BACKWARD):
            each = state.seconds[phase] + state.talk[phase]
            spent += self.weights_of_phase[phase] * each
        spent += state.talk[ONCE]  # a weight that is gathered is no gain
        if self.least_memory:
            held = 0.0
            for place in self.pattern.weights:
                layout = state.layouts.get(place, OPEN)
                held += self.pattern.sizes[place] / (1 if layout == WHOLE else self.n)
            spent += held  # a byte counts as a second: memory first
        return spent

    # --- one node ------------------------------------------------------------------------------

    def _run(self, entry: Entry, state: _State) -> None:
        layouts = state.layouts
        have = [layouts[i] for i in entry.inputs]
        if all(layout == OPEN for layout in have) and not entry.is_product:
            pending = self._bytes(entry.writes, {})
            for i in entry.inputs:
                pending += state.open_bytes.pop(i, 0.0)
            for out in entry.outputs:
                layouts[out] = OPEN
            if entry.outputs and pending:
                state.open_bytes[entry.outputs[0]] = pending
            return
        phase = entry.phase
        made = tuple([self._made(i, phase, state) for i in entry.inputs])
        pending_here = tuple([state.open_bytes.get(i, 0.0) for i in entry.inputs])
        others = tuple([layouts.get(i, WHOLE) for i in entry.others])
        key = id(entry), tuple(have), made, pending_here, others
        best = self.chosen.get(key)
        if best is None:
            best = self.chosen[key] = self._choose(entry, have, made, pending_here, others)
        need, outs, cost, talk, sums, flops = best
        for i, had, needed in zip(entry.inputs, have, need, strict=True):
            if had == OPEN:
                layouts[i] = needed
                state.open_bytes.pop(i, None)
            elif had != needed:
                place = self.pattern.bases[i] if needed == WHOLE else i
                known = state.converted.get((place, phase), ())
                if needed not in known:
                    state.converted[place, phase] = (*known, needed)
        for out, layout in zip(entry.outputs, outs, strict=True):
            layouts[out] = layout
        state.seconds[phase] += cost
        state.talk[phase] += talk
        state.sums[phase] += sums
        state.flops[phase] += flops

    def _made(self, place: int, phase: int, state: _State) -> tuple[int, ...]:
        """The layouts that a value was brought to in this phase; a view is whole if its base is."""
        own = state.converted.get((place, phase), ())
        base = self.pattern.bases[place]
        if base != place and WHOLE in state.converted.get((base, phase), ()):
            return (*own, WHOLE)
        return own

    def _choose(
        self,
        entry: Entry,
        have: list[int],
        made: tuple[tuple[int, ...], ...],
        pending: tuple[float, ...],
        others: tuple[int, ...],
    ) -> _Choice:
        """The way to run a node that costs least, given the layouts of its operands."""
        best: tuple[tuple[float, int], _Choice] | None = None
        for need, outs, rows in self._ways(entry, have):
            cost, talk, sums = self._price(entry, made, pending, others, have, need, outs, rows)
            order = cost + talk, need.count(WHOLE)
            if best is None or order < best[0]:
                flops = self._flops(entry, need) if entry.is_product else 0.0
                best = order, (need, outs, cost, talk, sums, flops)
        assert best is not None
        return best[1]

    def _ways(
        self, entry: Entry, have: list[int]
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
        """Layouts of operands and results, with how many rows are summed besides."""
        count = len(entry.outputs)
        yield (WHOLE,) * len(have), (WHOLE,) * count, 0
        if self.n == 1:
            return
        for split in self.pattern.splits(entry):
            if split.parts % self.n and split.parts:
                continue
            drives = False  # whether an operand is cut so already
            fits = True
            for had, needed in zip(have, split.inputs, strict=True):
                if had == needed and needed != WHOLE:
                    drives = True
                fits &= needed != PARTS or had in (PARTS, WHOLE, OPEN)
            sums = PARTS in split.outputs and PARTS in split.inputs
            if drives and fits and (not sums or self._passes(entry, have, split)):
                yield split.inputs, split.outputs, split.summed_rows

    def _passes(self, entry: Entry, have: list[int], split: Split) -> bool:
        """Whether to put a sum over devices off: where all terms are there, and it gets no
        larger."""
        terms = all(
            had == PARTS or needed != PARTS or self.pattern.shapes[i] == ()
            for had, needed, i in zip(have, split.inputs, entry.inputs, strict=True)
        )
        inner = any(layout >= 0 for layout in split.inputs)
        return inner or (terms and entry.parts_kept)

    def _price(
        self,
        entry: Entry,
        made: tuple[tuple[int, ...], ...],
        pending: tuple[float, ...],
        others: tuple[int, ...],
        have: list[int],
        need: tuple[int, ...],
        outs: tuple[int, ...],
        rows: int,
    ) -> tuple[float, float, int]:
        """Seconds of kernels, seconds of collectives, and how many of these."""
        pattern, n = self.pattern, self.n
        talk, sums, cost = 0.0, 0, 0.0
        for at, (i, had, needed) in enumerate(zip(entry.inputs, have, need, strict=True)):
            if had == OPEN:
                cost += pending[at] / (n if needed >= 0 else 1) / self.rate
            elif had != needed and needed not in made[at]:
                spent = self._convert(had, needed, pattern.sizes[i])
                talk += spent
                sums += spent > 0
        if rows:
            reduced = pattern.sizes[entry.inputs[0]] / pattern.shapes[entry.inputs[0]][-1]
            talk += rows * self.group.all_reduce(reduced)
            sums += rows
        if entry.is_product:
            cost += self._product(entry, need)
        else:
            told = dict(zip(entry.others, others, strict=True))
            told.update(zip(entry.inputs, need, strict=True))
            told.update(zip(entry.outputs, outs, strict=True))
            moved = self._bytes(entry.reads, told) + self._bytes(entry.writes, told)
            cost += moved / self.rate
            if entry.begins:
                cost += self.processor.launch
        return cost, talk, sums

    def _bytes(
        self,
        places: list[int],
        told: Mapping[int, int],
        known: Mapping[int, int] | None = None,
    ) -> float:
        moved = 0.0
        for i in places:
            layout = told.get(i, WHOLE if known is None else known.get(i, WHOLE))
            moved += self.pattern.sizes[i] / (self.n if layout >= 0 else 1)
        return moved

    def _convert(self, had: int, needed: int, size: int) -> float:
        if had == PARTS:
            if needed == WHOLE:
                return self.group.all_reduce(size)
            return self.group.all_gather(size)  # a reduce_scatter
        if had == WHOLE or needed == PARTS:
            return 0.0  # each takes its part of what it has; of terms, one device has all
        if needed == WHOLE:
            return self.group.all_gather(size)
        return self.group.all_to_all(size)

    # --- products ------------------------------------------------------------------------------

    def _extents(self, entry: Entry, need: tuple[int, ...]) -> tuple[int, int, int, int]:
        """m, n, k and how many products, on one device."""
        shapes = [
            tuple(size // self.n if axis == layout else size for axis, size in enumerate(shape))
            for shape, layout in zip(
                (self.pattern.shapes[i] for i in entry.inputs), need, strict=True
            )
        ]
        op = entry.node.op
        if op is LINEAR:
            return prod(shapes[0][:-1]), shapes[1][0], shapes[0][-1], 1
        if op is MATMUL:
            x, y = shapes[:2]
            x = x if len(x) > 1 else (1, *x)
            y = y if len(y) > 1 else (*y, 1)
            batch = max(prod(x[:-2]), prod(y[:-2]))
            if len(y) == 2:
                return prod(x[:-1]), y[-1], x[-1], 1
            return x[-2], y[-1], x[-1], batch
        kinds = [value.tensor_type for value in (*entry.node.inputs, *entry.node.outputs)]
        places = (*entry.inputs, *entry.outputs)
        types = [
            kind.like(shape=self.pattern.shapes[i]) for kind, i in zip(kinds, places, strict=True)
        ]
        count = len(entry.inputs)
        cost = entry.node.op.estimate(tuple(types[:count]), tuple(types[count:]), **entry.attrs)
        out = self.pattern.shapes[entry.outputs[0]]
        columns = out[1] if len(out) > 1 else 1
        rows = max(prod(out) // max(columns, 1), 1)
        return rows, columns, max(1, round(cost.flops / (2 * rows * max(columns, 1)))), 1

    def _product(self, entry: Entry, need: tuple[int, ...]) -> float:
        m, n, k, batch = self._extents(entry, need)
        first = entry.inputs[0]
        key = m, n, k, batch, self.pattern.dtypes[first], self.pattern.items[first]
        found = self.products.get(key)
        if found is None:
            found = self.products[key] = self.processor.product_seconds(*key)
        return found

    def _flops(self, entry: Entry, need: tuple[int, ...]) -> float:
        m, n, k, batch = self._extents(entry, need)
        return 2.0 * m * n * k * batch

    # --- the end -------------------------------------------------------------------------------

    def _finish(self, state: _State) -> None:
        """What goes to other units has the layout of borders; gradients, that of their weights."""
        pattern = self.pattern
        asked: list[tuple[int, int, int]] = []
        if pattern.gives >= 0:
            asked.append((pattern.gives, self.border, FORWARD))
        for place in pattern.back:
            batched = pattern.takes >= 0 and pattern.shapes[place] == pattern.shapes[pattern.takes]
            own = state.layouts.get(place, WHOLE)  # of a shared weight: it is cut alike everywhere
            kept = WHOLE if own == PARTS else own
            asked.append((place, self.border if batched else kept, BACKWARD))
        for place, weight in pattern.learned.items():
            layout = state.layouts.get(weight, OPEN) if weight >= 0 else OPEN
            own = state.layouts.get(place, WHOLE)
            if layout == OPEN:
                layout = WHOLE if own == PARTS else own
            asked.append((place, layout, BACKWARD))
        for place, wanted, phase in asked:
            have = state.layouts.get(place, WHOLE)
            layout = wanted if self._divides(place, wanted) else WHOLE
            if have not in (layout, OPEN) and layout not in self._made(place, phase, state):
                spent = self._convert(have, layout, pattern.sizes[place])
                state.talk[phase] += spent
                state.sums[phase] += spent > 0

    def result(self) -> Spread | None:
        state, pattern = self.best, self.pattern
        if state is None:
            return None

        def held(places: list[int]) -> float:
            return self._bytes(places, {}, state.layouts)

        weights = {place: state.layouts.get(place, WHOLE) for place in pattern.weights}
        total = sum(pattern.sizes[i] for i in pattern.weights) or 1
        share = held(pattern.weights) / total
        gradients = [weight if weight >= 0 else place for place, weight in pattern.learned.items()]
        return Spread(
            state.seconds,
            state.talk,
            state.flops,
            state.sums,
            weights,
            weights=held(pattern.weights),
            gradients=held(gradients),
            states=pattern.state_bytes * share,
            kept=held(pattern.kept),
            stored=held(pattern.stored),
            taken=held([pattern.takes]) if pattern.takes >= 0 else 0.0,
            given=float(pattern.sizes[pattern.gives]) if pattern.gives >= 0 else 0.0,
            update=pattern.update_bytes * share,
        )
