"""What a place (a variable, an attribute, an item) may hold where the graph decides about it.

Most places hold a Python value or a tensor. After branches and loops of the graph, there are also:

- `Maybe`: a name that has no value on some ways;
- `Split`: contents that differ by the side of an `if` in a way that no graph can merge: elements of
  several structures, other keys, other Python values. A container holds it as its only item, an
  object as an attribute;
- `DynamicList`: the only item of a list whose length the graph decides;
- a tensor that may be one of several (see `may_alias`).

`resolve` and `settle` are what a use does: afterwards Python can read the object, or there was an
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec, tree_flatten
from weft.capture.control.nested import NestedRecorder, graph_recorder
from weft.capture.from_source.journal import Parts, entry_for
from weft.capture.from_source.paths import Paths
from weft.capture.watch.origin import MISSING
from weft.capture.watch.stores import instance_dict
from weft.capture.watch.values import CONTAINERS, is_plain
from weft.core.bind import decide
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.from_source.run import Flow
    from weft.ir.graph import Value

HINT = "decide by a Python value, or do the same on both ways"


class Maybe:
    """The value of a name that some ways leave without one.

    value   what it is on the ways that give it one; MISSING: none of them is known
    why     which way does not
    flag    whether it has one, where the graph knows that; None: using it is an error
    """

    __slots__ = ("flag", "value", "why")

    def __init__(self, value: Any, why: str, flag: Any = None) -> None:
        self.value: Any = value.value if isinstance(value, Maybe) else value
        self.why = why
        self.flag = flag


def flag_of(value: Any) -> Any:
    """Whether a value is there, if that is known."""
    if value is MISSING:
        return None
    return value.flag if isinstance(value, Maybe) else True


def undefined(name: str, why: str) -> CaptureError:
    return CaptureError(
        f"{name} is used here, and it has no value {why}",
        hint="give it a value on all ways, or before",
    )


class Split:
    """Contents on the two sides of a condition: where it holds, and where it does not."""

    def __init__(self, condition: Value, sides: Sequence[Parts], message: str) -> None:
        self.condition = condition
        self.sides = sides
        self.message = message

    def side(self, paths: Paths, taken: dict[Any, int]) -> int | None:
        """The side that led here, and note it in `taken`; None if both may have."""
        key, opposite = paths.key(self.condition)
        ways = [way for way in (0, 1) if paths.possible({**taken, key: way}, paths.facts)]
        if len(ways) != 1 or taken.get(key, ways[0]) != ways[0]:
            return None
        taken[key] = ways[0]
        return ways[0] ^ opposite

    def ask(self, paths: Paths) -> None:
        """Ask the condition, outside of all loops and branches: each answer is another path."""
        here = graph_recorder()
        condition, _ = paths.key(self.condition)
        if (
            here is None
            or isinstance(here, NestedRecorder)
            or condition.node not in here.graph.nodes
        ):
            raise CaptureError(self.message, hint=HINT)
        paths.learn(condition, decide(symbolic(condition, here)))


def one_level(tree: Any) -> tuple[list[Any], TreeSpec] | None:
    """The parts of a container; None for a leaf."""
    if isinstance(tree, (Tensor, Maybe, Split)):
        return None
    parts, structure = tree_flatten(tree, lambda part: part is not tree)
    return None if structure.kind is None else (parts, structure)


# --- uses ----------------------------------------------------------------------------------------


def _split_of(flow: Flow, obj: Any) -> Split | None:
    if isinstance(obj, CONTAINERS):
        found = next(iter(obj)) if len(obj) == 1 and not isinstance(obj, tuple) else None
        return found if isinstance(found, Split) else None
    if id(obj) not in flow.split_objects:
        return None
    return next((v for v in entry_for(obj).parts().values() if isinstance(v, Split)), None)


def resolve(flow: Flow, obj: Any) -> None:
    """An object is used: let it hold what it held on the way that led here."""
    taken: dict[Any, int] = {}
    paths = flow.aliases.paths
    while (split := _split_of(flow, obj)) is not None:
        side = split.side(paths, taken)
        if side is None:
            split.ask(paths)
            side = split.side(paths, taken)
        assert side is not None
        flow.save(obj)
        entry = entry_for(obj)
        parts: Parts = {}
        for key, value in entry.parts().items():
            parts.update(split.sides[side] if split is key or split is value else {key: value})
        entry.put(parts)


def resolve_all(flow: Flow, value: Any, seen: set[int]) -> None:
    """The same for everything in a value, which code reads that is not followed."""
    leaf = is_plain(value) or isinstance(value, (Tensor, type, ModuleType))
    if leaf or not flow.undecided or id(value) in seen:
        return
    seen.add(id(value))
    resolve(flow, value)
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    else:
        own = None if isinstance(value, CONTAINERS) else instance_dict(value) or {}
        parts = list(value if own is None else own.values())
    for part in parts:
        resolve_all(flow, part, seen)
