"""Which names statements bind, and which jumps leave them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from weft.convert.scopes import bindings
from weft.convert.walk import children, walk

BREAK, CONTINUE, RETURN = "break", "continue", "return"
_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def assigned(body: Iterable[ast.AST]) -> frozenset[str]:
    """Names that these statements bind in the function they stand in."""
    return frozenset(bindings(body))


def deleted(body: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(
        part.id
        for node in body
        for part in walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del)
    )


def escaping(body: Iterable[ast.AST]) -> frozenset[str]:
    """The kinds of jumps that leave these statements."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Break):
            found.add(BREAK)
        elif isinstance(node, ast.Continue):
            found.add(CONTINUE)
        elif isinstance(node, ast.Return):
            found.add(RETURN)
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            inner = escaping(node.body)
            found |= (inner & {RETURN}) | escaping(node.orelse)
        elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)) and not isinstance(
            node, _OWN
        ):
            found |= escaping(children(node))
    return frozenset(found)


def always_jumps(body: Sequence[ast.stmt]) -> bool:
    """Whether a break, continue or return always keeps the end from being reached."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, (ast.Break, ast.Continue, ast.Return)):
        return True
    if isinstance(last, ast.If):
        return always_jumps(last.body) and always_jumps(last.orelse)
    return isinstance(last, ast.With) and always_jumps(last.body)


def falls_through(body: Sequence[ast.stmt]) -> bool:
    """Whether a function body may end without `return` or `raise`."""
    if not body:
        return True
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Raise)):
        return False
    if isinstance(last, ast.If):
        return falls_through(last.body) or falls_through(last.orelse)
    if isinstance(last, ast.With):
        return falls_through(last.body)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return BREAK in escaping(last.body)
    return True


def yields(body: Iterable[ast.AST]) -> bool:
    """Whether a function with this body is a generator."""
    return _has(body, (ast.Yield, ast.YieldFrom))


def looks_at_frame(body: Iterable[ast.AST]) -> bool:
    """Whether it calls locals() or another function that looks at the calling frame."""
    names = ("locals", "eval", "exec", "vars", "dir")
    return any(
        isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in names
        for node in body
        for part in walk(node)
    )


def _has(body: Iterable[ast.AST], kinds: tuple[type[ast.AST], ...]) -> bool:
    for node in body:
        if isinstance(node, kinds):
            return True
        if not isinstance(node, _OWN) and _has(children(node), kinds):
            return True
    return False


def binds_inside(node: ast.AST) -> bool:
    """Whether an expression has a `:=` in it, not counting those of lambdas."""
    return _has([node], (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await))
