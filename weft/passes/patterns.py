"""Rules as text: `multiply(x, 1)` → `x`, read once and then matched on nodes.

    x, y, z         any value; the same letter twice means the same value
    c               a condition: any value of bools
    k1, k2          a constant
    0, 1, -0.0, …   a constant that holds this number everywhere, in the dtype at hand
    MIN, MAX, ALL   the limits of the dtype (infinities for floats); all bits set
    add(x, y)       a call of an op; commutative ops fit in both orders

Values that are used elsewhere may be part of a match: a rule gives no more nodes than it takes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from weft.base import dtypes
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
    """One line of a table: what becomes what, for which dtypes of x, and why that is exact."""

    before: str
    after: str
    kinds: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.before} → {self.after}"


def read(text: str) -> Pattern:
    """A pattern of its text."""
    return _read(ast.parse(text, mode="eval").body)


def _read(node: ast.expr) -> Pattern:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Call(OPS[node.func.id], tuple(map(_read, node.args)))
    text = ast.unparse(node)
    is_letter = text in ("x", "y", "z", "c", "k1", "k2")
    return Letter(text) if is_letter else Number(text)


def letters(pattern: Pattern) -> list[str]:
    """The letters of a pattern, in the order in which they first stand there."""
    if isinstance(pattern, Call):
        return list(dict.fromkeys(name for part in pattern.parts for name in letters(part)))
    return [pattern.name] if isinstance(pattern, Letter) else []


# --- matching ------------------------------------------------------------------------------------


def matches(pattern: Pattern, value: Value, bound: Bindings) -> Iterator[Bindings]:
    """All ways in which a value fits a pattern, given what letters already stand for."""
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


#: What letters stand for that do not stand for anything.
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
    """Rules by what they ask for, so that most nodes are passed over with one look-up."""

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
        """The first rule that fits a node, and what it makes of it."""
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
    """Whether the dtype of x may be another than that of the operands of the call."""
    inner = [part for part in pattern.parts if isinstance(part, Call)]
    return any(Trait.OTHER_DTYPE in part.op.traits or _changes_dtype(part) for part in inner)


@dataclass(frozen=True, slots=True)
class Entry:
    rule: Rule
    before: Call
    after: Pattern
    plain: bool  # the dtype of x is that of the operands


class _OfOp:
    """The rules of one op, by what their first special part is."""

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
        """The rules that may fit a node."""
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
    """The value that a pattern stands for, as one of type `like`."""
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
