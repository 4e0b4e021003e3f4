"""Liveness of a function's own variables.

Liveness and definedness are computed on the user's statements, before jumps are lowered:

- after each `if` and loop, the names whose values may still be read (`Facts.live`);
- at each read, whether the name has a value on every path (`Facts.sure`), computed by
  `definedness`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from weft.base.dataclass import dataclass
from weft.convert.jumps import BREAK, escaping
from weft.convert.walk import children, walk

Names = frozenset[str]
NONE: Names = frozenset()
#: Code that runs later than the statement it is in.
DEFERRED = (*(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp, ast.ClassDef),)


@dataclass
class Facts:
    """The results of both analyses for one function.

    live    for each `if`, `match`, `with`, `try` and loop: names that may be read after it; for a
            loop, before its `else`
    head    for each loop: names that may be read at the start of an iteration
    past    for each loop: names that may be read after it and its `else`
    sure    reads of names that certainly have a value
    maybe   names that have a value only on some paths after some `if` or loop
    """

    live: dict[ast.stmt, Names] = field(default_factory=dict)
    head: dict[ast.stmt, Names] = field(default_factory=dict)
    past: dict[ast.stmt, Names] = field(default_factory=dict)
    sure: set[ast.expr] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)


def liveness(body: Sequence[ast.stmt], tracked: Names) -> Facts:
    """Compute liveness in a function with this body."""
    facts = Facts()
    _Liveness(facts, tracked, _deferred_reads(body)).block(body, NONE, _Ways())
    return facts


def _deferred_reads(body: Sequence[ast.stmt]) -> Names:
    """Names that inner functions, lambdas and generators read, at any time."""
    found: set[str] = set()
    for statement in body:
        for node in walk(statement):
            if isinstance(node, ast.Lambda):
                found |= reads(node)
            elif isinstance(node, DEFERRED):
                found.update(part.id for part in walk(node) if isinstance(part, ast.Name))
                found.update(
                    name
                    for part in walk(node)
                    if isinstance(part, (ast.Nonlocal, ast.Global))
                    for name in part.names
                )
    return frozenset(found)


def reads(*nodes: ast.AST | None) -> Names:
    """The names that are read, also where that is done later; a lambda's parameters are its own."""
    found: set[str] = set()
    waiting = [(node, NONE) for node in nodes if node is not None]
    while waiting:
        node, own = waiting.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load) and node.id not in own:
                found.add(node.id)
        elif isinstance(node, ast.Lambda):
            given = node.args
            defaults = [*given.defaults, *[one for one in given.kw_defaults if one is not None]]
            waiting += [(one, own) for one in defaults]
            waiting.append((node.body, own | _parameters(given)))
        else:
            waiting += [(part, own) for part in children(node)]
    return frozenset(found)


def _parameters(given: ast.arguments) -> Names:
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return frozenset([one.arg for one in listed if one is not None])


def bound_names(target: ast.AST) -> Names:
    """Plain names that a target binds."""
    if isinstance(target, ast.Name):
        return frozenset({target.id})
    if isinstance(target, (ast.Tuple, ast.List)):
        return frozenset().union(*map(bound_names, target.elts))
    return bound_names(target.value) if isinstance(target, ast.Starred) else NONE


# --- liveness ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ways:
    """The names that are live at the target of each kind of jump."""

    broken: Names = NONE
    continued: Names = NONE
    returned: Names = NONE
    failed: Names = NONE


