"""Rewrites a user's function so that its reads, writes, calls and branches are calls of hooks.

The source is rewritten once per code object, compiled with the user's file name and lines, and kept
on disk (`kept.py`). For each run, a function is built from the new code, the hooks of that run, and
the original's globals, defaults and closure cells, so that variables stay shared.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import types
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.recursion import call_deeply
from weft.convert import scopes, source
from weft.convert.expressions import HOOKS, Unconvertible
from weft.convert.kept import is_untouched, kept
from weft.convert.source import Definition, NoSource
from weft.convert.structured import Structured
from weft.convert.walk import copy_location

__all__ = ["HOOKS", "NoSource", "Unconvertible", "convert", "is_converted", "rebuild"]

FACTORY = "__weft_factory__"
INNER = "__weft_function__"
MOST = 4096


@dataclass(frozen=True, slots=True)
class Converted:
    original: CodeType  # kept alive: the table is keyed by its id
    code: CodeType


_converted: dict[int, Converted | Exception] = {}  # by the id of the original code
_originals: dict[int, CodeType] = {}
#: By id: codes of inner functions of rewritten ones that need no hooks, as `lambda: x`.
_hookless: dict[int, CodeType] = {}


def convert(function: FunctionType) -> CodeType:
    """The rewritten code of a function. It raises NoSource or Unconvertible, with the reason."""
    original = function.__code__
    name = id(original)
    found = _converted.get(name)
    if found is None:
        try:
            found = Converted(original, _convert(function))
            _note_hookless(found.code)
        except (NoSource, Unconvertible) as error:
            found = error
        if len(_converted) >= MOST:
            _converted.clear()
            _originals.clear()
            _hookless.clear()
        _converted[name] = found
        _originals[name] = original
    if isinstance(found, Exception):
        raise found
    return found.code


def _note_hookless(code: CodeType) -> None:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if HOOKS not in inner.co_freevars:
                _hookless[id(inner)] = inner
            _note_hookless(inner)


def _convert(function: FunctionType) -> CodeType:
    def rewritten() -> CodeType:
        return _compiled(transformed(function), function.__code__)

    def rewritten_deeply() -> CodeType:
        """With a larger stack if need be: an expression of 1,000 terms is a tree of depth 1,000."""
        try:
            return rewritten()
        except RecursionError:
            pass
        try:
            return call_deeply(rewritten)
        except RecursionError:
            what = "an expression has too many levels: write it as several statements"
            raise NoSource(f"{what} ({function.__code__.co_qualname})") from None

    return kept(function, rewritten_deeply)


def transformed(function: FunctionType) -> Definition:
    """The rewritten definition of a function."""
    original = function.__code__
    found = _found(function)
    node = _mangled(found, copy=not found.alone)
    if isinstance(node, ast.AsyncFunctionDef):
        raise Unconvertible("an asynchronous function", node)
    scope = scopes.of_function(node, None, original.co_freevars)
    work = Structured(scope)
    if isinstance(node, ast.Lambda):
        node.body = work.expr(node.body)
    else:
        node.body = work.function(node.body)
    return node


def _found(function: FunctionType) -> source.FoundSource:
    """The definition of a function, checked against its code object."""
    try:
        found = source.find(function)
        _check_fresh(found, function.__code__)
    except NoSource:
        for typed in source.find_typed(function.__code__):
            with contextlib.suppress(NoSource):
                _check_fresh(typed, function.__code__)
                return typed
        raise
    return found


def _mangled(found: source.FoundSource, *, copy: bool = True) -> Definition:
    """The definition, with private names mangled for the class that it stands in."""
    node: Definition = _copied(found.node) if copy else found.node
    if found.private:
        node = _Mangle(found.class_name).visit(node)
    return node


def _copied(tree: Any) -> Any:
    """A copy of a syntax tree; `copy.deepcopy` takes five times as long."""
    if isinstance(tree, ast.AST):
        made = tree.__class__.__new__(tree.__class__)  # fields are given below
        made.__dict__.update({name: _copied(part) for name, part in tree.__dict__.items()})
        return made
    return [_copied(part) for part in tree] if tree.__class__ is list else tree


def _compiled(node: Definition, original: CodeType) -> CodeType:
    """Compile a definition inside of a function that has the original's free variables."""
    args = node.args
    nothing = copy_location(ast.Constant(None), node)  # the original's own are used
    args.defaults = [nothing for _ in args.defaults]
    args.kw_defaults = [None if d is None else nothing for d in args.kw_defaults]
    inner: ast.stmt
    if isinstance(node, ast.Lambda):
        inner = copy_location(ast.Expr(node), node)
    else:
        node.name = INNER  # not its own name: a recursive call means the global one
        node.decorator_list = []
        node.returns = None
        for parameter in ast.walk(args):
            if isinstance(parameter, ast.arg):
                parameter.annotation = None
        inner = node
    names = [HOOKS, *original.co_freevars]
    listed = [copy_location(ast.arg(name), node) for name in names]
    parameters = ast.arguments([], listed, None, [], [], None, [])
    factory = ast.FunctionDef(FACTORY, parameters, [inner], [], None, None)
    factory.type_params = []  # type: ignore[attr-defined]
    copy_location(factory, node)
    flags = original.co_flags & source.FUTURE
    module = ast.Module([factory], [])
    compiled = compile(module, original.co_filename, "exec", flags=flags, dont_inherit=True)
    outer = next(c for c in compiled.co_consts if isinstance(c, CodeType))
    inner_code = _inner_code(outer)
    named = _renamed(inner_code, inner_code.co_qualname, original.co_qualname)
    return named.replace(co_name=original.co_name)


