"""Rewrites expressions: each read, call, operator and test of a function calls a hook.

`a.b` becomes `__weft__.attr(a, "b")`, `f(x)` becomes `__weft__.call(f, x)`, and so on. The order of
evaluation does not change. Nodes keep the user's lines and columns. Statements are in
`statements.py`, and control flow in `structured.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from weft.convert import scopes
from weft.convert.scopes import FREE, GLOBAL, Scope
from weft.convert.walk import copy_location

HOOKS = "__weft__"  # two underscores at both ends: such names are never mangled

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
UNARY: dict[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
#: Builtins that look at the calling frame: the user's own code must call them.
OF_THE_FRAME = frozenset({"locals", "globals", "vars", "dir", "eval", "exec"})


class Unconvertible(Exception):
    """A construct that cannot be rewritten: the function runs unchanged and is not recorded."""

    def __init__(self, what: str, node: ast.AST) -> None:
        super().__init__(f"{what} (line {getattr(node, 'lineno', '?')})")


def load(name: str, at: ast.AST) -> ast.Name:
    """The read of a variable."""
    return copy_location(ast.Name(name, ast.Load()), at)


def store(name: str, value: ast.expr, at: ast.AST) -> ast.stmt:
    """name = value"""
    target = copy_location(ast.Name(name, ast.Store()), at)
    return copy_location(ast.Assign([target], value), at)


def lambda_(value: ast.expr, at: ast.AST) -> ast.expr:
    """lambda: value"""
    nothing = ast.arguments([], [], None, [], [], None, [])
    return copy_location(ast.Lambda(nothing, value), at)


class Expressions(ast.NodeTransformer):
    """Rewrites expressions. `scope` is that of the code being visited."""

    scope: Scope

    # --- making nodes -------------------------------------------------------------------------

    def hook(self, at: ast.AST, method: str, *args: ast.expr | str | None) -> ast.Call:
        """A call of a hook, at the position of `at`. Strings become constants."""
        nodes: list[ast.expr] = []
        for given in args:
            node = given if isinstance(given, ast.expr) else ast.Constant(given)
            nodes.append(node if node is given else copy_location(node, at))
        holder = load(HOOKS, at)
        function = copy_location(ast.Attribute(holder, method, ast.Load()), at)
        # A method call that spans lines is reported on the last of them, as Python does.
        function.end_lineno = getattr(at, "lineno", None)
        function.end_col_offset = getattr(at, "col_offset", None)
        return copy_location(ast.Call(function, nodes, []), at)

    def expr(self, node: ast.expr) -> ast.expr:
        new: ast.expr = self.visit(node)
        return new

    def test(self, node: ast.expr) -> ast.expr:
        """The condition of an `if` or `while`."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.expr(node)
        return self.hook(node, "test", self.expr(node))

    # --- reads --------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load) or node.id in (HOOKS, "__class__", "__debug__"):
            return node
        meaning = self.scope.meaning(node.id)
        if meaning == GLOBAL:
            return self.hook(node, "glob", node.id)
        if meaning == FREE:
            return self.hook(node, "free", node.id, node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if not isinstance(node.ctx, ast.Load):
            raise Unconvertible("an attribute is bound in an unusual place", node)
        return self.hook(node, "attr", self.expr(node.value), node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            raise Unconvertible("an item is bound in an unusual place", node)
        return self.hook(node, "item", self.expr(node.value), self.index(node.slice))

    def index(self, node: ast.expr) -> ast.expr:
        """The contents of square brackets as one expression."""
        if isinstance(node, ast.Slice):
            parts = [
                None if p is None else self.expr(p) for p in (node.lower, node.upper, node.step)
            ]
            return self.hook(node, "slice", *parts)
        if isinstance(node, ast.Tuple):
            node.elts = [self.index(part) for part in node.elts]
            return node
        return self.expr(node)

    def visit_Starred(self, node: ast.Starred) -> Any:
        node.value = self.hook(node, "iter", self.expr(node.value))
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.expr(node.value)
        name = node.target.id
        # In a comprehension it binds a variable of the enclosing function.
        meaning = self.scope.function().meaning(name)
        if meaning == GLOBAL:
            return self.hook(node, "setglobal", name, value)
        node.value = self.hook(node, "setfree", name, value) if meaning == FREE else value
        return node

    # --- calls --------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and self.scope.meaning(node.func.id) == GLOBAL:
            if node.func.id == "super" and not node.args and not node.keywords:
                return self.zero_argument_super(node)
            if node.func.id in OF_THE_FRAME:
                return self.frame_call(node)
        return self.call_of(node, self.expr(node.func))

    def call_of(self, node: ast.Call, function: ast.expr) -> ast.Call:
        """A call, where the expression of the function has been rewritten."""
        args = [self.argument(argument) for argument in node.args]
        call = self.hook(node, "call", function, *args)
        call.keywords = [self.keyword(entry) for entry in node.keywords]
        return call

    def to_write(self, node: ast.expr, write: ast.expr | str) -> ast.expr:
        """The target of a write. A hook sees whether it is a temporary tensor, which loses it."""
        if not isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
            return self.expr(node)
        text = write if isinstance(write, str) else ast.unparse(write)
        new = self.expr(node)
        if not isinstance(new, ast.Call) or not isinstance(new.func, ast.Attribute):
            return new
        name = {"item": "new_item", "attr": "new_attr", "call": "new_call"}.get(new.func.attr)
        if name is None:
            return new
        new.func.attr = name
        new.args.insert(0, copy_location(ast.Constant(text), node))
        return new

    def argument(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.JoinedStr):  # kept in parts: print formats them at each call
            return self.hook(node, "text", *self.text_parts(node))
        return self.expr(node)

    def keyword(self, node: ast.keyword) -> ast.keyword:
        value = self.argument(node.value)
        node.value = value if node.arg else self.hook(node.value, "mapping", value)
        return node

    def zero_argument_super(self, node: ast.Call) -> ast.expr:
        scope = self.scope.function()
        if not scope.first_parameter:
            raise Unconvertible("super() in a function without parameters", node)
        names = ("__class__", scope.first_parameter)
        node.args = [load(name, node) for name in names]
        return node

    def frame_call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        node.args = [self.expr(argument) for argument in node.args]
        node.keywords = [self.keyword(entry) for entry in node.keywords]
        if name in ("vars", "dir") and node.args:
            return self.hook(node, "call", self.expr(node.func), *node.args)
        return self.hook(node, "of_frame", name, node)

    # --- operators ----------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return node
        left, right = self.expr(node.left), self.expr(node.right)
        return self.hook(node, "binary", BINARY[type(node.op)], left, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.operand, ast.Constant):
            return node
        operand = self.expr(node.operand)
        if isinstance(node.op, ast.Not):
            return self.hook(node, "not_", operand)
        return self.hook(node, "unary", UNARY[type(node.op)], operand)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        # a and b -> (b if keep(a) else kept()): `keep` stores the value and returns its truth;
        # nothing runs until `kept` returns it. Lambdas would change the scope of `:=`.
        values = [self.expr(value) for value in node.values]
        result = values[-1]
        for value in reversed(values[:-1]):
            asked = self.hook(value, "keep", value)
            kept = self.hook(value, "kept")
            yes, no = (result, kept) if isinstance(node.op, ast.And) else (kept, result)
            result = copy_location(ast.IfExp(asked, yes, no), node)
        return result

    def visit_Compare(self, node: ast.Compare) -> Any:
        left = self.expr(node.left)
        rights = [self.expr(right) for right in node.comparators]
        return self.comparison(node, left, list(zip(node.ops, rights, strict=True)))

    def comparison(
        self, at: ast.AST, left: ast.expr, rest: Sequence[tuple[ast.cmpop, ast.expr]]
    ) -> ast.expr:
        (op, right), more = rest[0], rest[1:]
        name = COMPARE[type(op)]
        if not more:
            return self.hook(at, "compare", name, left, right)
        # a < b < c: b is evaluated once, and c only if a < b
        asked = self.hook(at, "compare_first", name, left, right)
        following = self.comparison(at, self.hook(at, "kept_right"), more)
        return copy_location(ast.IfExp(asked, following, self.hook(at, "kept")), at)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test = self.test(node.test)
        node.body, node.orelse = self.expr(node.body), self.expr(node.orelse)
        return node

    # --- text ---------------------------------------------------------------------------------

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return self.hook(node, "joined", *self.text_parts(node))

    def text_parts(self, node: ast.JoinedStr) -> list[ast.expr]:
        parts: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                spec = value.format_spec
                made = ast.Constant("") if spec is None else self.expr(spec)
                conversion = ast.Constant(value.conversion)
                given = [self.expr(value.value), conversion, copy_location(made, value)]
                copy_location(conversion, value)
                parts.append(self.hook(value, "part", *given))
            else:
                parts.append(value)
        return parts

    # --- displays and comprehensions ----------------------------------------------------------

    def visit_Dict(self, node: ast.Dict) -> Any:
        for i, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            node.keys[i] = None if key is None else self.key(key)
            new = self.expr(value)
            node.values[i] = self.hook(value, "mapping", new) if key is None else new
        return node

    def key(self, node: ast.expr) -> ast.expr:
        """A key of a dict or an element of a set; a hook sees that it is hashed."""
        new = self.expr(node)
        if isinstance(node, (ast.Constant, ast.Starred, ast.JoinedStr)):
            return new
        return self.hook(node, "key", new)

    def visit_Set(self, node: ast.Set) -> Any:
        node.elts = [self.key(part) for part in node.elts]
        return node

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return self.comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        return self.comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self.comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return self.comprehension(node)

    def comprehension(self, node: scopes.Comprehension) -> ast.expr:
        outer = self.scope
        inner = scopes.of_comprehension(node, outer)
        for number, generator in enumerate(node.generators):
            if generator.is_async:
                raise Unconvertible("an asynchronous comprehension", node)
            if not names_only(generator.target):
                raise Unconvertible("a comprehension that writes to attributes or items", node)
            # The first iterable belongs to the enclosing scope, the others to the comprehension.
            self.scope = outer if number == 0 else inner
            iterable = self.hook(generator.iter, "iter", self.expr(generator.iter))
            generator.iter = self.unpacked(generator.target, iterable, each=True)
            self.scope = inner
            generator.ifs = [self.test(condition) for condition in generator.ifs]
        self.scope = inner
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.key(node.key), self.expr(node.value)
        else:
            node.elt = self.key(node.elt) if isinstance(node, ast.SetComp) else self.expr(node.elt)
        self.scope = outer
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        node.value = self.hook(node, "iter", self.expr(node.value))
        return node

    def visit_Await(self, node: ast.Await) -> Any:
        raise Unconvertible("await", node)

    # --- lambdas ------------------------------------------------------------------------------

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self.defaults(node.args)
        outer = self.scope
        self.scope = scopes.of_function(node, outer)
        node.body = self.expr(node.body)
        self.scope = outer
        return node

    def defaults(self, args: ast.arguments) -> None:
        args.defaults = [self.expr(default) for default in args.defaults]
        args.kw_defaults = [None if d is None else self.expr(d) for d in args.kw_defaults]

    # --- unpacking ----------------------------------------------------------------------------

    def unpacked(self, target: ast.expr, value: ast.expr, *, each: bool = False) -> ast.expr:
        """The value that a target unpacks; a hook reads it first, as deep as the target goes."""
        if not isinstance(target, (ast.Tuple, ast.List)):
            return value
        return self.hook(target, "unpack_each" if each else "unpack", value, _pattern(target))


def _pattern(target: ast.expr) -> ast.expr:
    """The shape of a target: None if it is single, else a tuple of shapes; "*" if it is starred."""
    made: ast.expr
    if isinstance(target, (ast.Tuple, ast.List)):
        made = ast.Tuple([_pattern(part) for part in target.elts], ast.Load())
    else:
        made = ast.Constant("*" if isinstance(target, ast.Starred) else None)
    return copy_location(made, target)


def names_only(target: ast.expr) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(map(names_only, target.elts))
    if isinstance(target, ast.Starred):
        return names_only(target.value)
    return isinstance(target, ast.Name)
