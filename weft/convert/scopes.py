"""Resolves names: a local, a variable of an outer function, or a global."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from weft.convert.walk import children, walk

LOCAL, FREE, GLOBAL = "local", "free", "global"

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Scope:
    """The names that one function, class body or comprehension binds.

    outer_cells     variables of functions that enclose the converted one; outermost scope only
    """

    def __init__(
        self, kind: str, parent: Scope | None, bound: set[str], outer_cells: frozenset[str]
    ) -> None:
        self.kind = kind  # "function", "class" or "comprehension"
        self.parent = parent
        self.bound = bound
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.outer_cells = outer_cells
        self.first_parameter = ""
        self.parameters: frozenset[str] = frozenset()

    def meaning(self, name: str) -> str:
        """LOCAL: of this code or of an enclosing converted function. FREE: a cell from outside."""
        if name in self.globals:
            return GLOBAL
        if name in self.bound and name not in self.nonlocals:
            return LOCAL
        scope = self.parent
        outermost = self
        while scope is not None:
            outermost = scope
            if scope.kind != "class":
                if name in scope.globals:
                    return GLOBAL
                if name in scope.bound and name not in scope.nonlocals:
                    return LOCAL
            scope = scope.parent
        return FREE if name in outermost.outer_cells else GLOBAL

    def function(self) -> Scope:
        """The innermost enclosing function, for `super()`."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        return scope


def of_function(node: Function, parent: Scope | None, outer_cells: Iterable[str] = ()) -> Scope:
    names = _Bindings()
    args = node.args
    parameters = [*args.posonlyargs, *args.args]
    every = [*parameters, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    given = frozenset(a.arg for a in every)
    names.bound.update(given)
    for parameter in getattr(node, "type_params", ()):
        names.bound.add(parameter.name)
    names.visit_all([node.body] if isinstance(node, ast.Lambda) else node.body)
    scope = _new_scope("function", parent, names, outer_cells)
    scope.parameters = given
    if parameters:
        scope.first_parameter = parameters[0].arg
    return scope


def bindings(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that statements bind in their function."""
    names = _Bindings()
    names.visit_all(nodes)
    return names.bound


def of_class(node: ast.ClassDef, parent: Scope) -> Scope:
    names = _Bindings()
    names.visit_all(node.body)
    return _new_scope("class", parent, names)


def of_comprehension(node: Comprehension, parent: Scope) -> Scope:
    names = _Bindings()
    names.visit_all([generator.target for generator in node.generators])
    return _new_scope("comprehension", parent, names)


def _new_scope(
    kind: str, parent: Scope | None, names: _Bindings, outer_cells: Iterable[str] = ()
) -> Scope:
    scope = Scope(kind, parent, names.bound, frozenset(outer_cells))
    scope.globals = names.globals
    scope.nonlocals = names.nonlocals
    return scope


class _Bindings(ast.NodeVisitor):
    """Collects the names that a body binds, without those of inner functions and classes."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()

    def generic_visit(self, node: ast.AST) -> None:
        for part in children(node):
            self.visit(part)

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bound.add(node.name)
        args = node.args
        self.visit_all([*node.decorator_list, *args.defaults, *filter(None, args.kw_defaults)])

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.visit_all([*node.decorator_list, *node.bases, *node.keywords])

    def visit_ListComp(self, node: Comprehension) -> None:
        # Its targets are local to it, but `:=` in it binds a name here.
        for part in walk(node):
            if isinstance(part, ast.NamedExpr):
                self.visit(part.target)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.bound.add(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.bound.add(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.nonlocals.update(node.names)
