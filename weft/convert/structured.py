"""Control flow as calls: branches and bodies become functions that share the local variables.

    if x.sum() > 0:                     def then():
        y = x                               nonlocal y
    else:                                   y = x
        y = -x                   ->     def otherwise():
                                            nonlocal y
                                            y = -x
                                        __weft__.if_(x.sum() > 0, then, otherwise, lambda: (y,), …)

The last lambda is never called: its cells give the hook access to the variables. When the code
runs, the hook looks at the condition: it runs one branch as Python does, or it records both
branches (`capture/from_source/branches.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from weft.convert.definedness import analyse
from weft.convert.expressions import COMPARE, lambda_, load, store
from weft.convert.jumps import assigned, binds_inside, looks_at_frame, yields
from weft.convert.liveness import Facts, Names
from weft.convert.lower import RESULT, JumpLowering, is_internal, not_any
from weft.convert.scopes import GLOBAL, LOCAL, Scope
from weft.convert.statements import Statement, Statements
from weft.convert.walk import copy_location, walk


class Structured(Statements):
    """Rewrites a function so that its control flow can become part of a graph."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.facts = Facts()
        self.stops: dict[ast.For, list[str]] = {}
        self.maybe: frozenset[str] = frozenset()
        self.natural = False  # keep Python's control flow: a generator, or one that calls locals()
        self.analysed: Scope | None = None  # scope of the function that `facts` describes
        self.declared: set[str] = set()  # variables that generated functions share
        self.before: list[ast.stmt] | None = None  # definitions to put before the statement
        self._functions = 0

    # --- functions ----------------------------------------------------------------------------

    def function(self, body: list[ast.stmt]) -> list[ast.stmt]:
        kept = (self.facts, self.stops, self.maybe, self.natural, self.declared, self.before)
        outer, self.analysed = self.analysed, None
        scope = self.scope
        self.natural = yields(body) or looks_at_frame(body)
        self.declared, self.before = set(), []
        if not self.natural:
            own = scope.bound - scope.globals - scope.nonlocals
            self.facts = analyse(body, scope.parameters, own)
            self.analysed = scope
            lowering = JumpLowering(self.facts)
            body = lowering.function(body)
            scope.bound |= lowering.names
            self.stops = lowering.stops
            self.maybe = (self.maybe - own) | self.facts.maybe | {RESULT}
        new = self.body(body)
        shared = sorted(self.declared - scope.parameters - scope.nonlocals)
        new = [*(_declared(name, new[0]) for name in shared if scope.meaning(name) == LOCAL), *new]
        self.facts, self.stops, self.maybe, self.natural, self.declared, self.before = kept
        self.analysed = outer
        return new

    def body(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        outer = self.before
        for statement in statements:
            self.before = []
            new = super().body([statement])
            out += [*self.before, *new]
        self.before = outer
        return out

    def is_natural(self, target: ast.expr) -> bool:
        if any(isinstance(p, ast.Name) and self.is_shared(p.id) for p in walk(target)):
            return False
        return super().is_natural(target)

    def is_shared(self, name: str) -> bool:
        """Whether a name is a variable of an enclosing converted function, nonlocal here."""
        return name in self.scope.nonlocals and self.scope.meaning(name) == LOCAL

    def assign(self, target: ast.expr, value: ast.expr, at: ast.AST) -> list[ast.stmt]:
        if isinstance(target, ast.Name) and self.is_shared(target.id):
            cell = lambda_(load(target.id, at), at)
            return [store(target.id, self.hook(target, "setcell", value, cell), at)]
        return super().assign(target, value, at)

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return super().visit_Name(node)
        sure = is_internal(node.id) or node in self.facts.sure
        read: ast.expr = node
        if not sure and self.is_own(node.id):
            read = self.hook(node, "local", lambda_(node, node), node.id)
        if node.id in self.maybe:
            if sure:
                return self.hook(node, "value", node)
            if self.scope.meaning(node.id) == LOCAL:
                return self.hook(node, "defined", read, node.id)
        if read is not node:
            return read
        return node if is_internal(node.id) else super().visit_Name(node)

    def is_own(self, name: str) -> bool:
        """Whether a name is a variable of the function that `facts` describes.

        Generated functions read it as a variable of an enclosing function. If it has no value,
        Python raises another error there than in the function itself.
        """
        scope = self.scope
        if scope is not self.analysed or scope.meaning(name) != LOCAL:
            return False
        return name in scope.bound and name not in scope.nonlocals

    def read(self, target: ast.Name) -> ast.Name:
        made = super().read(target)
        if target in self.facts.sure:
            self.facts.sure.add(made)
        return made

    # --- control flow -------------------------------------------------------------------------

    @property
    def keeps_python(self) -> bool:
        return self.natural or self.scope.kind != "function"

    def visit_If(self, node: ast.If) -> Statement:
        if self.keeps_python:
            return super().visit_If(node)
        test = self.condition(node.test)
        state = self.state([*node.body, *node.orelse])
        then, name = self.define("then", node.body, state, node)
        functions = [then]
        other: ast.expr | None = None
        if node.orelse:
            orelse, other_name = self.define("else", node.orelse, state, node)
            functions.append(orelse)
            other = load(other_name, node)
        live = self.live(state, self.facts.live[node])
        call = self.hook(node, "if_", test, load(name, node), other, *self.cells(state, node))
        call.args.append(_strings(live, node))
        return [*functions, self.statement(node, call)]

    def visit_While(self, node: ast.While) -> Statement:
        if self.keeps_python:
            return super().visit_While(node)
        state = self.state([node.test, *node.body])
        test = self.lazy(node.test, condition=True)
        body, name = self.define("body", node.body, state, node)
        head, after = self.facts.head[node], self.facts.live[node]
        call = self.hook(node, "while_", test, load(name, node), *self.cells(state, node))
        call.args += [_strings(self.live(state, n, loop=node), node) for n in (head, after)]
        return [body, self.statement(node, call)]

    def visit_For(self, node: ast.For) -> Statement:
        if self.keeps_python:
            return super().visit_For(node)
        state = self.state([node.target, *node.body])
        iterable = self.expr(node.iter)
        item = "__weft_item__"
        value = self.unpacked(node.target, load(item, node.target))
        first = self.assign(node.target, value, node.target)
        body, name = self.define("body", node.body, state, node, first=first, parameter=item)
        stops = self.stops.get(node)
        going = None if stops is None else lambda_(self.expr(not_any(stops, node)), node)
        head, after = self.facts.head[node], self.facts.live[node]
        call = self.hook(node, "for_", iterable, load(name, node), going, *self.cells(state, node))
        call.args += [_strings(self.live(state, n, loop=node), node) for n in (head, after)]
        return [body, self.statement(node, call)]

    def visit_Assert(self, node: ast.Assert) -> Statement:
        test = self.condition(node.test)
        message = None if node.msg is None else self.lazy(node.msg)
        return self.statement(node, self.hook(node, "assert_", test, message))

    def visit_Try(self, node: ast.Try) -> Statement:
        super().visit_Try(node)
        if node.handlers and not self.keeps_python:
            context = ast.withitem(self.hook(node, "trying"), None)
            node.body = [copy_location(ast.With([context], node.body), node.body[0])]
        return node

    # --- conditional expressions --------------------------------------------------------------

    def condition(self, node: ast.expr) -> ast.expr:
        """An expression of which only the truth is used."""
        if isinstance(node, ast.BoolOp) and all(map(self.can_wait, node.values[1:])):
            name = "all_of" if isinstance(node.op, ast.And) else "any_of"
            first = self.condition(node.values[0])
            rest = [self.lazy(value, condition=True) for value in node.values[1:]]
            return self.hook(node, name, first, *rest)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.hook(node, "not_", self.condition(node.operand))
        return self.expr(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if not all(map(self.can_wait, node.values[1:])):
            return super().visit_BoolOp(node)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        first = self.expr(node.values[0])
        return self.hook(node, name, first, *[self.lazy(value) for value in node.values[1:]])

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if not (self.can_wait(node.body) and self.can_wait(node.orelse)):
            return super().visit_IfExp(node)
        test = self.condition(node.test)
        return self.hook(node, "choose", test, self.lazy(node.body), self.lazy(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 or not all(map(self.can_wait, node.comparators[1:])):
            return super().visit_Compare(node)
        symbols = [COMPARE[type(op)] for op in node.ops]
        first = [self.expr(node.left), self.expr(node.comparators[0])]
        rest = [self.lazy(value) for value in node.comparators[1:]]
        return self.hook(node, "chain", _strings(symbols, node), *first, *rest)

    def can_wait(self, node: ast.expr) -> bool:
        """Whether an expression can be moved into a function of its own."""
        return self.before is not None or not binds_inside(node)

    def lazy(self, node: ast.expr, *, condition: bool = False) -> ast.expr:
        """A function that evaluates an expression. With `:=` in it, it is a `def` before the
        statement, else a lambda."""
        bound = assigned([node])
        evaluate = self.condition if condition else self.argument
        if not bound:
            outer, self.before = self.before, None
            made = lambda_(evaluate(node), node)
            self.before = outer
            return made
        assert self.before is not None
        given = copy_location(ast.Return(evaluate(node)), node)
        definition, name = self.define_rewritten("part", [given], self.state([node]), node)
        self.before.append(definition)
        return load(name, node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        outer, self.before = self.before, None
        new = super().visit_Lambda(node)
        self.before = outer
        return new

    def comprehension(self, node: Any) -> ast.expr:
        outer, self.before = self.before, None
        new = super().comprehension(node)
        self.before = outer
        return new

    # --- generated functions ------------------------------------------------------------------

    def state(self, nodes: Iterable[ast.AST]) -> list[str]:
        """Variables that these nodes bind, without globals, which have hooks of their own."""
        names = {name for name in assigned(nodes) if self.scope.meaning(name) != GLOBAL}
        self.declared |= names
        return sorted(names)

    def live(
        self, state: Sequence[str], live: Names, loop: ast.stmt | None = None
    ) -> tuple[str, ...]:
        """Variables of the state that may be read later; without flags of inner loops."""
        own = (*self._own_flags(loop), RESULT, "__weft_returned__") if loop is not None else None
        return tuple(
            name
            for name in state
            if (own is None or name in own if is_internal(name) else self.stays(name, live))
        )

    def stays(self, name: str, live: Names) -> bool:
        """Whether a variable may be read later; one of another function always may."""
        return name in live or name in self.scope.nonlocals or name not in self.scope.bound

    def _own_flags(self, loop: ast.stmt) -> list[str]:
        if isinstance(loop, ast.For):
            return self.stops.get(loop, [])
        assert isinstance(loop, ast.While)
        return [part.id for part in ast.walk(loop.test) if isinstance(part, ast.Name)]

    def define(
        self,
        kind: str,
        body: list[ast.stmt],
        state: Sequence[str],
        at: ast.AST,
        first: Sequence[ast.stmt] = (),
        parameter: str = "",
    ) -> tuple[ast.stmt, str]:
        """The definition of a function with this body, and its name. The body is rewritten."""
        return self.define_rewritten(kind, [*first, *self.body(body)], state, at, parameter)

    def define_rewritten(
        self,
        kind: str,
        body: list[ast.stmt],
        state: Sequence[str],
        at: ast.AST,
        parameter: str = "",
    ) -> tuple[ast.stmt, str]:
        """As `define`, for a body that has been rewritten."""
        self._functions += 1
        name = f"__weft_{kind}_{self._functions}__"
        if state:
            body = [copy_location(ast.Nonlocal(list(state)), body[0]), *body]
        parameters = [copy_location(ast.arg(parameter), at)] if parameter else []
        arguments = ast.arguments([], parameters, None, [], [], None, [])
        definition = ast.FunctionDef(name, arguments, body, [], None, None)
        definition.type_params = []  # type: ignore[attr-defined]
        # Errors without a line of their own name the first line of the body.
        first = body[1] if state and len(body) > 1 else body[0]
        return copy_location(definition, first), name

    def cells(self, state: Sequence[str], at: ast.AST) -> list[ast.expr | None]:
        """A lambda whose cells are the variables; None if there are none."""
        if not state:
            return [None]
        places: list[ast.expr] = [load(name, at) for name in state]
        return [lambda_(copy_location(ast.Tuple(places, ast.Load()), at), at)]


def _strings(names: Iterable[str], at: ast.AST) -> ast.expr:
    made = ast.Tuple([copy_location(ast.Constant(n), at) for n in names], ast.Load())
    return copy_location(made, at)


def _declared(name: str, at: ast.AST) -> ast.stmt:
    """`name: None`, which makes it a variable of this function without giving it a value."""
    target = copy_location(ast.Name(name, ast.Store()), at)
    note = copy_location(ast.Constant(None), at)
    return copy_location(ast.AnnAssign(target, note, None, 1), at)
