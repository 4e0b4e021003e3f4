"""Tensors that may alias, depending on the path through the graph, and in-place writes to them.

After `y = x` on only one side of an `if`, y is x or another tensor. Its value is a value of the
graph; but a write to y should also change x on that path, and a write to x should change y. Such a
write is refused, unless nothing can see the difference. The same holds for carried tensors of
loops, and for elements of dynamic lists, which hold the value of a tensor when it was appended.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import CaptureError
from weft.capture.from_source.reach import Reach, name_of
from weft.capture.watch.watch import Watch
from weft.core.number import Number
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.record.control.nested import NestedRecorder
from weft.record.control.paths import Facts, Paths

#: Maximum steps of a search; after that, two tensors count as aliases, to be safe.
MOST_STEPS = 3000
HINT = (
    "give the name a tensor of its own before: {name} = {name}.clone(); "
    "or write {name} = {name} + 1"
)
ROWS_HINT = "let the loop iterate over a copy: `for row in {name}.clone()`; or rebind the name"

Pair = frozenset[int]  # of ids of tensors
NO_PAIRS: frozenset[Pair] = frozenset()


def pair_of(a: Tensor, b: Tensor) -> Pair:
    return frozenset((id(a), id(b)))


def as_tensors(value: Any) -> tuple[Tensor, ...]:
    """A value as a candidate for an alias: empty if it is not a tensor that can be written to."""
    return (value,) if isinstance(value, Tensor) and not isinstance(value, Number) else ()


#: Conditions that must have been decided: each with 0 if it holds, 1 if not.
Needs = tuple[tuple[Value, int], ...]


@dataclass(slots=True)
class AliasCandidates:
    """The tensors that one tensor may be.

    options  the candidates, each with the conditions under which it is that one
    number   counts up with each new tensor
    related  for results of one loop (which share this object): pairs that may be one tensor
    roots    ids of all tensors, made or given, that it may be
    """

    tensor: Tensor
    options: Sequence[tuple[Tensor, Needs]]
    number: int
    related: Mapping[Pair, Needs] | None
    roots: frozenset[int]


class Aliases:
    """All tensors of one run that may alias others."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.paths = Paths()
        self.log: list[tuple[Tensor, Facts]] = []  # tensors that were written, and facts there
        #: History nodes that a backward pass spent on one side of a condition, and on which side.
        self.spent: dict[Any, tuple[Value, bool]] = {}
        self.rows: list[Tensor] = []  # tensors over which current loops iterate, row by row
        self._known: dict[int, AliasCandidates] = {}
        self._tensors: dict[int, Tensor] = {}  # roots, and elements of lists, by id
        self._entered: dict[int, tuple[Tensor, NestedRecorder]] = {}
        self._numbers = itertools.count()
        self._quiet = False

    # --- candidates ---------------------------------------------------------------------------

    def decided(self, predicate: Value, merged: Sequence[tuple[Tensor, Any, Any]]) -> None:
        """Note results of an `if`, each with the tensors that it is on both sides."""
        key, opposite = self.paths.key(predicate)
        for tensor, *sides in merged:
            ways = enumerate(sides[::-1] if opposite else sides)
            self.add(tensor, [(x, ((key, way),)) for way, side in ways for x in as_tensors(side)])

    def add(
        self,
        tensor: Tensor,
        options: Sequence[tuple[Tensor, Needs]],
        related: Mapping[Pair, Needs] | None = None,
    ) -> None:
        if not as_tensors(tensor) or id(tensor) in self._known:
            return
        self._tensors.update({id(part): part for part, _ in options})
        roots = frozenset().union(*[self.roots(part) for part, _ in options])
        number = next(self._numbers)
        self._known[id(tensor)] = AliasCandidates(tensor, options, number, related, roots)

    def entered(self, tensor: Tensor, body: NestedRecorder) -> None:
        """Note a carried tensor in a loop body; its candidates are known at the end of the body."""
        self._entered[id(tensor)] = (tensor, body)

    def appended(self, tensor: Tensor) -> None:
        """Note that a tensor was appended to a list of the graph."""
        self._tensors[id(tensor)] = tensor

    def roots(self, tensor: Tensor) -> frozenset[int]:
        """The ids of all tensors, made or given, that a tensor may be."""
        found = self._known.get(id(tensor))
        return frozenset((id(tensor),)) if found is None else found.roots

    def root_tensors(self, tensor: Tensor) -> list[Tensor]:
        return [tensor if i == id(tensor) else self._tensors[i] for i in self.roots(tensor)]

    def may_be_one(
        self,
        a: Tensor,
        b: Tensor,
        facts: Facts | None = None,
        assumed: frozenset[Pair] | set[Pair] = NO_PAIRS,
    ) -> bool:
        """Whether two tensors may be one on a path on which the facts hold.

        `assumed` are pairs of tensors that count as one.
        """
        one, two = self.roots(a), self.roots(b)
        if one.isdisjoint(two) and not any(frozenset((r, s)) in assumed for r in one for s in two):
            return False
        search = _Search(self, self.paths.facts if facts is None else facts, assumed)
        return search.meet(a, b, {})

    def same(self, a: Any, b: Any) -> bool:
        """a is b"""
        if a is b or not (as_tensors(a) and as_tensors(b)):
            return a is b
        if self._perhaps_carried(a, b) or self._perhaps_carried(b, a) or self.may_be_one(a, b):
            raise CaptureError(
                "whether two names hold one tensor depends on tensors here",
                op="is",
                hint="compare what tensors hold, or keep a number that says which one it is",
            )
        return False

    def _perhaps_carried(self, a: Tensor, b: Tensor) -> bool:
        """Whether `a` may be a carried tensor and `b` one from before the iteration."""
        return any(
            id(one) in self._entered and id(other) != id(one) and not self._is_newer(other, one)
            for one in self.root_tensors(a)
            for other in self.root_tensors(b)
        )

    def _is_newer(self, tensor: Tensor, entered: Tensor) -> bool:
        """Whether a tensor was made in the iteration that begins with the carried `entered`."""
        return id(tensor) not in self._entered and is_made_in(tensor, self._entered[id(entered)][1])

    # --- writes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """A context for writes that were already checked, inside of a nested graph."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    @contextlib.contextmanager
    def going_over(self, rows: Sequence[Tensor]) -> Iterator[None]:
        """A context in which a loop iterates over the rows of these tensors."""
        self.rows += rows
        try:
            yield
        finally:
            del self.rows[len(self.rows) - len(rows) :]

    def check(self, target: Tensor) -> None:
        """Refuse a write to a tensor if another name might have to see it."""
        if self._quiet:
            return
        self.log.append((target, self.paths.facts))
        if id(target) not in self._known and id(target) not in self._tensors:
            return
        reach = Reach(self.watch, self.rows)
        if any(other is not target and self.may_be_one(target, other) for other in self.rows):
            raise refused(target, "an enclosing loop may iterate over its rows", ROWS_HINT)
        for other in reach.tensors:
            if other is not target and self.may_be_one(target, other):
                raise refused(target, _holder(other))
        if any(self.may_be_one(target, other) for other in reach.appended):
            raise refused(target, "a list of the graph may hold it, too")
        if id(target) in self._known and self.is_outside(target):
            raise refused(target, "it may be one from outside")

    def is_outside(self, tensor: Tensor, facts: Facts | None = None) -> bool:
        """Whether a tensor may be one from outside, or another that must not be written."""
        return any(
            self.may_be_one(tensor, root, facts)
            for root in self.root_tensors(tensor)
            if self.watch.known(root) is not None or is_leaf(root)
        )


