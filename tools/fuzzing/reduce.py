"""Make a found case small: take away what the failure does not need.

Statements are deleted, alone and in runs; a branch or loop becomes its body; an expression becomes
one of its parts; a line becomes an argument of its shape; sizes shrink; options go back to their
defaults. What still fails in the same way is kept, until nothing more goes or the time is up.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from fuzzing.case import Argument, Case

Fails = Callable[[Case], bool]
Shapes = Callable[[Case], dict[str, Any]]


def reduced(case: Case, fails: Fails, shapes: Shapes, seconds: float = 30.0) -> Case:
    """The smallest case found that still fails."""
    end = time.monotonic() + seconds
    tried: set[str] = {case.to_json()}
    changed = True
    while changed:
        changed = False
        for step in (_options, _runs, _statements, _cut, _results, _aliases, _expressions, _sizes):
            while (smaller := _first(step, case, fails, shapes, end, tried)) is not None:
                case, changed = smaller, True
            if time.monotonic() > end:
                return case
    return case


def _first(
    step: Any, case: Case, fails: Fails, shapes: Shapes, end: float, tried: set[str]
) -> Case | None:
    """The first candidate of a step that fails."""
    candidates = step(case, shapes) if step is _cut else step(case)
    for candidate in candidates:
        found = _tidy(candidate)
        key = found.to_json()
        if key in tried:
            continue
        tried.add(key)
        if time.monotonic() > end:
            return None
        if fails(found):
            return found
    return None


# --- trees ------------------------------------------------------------------------------------


def tree_of(case: Case) -> ast.FunctionDef:
    text = "def program():\n" + "".join(f"    {line}\n" for line in case.body or ("pass",))
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    return function


def with_tree(case: Case, tree: ast.FunctionDef) -> Case:
    lines = ast.unparse(ast.fix_missing_locations(tree)).splitlines()[1:]
    return case.but(body=tuple(line[4:] for line in lines))


def _tidy(case: Case) -> Case:
    """Without arguments that nothing reads."""
    names = {node.id for node in ast.walk(tree_of(case)) if isinstance(node, ast.Name)}
    kept = [one for one in case.arguments if one.name in names]
    if not any(one.shape is not None for one in kept):
        kept = [one for one in case.arguments if one.shape is not None][:1] + kept
    if case.transform != "none" and not any(one.is_float and one.grad for one in kept):
        kept = list(case.arguments)
    return case.but(arguments=tuple(kept))


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements, outer ones first."""
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def _edited(case: Case, number: int, edit: Callable[[list[ast.stmt]], None]) -> Case:
    tree = tree_of(case)
    block = list(_blocks(tree))[number]
    edit(block)
    for other in _blocks(tree):
        if not other:
            other.append(ast.Pass())
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.For, ast.While, ast.With)) and not node.body:
            node.body.append(ast.Pass())
    return with_tree(case, tree)


# --- steps ------------------------------------------------------------------------------------


def _options(case: Case) -> Iterator[Case]:
    for changes in (
        {"transform": "none"},
        {"threads": 1},
        {"optimized": True},
        {"second": False},
        {"growing": False},
        {"shared": -1},
        {"varied": False},
        *[{"calls": (call,)} for call in case.calls],
        {"calls": case.calls[:2]},
    ):
        if any(getattr(case, key) != value for key, value in changes.items()):
            yield case.but(**changes)
    for i, one in enumerate(case.arguments):
        for changes in ({"strided": False}, {"values": "normal"}, {"dtype": "float64"}):
            wanted = next(iter(changes)) != "dtype" or (one.is_float and "dtype" in changes)
            plain = {**vars(one), **changes}
            if wanted and plain != vars(one):
                given = list(case.arguments)
                given[i] = Argument(**plain)
                yield case.but(arguments=tuple(given))
    if any(one.is_float and one.dtype != "float64" for one in case.arguments):
        body = tuple(line.replace("float32", "float64") for line in case.body)
        given = [
            Argument(**{**vars(one), "dtype": "float64"}) if one.is_float else one
            for one in case.arguments
        ]
        yield case.but(body=body, arguments=tuple(given))


def _runs(case: Case) -> Iterator[Case]:
    """Without a run of statements, long ones first."""
    for number, block in enumerate(_blocks(tree_of(case))):
        size = len(block) // 2
        while size >= 2:
            for start in range(0, len(block), size):

                def edit(found: list[ast.stmt], start: int = start, size: int = size) -> None:
                    del found[start : start + size]

                yield _edited(case, number, edit)
            size //= 2


