"""Rules as text: `multiply(x, 1)` → `x`, read once and then matched on nodes.

    x, y, z         any value; the same letter twice means the same value
    c               a condition: any bool value
    k1, k2          a constant
    0, 1, -0.0, …   a constant that holds this number everywhere
    MIN, MAX, ALL   the limits of the dtype (infinities for floats); all bits set
    add(x, y)       a call of an op; a commutative op matches in both orders

A match may include values that are also used elsewhere: a rule never adds nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.dtypes import DType
from weft.ir.graph import Node, Value
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import TensorType
from weft.passes.facts import (
    bits,
    dense,
    is_constant,
    number_of,
    of_kind,
    spelled,
)
from weft.passes.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Letter:
    name: str


@dataclass(frozen=True, slots=True)
class Number:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    op: Op
    parts: tuple[Pattern, ...]


Pattern = Letter | Number | Call
Bindings = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a table: what is replaced by what, for which dtypes of x, and why it is exact."""

    before: str
    after: str
    kinds: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.before} → {self.after}"


def read(text: str) -> Pattern:
    """Parse the text of a pattern."""
    return _read(ast.parse(text, mode="eval").body)


def _read(node: ast.expr) -> Pattern:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Call(OPS[node.func.id], tuple(map(_read, node.args)))
    text = ast.unparse(node)
    is_letter = text in ("x", "y", "z", "c", "k1", "k2")
    return Letter(text) if is_letter else Number(text)


def letters(pattern: Pattern) -> list[str]:
    """The letters of a pattern, in order of first appearance."""
    if isinstance(pattern, Call):
        return list(dict.fromkeys(name for part in pattern.parts for name in letters(part)))
    return [pattern.name] if isinstance(pattern, Letter) else []


# --- matching ------------------------------------------------------------------------------------


def matches(pattern: Pattern, value: Value, bound: Bindings) -> Iterator[Bindings]:
    """All matches of a value with a pattern, given the letters that are bound already."""
    if isinstance(pattern, Letter):
        known = bound.get(pattern.name)
        if known is value:
            yield bound
        elif known is None and _MAY_BE.get(pattern.name, _anything)(value):
            yield {**bound, pattern.name: value}
    elif isinstance(pattern, Number):
        if _is_number(value, pattern.text):
            yield bound
    elif value.node is not None:
        yield from matches_node(pattern, value.node, bound)


def _anything(_value: Value) -> bool:
    return True


def _is_bool(value: Value) -> bool:
    return value.tensor_type.dtype is dtypes.bool


#: Letters that match only some values.
_MAY_BE = {"k1": is_constant, "k2": is_constant, "c": _is_bool}


def matches_node(pattern: Call, node: Node, bound: Bindings) -> Iterator[Bindings]:
    inputs = node.inputs
    if node.op is not pattern.op or len(inputs) != len(pattern.parts):
        return
    yield from _in_order(pattern.parts, inputs, bound)
    if len(inputs) == 2 and node.op.commutative:
        yield from _in_order(pattern.parts, inputs[::-1], bound)


def _in_order(
    parts: Sequence[Pattern], inputs: Sequence[Value], bound: Bindings
) -> Iterator[Bindings]:
    found = [bound]
    for part, value in zip(parts, inputs, strict=True):
        found = [more for before in found for more in matches(part, value, before)]
        if not found:
            return
    yield from found


def _is_number(value: Value, text: str) -> bool:
    if not is_constant(value):
        return False
    number = number_of(value)
    return number is not None and bits(number) == _bits(text, value.tensor_type.dtype)


@lru_cache(maxsize=1000)
def _bits(text: str, dtype: DType) -> bytes | None:
    number = spelled(text, dtype)
    return None if number is None else bits(number)


# --- a table of rules ----------------------------------------------------------------------------


