"""Walks syntax trees: like `ast.walk`, twice as fast, without contexts and operators.

A conversion walks each function many times, and that is most of its work.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

_LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
#: Their classes: an instance of them has nothing in it.
LEAVES = frozenset(kind for group in _LEAVES for kind in group.__subclasses__())


#: Fields that never hold a node that is not a leaf.
_PLAIN = frozenset(
    ("ctx", "op", "id", "attr", "kind", "type_comment", "simple", "level", "conversion")
)
_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")
_fields: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """The parts of a node, in order."""
    kind = node.__class__
    fields = _fields.get(kind)
    if fields is None:
        fields = _fields[kind] = tuple(name for name in node._fields if name not in _PLAIN)
    found: list[ast.AST] = []
    held = node.__dict__
    for name in fields:
        part = held.get(name)
        if part.__class__ is list:
            found += [entry for entry in part if isinstance(entry, ast.AST)]
        elif isinstance(part, ast.AST) and part.__class__ not in LEAVES:
            found.append(part)
    return found


def copy_location(new: Node, old: ast.AST) -> Node:
    """`ast.copy_location`, four times as fast."""
    held = old.__dict__
    new.__dict__.update([(name, held[name]) for name in _PLACE if name in held])
    return new


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all that is in it, in no order."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += children(part)
