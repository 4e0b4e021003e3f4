"""What an op keeps for its backward, read off the parameter names of its derivative rules.

Each op has one SavePlan per set of inputs that want a gradient, made when first needed: the
rules to run, and for each input and the result whether they need the array, only its type, or
nothing (see `Op.vjp`). So a node holds on to no more than what its asked rules use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.parameters import POSITIONAL, REST, parameters_of
from weft.core.bind import recorder
from weft.core.tensor import Tensor
from weft.ir.op import DerivativeRule, Op, Trait

NOTHING, ARRAY, TYPE = 0, 1, 2


class Absent(Exception):
    """Raised by a rule where its condition is known not to hold: the engine notes that.

    number      of the input, and its gradient before it is summed to the input's shape
    condition   does not hold
    """

    def __init__(self, number: int, part: Any, condition: Any) -> None:
        self.number, self.part, self.condition = number, part, condition


class ArrayType:
    """Shape and dtype of an array that is not kept itself."""

    __slots__ = ("dtype", "shape")

    def __init__(self, array: Any) -> None:
        self.shape = array.shape
        self.dtype = array.dtype

    def is_like(self, array: Any) -> bool:
        return bool(self.shape == array.shape and self.dtype == array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size


@dataclass(frozen=True, slots=True)
class SavePlan:
    """How one op is differentiated for one set of inputs.

    rules     (input number, rule, whether the rule takes the number first) for each to run
    out       what is kept of the result
    inputs    what is kept of each input
    keeps     whether any array is kept: then a second backward needs `retain_graph`
    nothing   what a node keeps where that is nothing at all; else None
    single, pair  the common cases: for elementwise ops without attributes the rule of the one
              input, or the rules of both, None for one that is not wanted
    """

    op: Op
    rules: tuple[tuple[int, DerivativeRule, bool], ...]
    out: int
    inputs: tuple[int, ...]
    keeps: bool
    nothing: tuple[None, ...] | None
    single: DerivativeRule | None
    pair: tuple[DerivativeRule | None, DerivativeRule | None] | None
    elementwise: bool
    arrays_only: bool  # two inputs, of which arrays or nothing is kept
    passes_nothing: bool  # has rules, but none for the inputs that want a gradient
    checks_dtype: bool  # may the result be of integers or bools, and so pass no gradient?


def _need(name: str) -> int:
    if name.startswith("_"):
        return NOTHING
    return TYPE if name.endswith("_type") else ARRAY


def _needs(rule: DerivativeRule, count: int, numbered: bool) -> tuple[int, list[int]]:
    """What a rule needs of the result and of each of `count` inputs."""
    parameters = parameters_of(rule)
    skip = 3 if numbered else 2  # (number,) xp, g
    out = _need(parameters[skip].name)
    named: list[int] = []
    for parameter in parameters[skip + 1 :]:
        if parameter.kind == REST:
            named += [_need(parameter.name)] * (count - len(named))
        elif parameter.kind == POSITIONAL:
            named.append(_need(parameter.name))
    return out, named


def _stronger(a: int, b: int) -> int:
    return ARRAY if ARRAY in (a, b) else max(a, b)


def _conditional(rule: DerivativeRule, number: int) -> DerivativeRule:
    """The rule of a CONDITIONAL op, where numbers are computed with and nobody records."""

    def checked(xp: Any, g: Any, out: Any, condition: Any, *rest: Any, **attrs: Any) -> Any:
        part = rule(xp, g, out, condition, *rest, **attrs)
        held = condition._data if isinstance(condition, Tensor) else condition
        if recorder() is None and isinstance(held, np.ndarray) and not held.any():
            raise Absent(number, part, held)
        return part

    return checked


def make_plan(op: Op, wanted: tuple[bool, ...]) -> SavePlan:
    """The plan of an op whose inputs numbered True in `wanted` want a gradient."""
    fixed = len(op.inputs) - op.variadic
    given = op.vjp or ()
    out = NOTHING
    inputs = [NOTHING] * len(wanted)
    rules = []
    for number, want in enumerate(wanted):
        numbered = op.variadic and number >= fixed
        rule = given[min(number, fixed)] if want and given else None
        if rule is None:
            continue
        conditional = Trait.CONDITIONAL in op.traits
        rules.append((number, _conditional(rule, number) if conditional else rule, numbered))
        rule_out, rule_inputs = _needs(rule, len(wanted), numbered)
        out = _stronger(out, rule_out)
        inputs = [_stronger(a, b) for a, b in zip(inputs, rule_inputs, strict=True)]
    single = pair = None
    if op.elementwise and not op.attrs and rules:
        by_number = {number: rule for number, rule, _ in rules}
        if len(wanted) == 1:
            single = by_number.get(0)
        elif len(wanted) == 2:
            pair = (by_number.get(0), by_number.get(1))
    return SavePlan(
        op=op,
        rules=tuple(rules),
        out=out,
        inputs=tuple(inputs),
        keeps=ARRAY in (out, *inputs),
        nothing=None if out or any(inputs) else (None,) * (1 + len(inputs)),
        single=single,
        pair=pair,
        elementwise=op.elementwise,
        arrays_only=len(wanted) == 2 and TYPE not in inputs,
        passes_nothing=not rules and op.vjp is not None,
        checks_dtype=not rules or "dtype" in op.attrs,
    )
