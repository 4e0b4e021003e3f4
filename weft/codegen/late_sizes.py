"""Sizes that the run itself tells: code that computes what depends on them.

Where a step has computed a size that depends on data, its number is written to the table of sizes.
All expressions with its name are then computed anew by a function of the module, `@tell.k`; the
same texts that Python evaluates for sizes of inputs (`weft.runtime.size_table`) become machine code
here. An expression may have other names that are not told yet: then its value means nothing so far,
and is computed again with those.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from weft.base.dim_algebra import Dim
from weft.base.dims import dim
from weft.codegen.contract import NotNative, Status
from weft.codegen.sizes import RunSizes
from weft.codegen.text import Function, Module

__all__ = ["Tellers"]


class Tellers:
    """The functions that compute what depends on sizes, one for each set of names.

    needed   sizes that must be at least 1, else the call is interpreted
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.needed: list[int] = []
        self._names: dict[tuple[str, ...], str] = {}

    def name(self, told: Sequence[str]) -> str:
        """The function to call once these names are in the table: `i32 @name(ptr %sizes)`."""
        return self._names.setdefault(tuple(told), f"tell.{len(self._names)}")

    def finish(self) -> None:
        """Write all of them; the table has all its places."""
        sizes = self.module.sizes
        texts = [*sizes.named.values(), *map(str, sizes.expressions), *map(str, self.needed)]
        late = [text for text in texts if sizes.late_in(text)]
        for name in {name for text in late for name in _names_in(_parsed(text))}:
            sizes.slot(dim(name))
        for told, name in self._names.items():
            _Teller(self, name, frozenset(told)).write()


def _names_in(expression: ast.expr) -> set[str]:
    """The names of sizes in an expression: not those of its loops and functions."""
    parts = list(ast.walk(expression))
    loops = [part.target for part in parts if isinstance(part, ast.comprehension)]
    bound = {part.id for loop in loops for part in ast.walk(loop) if isinstance(part, ast.Name)}
    found = {part.id for part in parts if isinstance(part, ast.Name)}
    return found - bound - _FUNCTIONS


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


_FUNCTIONS = frozenset(("max", "min", "next", "range"))