class Table:
    """Rules indexed by what they match, so that most nodes are skipped with one look-up."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @cached_property
    def _of(self) -> dict[Op, _OfOp]:
        """The rules by op, read when they are first needed."""
        found: dict[Op, _OfOp] = {}
        for rule in self.rules:
            before = read(rule.before)
            assert isinstance(before, Call)
            entry = Entry(rule, before, read(rule.after), not _changes_dtype(before))
            found.setdefault(before.op, _OfOp()).put(entry)
        return found

    def find(self, node: Node, sweep: Sweep) -> tuple[Rule, Value] | None:
        """The first rule that matches a node, and the value that replaces it."""
        of_op = self._of.get(node.op)
        if of_op is None:
            return None
        entries = of_op.candidates(node)
        if not entries:
            return None
        type = dense(node)
        if type is None:
            return None
        here = node.inputs[-1].tensor_type.dtype
        for entry in entries:
            if entry.plain and not of_kind(here, entry.rule.kinds):
                continue
            for bound in matches_node(entry.before, node, {}):
                about = bound["x"].tensor_type if "x" in bound else type
                if of_kind(about.dtype, entry.rule.kinds):
                    new = build(entry.after, bound, type, sweep)
                    if new is not None:
                        return entry.rule, new
        return None


def _changes_dtype(pattern: Call) -> bool:
    """Whether x may have another dtype than the operands of the outermost call."""
    inner = [part for part in pattern.parts if isinstance(part, Call)]
    return any(Trait.OTHER_DTYPE in part.op.traits or _changes_dtype(part) for part in inner)


@dataclass(frozen=True, slots=True)
class Entry:
    rule: Rule
    before: Call
    after: Pattern
    plain: bool  # x has the dtype of the operands


class _OfOp:
    """The rules of one op, indexed by their most specific part."""

    def __init__(self) -> None:
        self.always: list[Entry] = []
        self.number: list[tuple[str, Entry]] = []  # an input is this number
        self.twice: list[Entry] = []  # two inputs are the same value
        self.inner: dict[Op, list[Entry]] = {}  # an input is made by this op
        self._by_bits: dict[DType, dict[bytes, list[Entry]]] = {}  # of `number`

    def put(self, entry: Entry) -> None:
        parts = entry.before.parts
        calls = [part.op for part in parts if isinstance(part, Call)]
        numbers = [part.text for part in parts if isinstance(part, Number)]
        if numbers:
            self.number.append((numbers[0], entry))
        elif calls:
            self.inner.setdefault(calls[0], []).append(entry)
        elif len(set(parts)) < len(parts):
            self.twice.append(entry)
        else:
            self.always.append(entry)

    def candidates(self, node: Node) -> list[Entry]:
        """The rules that may match a node."""
        found = self.always
        inputs = node.inputs
        if self.twice and len(set(inputs)) < len(inputs):
            found = found + self.twice
        for value in inputs:
            made = value.node
            if made is None:
                continue
            if self.number and is_constant(value):
                found = found + self._with_number(value)
            more = self.inner.get(made.op)
            if more is not None:
                found = found + more
        return found

    def _with_number(self, value: Value) -> list[Entry]:
        number = number_of(value)
        if number is None:
            return []
        dtype = value.tensor_type.dtype
        by_bits = self._by_bits.get(dtype)
        if by_bits is None:
            by_bits = self._by_bits[dtype] = {}
            for text, entry in self.number:
                spelled_out = _bits(text, dtype)
                if spelled_out is not None:
                    by_bits.setdefault(spelled_out, []).append(entry)
        return by_bits.get(bits(number), [])


# --- building ------------------------------------------------------------------------------------


def build(pattern: Pattern, bound: Bindings, like: TensorType, sweep: Sweep) -> Value | None:
    """The value of a pattern under these bindings, with the type `like`."""
    if isinstance(pattern, Number):
        number = spelled(pattern.text, like.dtype)
        return None if number is None else sweep.uniform(number, like)
    value = _build(pattern, bound, sweep)
    return sweep.fitted(value, like)


def _build(pattern: Pattern, bound: Bindings, sweep: Sweep) -> Value:
    if isinstance(pattern, Letter):
        return bound[pattern.name]
    assert isinstance(pattern, Call), "a number within a result has no type of its own"
    return sweep.add(pattern.op, *[_build(part, bound, sweep) for part in pattern.parts])