def _inner_code(outer: CodeType) -> CodeType:
    # Type parameters (3.12) wrap the function in another one.
    for constant in outer.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name in (INNER, "<lambda>"):
                return constant
            if constant.co_name.startswith("<generic"):
                return _inner_code(constant)
    raise NoSource("its source makes no function")


def _renamed(code: CodeType, old: str, new: str) -> CodeType:
    """Code with another qualified name, also for the functions and classes in it."""

    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _renamed(value, old, new)
        if isinstance(value, str) and value.startswith(f"{old}.<locals>."):  # of a class
            return new + value.removeprefix(old)
        return value

    name = new + code.co_qualname.removeprefix(old)
    constants = tuple(map(constant, code.co_consts))
    # Functions that were generated for branches and loops show the name of the user's function.
    shown = code.co_name
    if shown.startswith("__weft_") and shown != INNER:
        shown = name.split(".<locals>.__weft_")[0].rpartition(".")[2]
    return code.replace(co_qualname=name, co_consts=constants, co_name=shown)


def _check_fresh(found: source.FoundSource, original: CodeType) -> None:
    """Raise NoSource if the file was edited after the import: its text is not what runs."""
    if any(name.startswith("@py") for name in original.co_varnames + original.co_names):
        return  # rewritten by pytest: the same text, another code
    if is_untouched(original.co_filename):
        return
    try:
        natural = _compiled(_mangled(found), original)
    except SyntaxError:
        raise NoSource(f"{original.co_filename} has changed since it was imported") from None
    if not _same_code(natural, original):
        raise NoSource(f"{original.co_filename} has changed since it was imported")


def _same_code(a: CodeType, b: CodeType) -> bool:
    if a.co_names != b.co_names or a.co_varnames != b.co_varnames:
        return False
    if len(a.co_consts) != len(b.co_consts) or _steps(a) != _steps(b):
        return False
    for mine, theirs in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(mine, CodeType) and isinstance(theirs, CodeType):
            if not _same_code(mine, theirs):
                return False
        elif type(mine) is not type(theirs) or (mine != theirs and repr(mine) != repr(theirs)):
            return False
    return True


#: Instructions that may differ between a function compiled alone and in its module (calls of
#: attributes), or whose argument may (jump distances). All others are compared, also instructions
#: of future Pythons, so that changed text is never taken for the code that runs.
_LEFT_OUT = (
    *("CACHE", "NOP", "RESUME", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL"),
    *("LOAD_ATTR", "LOAD_METHOD", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES"),
    *("BUILD_TUPLE", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "DICT_MERGE"),  # of many arguments
)
_ANY_OF = {
    number: name.startswith(_LEFT_OUT)
    for name, number in dis.opmap.items()
    if name.startswith(_LEFT_OUT) or number in {*dis.hasjrel, *dis.hasjabs, *dis.hasfree}
}


def _steps(code: CodeType) -> list[tuple[int, int]]:
    text = code.co_code
    # One of the two instruction sequences for a call loads the keyword names as a constant.
    names = {i for i, value in enumerate(code.co_consts) if _is_names(value)}
    steps, more = [], 0
    for op, arg in zip(text[::2], text[1::2], strict=True):
        whole, more = more | arg, 0
        if op == dis.EXTENDED_ARG:
            more = whole << 8
        elif op == _LOAD_GLOBAL:
            steps.append((op, whole >> 1))  # the last bit says how it is called
        elif op not in _ANY_OF:
            if not (op == _LOAD_CONST and whole in names):
                steps.append((op, whole))
        elif not _ANY_OF[op]:
            steps.append((op, -1))
    return steps


_LOAD_CONST, _LOAD_GLOBAL = dis.opmap["LOAD_CONST"], dis.opmap["LOAD_GLOBAL"]


def _is_names(constant: Any) -> bool:
    return isinstance(constant, tuple) and all(isinstance(name, str) for name in constant)


class _Mangle(ast.NodeTransformer):
    """Writes `__name` as `_Class__name`, as the compiler does in a class body."""

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name

    def mangle(self, name: str) -> str:
        stripped = self.class_name.lstrip("_")
        if not name.startswith("__") or name.endswith("__") or "." in name or not stripped:
            return name
        return f"_{stripped}{name}"

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        outer = self.class_name
        node.name = self.mangle(node.name)
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        node.bases = [self.visit(base) for base in node.bases]
        node.keywords = [self.visit(entry) for entry in node.keywords]
        self.class_name = node.name
        node.body = [self.visit(statement) for statement in node.body]
        self.class_name = outer
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "attr", "arg", "name", "asname", "rest"):
            value = getattr(node, field, None)
            if isinstance(value, str) and not isinstance(node, (ast.alias, ast.MatchClass)):
                setattr(node, field, self.mangle(value))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [self.mangle(name) for name in node.names]
        return super().generic_visit(node)


# --- functions with hooks ------------------------------------------------------------------------


def is_converted(function: FunctionType) -> bool:
    """Whether a function was defined by rewritten code: it has hooks of a run, or needs none."""
    code = function.__code__
    return HOOKS in code.co_freevars or id(code) in _hookless


def rebuild(
    function: FunctionType, code: CodeType, hooks: Callable[..., Any] | Any
) -> FunctionType:
    """`function` with rewritten code and these hooks; globals, defaults and cells are shared."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[HOOKS] = CellType(hooks)
    closure = tuple(cells[name] for name in code.co_freevars)
    new = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    new.__dict__.update(function.__dict__)
    return new