def _statements(case: Case) -> Iterator[Case]:
    for number, block in enumerate(_blocks(tree_of(case))):
        for i in reversed(range(len(block))):
            statement = block[i]
            last = number == 0 and isinstance(statement, ast.Return) and i == len(block) - 1
            if last or (isinstance(statement, ast.Pass) and len(block) == 1):
                continue
            yield _edited(case, number, lambda found, i=i: found.__delitem__(i))  # type: ignore[misc]
            for name in ("body", "orelse"):
                inner = getattr(statement, name, None)
                if inner:

                    def edit(found: list[ast.stmt], i: int = i, inner: Any = inner) -> None:
                        found[i : i + 1] = copy.deepcopy(inner)

                    yield _edited(case, number, edit)
            if getattr(statement, "orelse", None) and isinstance(statement, ast.stmt):
                yield _edited(case, number, lambda found, i=i: setattr(found[i], "orelse", []))  # type: ignore[misc]


def _cut(case: Case, shapes: Shapes) -> Iterator[Case]:
    """A line of straight-line code as an argument of what it gives."""
    if case.kind != "graph":
        return
    known = shapes(case)
    for i in reversed(range(len(case.body) - 1)):
        name = case.body[i].split(" = ")[0]
        if name in known:
            shape, dtype = known[name]
            body = case.body[:i] + case.body[i + 1 :]
            given = (*case.arguments, Argument(name, tuple(shape), dtype))
            yield case.but(body=body, arguments=given)


def _aliases(case: Case) -> Iterator[Case]:
    """Without a line that only gives a value another name."""
    for statement in ast.walk(tree_of(case)):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
            (target,) = statement.targets
            if isinstance(target, ast.Name) and target.id != statement.value.id:
                tree = _Renamed(target.id, statement.value.id).visit(tree_of(case))
                yield with_tree(case, tree)


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new if node.id == self.old else node.id, node.ctx)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        same = ast.unparse(node.targets[0]) == ast.unparse(node.value)
        return ast.Pass() if same else node


def _results(case: Case) -> Iterator[Case]:
    tree = tree_of(case)
    count = max(
        (len(node.value.elts) for node in ast.walk(tree) if _returns_tuple(node)),  # type: ignore[attr-defined]
        default=0,
    )
    for keep in range(count if count > 1 else 0):
        yield _kept(case, [keep])
    for drop in range(count if count > 2 else 0):
        yield _kept(case, [i for i in range(count) if i != drop])


def _kept(case: Case, places: list[int]) -> Case:
    """The case whose every way out returns only some of its results."""
    tree = tree_of(case)
    for node in ast.walk(tree):
        if _returns_tuple(node):
            value: ast.Tuple = node.value  # type: ignore[attr-defined]
            value.elts = [value.elts[i] for i in places if i < len(value.elts)]
    return with_tree(case, tree)


def _returns_tuple(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)


def _parts(node: ast.AST) -> list[ast.expr]:
    """What may stand in the place of an expression."""
    if isinstance(node, ast.Call):
        own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        modules = {"weft", "F", "weft.linalg", "weft.autograd"}
        return [x for x in [*own, *node.args] if ast.unparse(x) not in modules]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, (ast.UnaryOp, ast.NamedExpr)):
        return [node.operand if isinstance(node, ast.UnaryOp) else node.value]
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        return [node.value] if ast.unparse(node.value) not in ("weft", "F") else []
    return []


def _expressions(case: Case) -> Iterator[Case]:
    """With an expression replaced by one of its parts, large ones first."""
    nodes = [node for node in ast.walk(tree_of(case)) if _parts(node)]
    order = sorted(range(len(nodes)), key=lambda i: -len(ast.unparse(nodes[i])))
    for i in order:
        for j in range(len(_parts(nodes[i]))):
            tree = tree_of(case)
            target = [node for node in ast.walk(tree) if _parts(node)][i]
            made = _Replace(target, _parts(target)[j]).visit(tree)
            yield with_tree(case, made)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else super().visit(node)


def _sizes(case: Case) -> Iterator[Case]:
    """With one size smaller everywhere."""
    known = {size for one in case.arguments for size in one.shape or () if size > 1}
    for size in sorted(known, reverse=True):
        for smaller in (1, 2, 3, size // 2, size - 1):
            if 0 < smaller < size:
                tree = tree_of(case)
                for node in ast.walk(tree):
                    if isinstance(node, ast.Constant) and node.value == size:
                        node.value = smaller
                given = tuple(_resized(one, size, smaller) for one in case.arguments)
                yield with_tree(case, tree).but(arguments=given)
                yield case.but(arguments=given)


def _resized(one: Argument, old: int, new: int) -> Argument:
    if one.shape is None:
        return one
    return Argument(**{**vars(one), "shape": tuple(new if n == old else n for n in one.shape)})
