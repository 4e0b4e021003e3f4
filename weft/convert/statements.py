"""Rewrites statements: assignments, loops, conditions and contexts call hooks.

Control flow stays Python's own here, as in generators and class bodies. `Structured` rewrites
control flow that can become part of a graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from weft.convert import scopes
from weft.convert.expressions import (
    BINARY,
    HOOKS,
    Expressions,
    Unconvertible,
    lambda_,
    load,
    names_only,
    store,
)
from weft.convert.scopes import FREE, GLOBAL, LOCAL, Scope
from weft.convert.walk import copy_location, walk

Statement = ast.stmt | list[ast.stmt]


class Statements(Expressions):
    """Rewrites statements."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._temporaries = 0

    def body(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            if isinstance(new, list):
                out += new
            elif new is not None:
                out.append(new)
        return out

    def function(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body of a function; its scope is the current one."""
        raise NotImplementedError

    def temporary(self) -> str:
        self._temporaries += 1
        return f"__weft_{self._temporaries}__"

    def statement(self, at: ast.AST, expression: ast.expr) -> ast.stmt:
        return copy_location(ast.Expr(expression), at)

    # --- binding ------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> Statement:
        value = self.expr(node.value)
        if len(node.targets) == 1:
            return self.assign(node.targets[0], value, node)
        name = self.temporary()
        out = [store(name, value, node)]
        for target in node.targets:
            out += self.assign(target, load(name, node), node)
        return out

    def is_natural(self, target: ast.expr) -> bool:
        """Whether an assignment needs no hook: all targets are local names."""
        return names_only(target) and all(
            self.scope.meaning(part.id) == LOCAL
            for part in walk(target)
            if isinstance(part, ast.Name)
        )

    def assign(self, target: ast.expr, value: ast.expr, at: ast.AST) -> list[ast.stmt]:
        """Statements that assign a rewritten value to a target."""
        if self.is_natural(target):
            new = ast.Assign([target], self.unpacked(target, value))
            return [copy_location(new, at)]
        if isinstance(target, ast.Name):
            if self.scope.meaning(target.id) == GLOBAL:
                return [self.statement(at, self.hook(target, "setglobal", target.id, value))]
            return [store(target.id, self.hook(target, "setfree", target.id, value), at)]
        if isinstance(target, ast.Attribute):
            holder = self.expr(target.value)
            return [self.statement(at, self.hook(target, "setattr", value, holder, target.attr))]
        if isinstance(target, ast.Subscript):
            holder, key = self.to_write(target.value, target), self.index(target.slice)
            return [self.statement(at, self.hook(target, "setitem", value, holder, key))]
        assert isinstance(target, (ast.Tuple, ast.List))
        # (a.x, b[0]) = v: unpacked into temporaries, which are then assigned from the left
        value = self.unpacked(target, value)
        names: list[str] = []
        parts: list[ast.expr] = []
        for part in target.elts:
            names.append(self.temporary())
            held: ast.expr = copy_location(ast.Name(names[-1], ast.Store()), part)
            if isinstance(part, ast.Starred):
                held = copy_location(ast.Starred(held, ast.Store()), part)
            parts.append(held)
        whole = copy_location(ast.Tuple(parts, ast.Store()), target)
        out: list[ast.stmt] = [copy_location(ast.Assign([whole], value), at)]
        for part, name in zip(target.elts, names, strict=True):
            inner = part.value if isinstance(part, ast.Starred) else part
            out += self.assign(inner, load(name, at), at)
        return out

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Statement:
        if self.scope.kind == "class" and isinstance(node.target, ast.Name):
            if node.value is not None:  # the annotation stays: dataclasses need it
                node.value = self.expr(node.value)
            return node
        if node.value is not None:
            return self.assign(node.target, self.expr(node.value), node)
        if isinstance(node.target, ast.Name):
            return node  # declares the name local and evaluates nothing
        return copy_location(ast.Pass(), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Statement:
        op = BINARY[type(node.op)]
        target = node.target
        if isinstance(target, ast.Name):
            now = self.expr(self.read(target))
            value = self.hook(node, "inplace", op, now, self.expr(node.value))
            return self.assign(target, value, node)
        # The old value is read before the right side is evaluated.
        if isinstance(target, ast.Attribute):
            old = self.hook(target, "old_attr", self.expr(target.value), target.attr)
        else:
            assert isinstance(target, ast.Subscript)
            holder = self.to_write(target.value, target)
            old = self.hook(target, "old_item", holder, self.index(target.slice))
        return self.statement(node, self.hook(node, "augment", op, old, self.expr(node.value)))

    def visit_Expr(self, node: ast.Expr) -> Statement:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name, held = call.func.attr, call.func.value
            if name.endswith("_") and not name.endswith("__"):  # an in-place method
                writes = ast.unparse(call)
                function = self.hook(call.func, "attr", self.to_write(held, writes), name)
                node.value = self.call_of(call, function)
                return node
        node.value = self.expr(node.value)
        return node

    def read(self, target: ast.Name) -> ast.Name:
        """The read that an augmented assignment such as `+=` begins with."""
        return load(target.id, target)

    def visit_Delete(self, node: ast.Delete) -> Statement:
        out: list[ast.stmt] = []
        for target in _flat(node.targets):
            if isinstance(target, ast.Attribute):
                call = self.hook(target, "delattr", self.expr(target.value), target.attr)
            elif isinstance(target, ast.Subscript):
                key = self.index(target.slice)
                call = self.hook(target, "delitem", self.expr(target.value), key)
            elif isinstance(target, ast.Name) and self.scope.meaning(target.id) == GLOBAL:
                call = self.hook(target, "delglobal", target.id)
            else:
                if isinstance(target, ast.Name) and self.scope.meaning(target.id) == FREE:
                    raise Unconvertible("`del` of a variable of an outer function", node)
                out.append(copy_location(ast.Delete([target]), node))
                continue
            out.append(self.statement(node, call))
        return out

    def bound_here(self, name: str | None, at: ast.AST) -> None:
        """Refuse names that are not local in other statements, for which there is no hook."""
        if name and self.scope.meaning(name) != LOCAL:
            raise Unconvertible(f"a variable of an outer scope, {name!r}, bound in this way", at)

    # --- control flow -------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> Statement:
        node.test = self.test(node.test)
        node.body, node.orelse = self.body(node.body), self.body(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> Statement:
        node.test = self.test(node.test)
        node.body, node.orelse = self.body(node.body), self.body(node.orelse)
        return node

    def visit_For(self, node: ast.For) -> Statement:
        node.iter = self.hook(node.iter, "iter", self.expr(node.iter))
        first: list[ast.stmt] = []
        if self.is_natural(node.target):
            node.iter = self.unpacked(node.target, node.iter, each=True)
        else:
            name = self.temporary()
            first = self.assign(node.target, load(name, node.target), node.target)
            node.target = copy_location(ast.Name(name, ast.Store()), node.target)
        node.body = [*first, *self.body(node.body)]
        node.orelse = self.body(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> Statement:
        body = node.body
        if len(node.items) > 1:  # one statement each: the next item may read what one binds
            inner = copy_location(ast.With(node.items[1:], body, node.type_comment), node)
            node.items, body = node.items[:1], [inner]
        (item,) = node.items
        item.context_expr = self.hook(item.context_expr, "context", self.expr(item.context_expr))
        first: list[ast.stmt] = []
        if item.optional_vars is not None:
            target = item.optional_vars
            if not self.is_natural(target) or not isinstance(target, ast.Name):
                name = self.temporary()
                first = self.assign(target, load(name, target), target)
                item.optional_vars = copy_location(ast.Name(name, ast.Store()), target)
        node.body = [*first, *self.body(body)]
        return node

    def visit_Try(self, node: ast.Try) -> Statement:
        node.body = self.body(node.body)
        for handler in node.handlers:
            self.bound_here(handler.name, handler)
            if handler.type is not None:
                handler.type = self.expr(handler.type)
            handler.body = self.body(handler.body)
        node.orelse, node.finalbody = self.body(node.orelse), self.body(node.finalbody)
        return node

    def visit_TryStar(self, node: Any) -> Statement:
        return self.visit_Try(node)

    def visit_Match(self, node: ast.Match) -> Statement:
        """Patterns read the subject without hooks, so a hook reads all of it before."""
        seen: list[ast.expr] = [self.hook(node.subject, "subject", self.expr(node.subject))]
        for case in node.cases:
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                self.bound_here(name, node)
                named = getattr(part, "cls", None) or getattr(part, "value", None)
                if isinstance(named, (ast.Name, ast.Attribute)):
                    seen.append(self.deferred_read(named))
            if case.guard is not None:
                case.guard = self.test(case.guard)
            case.body = self.body(case.body)
        node.subject = self.hook(node.subject, "first", *seen)
        return node

    def deferred_read(self, node: ast.expr) -> ast.expr:
        """A lambda that reads a name of a pattern; the pattern itself must not change."""
        copy = ast.parse(ast.unparse(node), mode="eval").body
        reader = lambda_(self.expr(copy), node)
        for part in ast.walk(reader):
            copy_location(part, node)
        return reader

    # --- definitions --------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Statement:
        self.bound_here(node.name, node)
        self.defaults(node.args)
        node.decorator_list = self.decorators(node.decorator_list)
        outer = self.scope
        self.scope = scopes.of_function(node, outer)
        node.body = self.function(node.body)
        self.scope = outer
        return node

    def decorators(self, nodes: list[ast.expr]) -> list[ast.expr]:
        return [self.hook(node, "decorator", self.expr(node)) for node in nodes]

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Statement:
        note = self.hook(node, "not_watched", f"the asynchronous function {node.name}")
        return [self.statement(node, note), node]

    def visit_AsyncFor(self, node: ast.AsyncFor) -> Statement:
        raise Unconvertible("async for", node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> Statement:
        raise Unconvertible("async with", node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Statement:
        self.bound_here(node.name, node)
        if getattr(node, "type_params", None):
            raise Unconvertible("a generic class", node)
        node.decorator_list = self.decorators(node.decorator_list)
        made = ast.Attribute(load(HOOKS, node), "made_class", ast.Load())
        node.decorator_list.append(
            copy_location(made, node)
        )  # the innermost decorator: it gets the class first
        node.bases = [self.expr(base) for base in node.bases]
        for entry in node.keywords:
            entry.value = self.expr(entry.value)
        outer = self.scope
        self.scope = scopes.of_class(node, outer)
        node.body = self.body(node.body)
        self.scope = outer
        return node

    def visit_Import(self, node: ast.Import) -> Statement:
        for alias in node.names:
            self.bound_here(alias.asname or alias.name.split(".")[0], node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Statement:
        out: list[ast.stmt] = [node]
        for alias in node.names:
            name = alias.asname or alias.name
            if name == "*":
                raise Unconvertible("import *", node)
            self.bound_here(name, node)
            module = "." * node.level + (node.module or "")
            value = self.hook(node, "imported", load(name, node), module, alias.name)
            out.append(store(name, value, node))
        return out


def _flat(targets: Iterable[ast.expr]) -> Iterable[ast.expr]:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _flat(target.elts)
        else:
            yield target
