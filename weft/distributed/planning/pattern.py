"""A unit with numbers for sizes: its nodes in an order in which they run, what each reads and
writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from weft.base.dims import substitute
from weft.base.dtypes import bool as weft_bool
from weft.distributed.planning.outline import BATCH
from weft.distributed.planning.splits import Split, splits_of
from weft.distributed.planning.units import Unit, root
from weft.ir.graph import Node, Value
from weft.ir.op import Trait
from weft.ir.types import TensorType
from weft.ops.cards import ADD, ASTYPE, SCATTER_ADD

__all__ = ["BACKWARD", "FORWARD", "ONCE", "Entry", "Pattern", "pattern_of"]

ONCE, FORWARD, BACKWARD = 0, 1, 2
Shape = tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """One node. Values are numbers: places in the lists of the pattern.

    reads    operands that its kernel is the first to read from memory
    writes   results that later kernels read
    others   what its kernel reads besides operands, to compute a value again
    begins   whether a kernel begins here; a group of nodes that are fused is one kernel
    """

    node: Node
    attrs: Mapping[str, Any]
    phase: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    is_product: bool
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    others: tuple[int, ...] = ()
    begins: bool = False
    parts_kept: bool = True


@dataclass(eq=False)
class Pattern:
    """The numbers of a kind of units, for one size of a micro-batch.

    bases       for each value the one that it is a view of, with all of its elements
    stored      values of the forward that are kept for the backward
    kept        values made once per step that are kept
    weights     parameters, by place
    learned     gradients: place -> place of the parameter, or -1
    back        cotangents that go to the unit before
    takes, gives   places, or -1
    """

    unit: Unit
    shapes: list[Shape] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # bytes
    items: list[int] = field(default_factory=list)  # bytes of an element
    dtypes: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    outside: dict[int, Value] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    learned: dict[int, int] = field(default_factory=dict)
    back: list[int] = field(default_factory=list)
    takes: int = -1
    gives: int = -1
    state_bytes: int = 0
    update_bytes: int = 0
    _splits: dict[int, tuple[Split, ...]] = field(default_factory=dict)

    def splits(self, entry: Entry) -> tuple[Split, ...]:
        """The ways to cut a node, in these sizes."""
        found = self._splits.get(id(entry))
        if found is None:
            node = entry.node
            types = [
                value.tensor_type.like(shape=self.shapes[place])
                for value, place in zip(
                    (*node.inputs, *node.outputs), (*entry.inputs, *entry.outputs), strict=True
                )
            ]
            count = len(node.inputs)
            found = splits_of(node, types[:count], types[count:], entry.attrs)
            self._splits[id(entry)] = found
        return found


def pattern_of(unit: Unit, micro_batch: int, used: Mapping[Value, set[int]], place: int) -> Pattern:
    """The pattern of a unit; `used` says in which units each value of a backward is read."""
    made = _Maker(unit, micro_batch).pattern
    names = dict(_values(made))
    for value, number in names.items():
        readers = used.get(value)
        passed = readers is not None and bool(readers - {place}) and number not in made.outside
        if passed and value != unit.gives and value not in unit.learns:
            made.back.append(number)
    return made


def _is_part(value: Value) -> bool:
    """Whether a value has zeros around one part, or is a sum of such values."""
    node = value.node
    if node is None or node.op is SCATTER_ADD:
        return node is not None
    return node.op is ADD and all(map(_is_part, node.inputs))


def _values(pattern: Pattern) -> list[tuple[Value, int]]:
    return [
        pair
        for entry in pattern.entries
        if entry.phase == BACKWARD
        for pair in zip(entry.node.outputs, entry.outputs, strict=True)
    ]


class _Maker:
    def __init__(self, unit: Unit, micro_batch: int) -> None:
        self.sizes = {BATCH: micro_batch}
        self.places: dict[Value, int] = {}
        self.pattern = pattern = Pattern(unit)
        phase = dict.fromkeys(unit.once, ONCE)
        phase.update(dict.fromkeys(unit.forward, FORWARD))
        phase.update(dict.fromkeys(unit.backward, BACKWARD))
        self.phase = phase
        done: set[Node] = set()

        def add(node: Node) -> None:
            if node in done:
                return
            done.add(node)
            for value in node.inputs:
                if value.node is not None and phase.get(value.node) == ONCE:
                    add(value.node)
            self._add(node, phase[node])

        for node in (*unit.forward, *unit.backward):
            add(node)
        places = self.places
        pattern.takes = places.get(unit.takes, -1) if unit.takes is not None else -1
        pattern.gives = places.get(unit.gives, -1) if unit.gives is not None else -1
        pattern.weights = [places[value] for value in unit.parameters if value in places]
        for value, weight in unit.learns.items():
            if value in places:
                pattern.learned[places[value]] = places.get(weight, -1) if weight else -1
        self._count_kernels()
        self._count_updates()

    def _place(self, value: Value, *, own: bool) -> int:
        found = self.places.get(value)
        if found is None:
            pattern = self.pattern
            found = self.places[value] = len(pattern.shapes)
            kind = value.type
            if not isinstance(kind, TensorType):
                kind = TensorType(weft_bool, (0,))
            shape = substitute(kind.shape, self.sizes)
            pattern.shapes.append(shape)
            pattern.items.append(kind.dtype.itemsize)
            pattern.sizes.append(prod(shape) * kind.dtype.itemsize)
            pattern.dtypes.append(kind.dtype.name)
            if not own:
                pattern.outside[found] = value
        return found

    def _add(self, node: Node, phase: int) -> None:
        ins = tuple([self._place(value, own=False) for value in node.inputs])
        outs = tuple([self._place(value, own=True) for value in node.outputs])
        attrs = substitute(node.attrs, self.sizes)
        product = Trait.PRODUCT in node.op.traits
        entry = Entry(node, attrs, phase, ins, outs, product)
        sizes = self.pattern.sizes
        entry.parts_kept = sum(sizes[i] for i in outs) <= max((sizes[i] for i in ins), default=0)
        self.pattern.entries.append(entry)

    # --- kernels -------------------------------------------------------------------------------

    def _count_kernels(self) -> None:
        """Fuse what is no product: a node joins the last kernel that it reads from, if that has at
        least as many elements; other kernels that only this one reads become part of it."""
        pattern = self.pattern
        order = {id(entry): number for number, entry in enumerate(pattern.entries)}
        group_of: dict[int, int] = {}  # value -> kernel
        extent: dict[int, int] = {}
        members: dict[int, list[Entry]] = {}
        readers: dict[int, set[int]] = {}
        group_of_entry: dict[int, int] = {}
        gone: set[int] = set()

        def reached(group: int) -> set[int]:
            """The kernels that need what this one makes."""
            found: set[int] = set()
            waiting = [group]
            while waiting:
                for other in readers.get(waiting.pop(), ()):
                    if other not in found:
                        found.add(other)
                        waiting.append(other)
            return found

        for entry in pattern.entries:
            sources = {group_of.get(i, 0) for i in entry.inputs} - {0}
            values = (*entry.inputs, *entry.outputs)
            size = max((prod(pattern.shapes[i]) for i in values), default=0)
            if entry.node.op.view or self._is_epilogue(entry, extent, max(sources, default=0)):
                group = max(sources, default=0)
            else:
                group = 0
                if not entry.is_product:
                    for candidate in sorted(sources, reverse=True):
                        if extent[candidate] >= size and members[candidate][0].phase == entry.phase:
                            after = reached(candidate)
                            if not any(other in after for other in sources - {candidate}):
                                group = candidate
                                break
                if not group:
                    group = len(members) + len(gone) + 1
                    extent[group] = -1 if entry.is_product else size
                    members[group] = []
                elif extent[group] >= 0:
                    for other in sources - {group}:
                        alike = extent[other] >= 0 and members[other][0].phase == entry.phase
                        if alike and readers.get(other, set()) <= {group}:
                            members[group] += members.pop(other)
                            gone.add(other)
                            for i in [i for i, own in group_of.items() if own == other]:
                                group_of[i] = group
                            for found in readers.values():
                                if other in found:
                                    found.discard(other)
                                    found.add(group)
                    sources = {group_of.get(i, 0) for i in entry.inputs} - {0}
                members[group].append(entry)
                for other in sources - {group}:
                    readers.setdefault(other, set()).add(group)
            group_of_entry[id(entry)] = group
            for out in entry.outputs:
                group_of[out] = group
        for group, inside in members.items():
            for entry in inside:
                group_of_entry[id(entry)] = group
            first = min(inside, key=lambda e: order[id(e)])
            first.begins = extent[group] == -1 or extent[group] > 1
        of_entry = [group_of_entry[id(entry)] for entry in pattern.entries]
        bases = [self._base(entry) for entry in pattern.entries]
        base_of = {i: i for i in range(len(pattern.shapes))}
        for entry, base in zip(pattern.entries, bases, strict=True):
            if base >= 0:
                base_of[entry.outputs[0]] = base_of[base]
        pattern.bases = [base_of[i] for i in range(len(pattern.shapes))]
        wanted: dict[int, set[int]] = {}  # base -> kernels that read it
        late: set[int] = set()  # bases of the forward that the backward reads
        phase_of = {i: entry.phase for entry in pattern.entries for i in entry.outputs}
        for entry, group in zip(pattern.entries, of_entry, strict=True):
            if entry.node.op.view:
                continue
            for i in entry.inputs:
                base = base_of[i]
                wanted.setdefault(base, set()).add(group)
                if entry.phase == BACKWARD and phase_of.get(base, FORWARD) == FORWARD:
                    late.add(base)
        for i in (pattern.gives, *pattern.learned):
            if i >= 0:
                wanted.setdefault(base_of[i], set()).add(-1)
        again = self._computed_again(late, members, group_of, base_of)
        seen: set[tuple[int, int]] = set()
        products = {group for group, size in extent.items() if size == -1}
        for entry, group in zip(pattern.entries, of_entry, strict=True):
            whole = entry.node.op is ADD and _is_part(entry.node.outputs[0])
            if entry.node.op.view or whole or group in products:
                continue
            if entry.node.op is SCATTER_ADD:
                entry.writes.append(entry.inputs[0])
                continue
            for i in entry.inputs:
                base = base_of[i]
                sources_of = again.get(base, (base,)) if entry.phase == BACKWARD else (base,)
                for x in sources_of:
                    if group_of.get(x, 0) != group and (group, x) not in seen:
                        seen.add((group, x))
                        entry.reads.append(i if x == base else x)
            for i in entry.outputs:
                others = wanted.get(i, set()) - {group}
                if i in again:  # only kernels of the forward read it
                    others = {g for g in others if g == -1 or members[g][0].phase == FORWARD}
                if others:
                    entry.writes.append(i)
            entry.others = tuple([i for i in entry.reads if i not in entry.inputs])
        stored = [x for base in late for x in again.get(base, (base,))]
        outside = pattern.outside
        pattern.stored = [
            x
            for x in dict.fromkeys(stored)
            if phase_of.get(x, FORWARD) == FORWARD
            and x != pattern.takes
            and x not in pattern.weights
            and (x not in outside or outside[x].node is None)
        ]
        pattern.kept = [
            i
            for i, phase in phase_of.items()
            if phase == ONCE and base_of[i] == i and wanted.get(i) and prod(pattern.shapes[i]) > 1
        ]

    def _is_epilogue(self, entry: Entry, extent: Mapping[int, int], before: int) -> bool:
        """Whether a node is part of what comes before: the cast of a gradient that a product makes,
        or where parts of a whole are put together, which each writes in its place."""
        node = entry.node
        if node.op is ASTYPE:
            return extent.get(before, 0) == -1 and entry.outputs[0] in self.pattern.learned
        return bool(before) and _is_part(node.outputs[0])

    def _base(self, entry: Entry) -> int:
        """The operand that a view with all its elements shows; -1 if it is none."""
        if not entry.node.op.view or not entry.inputs or len(entry.outputs) != 1:
            return -1
        sizes = self.pattern.sizes
        return entry.inputs[0] if sizes[entry.outputs[0]] <= sizes[entry.inputs[0]] else -1

    def _computed_again(
        self,
        late: set[int],
        members: Mapping[int, Sequence[Entry]],
        group_of: Mapping[int, int],
        base_of: Mapping[int, int],
    ) -> dict[int, tuple[int, ...]]:
        """Values that the backward computes again from the operands of their kernel, as that keeps
        less: of elementwise kernels without random numbers."""
        pattern = self.pattern
        by_group: dict[int, list[int]] = {}
        for base in late:
            if group_of.get(base, 0) > 0:
                by_group.setdefault(group_of[base], []).append(base)
        again: dict[int, tuple[int, ...]] = {}
        for group, saved in sorted(by_group.items()):
            inside = members.get(group, [])
            if not inside or inside[0].phase != FORWARD:
                continue
            if not all(entry.node.op.elementwise for entry in inside):
                continue
            sources = tuple(
                dict.fromkeys(
                    base_of[i]
                    for entry in inside
                    for i in entry.inputs
                    if group_of.get(base_of[i], 0) != group and prod(pattern.shapes[i]) > 1
                )
            )
            spent = sum(pattern.sizes[i] for i in sources if i not in late)
            if spent < sum(pattern.sizes[i] for i in saved):
                again.update(dict.fromkeys(saved, sources))
        return again

    def _count_updates(self) -> None:
        unit, pattern = self.unit, self.pattern
        kinds = [value.tensor_type for value in unit.states]
        pattern.state_bytes = sum(kind.nbytes for kind in kinds)
        for node in unit.updates:
            values = dict.fromkeys((*map(root, node.inputs), *node.outputs))
            pattern.update_bytes += sum(value.tensor_type.nbytes for value in values)

    @property
    def unit(self) -> Unit:
        return self.pattern.unit
