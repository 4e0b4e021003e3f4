"""Trees of Python containers: the arguments and results of functions.

A tree is a leaf, or a list, tuple, named tuple, dict (also ordered or with a default), dataclass or
registered class of trees; None is a tree without leaves.

>>> leaves, spec = weft.tree_flatten({"a": 1, "b": (2, [3])})
>>> leaves
[1, 2, 3]
>>> weft.tree_unflatten(spec, [10, 20, 30])
{'a': 10, 'b': (20, [30])}
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from weft.base.errors import DTypeError
from weft.base.lazy import Lazy

json = Lazy("json")

__all__ = ["register_pytree", "tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"]

T = TypeVar("T")
Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[Any, list[Any]], Any]

_REGISTERED: dict[type, tuple[Flatten, Unflatten]] = {}
#: Dataclasses whose instances are leaves, not trees.
_VALUES: set[type] = set()


def value_class(cls: type[T]) -> type[T]:
    """Treat instances of a dataclass as leaves."""
    _VALUES.add(cls)
    return cls


def register_pytree(cls: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Treat instances of `cls` as trees.

    flatten     (object) -> (its subtrees, auxiliary data)
    unflatten   (auxiliary data, list of subtrees) -> object
    """
    _REGISTERED[cls] = (flatten, unflatten)


class TreeSpec:
    """The structure of a tree without its leaves. Equal specs have the same structure."""

    __slots__ = ("children", "kind", "leaves", "unflatten", "what")

    def __init__(
        self, kind: type | None, what: Any, children: tuple[TreeSpec, ...], unflatten: Unflatten
    ) -> None:
        self.kind = kind  # None: a leaf
        self.what = what
        self.children = children
        self.unflatten = unflatten
        self.leaves: int = 1 if kind is None else sum(child.leaves for child in children)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        same = self.kind is other.kind and self.children == other.children
        return same and bool(self.what == other.what)

    def __hash__(self) -> int:
        return hash((self.kind, self.children))

    def paths(self, show: Callable[[Any], str] = repr) -> list[str]:
        """The path of each leaf, written as in Python: `['a'][0].x`. `show` writes keys."""
        if self.kind is None:
            return [""]
        steps = _steps(self.kind, self.what, len(self.children), show)
        return [
            step + path
            for step, child in zip(steps, self.children, strict=True)
            for path in child.paths(show)
        ]

    def names(self, root: str) -> list[str]:
        """A name for each leaf of an argument or a result of this name: `root["a"][0].x`."""
        return [root + path for path in self.paths(_in_double_quotes)]

    def __repr__(self) -> str:
        return f"TreeSpec({tree_unflatten(self, [_Star()] * self.leaves)!r})"


class _Star:
    def __repr__(self) -> str:
        return "*"


def _in_double_quotes(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)


def _steps(kind: type, what: Any, count: int, show: Callable[[Any], str]) -> list[str]:
    if issubclass(kind, dict):
        keys = what[1] if issubclass(kind, defaultdict) else what
        return [f"[{show(key)}]" for key in keys]
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return [f".{name}" for name in what]
    return [f"[{i}]" for i in range(count)]


def _leaf(_what: Any, children: list[Any]) -> Any:
    return children[0]


LEAF = TreeSpec(None, None, (), _leaf)

#: How to flatten and unflatten Python's own containers.
PLAIN_TREES: dict[type, tuple[Flatten, Unflatten]] = {
    list: (lambda tree: (tree, None), lambda _what, parts: parts),
    tuple: (lambda tree: (tree, None), lambda _what, parts: tuple(parts)),
    dict: (
        lambda tree: (tree.values(), tuple(tree)),
        lambda keys, parts: dict(zip(keys, parts, strict=True)),
    ),
    OrderedDict: (
        lambda tree: (tree.values(), tuple(tree)),
        lambda keys, parts: OrderedDict(zip(keys, parts, strict=True)),
    ),
    defaultdict: (
        lambda tree: (tree.values(), (tree.default_factory, tuple(tree))),
        lambda what, parts: defaultdict(what[0], zip(what[1], parts, strict=True)),
    ),
    deque: (
        lambda tree: (tree, tree.maxlen),
        lambda length, parts: deque(parts, length),
    ),
    type(None): (lambda _tree: ((), None), lambda _what, _parts: None),
}


def tree_rules(kind: type) -> tuple[Flatten, Unflatten] | None:
    """How to flatten and unflatten instances of a class; None for leaves."""
    found = _REGISTERED.get(kind) or PLAIN_TREES.get(kind)
    if found is None and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        found = (lambda tree: (tree, kind._fields), lambda _what, parts: kind(*parts))
    elif found is None and dataclasses.is_dataclass(kind) and kind not in _VALUES:
        names = tuple(field.name for field in dataclasses.fields(kind))
        found = (
            lambda tree: ([getattr(tree, name) for name in names], names),
            lambda _what, parts: _dataclass(kind, names, parts),
        )
    return found


def _dataclass(kind: type, names: tuple[str, ...], parts: list[Any]) -> Any:
    # Without __init__, which may not take all fields: each field gets its old value.
    made: Any = object.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, left to right, and its structure."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    kind = type(tree)
    rules = None if is_leaf is not None and is_leaf(tree) else tree_rules(kind)
    if rules is None:
        leaves.append(tree)
        return LEAF
    flatten, unflatten = rules
    parts, what = flatten(tree)
    return TreeSpec(
        kind, what, tuple([_flatten(part, leaves, is_leaf) for part in parts]), unflatten
    )


def tree_unflatten(spec: TreeSpec, leaves: Iterable[Any]) -> Any:
    """A tree of this structure with these leaves."""
    given = list(leaves)
    if len(given) != spec.leaves:
        raise DTypeError(f"{len(given)} leaves for a tree of {spec.leaves}", op="tree_unflatten")
    return _build(spec, iter(given))


def _build(spec: TreeSpec, leaves: Any) -> Any:
    if spec.kind is None:
        return next(leaves)
    return spec.unflatten(spec.what, [_build(child, leaves) for child in spec.children])


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A tree of `function(leaf)`, or of `function(leaf, …)` with the same leaf of other trees."""
    leaves, spec = tree_flatten(tree)
    columns: list[Sequence[Any]] = [leaves]
    for other in others:
        found, its = tree_flatten(other)
        if its != spec:
            raise DTypeError(f"trees of different structure: {spec} and {its}", op="tree_map")
        columns.append(found)
    return tree_unflatten(spec, [function(*row) for row in zip(*columns, strict=True)])
