"""Containers that hold something else after each side of an `if`, which no graph can merge.

A list with elements of several structures, a dict with other keys: such a container holds a mark
instead, until it is used again. Where only one of the ways leads there (the other one has returned,
say) it holds what it held on that way. Otherwise Python asks the condition, or, inside of a loop or
branch, the use is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.capture.control.nested import NestedRecorder, graph_recorder
from weft.capture.from_source.journal import Entry, Parts, entry_for
from weft.capture.from_source.paths import Paths
from weft.capture.watch.values import CONTAINERS
from weft.core.bind import decide
from weft.core.symbolic import symbolic

if TYPE_CHECKING:
    from weft.capture.from_source.run import Flow
    from weft.ir.graph import Value

HINT = "decide by a Python value, or do the same on both ways"


class Split:
    """What a container holds on the two ways of a condition."""

    def __init__(self, condition: Value, contents: Sequence[Parts], message: str) -> None:
        self.condition = condition
        self.contents = contents
        self.message = message

    def put_into(self, entry: Entry) -> None:
        """Let a container hold this as its only item."""
        key: Any = 0 if isinstance(entry.obj, list) or hasattr(entry.obj, "rotate") else self
        entry.put({key: self})

    def side(self, paths: Paths, taken: dict[Any, int]) -> int | None:
        """The side that led here, and note it in `taken`; None if both may have."""
        key, opposite = paths.key(self.condition)
        ways = [way for way in (0, 1) if paths.possible({**taken, key: way}, paths.facts)]
        if len(ways) != 1 or taken.get(key, ways[0]) != ways[0]:
            return None
        taken[key] = ways[0]
        return ways[0] ^ opposite


def split_of(value: Any) -> Split | None:
    """What a container holds that was not merged."""
    if not isinstance(value, CONTAINERS) or isinstance(value, tuple) or len(value) != 1:
        return None
    found = next(iter(value))
    return found if isinstance(found, Split) else None


def resolve(flow: Flow, obj: Any) -> None:
    """A container is used: let it hold what it held on the way that led here."""
    taken: dict[Any, int] = {}
    while (split := split_of(obj)) is not None:
        side = split.side(flow.aliases.paths, taken)
        if side is None:
            ask(flow.aliases.paths, split)
            side = split.side(flow.aliases.paths, taken)
        assert side is not None
        flow.save(obj)
        entry_for(obj).put(split.contents[side])


def ask(paths: Paths, split: Split) -> None:
    """Ask the condition, outside of all loops and branches: each answer is a path of its own."""
    here = graph_recorder()
    condition, _ = paths.key(split.condition)
    if here is None or isinstance(here, NestedRecorder) or condition.node not in here.graph.nodes:
        raise CaptureError(split.message, hint=HINT)
    paths.learn(condition, decide(symbolic(condition, here)))


def resolve_all(flow: Flow, value: Any, seen: set[int]) -> None:
    """The same for all containers in a value, which code reads that is not followed."""
    if not isinstance(value, CONTAINERS) or id(value) in seen:
        return
    seen.add(id(value))
    resolve(flow, value)
    for part in list(value.values() if isinstance(value, dict) else value):
        resolve_all(flow, part, seen)
