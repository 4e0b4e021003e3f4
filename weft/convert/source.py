"""Finds the syntax tree of a function in its file.

Files are parsed whole and kept, so that methods know their class. A function is found by its name
and first line; lambdas on one line are told apart by the columns of their code.
"""

from __future__ import annotations
import __future__

import ast
import linecache
import re
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from weft.base.dataclass import dataclass
from weft.convert import typed

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

#: Bits of `co_flags` that change what source means: `from __future__ import annotations`.
FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag


class NoSource(Exception):
    """The source of a function is not available; the message says why."""


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A function's definition, and the class in whose body it stands ("" for none).

    alone     whether nothing else holds the tree, so that it may be changed
    private   whether it may have private names, which the class mangles
    """

    node: Definition
    class_name: str
    file: str
    alone: bool = False
    private: bool = True


@dataclass(frozen=True, slots=True)
class _File:
    lines: tuple[str, ...]
    tree: ast.AST
    definitions: dict[int, list[tuple[Definition, str]]]  # by first line
    lambdas: dict[int, list[tuple[Definition, str]]]  # filled at the first search for a lambda


_files: dict[str, _File] = {}
MOST_FILES = 256


def find(function: FunctionType) -> FoundSource:
    """The definition of a function. Raises `NoSource` if none fits its code."""
    code = function.__code__
    alone = _alone(code, function.__globals__)
    if alone is not None:
        return alone
    found = _find_in(_parsed(code.co_filename, function.__globals__), code)
    if found is None:
        raise NoSource(f"{code.co_filename} no longer holds it at line {code.co_firstlineno}")
    return found


def find_typed(code: CodeType) -> Iterator[FoundSource]:
    """Candidates for the definition of a function that is in no file."""
    for text in typed.texts(code.co_filename):
        try:
            found = _find_in(_file(tuple(text.splitlines(keepends=True)), "<typed>"), code)
        except NoSource:
            continue
        if found is not None:
            yield found


def _find_in(file: _File, code: CodeType) -> FoundSource | None:
    known = file.definitions
    if code.co_name == "<lambda>":
        known = file.lambdas
        if not known:
            _collect_lambdas(file.tree, "", known)
    candidates = [
        (node, name) for node, name in known.get(code.co_firstlineno, ()) if _fits(node, code)
    ]
    if len(candidates) > 1:
        candidates = [entry for entry in candidates if _covers(entry[0], code)]
    if not candidates:
        return None
    node, class_name = candidates[0]
    return FoundSource(node, class_name, code.co_filename)


def _alone(code: CodeType, module: dict[str, Any]) -> FoundSource | None:
    """A `def` parsed without the rest of its file, to save the time of parsing a large file.

    None if that might give another result: then the file is parsed whole.
    """
    lines = linecache.getlines(code.co_filename, module)
    first = code.co_firstlineno - 1
    if code.co_name == "<lambda>" or not 0 <= first < len(lines):
        return None
    indent = len(lines[first]) - len(lines[first].lstrip())
    last, seen_def = first, False
    for last in range(first, len(lines) + 1):
        if last == len(lines):
            break
        text = lines[last].lstrip()
        if seen_def and text and text[0] not in "#)]}" and len(lines[last]) - len(text) <= indent:
            break
        seen_def = seen_def or text.startswith(("def ", "async def "))
    # An indented block is parsed under an `if`, which keeps its lines and columns.
    text = "".join(lines[first:last])
    head = "if 1:\n" if indent else "\n"
    try:
        tree = ast.parse("\n" * (first - 1) + (head if first else "") + text)
    except SyntaxError:
        return None
    body = tree.body[0].body if indent and tree.body else tree.body  # type: ignore[attr-defined]
    if len(body) != 1 or not isinstance(body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    if not _fits(body[0], code):
        return None
    private = not text.isascii() or _PRIVATE.search(text) is not None
    return FoundSource(body[0], _class_of(code), code.co_filename, alone=True, private=private)


#: A name that begins with two underscores and does not end with them.
_PRIVATE = re.compile(r"(?<!\w)__\w+(?<!__)(?!\w)")


def _class_of(code: CodeType) -> str:
    """The innermost class around a function, from its qualified name."""
    parts = code.co_qualname.split(".")
    for part, inner in zip(reversed(parts[:-1]), reversed(parts[1:]), strict=True):
        if "<locals>" not in (part, inner):
            return part
    return ""


def _parsed(name: str, module: dict[str, Any]) -> _File:
    lines = tuple(linecache.getlines(name, module))
    known = _files.get(name)
    if known is not None and known.lines == lines:
        return known
    if not lines:
        raise NoSource(f"there is no source file {name}")
    if len(_files) >= MOST_FILES:
        _files.clear()
    found = _files[name] = _file(lines, name)
    return found


def _file(lines: tuple[str, ...], name: str) -> _File:
    try:
        tree = ast.parse("".join(lines), name)
    except (SyntaxError, ValueError):
        raise NoSource(f"{name} does not parse") from None
    definitions: dict[int, list[tuple[Definition, str]]] = {}
    _collect(tree, "", definitions)
    return _File(lines, tree, definitions, {})


Definitions = dict[int, list[tuple[Definition, str]]]


def _collect(node: Any, class_name: str, into: Definitions) -> None:
    """Find all `def`s. They are statements, so expressions are skipped."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                into.setdefault(first, []).append((child, class_name))
            inner = child.name if isinstance(child, ast.ClassDef) else class_name
            _collect(child, inner, into)


