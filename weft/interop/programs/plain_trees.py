"""Trees of classes as trees of plain containers, which every process knows.

A dataclass becomes a dict of its fields, a named tuple a tuple, another mapping a dict, a deque or
a registered class a list.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any

from weft.base.pytree import LEAF, PLAIN_TREES, TreeSpec, tree_rules

NONE = type(None)


class OtherTree(Exception):
    """A value does not have the expected structure; the message says where."""


def plain_spec(spec: TreeSpec) -> TreeSpec:
    """The structure in plain containers, with the same leaves in the same order."""
    if spec.kind is None:
        return LEAF
    kind, keys = _plain(spec.kind, spec.what, len(spec.children))
    children = tuple([plain_spec(child) for child in spec.children])
    return TreeSpec(kind, keys, children, PLAIN_TREES[kind][1])


def leaves_of(value: Any, spec: TreeSpec, path: str = "") -> list[Any]:
    """The leaves of a value of this plain structure; the order of keys in a dict is free."""
    if spec.kind is None:
        return [value]
    rules = tree_rules(type(value))
    if rules is None:
        raise OtherTree(f"{path} is {_shown(value)}, where a {_name(spec.kind)} is expected")
    parts, what = rules[0](value)
    parts = list(parts)
    kind, keys = _plain(type(value), what, len(parts))
    if kind is not spec.kind:
        raise OtherTree(f"{path} is a {_name(kind)}, where a {_name(spec.kind)} is expected")
    if kind is dict:
        by_key = dict(zip(keys, parts, strict=True))
        missing = [key for key in spec.what if key not in by_key]
        others = [key for key in by_key if key not in spec.what]
        if missing or others:
            said = [f"{path} has no {key!r:.40}" for key in missing[:3]]
            said += [f"{path} has {key!r:.40}, which is not expected" for key in others[:3]]
            raise OtherTree("; ".join(said))
        parts = [by_key[key] for key in spec.what]
        steps = [f"[{key!r}]" for key in spec.what]
    else:
        if len(parts) != len(spec.children):
            raise OtherTree(
                f"{path} has {len(parts)} elements, where {len(spec.children)} are expected"
            )
        steps = [f"[{i}]" for i in range(len(parts))]
    found: list[Any] = []
    for part, child, step in zip(parts, spec.children, steps, strict=True):
        found += leaves_of(part, child, path + step)
    return found


def _plain(kind: type, what: Any, count: int) -> tuple[type, Any]:
    """The plain container for a class of trees, and its keys if it is a dict."""
    if kind is NONE:
        return NONE, None
    if issubclass(kind, dict):
        return dict, tuple(what[1] if issubclass(kind, defaultdict) else what)
    if issubclass(kind, tuple):
        return tuple, None
    names = isinstance(what, tuple) and len(what) == count and all(type(n) is str for n in what)
    return (dict, what) if dataclasses.is_dataclass(kind) and names else (list, None)


def _name(kind: type) -> str:
    return "None" if kind is NONE else kind.__name__


def _shown(value: Any) -> str:
    return f"{value!r:.60}" if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
