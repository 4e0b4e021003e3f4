"""Definedness: which reads always find a value, and which names have one only on some paths."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from weft.convert.jumps import assigned, deleted, escaping
from weft.convert.liveness import DEFERRED, NONE, Facts, Names, bound_names, liveness
from weft.convert.walk import children, walk


def analyse(body: Sequence[ast.stmt], parameters: Iterable[str], tracked: Iterable[str]) -> Facts:
    """The facts about a function with this body. `tracked` are its own variables."""
    names = frozenset(tracked)
    facts = liveness(body, names)
    _Definedness(facts, names).block(body, frozenset(parameters))
    return facts


#: The names defined after a block whose end is never reached: neutral in an intersection.
_NEVER: Any = None
Defined = frozenset[str] | None


def _both(a: Defined, b: Defined) -> Defined:
    if a is None or b is None:
        return a if b is None else b
    return a & b


def walruses(node: ast.AST) -> Names:
    """Names that `:=` binds somewhere in an expression."""
    return frozenset(part.target.id for part in walk(node) if isinstance(part, ast.NamedExpr))


def _if_true(test: ast.expr) -> Names:
    """Names that a condition has certainly bound if it is true: in `a and b`, those of both."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return frozenset().union(*map(_if_true, test.values))
    if isinstance(test, (ast.BoolOp, ast.IfExp)):
        return NONE
    return walruses(test)


