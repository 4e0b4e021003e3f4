"""Values of variables, attributes and items that depend on the path through the graph.

Most places hold a Python value or a tensor. After branches and loops of the graph, a place may also
hold:

- `Maybe`: the value of a name that has none on some paths;
- `Split`: contents that differ between the sides of an `if` and that no graph can merge: other
  structures, keys or Python values. A container holds it as its only item, an object as an
  attribute;
- `DynamicList`: the only item of a list whose length the graph decides;
- a tensor that may be one of several (see `may_alias`).

Code that uses an object calls `use` first: then Python can read the object, or there is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec, tree_flatten
from weft.capture.from_source.journal import Parts, entry_for
from weft.capture.watch.origin import MISSING
from weft.capture.watch.stores import instance_dict
from weft.capture.watch.values import CONTAINERS, is_plain
from weft.core.bind import decide
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor
from weft.record.control.nested import NestedRecorder, graph_recorder
from weft.record.control.paths import Paths

if TYPE_CHECKING:
    from weft.capture.from_source.run import Flow
    from weft.ir.graph import Value

HINT = "decide by a Python value, or do the same on both sides"


class Maybe:
    """The value of a name that has none on some paths.

    value   its value on the other paths; MISSING if that is not known
    why     which path leaves it without a value, for errors
    flag    a value of the graph: whether it has one; None: every use is an error
    """

    __slots__ = ("flag", "value", "why")

    def __init__(self, value: Any, why: str, flag: Any = None) -> None:
        self.value: Any = value.value if isinstance(value, Maybe) else value
        self.why = why
        self.flag = flag


def flag_of(value: Any) -> Any:
    """Whether a name has a value, if the graph knows that."""
    if value is MISSING:
        return None
    return value.flag if isinstance(value, Maybe) else True


def undefined(name: str, why: str) -> CaptureError:
    return CaptureError(
        f"{name} is used here, and it has no value {why}",
        hint="give it a value on all paths, or before",
    )


class Undecided:
    """Stands in a container or object for contents that the graph decides."""

    def settle(self, flow: Flow, obj: Any) -> None:
        """Python needs the contents: replace this in `obj` by them."""
        raise NotImplementedError


class Split(Undecided):
    """Contents for the two sides of a condition: if it holds, and if not."""

    def __init__(self, condition: Value, sides: Sequence[Parts], message: str) -> None:
        self.condition = condition
        self.sides = sides
        self.message = message

    def settle(self, flow: Flow, obj: Any) -> None:
        """Give `obj` its contents on the side that led here."""
        paths = flow.aliases.paths
        holds = paths.known(self.condition)
        if holds is None:
            holds = self._ask(paths)
        paths.learn(self.condition, holds)
        flow.save(obj)
        entry = entry_for(obj)
        parts: Parts = {}
        for key, value in entry.parts().items():
            mine = self is key or self is value
            parts.update(self.sides[0 if holds else 1] if mine else {key: value})
        entry.put(parts)

    def _ask(self, paths: Paths) -> bool:
        """Ask the condition, outside of all loops and branches; each answer has its own path."""
        now = graph_recorder()
        here = None if isinstance(now, NestedRecorder) else now
        condition, opposite = paths.key(self.condition)
        if here is None or condition.node not in here.graph.nodes:
            raise CaptureError(self.message, hint=HINT)
        return decide(symbolic(condition, here)) is not opposite


def one_level(tree: Any) -> tuple[list[Any], TreeSpec] | None:
    """The parts of a container; None for a leaf."""
    if isinstance(tree, (Tensor, Maybe, Split)):
        return None
    parts, structure = tree_flatten(tree, lambda part: part is not tree)
    return None if structure.kind is None else (parts, structure)


# --- uses ----------------------------------------------------------------------------------------


def _undecided_in(flow: Flow, obj: Any) -> Undecided | None:
    if isinstance(obj, CONTAINERS):
        found = next(iter(obj)) if len(obj) == 1 and not isinstance(obj, tuple) else None
        return found if isinstance(found, Undecided) else None
    if id(obj) not in flow.split_objects:
        return None
    return next((v for v in entry_for(obj).parts().values() if isinstance(v, Split)), None)


def use(flow: Flow, obj: Any, lists: bool = False) -> None:
    """Settle an object that is used, so that Python can read it.

    lists   also settle dynamic lists
    """
    while (found := _undecided_in(flow, obj)) is not None and (lists or isinstance(found, Split)):
        found.settle(flow, obj)


def use_all(flow: Flow, value: Any, lists: bool, seen: set[int] | None = None) -> None:
    """The same for everything in a value that is returned, or that code without hooks reads.

    lists   only go through trees, and settle dynamic lists; else go through all objects
    """
    seen = set() if seen is None else seen
    leaf = is_plain(value) or isinstance(value, (Tensor, type, ModuleType))
    if leaf or not flow.undecided or id(value) in seen:
        return
    seen.add(id(value))
    use(flow, value, lists)
    if isinstance(value, CONTAINERS):
        parts = [*value, *(value.values() if isinstance(value, dict) else ())]
    elif lists:
        tree = one_level(value)
        parts = [] if tree is None else tree[0]
    else:
        parts = [*(instance_dict(value) or {}).values()]
    for part in parts:
        use_all(flow, part, lists, seen)
