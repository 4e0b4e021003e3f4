"""Lowers jumps to flags: then every `if` and loop has one entry and one exit.

`break`, `continue` and `return` set a flag, and the statements they skip go under `if not flag`.
If one side of an `if` always jumps, the rest moves into its other side, without a flag:

    if a:                       if a:
        return b       ->           result = b
    c                           else:
    return d                        c
                                    result = d
                                return result

Code without jumps does not change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from weft.convert.expressions import Unconvertible, load, store
from weft.convert.jumps import (
    BREAK,
    CONTINUE,
    RETURN,
    always_jumps,
    assigned,
    escaping,
    falls_through,
)
from weft.convert.liveness import NONE, Facts, Names, reads
from weft.convert.walk import copy_location

RESULT = "__weft_result__"
RETURNED = "__weft_returned__"
FLAG_OF = {BREAK: "__weft_broken_{}__", CONTINUE: "__weft_continued_{}__"}

Body = list[ast.stmt]
Flags = dict[str, str]  # kind of jump -> the flag that is set when it is taken


def is_flag(name: str) -> bool:
    """Whether a name is a flag of a jump."""
    return name.startswith(("__weft_broken_", "__weft_returned_"))


def is_internal(name: str) -> bool:
    return name.startswith("__weft_")


class JumpLowering:
    """Lowers one function. `names` are the variables that it adds; `stops` the flags that end a
    `for`."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.names: set[str] = set()
        self.stops: dict[ast.For, list[str]] = {}
        self._loops = 0
        self._around = NONE  # names that are live at the targets of break and continue
        self._returns = False
        self._asked: set[str] = set()  # flags that are read
        self._sets: dict[ast.stmt, str] = {}  # statements that set flags

    def function(self, body: Body) -> Body:
        self._returns = bool(body) and RETURN in (
            escaping(body[:-1]) if isinstance(body[-1], ast.Return) else escaping(body)
        )
        if not self._returns:
            return self._without_idle_flags(self.block(body, NONE, {}))
        if falls_through(body):
            nothing = copy_location(ast.Constant(None), body[-1])
            body = [*body, copy_location(ast.Return(nothing), body[-1])]
        first = self._set(RETURNED, False, body[0])
        lowered = [first, *self.block(body, NONE, {RETURN: RETURNED})]
        end = copy_location(ast.Return(load(RESULT, body[-1])), body[-1])
        self.names |= {RESULT}
        return [*self._without_idle_flags(lowered), end]

    # --- blocks -------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], after: Names, flags: Flags) -> Body:
        """Lower a block after which `after` is live. A jump that is taken sets its flag."""
        out: Body = []
        for i, node in enumerate(body):
            rest = list(body[i + 1 :])
            if isinstance(node, ast.Return) and self._returns:
                value = node.value or copy_location(ast.Constant(None), node)
                out.append(store(RESULT, value, node))
                out.append(self._set(RETURNED, True, node))
                return out
            if isinstance(node, (ast.Break, ast.Continue)):
                kind = BREAK if isinstance(node, ast.Break) else CONTINUE
                out.append(self._set(flags[kind], True, node))
                return out
            kinds = escaping([node]) & flags.keys()
            if not kinds or not rest:
                out += self.statement(node, after if not rest else None, flags)
                continue
            if isinstance(node, ast.If) and self._moves(node, rest, after, flags):
                out.append(node)
                return out
            # If a jump is taken, other names that they bind may have no value.
            self.facts.maybe |= assigned([node, *rest])
            out += self.statement(node, None, flags, after)
            out.append(self._unless([flags[kind] for kind in kinds], rest, after, flags))
            return out
        return out

    def _moves(self, node: ast.If, rest: Body, after: Names, flags: Flags) -> bool:
        """Move the rest of a block into the side of an `if` that does not jump, if it is one."""
        then, other = always_jumps(node.body), always_jumps(node.orelse)
        if not then and not other:
            return False
        if then and not other:
            node.orelse = [*node.orelse, *rest]
        elif other and not then:
            node.body = [*node.body, *rest]
        live = self._where_jumps_lead(node, after)
        node.body = self.block(node.body, live, flags)
        node.orelse = self.block(node.orelse, live, flags)
        return True

    def _where_jumps_lead(self, node: ast.stmt, after: Names) -> Names:
        """Names that are live after an `if` that jumps may leave, and at the targets of these."""
        leads = escaping([node])
        live = self.facts.live[node] = after | self._around if leads else after
        return live

    def _unless(self, flags: list[str], body: Body, after: Names, around: Flags) -> ast.If:
        """if not flag: body"""
        guard = ast.If(self._not(flags, body[0]), body, [])
        copy_location(guard, body[0])
        live = self._where_jumps_lead(guard, after)
        guard.body = self.block(body, live, around)
        return guard

    # --- statements ---------------------------------------------------------------------------

    def statement(
        self, node: ast.stmt, after: Names | None, flags: Flags, skipped: Names = NONE
    ) -> Body:
        """Lower a statement and its nested blocks. `after` is live after it; None: as in `facts`.

        If a jump in it skips the rest of the block, `skipped` is live.
        """
        for known in (self.facts.live, self.facts.past):
            if node in known:
                known[node] |= skipped
        if isinstance(node, ast.If):
            live = self._where_jumps_lead(node, self.facts.live[node])
            node.body = self.block(node.body, live, flags)
            node.orelse = self.block(node.orelse, live, flags)
        elif isinstance(node, (ast.While, ast.For)):
            return self.loop(node, flags)
        elif isinstance(node, ast.With):
            node.body = self.block(node.body, self.facts.live[node] | (after or NONE), flags)
        elif isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
            later = self.facts.live[node] | (after or NONE) | reads(node)
            self.guarded(node, later, flags)  # type: ignore[arg-type]
        elif isinstance(node, ast.Match):
            live = self._where_jumps_lead(node, self.facts.live[node])
            for case in node.cases:
                case.body = self.block(case.body, live, flags)
        return [node]

    def guarded(self, node: ast.Try, after: Names, flags: Flags) -> None:
        if escaping(node.finalbody) & {BREAK, CONTINUE, RETURN}:
            raise Unconvertible("a jump out of `finally`", node.finalbody[0])
        kinds = escaping(node.body) & flags.keys()
        node.body = self.block(node.body, after, flags)
        for handler in node.handlers:
            handler.body = self.block(handler.body, after, flags)
        if node.orelse and kinds:
            node.orelse = [self._unless([flags[k] for k in kinds], node.orelse, after, flags)]
        else:
            node.orelse = self.block(node.orelse, after, flags)
        node.finalbody = self.block(node.finalbody, after, flags)

    def loop(self, node: ast.While | ast.For, around: Flags) -> Body:
        self._loops += 1
        inner = {kind: form.format(self._loops) for kind, form in FLAG_OF.items()}
        if self._returns:
            inner[RETURN] = RETURNED
        kinds = escaping(node.body)
        if kinds:
            # Names that are dead at the target of a jump have no value when it leaves an iteration.
            # The loop condition and the rest of the body are in the same graph and see that.
            self.facts.maybe |= assigned(node.body)
        outside, self._around = self._around, self.facts.head[node] | self.facts.live[node]
        node.body = self.block(node.body, self.facts.head[node], inner)
        self._around = outside
        if CONTINUE in kinds:
            node.body.insert(0, self._set(inner[CONTINUE], False, node.body[0]))
        before: Body = []
        stops = [inner[kind] for kind in (BREAK, RETURN) if kind in kinds and kind in inner]
        if BREAK in kinds:
            before.append(self._set(inner[BREAK], False, node))
        if stops and isinstance(node, ast.While):
            node.test = self._and_not(stops, node.test)
        elif stops and isinstance(node, ast.For):
            self.stops[node] = stops
            self._asked.update(stops)
        otherwise, node.orelse = node.orelse, []
        if not otherwise:
            return [*before, node]
        live = self.facts.past[node]
        if stops:
            return [*before, node, self._unless(stops, otherwise, live, around)]
        return [*before, node, *self.block(otherwise, live, around)]

    # --- flags --------------------------------------------------------------------------------

    def _set(self, flag: str, value: bool, at: ast.AST) -> ast.stmt:
        self.names.add(flag)
        node = store(flag, copy_location(ast.Constant(value), at), at)
        self._sets[node] = flag
        return node

    def _not(self, flags: list[str], at: ast.AST) -> ast.expr:
        self._asked.update(flags)
        return not_any(flags, at)

    def _and_not(self, stops: list[str], test: ast.expr) -> ast.expr:
        first = self._not(stops, test)
        if isinstance(test, ast.Constant) and test.value:
            return first
        return copy_location(ast.BoolOp(ast.And(), [first, test]), test)

    def _without_idle_flags(self, body: Body) -> Body:
        idle = {node for node, flag in self._sets.items() if flag not in self._asked}
        self.names -= set(self._sets.values()) - self._asked
        return _Without(idle).block(body) if idle else body


class _Without(ast.NodeTransformer):
    """Removes statements."""

    def __init__(self, idle: set[ast.stmt]) -> None:
        self.idle = idle

    def block(self, body: Iterable[ast.stmt]) -> Body:
        return [self.visit(node) for node in body if node not in self.idle]

    def visit(self, node: Any) -> Any:
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            if isinstance(found, list) and found:
                kept = self.block(found)
                if not kept and name == "body":
                    kept = [copy_location(ast.Pass(), found[0])]
                setattr(node, name, kept)
        for name in ("handlers", "cases"):
            for part in getattr(node, name, ()):
                self.visit(part)
        return node


def not_any(flags: Sequence[str], at: ast.AST) -> ast.expr:
    """not a, or: not (a or b)"""
    places: list[ast.expr] = [load(flag, at) for flag in flags]
    either = places[0] if len(places) == 1 else ast.BoolOp(ast.Or(), places)
    return copy_location(ast.UnaryOp(ast.Not(), copy_location(either, at)), at)