class _Definedness:
    """Goes through a body in order, with the set of names that certainly have a value."""

    def __init__(self, facts: Facts, tracked: Names) -> None:
        self.facts = facts
        self.tracked = tracked
        self.broken: list[Defined] = []

    def block(self, body: Sequence[ast.stmt], now: Defined) -> Defined:
        for statement in body:
            if now is None:  # the rest is unreachable
                now = self.tracked
                self.statement(statement, now)
                now = None
            else:
                now = self.statement(statement, now)
        return now

    def statement(self, node: ast.stmt, now: Names) -> Defined:
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            after: Defined = method(node, now)
            return after
        for part in children(node):
            now = self.expression(part, now)
        return now

    def expression(self, node: ast.AST | None, now: Names) -> Names:
        """Mark the reads in an expression; adds the names that it certainly binds."""
        if node is None:
            return now
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load) and node.id in now:
                self.facts.sure.add(node)
            return now - {node.id} if isinstance(node.ctx, ast.Del) else now
        if isinstance(node, ast.NamedExpr):
            return self.expression(node.value, now) | {node.target.id}
        if isinstance(node, (ast.BoolOp, ast.IfExp, ast.Compare)):
            parts = children(node)
            if isinstance(node, ast.IfExp):
                parts = [node.test, node.body, node.orelse]
            elif isinstance(node, ast.BoolOp):
                parts = list(node.values)
            after = self.expression(parts[0], now)
            for part in parts[1:]:
                self.expression(part, after)
                self.facts.maybe |= walruses(part) - now
            return after
        if isinstance(node, DEFERRED):
            return now  # it runs later: no read in it is certain
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
            for part in walk(node):
                if isinstance(part, ast.Name) and part.id in now:
                    self.facts.sure.add(part)
            return now
        for part in children(node):
            now = self.expression(part, now)
        return now

    def on_Assign(self, node: ast.Assign, now: Names) -> Names:
        now = self.expression(node.value, now)
        for target in node.targets:
            now = self.expression(target, now) | bound_names(target)
        return now

    def on_AnnAssign(self, node: ast.AnnAssign, now: Names) -> Names:
        if node.value is None:
            return now
        return self.expression(node.value, now) | bound_names(node.target)

    def on_AugAssign(self, node: ast.AugAssign, now: Names) -> Names:
        if isinstance(node.target, ast.Name) and node.target.id in now:
            self.facts.sure.add(node.target)
        now = self.expression(node.target, self.expression(node.value, now))
        return now | bound_names(node.target)

    def on_If(self, node: ast.If, now: Names) -> Defined:
        inside = self.expression(node.test, now)
        after = _both(
            self.block(node.body, inside | _if_true(node.test)), self.block(node.orelse, inside)
        )
        self.note(node, now, after, self.facts.live.get(node, NONE))
        return after

    def on_Match(self, node: ast.Match, now: Names) -> Defined:
        now = self.expression(node.subject, now)
        after: Defined = now
        for case in node.cases:
            names = frozenset(
                name
                for part in ast.walk(case.pattern)
                for name in (getattr(part, "name", None), getattr(part, "rest", None))
                if name
            )
            inside = self.expression(case.guard, now | names)
            after = _both(after, self.block(case.body, inside))
        self.note(node, now, after, self.facts.live.get(node, NONE))
        return after

    def on_While(self, node: ast.While, now: Names) -> Defined:
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        head = now - deleted(node.body)
        inside = self.expression(node.test, head)
        body = inside | _if_true(node.test)
        return self.loop(node, now, body, None if forever else inside)

    def on_For(self, node: ast.For, now: Names) -> Defined:
        now = self.expression(node.iter, now)
        head = now - deleted(node.body)
        return self.loop(node, now, head | bound_names(node.target), head)

    def loop(
        self, node: ast.While | ast.For, before: Names, inside: Names, ended: Defined
    ) -> Defined:
        self.broken.append(_NEVER)
        self.block(node.body, inside)
        after = ended if ended is None else self.block(node.orelse, ended)
        after = _both(after, self.broken.pop())
        used = self.facts.past.get(node, NONE) | self.facts.head.get(node, NONE)
        self.note(node, before, NONE, used)
        return after

    def note(self, node: ast.stmt, before: Names, after: Defined, used: Names) -> None:
        """Note names that have a value only on some paths and may still be read."""
        given = assigned([node]) & self.tracked & used
        certain = NONE if after is None or escaping([node]) else after
        self.facts.maybe |= given - before - certain

    def on_Return(self, node: ast.Return, now: Names) -> Defined:
        self.expression(node.value, now)
        return None

    def on_Raise(self, node: ast.Raise, now: Names) -> Defined:
        self.expression(node.exc, now)
        self.expression(node.cause, now)
        return None

    def on_Break(self, node: ast.Break, now: Names) -> Defined:
        self.broken[-1] = _both(self.broken[-1], now)
        return None

    def on_Continue(self, node: ast.Continue, now: Names) -> Defined:
        return None

    def on_With(self, node: ast.With, now: Names) -> Defined:
        for item in node.items:
            now = self.expression(item.context_expr, now)
            if item.optional_vars is not None:
                now |= bound_names(item.optional_vars)
        return self.block(node.body, now)

    def on_Try(self, node: Any, now: Names) -> Defined:
        failed = now - deleted(node.body)
        inside = self.block(node.body, now)
        after = None if inside is None else self.block(node.orelse, inside)
        for handler in node.handlers:
            self.expression(handler.type, failed)
            named = frozenset({handler.name}) if handler.name else NONE
            caught = self.block(handler.body, failed | named)
            after = _both(after, None if caught is None else caught - named)
        last = self.block(node.finalbody, failed)
        return None if after is None or last is None else after | (last - failed)

    on_TryStar = on_Try

    def on_FunctionDef(self, node: Any, now: Names) -> Names:
        parts = (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults)
        for part in parts:
            now = self.expression(part, now)
        return now | {node.name}

    on_AsyncFunctionDef = on_FunctionDef

    def on_ClassDef(self, node: ast.ClassDef, now: Names) -> Names:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            now = self.expression(part, now)
        return now | {node.name}

    def on_Import(self, node: ast.Import | ast.ImportFrom, now: Names) -> Names:
        return now | {alias.asname or alias.name.split(".")[0] for alias in node.names}

    on_ImportFrom = on_Import
