"""What a variable, an object or a container holds after both sides of an `if`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.from_source.dynamic_list import DynamicList, UnknownLength
from weft.capture.from_source.journal import Parts
from weft.capture.from_source.journal import Sequence as Sequenced
from weft.capture.from_source.loop_state import sample_of
from weft.capture.from_source.merge import Build, Maybe, Merge, kind_of_container
from weft.capture.from_source.run import OneSided
from weft.capture.from_source.split import HINT, Split
from weft.capture.watch.origin import MISSING
from weft.capture.watch.values import CONTAINERS, same_content
from weft.core.tensor import Tensor
from weft.ir.graph import Value

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: Writes something that is made of the results of the node.
Give = Callable[[list[Tensor]], None]


def same_parts(a: Parts, b: Parts) -> bool:
    return len(a) == len(b) and all(
        _same_key(x, y) and a[x] is b[y] for x, y in zip(a, b, strict=True)
    )


def _same_key(x: Any, y: Any) -> bool:
    """Whether two keys are one; tensors are so by their identity."""
    return x is y or (type(x) is type(y) and not isinstance(x, Tensor) and bool(x == y))


def merge_entry(
    hooks: Hooks,
    entry: Any,
    sides: list[Parts],
    now: Parts,
    merge: Merge,
    live: Sequence[str],
    gone: Sequence[bool],
    cells: frozenset[int],
    splits: tuple[Value, set[int]],
) -> list[Give]:
    variable = id(entry.obj) in cells
    if variable and entry.outside is None and entry.name not in live:
        return [lambda results: entry.put({})]
    taken = [side for side, none in zip(sides, gone, strict=True) if not none]
    is_list = entry.obj.__class__ is list and entry.known(hooks.watch) is None
    kept_apart = id(entry.obj) in splits[1] or any(_has_split(side) for side in taken)
    if kept_apart and isinstance(entry.obj, CONTAINERS) and len(taken) == 2:
        message = _sizes(entry, taken, merge.words)
        return _split(hooks, entry, taken, now, merge, splits[0], message)
    if is_list and len(taken) == 2 and _lengths_differ(*taken):
        raise UnknownLength(entry.obj, sample_of(*taken))
    if entry.whole and len(taken) == 2 and not same_content(entry.obj, *taken):
        message = _sizes(entry, taken, merge.words)
        if entry.known(hooks.watch) is not None:
            raise OneSided(message, hint=HINT)
        return _split(hooks, entry, taken, now, merge, splits[0], message)
    whole: dict[Any, Build] = {}  # of a list that has another length on both sides
    longer = isinstance(entry, Sequenced) and bool(taken) and list(taken[0]) != list(now)
    if longer and entry.known(hooks.watch) is not None:
        raise OneSided(f"{_what(entry)} holds {_size(now)} before, and {_size(taken[0])} after")
    gives = []
    for key in dict.fromkeys([*(taken[0] if taken else ()), *(taken[-1] if taken else ())]):
        pair = [
            MISSING if none else side.get(key, MISSING)
            for side, none in zip(sides, gone, strict=True)
        ]
        if pair[0] is pair[1] is now.get(key, MISSING) and not longer:
            continue
        if any(gone):
            value = pair[gone.index(False)]
            build = merge.filled([MISSING if n else value for n in gone])
        elif not variable and MISSING in pair:
            why = merge.words[pair.index(MISSING)]
            if entry.known(hooks.watch) is not None:
                raise OneSided(f"{entry.title(key)} is not there {why}")
            build = _constant(Maybe(MISSING, why))
        else:
            try:
                build = merge.value(entry.title(key), *pair)
            except CaptureError as error:
                if entry.known(hooks.watch) is not None:
                    raise OneSided(error.message, op=error.op, hint=error.hint) from None
                if variable:
                    raise
                if isinstance(entry.obj, CONTAINERS):
                    return _split(hooks, entry, taken, now, merge, splits[0], error.message)
                hooks.flow.unmergeable(entry, error.message)
                return []
        if any(v is now.get(key, MISSING) for v in pair) and key in now:
            entry.note(hooks, key)
        whole[key] = build
        gives.append(_giver(hooks, entry, key, build))
    return [_filler(hooks, entry, whole)] if longer else gives


def _sizes(entry: Any, sides: Sequence[Parts], words: Sequence[str]) -> str:
    one, two = (f"{_size(side)} {word}" for side, word in zip(sides, words, strict=True))
    return f"{_what(entry)} holds {one}, and {two}"


def _has_split(side: Parts) -> bool:
    return any(isinstance(value, Split) for value in (*side, *side.values()))


def _split(
    hooks: Hooks,
    entry: Any,
    sides: Sequence[Parts],
    now: Parts,
    merge: Merge,
    condition: Value,
    message: str,
) -> list[Give]:
    """Keep what a container holds on both sides, until it is used again."""
    before = {id(value) for value in now.values()}
    builds = [
        {key: _kept(value, number, merge, before) for key, value in side.items()}
        for number, side in enumerate(sides)
    ]

    def give(results: list[Tensor]) -> None:
        hooks.flow.save(entry.obj)
        hooks.flow.splits = True
        contents = [{key: build(results) for key, build in side.items()} for side in builds]
        Split(condition, contents, message).put_into(entry)

    return [give]


def _kept(value: Any, side: int, merge: Merge, before: set[int]) -> Build:
    """What a container holds on one side, as what is around can have it."""
    if id(value) in before:
        return _constant(value)
    if not isinstance(value, Split):
        return merge.filled([value, MISSING] if side == 0 else [MISSING, value])
    inner = [{k: _kept(v, side, merge, before) for k, v in c.items()} for c in value.contents]
    return lambda results: Split(
        value.condition, [{k: b(results) for k, b in c.items()} for c in inner], value.message
    )


def _lengths_differ(a: Parts, b: Parts) -> bool:
    marks = [any(v.__class__ is DynamicList for v in side.values()) for side in (a, b)]
    if all(marks):
        return a[0] is not b[0]
    return any(marks) or len(a) != len(b)


def _constant(value: Any) -> Build:
    return lambda results: value


def _giver(hooks: Hooks, entry: Any, key: Any, build: Build) -> Give:
    return lambda results: entry.give(hooks, key, build(results))


def _filler(hooks: Hooks, entry: Any, builds: dict[Any, Build]) -> Give:
    def fill(results: list[Tensor]) -> None:
        hooks.flow.save(entry.obj)
        entry.put({key: build(results) for key, build in builds.items()})

    return fill


def _what(entry: Any) -> str:
    return kind_of_container(entry.obj)


def _size(parts: Parts) -> str:
    return f"{len(parts)} item{'s' if len(parts) != 1 else ''}"
