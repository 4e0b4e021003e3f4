"""Merges the contents of variables, objects and containers after both sides of an `if`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.base.errors import CaptureError
from weft.capture.from_source.carried_place import sample_of
from weft.capture.from_source.dynamic_list import DynamicList, UnknownLength
from weft.capture.from_source.held import HINT, Split
from weft.capture.from_source.journal import Array, Attributes, Parts, Set, Variable
from weft.capture.from_source.journal import Sequence as Sequenced
from weft.capture.from_source.merge import Build, Merge, kind_of_container
from weft.capture.watch.origin import MISSING
from weft.capture.watch.refusals import OneSided
from weft.capture.watch.values import same_content, same_keys
from weft.core.tensor import Tensor
from weft.ir.graph import Value

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: Writes a merged value, given the results of the node.
Give = Callable[[list[Tensor]], None]


@dataclass(slots=True)
class EntryMerge:
    """Merges the writes of both sides of an `if`.

    live        variables of `cells` that are read afterwards
    ends        the sides that do not end in an error
    condition   the condition of the `if`
    apart       ids of lists whose contents no graph can merge
    """

    hooks: Hooks
    merge: Merge
    live: Sequence[str]
    cells: frozenset[int]
    ends: Sequence[int]
    condition: Value
    apart: set[int]

    def gives(self, entry: Any, sides: Sequence[Parts], now: Parts) -> list[Give]:
        """Functions that write the merged parts of an entry; `now` are its parts before."""
        variable = id(entry.obj) in self.cells
        if variable and entry.outside is None and entry.name not in self.live:
            return [lambda results: entry.put({})]
        reached = [sides[i] for i in self.ends]
        outside = entry.known(self.hooks.watch) is not None
        try:
            self._check_items(entry, reached, outside)
            return self._merged(entry, sides, reached, now)
        except UnknownLength:
            raise
        except CaptureError as error:
            elsewhere = isinstance(entry, Variable) and not variable  # of a function around
            if outside or elsewhere or isinstance(entry, Array):
                raise OneSided(error.message, op=error.op, hint=error.hint) from None
            if not entry.whole:
                raise
            return [self._split(entry, None, sides, now, error.message)]

    def _check_items(self, entry: Any, reached: Sequence[Parts], outside: bool) -> None:
        """Refuse if the sides leave other keys, or another number of items."""
        if not entry.whole:
            return
        is_list = entry.obj.__class__ is list and not outside
        if len(reached) == 2:
            one, two = (f"{_size(p)} {w}" for p, w in zip(reached, self.merge.words, strict=True))
            differ = CaptureError(
                f"{kind_of_container(entry.obj)} holds {one}, and {two}", hint=HINT
            )
            if id(entry.obj) in self.apart or any(map(_has_split, reached)):
                raise differ
            if is_list and _lengths_differ(*reached):
                raise UnknownLength(entry.obj, sample_of(*reached))
            if not same_content(entry.obj, *reached):
                raise differ

    def _merged(
        self, entry: Any, sides: Sequence[Parts], reached: Sequence[Parts], now: Parts
    ) -> list[Give]:
        keys = dict.fromkeys(key for side in reached for key in side)
        kept = [key for key in keys if key in now]
        moved = bool(reached) and _is_moved(entry, keys, kept, now)
        outside = entry.known(self.hooks.watch) is not None or getattr(entry, "outside", None)
        if moved and outside:
            what = kind_of_container(entry.obj) if entry.whole else entry.title(next(iter(now)))
            raise CaptureError(f"{what} holds {_size(now)} before, and {_size(keys)} after")
        builds: dict[Any, Build] = {}
        gives: list[Give] = []
        if moved and not entry.whole:
            gives.append(_filler(self.hooks, entry, {key: _constant(now[key]) for key in kept}))
        for key in keys:
            before = now.get(key, MISSING)
            if all(side.get(key, MISSING) is before for side in reached):
                builds[key] = _constant(before)
                continue
            pair = [
                side.get(key, MISSING) if i in self.ends else MISSING
                for i, side in enumerate(sides)
            ]
            if before is not MISSING and any(value is before for value in pair):
                number = entry.number(self.hooks, key, before)
                pair = [number if value is before else value for value in pair]
                if number is before:
                    entry.note_whole(self.hooks, key, before)
            try:
                builds[key] = self._build(entry, key, pair)
            except CaptureError as error:
                if not isinstance(entry, Attributes) or entry.known(self.hooks.watch) is not None:
                    raise
                one_key = [{} if value is MISSING else {key: value} for value in pair]
                gives.append(self._split(entry, key, one_key, now, error.message))
                continue
            gives.append(_giver(self.hooks, entry, key, builds[key]))
        return [_filler(self.hooks, entry, builds)] if moved and entry.whole else gives

    def _build(self, entry: Any, key: Any, pair: Sequence[Any]) -> Build:
        missing = [i for i in self.ends if pair[i] is MISSING]
        if not isinstance(entry, Variable) and len(missing) == 1 < len(self.ends):
            why = self.merge.words[missing[0]]
            raise CaptureError(f"{entry.title(key)} is not there {why}", hint=HINT)
        return self.merge.value(entry.title(key), pair, self.ends)

    def _split(
        self, entry: Any, key: Any, sides: Sequence[Parts], now: Parts, message: str
    ) -> Give:
        """Keep the contents of both sides until they are used: a `Split` in a container, or in an
        attribute."""
        flow = self.hooks.flow
        before = {id(value) for value in now.values()}
        builds = [
            {
                name: _constant(value) if id(value) in before else self._of_side(number, value)
                for name, value in side.items()
            }
            for number, side in enumerate(sides)
        ]

        def give(results: list[Tensor]) -> None:
            flow.save(entry.obj)
            flow.undecided = True
            contents = [{name: build(results) for name, build in side.items()} for side in builds]
            split = Split(self.condition, contents, message)
            if entry.whole:
                entry.put({split: split})
            else:
                flow.split_objects[id(entry.obj)] = entry.obj
                entry.put({**entry.parts(), key: split})

        return give

    def _of_side(self, side: int, value: Any) -> Build:
        """A value that only one side has."""
        pair = [MISSING, MISSING]
        pair[side] = value
        return self.merge.value("", pair, [side])


def _has_split(side: Parts) -> bool:
    return any(isinstance(value, Split) for value in (*side, *side.values()))


def _is_moved(entry: Any, keys: Sized, kept: Sequence[Any], now: Parts) -> bool:
    """Whether keys were removed, added to a list or set, or are in another order.

    Then writing the merged items by their keys is not enough.
    """
    if isinstance(entry, (Sequenced, Set)):
        return not len(keys) == len(kept) == len(now)
    return not same_keys(tuple(kept), tuple(now)) if entry.whole else len(kept) != len(now)


def _lengths_differ(a: Parts, b: Parts) -> bool:
    dynamic = [any(v.__class__ is DynamicList for v in side.values()) for side in (a, b)]
    if all(dynamic):
        return a[0] is not b[0]
    return any(dynamic) or len(a) != len(b)


def _constant(value: Any) -> Build:
    return lambda results: value


def _giver(hooks: Hooks, entry: Any, key: Any, build: Build) -> Give:
    return lambda results: entry.give(hooks, key, build(results))


def _filler(hooks: Hooks, entry: Any, builds: dict[Any, Build]) -> Give:
    def fill(results: list[Tensor]) -> None:
        hooks.flow.save_entry(entry)
        entry.put({key: build(results) for key, build in builds.items()})

    return fill


def _size(parts: Sized) -> str:
    return f"{len(parts)} item{'s' if len(parts) != 1 else ''}"