class _Liveness:
    def __init__(self, facts: Facts, tracked: Names, always: Names) -> None:
        self.facts = facts
        self.tracked = tracked
        self.always = always & tracked

    def block(self, body: Sequence[ast.stmt], after: Names, ways: _Ways) -> Names:
        for statement in reversed(body):
            after = self.statement(statement, after, ways) | ways.failed
        return after

    def note(self, node: ast.stmt, after: Names) -> None:
        known = self.facts.live.get(node, NONE)
        self.facts.live[node] = (after & self.tracked) | self.always | known

    def statement(self, node: ast.stmt, after: Names, ways: _Ways) -> Names:
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            before: Names = method(node, after, ways)
            return before
        return after | reads(node)

    def on_Assign(self, node: ast.Assign, after: Names, ways: _Ways) -> Names:
        killed = frozenset().union(*map(bound_names, node.targets))
        return (after - killed) | reads(node)

    def on_AnnAssign(self, node: ast.AnnAssign, after: Names, ways: _Ways) -> Names:
        killed = bound_names(node.target) if node.value is not None else NONE
        return (after - killed) | reads(node.value, node.target)

    def on_AugAssign(self, node: ast.AugAssign, after: Names, ways: _Ways) -> Names:
        return after | reads(node) | bound_names(node.target)

    def on_If(self, node: ast.If, after: Names, ways: _Ways) -> Names:
        self.note(node, after)
        either = self.block(node.body, after, ways) | self.block(node.orelse, after, ways)
        return either | reads(node.test)

    def on_Match(self, node: ast.Match, after: Names, ways: _Ways) -> Names:
        self.note(node, after)
        before = after | reads(node.subject)
        for case in node.cases:
            before |= self.block(case.body, after, ways) | reads(case.guard, case.pattern)
        return before

    def on_While(self, node: ast.While, after: Names, ways: _Ways) -> Names:
        otherwise = self.block(node.orelse, after, ways)
        return self.loop(node, otherwise | reads(node.test), NONE, after, ways)

    def on_For(self, node: ast.For, after: Names, ways: _Ways) -> Names:
        otherwise = self.block(node.orelse, after, ways)
        head = self.loop(node, otherwise, bound_names(node.target), after, ways)
        return head | reads(node.iter, node.target)

    def loop(
        self, node: ast.While | ast.For, ending: Names, target: Names, after: Names, ways: _Ways
    ) -> Names:
        head = ending
        while True:
            inner = _Ways(after, head, ways.returned, ways.failed)
            more = head | (self.block(node.body, head, inner) - target)
            if more == head:
                break
            head = more
        # A name that only `else` overwrites is dead at the end of a loop without `break`.
        self.note(node, after | ending if BREAK in escaping(node.body) else ending)
        self.facts.head[node] = (head & self.tracked) | self.always
        self.facts.past[node] = self.facts.live[node] | (after & self.tracked)
        return head

    def on_Return(self, node: ast.Return, after: Names, ways: _Ways) -> Names:
        return ways.returned | reads(node.value)

    def on_Raise(self, node: ast.Raise, after: Names, ways: _Ways) -> Names:
        return ways.failed | reads(node)

    def on_Break(self, node: ast.Break, after: Names, ways: _Ways) -> Names:
        return ways.broken

    def on_Continue(self, node: ast.Continue, after: Names, ways: _Ways) -> Names:
        return ways.continued

    def on_With(self, node: ast.With, after: Names, ways: _Ways) -> Names:
        self.note(node, after)
        inside = self.block(node.body, after, ways)
        return inside | reads(*(part for item in node.items for part in children(item)))

    def on_Try(self, node: Any, after: Names, ways: _Ways) -> Names:
        self.note(node, after)
        last = self.block(node.finalbody, after, ways)
        if node.finalbody:  # jumps pass through it
            passing = self.block(node.finalbody, NONE, ways)
            ways = _Ways(
                ways.broken | passing,
                ways.continued | passing,
                ways.returned | passing,
                ways.failed | passing,
            )
        handled = NONE
        for handler in node.handlers:
            handled |= self.block(handler.body, last, ways) | reads(handler.type)
        inner = _Ways(ways.broken, ways.continued, ways.returned, ways.failed | handled)
        return self.block(node.body, self.block(node.orelse, last, ways), inner) | handled

    on_TryStar = on_Try

    def on_FunctionDef(self, node: Any, after: Names, ways: _Ways) -> Names:
        arguments = node.args
        return after | reads(
            *node.decorator_list, *arguments.defaults, *filter(None, arguments.kw_defaults)
        )

    on_AsyncFunctionDef = on_FunctionDef
