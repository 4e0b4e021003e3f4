"""What each unit of a step costs on one device of a cluster, for given degrees; kept, as plans
repeat."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from weft.base.errors import DistributedError
from weft.base.gc_pause import gc_paused
from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.links import Group, group_of
from weft.distributed.planning.outline import Outline
from weft.distributed.planning.parallel_plan import ParallelPlan
from weft.distributed.planning.pattern import Pattern, pattern_of
from weft.distributed.planning.splits import OPEN, WHOLE
from weft.distributed.planning.spread import Spread, spread
from weft.distributed.planning.units import Unit, units_of
from weft.ir.graph import Graph, Value

__all__ = ["Chain", "Costs", "chain_of"]


class Chain:
    """The units of an outline, and their patterns for each size of a micro-batch."""

    def __init__(self, outline: Outline) -> None:
        self.units: list[Unit] = units_of(outline)
        self.used: dict[Value, set[int]] = {}
        for i, unit in enumerate(self.units):
            for node in (*unit.forward, *unit.backward):
                for value in node.inputs:
                    self.used.setdefault(value, set()).add(i)
        self.first = {unit.kind: i for i, unit in reversed(list(enumerate(self.units)))}
        self._patterns: dict[tuple[int, int], Pattern] = {}
        homes: dict[Value, set[int]] = {}
        for i, unit in enumerate(self.units):
            for value in unit.parameters:
                homes.setdefault(value, set()).add(i)
        #: Parameters of several units, such as an embedding that is also the last layer.
        self.shared = {value: found for value, found in homes.items() if len(found) > 1}

    def pattern(self, kind: int, micro_batch: int) -> Pattern:
        key = kind, micro_batch
        if key not in self._patterns:
            place = self.first[kind]
            self._patterns[key] = pattern_of(self.units[place], micro_batch, self.used, place)
        return self._patterns[key]

    def kinds_by_cost(self) -> list[int]:
        """Kinds, those with the most nodes first: they decide how shared weights are cut."""
        return sorted(self.first, key=lambda kind: -len(self.units[self.first[kind]].backward))


_chains: weakref.WeakKeyDictionary[Graph, Chain] = weakref.WeakKeyDictionary()


def chain_of(outline: Outline) -> Chain:
    found = _chains.get(outline.graph)
    if found is None:
        with gc_paused():
            found = _chains[outline.graph] = Chain(outline)
    return found


@dataclass(frozen=True)
class _Key:
    tensor: int
    micro_batch: int
    recompute: bool
    sequence: bool
    least_memory: bool
    layouts: tuple[tuple[str, int | None], ...]


class Costs:
    """The costs of the units of an outline on a cluster."""

    def __init__(self, outline: Outline, cluster: Cluster) -> None:
        self.outline = outline
        self.cluster = cluster
        self.chain = chain_of(outline)
        self._found: dict[_Key, dict[int, Spread]] = {}

    def spreads(self, plan: ParallelPlan, *, least_memory: bool = False) -> dict[int, Spread]:
        """What each kind of unit costs, by kind."""
        several = plan.tensor > 1  # on one device there is nothing to decide
        key = _Key(
            plan.tensor,
            plan.micro_batch,
            several and plan.recompute,
            several and plan.sequence,
            several and least_memory,
            tuple(sorted(plan.layouts.items())),
        )
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(plan, least_memory)
        return found

    def group(self, plan: ParallelPlan) -> Group:
        return group_of(self.cluster, plan.tensor, 1)

    def _search(self, plan: ParallelPlan, least_memory: bool) -> dict[int, Spread]:
        chain = self.chain
        decided: dict[Value, int] = {}
        unused = dict(plan.layouts)
        found: dict[int, Spread] = {}
        for kind in chain.kinds_by_cost():
            pattern = chain.pattern(kind, plan.micro_batch)
            pinned = _pinned(pattern, plan.layouts, unused)
            for place in pattern.weights:
                value = pattern.outside[place]
                if value in decided:
                    pinned[place] = decided[value]
            last = kind == chain.units[-1].kind
            made = spread(
                pattern,
                self.cluster.processor,
                self.group(plan),
                border=1 if plan.sequence else WHOLE,
                pinned=pinned,
                repeats=2 if plan.recompute and not last else 1,
                least_memory=least_memory,
            )
            if made is None:
                raise DistributedError(
                    f"{pattern.unit.name} cannot be laid out as {dict(plan.layouts)}", op="plan"
                )
            found[kind] = made
            for place, layout in made.layouts.items():
                value = pattern.outside[place]
                if value in chain.shared and layout != OPEN:
                    decided[value] = layout
        if unused:
            names = ", ".join(sorted(weight_names(chain)))
            raise DistributedError(
                f"there is no weight {sorted(unused)[0]!r}", op="plan", hint=f"one of {names}"
            )
        return found


def _pinned(
    pattern: Pattern, layouts: Mapping[str, int | None], unused: dict[str, int | None]
) -> dict[int, int]:
    pinned: dict[int, int] = {}
    for place, name in names_of(pattern).items():
        for asked, axis in layouts.items():
            if name == asked or name.endswith(f".{asked}"):
                unused.pop(asked, None)
                ndim = len(pattern.shapes[place])
                if ndim < 2:
                    continue
                if axis is not None and not 0 <= axis < ndim:
                    raise DistributedError(
                        f"{name} has no axis {axis}",
                        op="plan",
                        operands=[pattern.outside[place].type],
                    )
                pinned[place] = WHOLE if axis is None else axis
    return pinned


def names_of(pattern: Pattern) -> dict[int, str]:
    """A name for each weight: of the module whose call reads it first."""
    places = {pattern.outside[place]: place for place in pattern.weights}
    names: dict[int, str] = {}
    for node in (*pattern.unit.once, *pattern.unit.forward):
        for value in node.inputs:
            place = places.get(value)
            if place is not None and place not in names:
                where = node.location
                names[place] = (where.module or where.short) if where is not None else "weight"
    return names


def weight_names(chain: Chain) -> set[str]:
    """The names of all weights that layouts can be pinned of, without the number in a list."""
    found: set[str] = set()
    for kind in chain.first:
        for name in names_of(chain.pattern(kind, 1)).values():
            parts = name.split(".")
            numbers = [i for i, part in enumerate(parts) if part.isdigit()]
            found.add(".".join(parts[numbers[0] + 1 :]) if numbers else name)
    return {name for name in found if name}