def _collect_lambdas(node: ast.AST, class_name: str, into: Definitions) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda):
            into.setdefault(child.lineno, []).append((child, class_name))
        inner = child.name if isinstance(child, ast.ClassDef) else class_name
        _collect_lambdas(child, inner, into)


def _fits(node: Definition, code: CodeType) -> bool:
    """Whether the name and parameters of a definition are those of a code object."""
    if isinstance(node, ast.Lambda):
        if code.co_name != "<lambda>":
            return False
    elif node.name != code.co_name:
        return False
    args = node.args
    names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    names += [a.arg for a in (args.vararg, args.kwarg) if a is not None]
    counts = (len(args.posonlyargs), len(args.posonlyargs) + len(args.args), len(args.kwonlyargs))
    if counts != (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount):
        return False
    given = code.co_varnames[: len(names)]
    return all(
        mine == theirs or theirs.endswith(mine) for mine, theirs in zip(names, given, strict=False)
    )


def _covers(node: Definition, code: CodeType) -> bool:
    """Whether the positions of the code lie in the definition and include the body's start."""
    body = node.body if isinstance(node, ast.Lambda) else node
    start = (body.lineno, body.col_offset)
    end = (body.end_lineno or body.lineno, body.end_col_offset or 0)
    places = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None
        and column is not None
        and end_line is not None
        and end_column is not None
        and (line, column) != (end_line, end_column)
        and not (line == code.co_firstlineno and column == 0 == end_column)
    ]
    if not places and isinstance(node, ast.Lambda):
        return _gives_constant(node, code)
    inside = [p for p in places if start <= p[0] and p[1] <= end]
    if isinstance(node, ast.Lambda):
        # RESUME has the position of the whole first line in some versions: skip it
        return bool(inside) and max(p[1] for p in inside) == end and len(inside) >= len(places) - 1
    return bool(inside)


def _gives_constant(node: ast.Lambda, code: CodeType) -> bool:
    """Whether a lambda only returns the constant that the code returns.

    Python 3.12 notes no position for it. Lambdas that return the same constant are equivalent.
    """
    made = compile(ast.Expression(node), code.co_filename, "eval").co_consts[0]
    return (made.co_code, repr(made.co_consts)) == (code.co_code, repr(code.co_consts))
