"""Checks in-place writes of a loop body to carried tensors for aliases.

A name that a loop rebinds is an input of the body: the tensor from before the loop in the first
iteration, then the one of the previous iteration. A write to it is right only if no other name
holds the same tensor. If that fails only in the first iteration, that one is peeled: recorded
separately before the loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.errors import CaptureError
from weft.capture.from_source.may_alias import (
    HINT,
    NO_PAIRS,
    Aliases,
    Pair,
    is_made_in,
    pair_of,
)
from weft.capture.from_source.reach import Reach
from weft.core.tensor import Tensor
from weft.ir.graph import Value
from weft.record.control.nested import NestedRecorder
from weft.record.control.paths import Facts


class Aliased(CaptureError):
    """The first iteration of a loop writes to a tensor that another name holds."""


@dataclass(slots=True)
class Carried:
    """A carried tensor: before the loop, inside of the body, after the body."""

    title: str
    initial: Tensor | None
    entered: Tensor
    out: Tensor
    is_read: bool  # whether the body uses the value of the previous iteration


class LoopAliases:
    """Which carried tensors of one recorded body may alias."""

    def __init__(
        self,
        aliases: Aliases,
        nested: NestedRecorder,
        carried: Sequence[Carried],
        goes_on: Facts = (),
        rows: Sequence[Tensor] = (),
    ) -> None:
        """Find which carried tensors may alias.

        goes_on   facts after the body if another iteration follows
        rows      the tensors that the loop iterates over
        """
        self.aliases = aliases
        self.nested = nested
        self.carried = carried
        self.flags = goes_on
        self.goes_on = (*aliases.paths.facts, *goes_on)
        self.rows = rows
        self.at_first: set[Pair] = set()  # like all pairs here, of ids of tensors in the body
        self.later: set[Pair] = set()
        for one, two in itertools.combinations(carried, 2):
            if one.initial is None or two.initial is None:
                continue
            if aliases.may_be_one(one.initial, two.initial):
                self.at_first.add(pair_of(one.entered, two.entered))
        size = -1
        while len(self.pairs) != size:
            size = len(self.pairs)
            self.later |= self._pairs_after(self.goes_on)

    def _pairs_after(self, facts: Facts | None) -> set[Pair]:
        """Pairs that may be one tensor after the body."""
        return {
            pair_of(one.entered, two.entered)
            for one, two in itertools.combinations(self.carried, 2)
            if self.aliases.may_be_one(one.out, two.out, facts, self.pairs)
        }

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(self.at_first | self.later)

    # --- inside ---------------------------------------------------------------------------------

    def check(self, log: Sequence[tuple[Tensor, Facts]], line: str, op: str, peeled: bool) -> None:
        """Refuse writes in the body that should be visible through another name.

        peeled   whether the first iteration was peeled
        """
        written = self._written(log)
        if not written:
            return
        reach = Reach(self.aliases.watch)
        problem = ""
        for target in written:
            late = self._seen_later(target, reach)
            if late:
                raise CaptureError(_words(late, line), op=op, hint=HINT.format(name="x"))
            problem = problem or self._seen_at_first(target, reach)
        if problem:
            kind = CaptureError if peeled else Aliased
            raise kind(_words(problem, line), op=op, hint=HINT.format(name="x"))

    def _written(self, log: Sequence[tuple[Tensor, Facts]]) -> list[Any]:
        """Written tensors that exist at the start of an iteration: carried, or from outside."""
        found: list[Any] = []
        for target, facts in log:
            hit = [c for c in self.carried if self.aliases.may_be_one(c.entered, target, facts)]
            found += hit
            if not hit and not is_made_in(target, self.nested):
                found.append(target)
        return found

    def _named_again(self, target: Any, first: bool) -> str:
        """Another name that the body reads for a written tensor, in the first iteration or in a
        later one; "" if there is none."""
        facts, assumed = (None, NO_PAIRS) if first else (self.goes_on, self.pairs)
        for other in self._read(target):
            if isinstance(target, Tensor):
                held = other.initial if first else other.out
                if held is not None and self.aliases.may_be_one(held, target, facts, assumed):
                    return other.title
            elif pair_of(target.entered, other.entered) in (self.at_first if first else self.later):
                return f"{target.title}, as {other.title},"
        return ""

    def _seen_at_first(self, target: Any, reach: Reach) -> str:
        """Another name for a tensor that the first iteration writes, as text, or ""."""
        name = self._named_again(target, first=True)
        if name or isinstance(target, Tensor):
            return name
        aliases = self.aliases
        inner = {id(c.entered) for c in self.carried}
        everyone = [x for x in reach.tensors if id(x) not in inner]
        everyone += [*reach.appended, *self.rows]
        for one in self._before(target):
            first = one.initial
            if first is None:
                continue
            if aliases.is_outside(first) or any(aliases.may_be_one(first, x) for x in everyone):
                return one.title
        return ""

    def _before(self, target: Carried) -> list[Carried]:
        """Carried tensors that one may have been in earlier iterations."""
        found, waiting = [target], [target]
        while waiting:
            roots = self.aliases.roots(waiting.pop().out)
            more = [c for c in self.carried if id(c.entered) in roots and c not in found]
            found += more
            waiting += more
        return found

    def _seen_later(self, target: Any, reach: Reach) -> str:
        """Another name for a tensor that a later iteration writes, as text, or ""."""
        name = self._named_again(target, first=False)
        if name:
            return name
        aliases = self.aliases
        if isinstance(target, Tensor):
            listed = any(aliases.may_be_one(target, x) for x in reach.appended)
            return "a list of the graph" if listed else ""
        entered = {id(c.entered) for c in self.carried}
        for root in aliases.root_tensors(target.out):
            made = id(root) in entered or is_made_in(root, self.nested)
            if not made and aliases.may_be_one(target.out, root, self.goes_on):
                return str(target.title)
        if any(aliases.may_be_one(target.out, x, self.goes_on, self.pairs) for x in reach.appended):
            return f"{target.title}, as a list of the graph,"
        return ""

    def _read(self, but: Any) -> list[Carried]:
        return [c for c in self.carried if c is not but and c.is_read]

    # --- afterwards -----------------------------------------------------------------------------

    def finish(self, results: Sequence[Tensor], flags: Sequence[Value]) -> None:
        """Note what names may hold after the loop: the tensor from before, or one of the last
        iteration.

        `flags` are the results that say how the loop ended.
        """
        paths, going = self.aliases.paths, self._options(self.goes_on, None)
        ids = {id(c.entered): id(r) for c, r in zip(self.carried, results, strict=True)}

        def found(facts: Facts) -> tuple[list[dict[int, Tensor]], set[Pair]]:
            facts = (*paths.facts, *facts)
            pairs = self.at_first | self._pairs_after(facts)
            return self._options(facts, going), {frozenset(ids[i] for i in p) for p in pairs}

        options, pairs = found(())
        # A flag that is not set excludes one way in which the loop may have ended.
        ways = [(*paths.key(flag), found((f,))) for flag, f in zip(flags, self.flags, strict=True)]
        related = {
            pair: tuple([(key, int(no)) for key, no, (_, others) in ways if pair not in others])
            for pair in pairs
        }
        for i, result in enumerate(results):
            needs = [
                (x, tuple([(key, int(no)) for key, no, (others, _) in ways if at not in others[i]]))
                for at, x in options[i].items()
            ]
            self.aliases.add(result, needs, related)

    def _options(
        self, facts: Facts, before: Sequence[dict[int, Tensor]] | None
    ) -> list[dict[int, Tensor]]:
        """What each may be after the body if the facts hold, or if there was no iteration.

        `before` is what each may have been at the start of the body; None: the same.
        """
        by_entered = {id(c.entered): i for i, c in enumerate(self.carried)}
        found: list[dict[int, Tensor]] = [
            {} if c.initial is None else {id(c.initial): c.initial} for c in self.carried
        ]
        size = -1
        while sum(map(len, found)) != size:
            size = sum(map(len, found))
            for options, c in zip(found, self.carried, strict=True):
                for root in self.aliases.root_tensors(c.out):
                    if self.aliases.may_be_one(c.out, root, facts):
                        at = by_entered.get(id(root))
                        earlier = found if before is None else before
                        options.update({id(root): root} if at is None else earlier[at])
        return found


def _words(who: str, line: str) -> str:
    return f"{who} holds a tensor that the body of a loop writes to, and so does another name{line}"