class _Search:
    """Searches for a path on which two tensors are one."""

    def __init__(
        self, aliases: Aliases, facts: Facts, assumed: frozenset[Pair] | set[Pair]
    ) -> None:
        self.aliases = aliases
        self.facts = facts
        self.assumed = assumed
        self.steps = 0

    def meet(self, a: Tensor, b: Tensor, taken: dict[Value, int]) -> bool:
        self.steps += 1
        if self.steps > MOST_STEPS:
            return True
        if a is b or pair_of(a, b) in self.assumed:
            return self.aliases.paths.possible(taken, self.facts)
        one, two = self.aliases._known.get(id(a)), self.aliases._known.get(id(b))
        if one is not None and two is not None and one.related is two.related is not None:
            needs = two.related.get(pair_of(a, b))
            further = None if needs is None else _decided(taken, needs)
            return further is not None and self.aliases.paths.possible(further, self.facts)
        if one is None or (two is not None and two.number > one.number):
            one, b = two, a
        if one is None:
            return False
        for part, needs in one.options:
            further = _decided(taken, needs)
            if further is not None and self.meet(part, b, further):
                return True
        return False


def _decided(taken: dict[Value, int], needs: Needs) -> dict[Value, int] | None:
    """Both sets of decisions together; None if they contradict each other."""
    if any(taken.get(key, way) != way for key, way in needs):
        return None
    return {**taken, **dict(needs)}


def is_leaf(tensor: Tensor) -> bool:
    return tensor._node is not None and tensor._node.is_leaf


def is_made_in(tensor: Tensor, nested: NestedRecorder) -> bool:
    """Whether a tensor was made by the code that a nested graph records."""
    if nested.holds(tensor):
        return False
    data = tensor._data
    recorder: Any = data.recorder if data.__class__ is SymbolicArray else None
    while recorder is not None and recorder is not nested:
        recorder = getattr(recorder, "parent", None)
    return recorder is nested


def refused(target: Tensor, why: str, hint: str = HINT) -> CaptureError:
    name = name_of(target)
    shown = f"{name!r} ({target.type})" if name else f"a tensor ({target.type})"
    return CaptureError(
        f"{shown} is written to; a condition on tensors decides which tensor it is, and {why}",
        hint=hint.format(name=name or "x"),
    )


def _holder(other: Tensor) -> str:
    name = name_of(other)
    return f"{name!r} may hold it, too" if name else "another name may hold it, too"


class SourceNested(NestedRecorder):
    """A recorder of a branch or body that checks writes for aliases first."""

    def __init__(self, parent: Any, name: str, aliases: Aliases) -> None:
        super().__init__(parent, name)
        self.aliases = aliases

    def write(self, target: Tensor) -> None:
        self.aliases.check(target)
        super().write(target)

    def spend(self, node: Any, keep: bool) -> bool:
        condition, truth = self.aliases.spent.get(node, (None, False))
        if condition is not None and self.aliases.paths.known(condition) is truth:
            return True
        return super().spend(node, keep)

    def value_of(self, tensor: Tensor) -> Value:
        known = len(self.captured)
        value = super().value_of(tensor)
        if len(self.captured) > known:
            (outer, _), (_, inner) = next(reversed(self.captured.items()))
            self.aliases.paths.captured(inner, outer)
        return value