class _Teller:
    def __init__(self, owner: Tellers, name: str, told: frozenset[str]) -> None:
        self.owner = owner
        self.told = told
        self.sizes: RunSizes = owner.module.sizes
        self.f: Function = owner.module.function(name, "i32", [("ptr", "inputs")], "nounwind")
        self.known: dict[str, _Number] = {}

    def write(self) -> None:
        f, sizes = self.f, self.sizes
        for name, text in sizes.named.items():  # in the order in which they use each other
            if sizes.late_in(text) & self.told:
                self.known[name] = self._computed(text)
        for size in sizes.expressions:
            if self._depends(size):
                self._slot(size).store(self._computed(str(size)).whole(f))
        for need in self.owner.needed:
            if self._depends(need):
                least = self._computed(str(need)).whole(f)
                with f.when(f(f"icmp slt i64 {least}, 1")):
                    f.do(f"ret i32 {Status.SIZES}")
                    f.block(f.fresh("never"))
        f.do("ret i32 0")

    def _depends(self, size: int) -> bool:
        return isinstance(size, Dim) and bool(self.sizes.late_names(size) & self.told)

    def _slot(self, size: Dim):  # type: ignore[no-untyped-def]
        return self.f.ptr("%inputs", "i64") + self.sizes.slot(size)

    def _named(self, name: str) -> _Number:
        found = self.known.get(name)
        if found is None:
            found = self.known[name] = _Number(str(self._slot(dim(name)).load()))
        return found

    def _computed(self, text: str) -> _Number:
        return self._of(_parsed(text), {})

    # --- expressions ----------------------------------------------------------------------------

    def _of(self, node: ast.expr, local: dict[str, _Number]) -> _Number:
        match node:
            case ast.Constant(value=bool(number)):
                return _Number(str(int(number)))
            case ast.Constant(value=int(number)):
                return _Number(str(number))
            case ast.Constant(value=float(number)):
                return _Number(repr(number), is_float=True)
            case ast.Name(id=name):
                return local[name] if name in local else self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._binary("sub", _Number("0"), self._of(inner, local))
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(op, self._of(left, local), self._of(right, local))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(op, self._of(left, local), self._of(right, local))
            case ast.IfExp(test=test, body=body, orelse=other):
                holds = self._of(test, local)
                return self._select(holds, self._of(body, local), self._of(other, local))
            case ast.Call(func=ast.Name(id="max" | "min" as word), args=args) if len(args) > 1:
                first, *rest = (self._of(arg, local) for arg in args)
                for value in rest:
                    first = self._one_of(word, first, value)
                return first
            case ast.Call(func=ast.Attribute(value=inner, attr="bit_length"), args=[]):
                return self._bits(self._of(inner, local))
            case ast.Subscript(
                value=ast.Call(func=ast.Name(id="min"), args=[ast.ListComp() as best]),
                slice=ast.Constant(value=1),
            ):
                return self._best(best)
        raise NotNative(f"a size that depends on data is computed as {ast.unparse(node)}")

    def _operation(self, op: ast.operator, a: _Number, b: _Number) -> _Number:
        words = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
        word = words.get(type(op))
        if word is not None:
            return self._binary(word, a, b)
        if a.is_float or b.is_float or not isinstance(op, (ast.FloorDiv, ast.Mod)):
            raise NotNative(f"a size that depends on data is computed by {type(op).__name__}")
        return self._divided(a, b, rest=isinstance(op, ast.Mod))

    def _binary(self, word: str, a: _Number, b: _Number) -> _Number:
        f = self.f
        if a.is_float or b.is_float:
            return _Number(f(f"f{word} double {a.real(f)}, {b.real(f)}"), is_float=True)
        return _Number(f(f"{word} i64 {a.text}, {b.text}"))

    def _divided(self, a: _Number, b: _Number, *, rest: bool) -> _Number:
        """Python's quotient, rounded down, or the remainder. By 0 something: a name is not told."""
        f = self.f
        by = f(f"select i1 {f(f'icmp eq i64 {b.text}, 0')}, i64 1, i64 {b.text}")
        quotient, left = f(f"sdiv i64 {a.text}, {by}"), f(f"srem i64 {a.text}, {by}")
        other = f(f"icmp slt i64 {f(f'xor i64 {left}, {by}')}, 0")
        below = f(f"and i1 {f(f'icmp ne i64 {left}, 0')}, {other}")
        if rest:
            return _Number(f(f"add i64 {left}, {f(f'select i1 {below}, i64 {by}, i64 0')}"))
        return _Number(f(f"sub i64 {quotient}, {f(f'zext i1 {below} to i64')}"))

    def _compared(self, op: ast.cmpop, a: _Number, b: _Number) -> _Number:
        f = self.f
        words = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
        if a.is_float or b.is_float:
            word = f"o{words[type(op)]}"
            held = f(f"fcmp {word} double {a.real(f)}, {b.real(f)}")
        else:
            signed = {**{k: f"s{v}" for k, v in words.items()}, ast.Eq: "eq", ast.NotEq: "ne"}
            held = f(f"icmp {signed[type(op)]} i64 {a.text}, {b.text}")
        return _Number(f(f"zext i1 {held} to i64"))

    def _select(self, holds: _Number, a: _Number, b: _Number) -> _Number:
        f = self.f
        yes = f(f"icmp ne i64 {holds.text}, 0")
        if a.is_float or b.is_float:
            text = f(f"select i1 {yes}, double {a.real(f)}, double {b.real(f)}")
            return _Number(text, is_float=True)
        return _Number(f(f"select i1 {yes}, i64 {a.text}, i64 {b.text}"))

    def _one_of(self, word: str, a: _Number, b: _Number) -> _Number:
        return self._select(self._compared(ast.Gt() if word == "max" else ast.Lt(), a, b), a, b)

    def _bits(self, a: _Number) -> _Number:
        """`int.bit_length` of a number that is not negative."""
        f = self.f
        name = f.module.declare("i64", "llvm.ctlz.i64", "i64, i1")
        zeros = f(f"call i64 @{name}(i64 {a.text}, i1 false)")
        return _Number(f(f"sub i64 64, {zeros}"))

    def _best(self, listed: ast.ListComp) -> _Number:
        """`min([(cost, number) for names in constants if condition])[1]`."""
        (loop,) = listed.generators
        target = loop.target
        names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
        if not isinstance(listed.elt, ast.Tuple):
            raise NotNative(f"a size that depends on data is computed as {ast.unparse(listed)}")
        best: tuple[_Number, _Number, _Number] | None = None
        for row in ast.literal_eval(loop.iter):
            numbers = row if isinstance(target, ast.Tuple) else (row,)
            local = {
                name: _Number(repr(number), isinstance(number, float))
                for name, number in zip(names, numbers, strict=True)
            }
            allowed = _Number("1")
            for test in loop.ifs:
                allowed = self._binary("mul", allowed, self._of(test, local))
            cost, number = (self._of(part, local) for part in listed.elt.elts)
            if best is None:
                best = allowed, cost, number
                continue
            there, least, _ = best
            less = self._compared(ast.Lt(), cost, least)
            same = self._binary(
                "mul", self._alike(cost, least), self._compared(ast.Lt(), number, best[2])
            )
            wins = self._one_of("max", less, same)
            wins = self._one_of("max", wins, self._compared(ast.Eq(), there, _Number("0")))
            wins = self._binary("mul", wins, allowed)
            best = (
                self._one_of("max", there, allowed),
                self._select(wins, cost, least),
                self._select(wins, number, best[2]),
            )
        assert best is not None
        return best[2]

    def _alike(self, a: _Number, b: _Number) -> _Number:
        both = self._compared(ast.LtE(), a, b), self._compared(ast.GtE(), a, b)
        return self._binary("mul", *both)


class _Number:
    """An i64 or a double: the text of it in code."""

    __slots__ = ("is_float", "text")

    def __init__(self, text: str, is_float: bool = False) -> None:
        self.text = text
        self.is_float = is_float

    def real(self, f: Function) -> str:
        return self.text if self.is_float else f(f"sitofp i64 {self.text} to double")

    def whole(self, f: Function) -> str:
        return f(f"fptosi double {self.text} to i64") if self.is_float else self.text
