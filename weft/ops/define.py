"""Elementwise ops from one call: the card, its public function, methods and an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from weft.base.dtypes import KINDS
from weft.base.promotion import promote_weak
from weft.core.bind import bind, update
from weft.core.bind import operator as fast_operator
from weft.core.bind import unary as fast_unary
from weft.core.operands import (
    NUMBERS,
    OPERANDS,
    Operand,
    as_tensor,
    assign,
    cast,
    common,
    paired,
)
from weft.core.public import attach, public
from weft.core.tensor import Tensor
from weft.ir.dispatch import Evaluation
from weft.ir.op import DerivativeRule, Op, Trait
from weft.ops.rules import binary_rule, unary_rule

F = TypeVar("F", bound=Callable[..., Any])


class UnaryFunction(Protocol):
    def __call__(self, x: Tensor, /) -> Tensor: ...


class BinaryFunction(Protocol):
    def __call__(self, x1: Operand, x2: Operand, /) -> Tensor: ...


def _card(
    name: str,
    rule: Callable[..., Any],
    evaluate: Evaluation,
    kinds: str,
    vjp: tuple[DerivativeRule | None, ...] | None,
    traits: Trait,
    result: str,
    **facts: Any,
) -> Op:
    in_place = _writer(getattr(np, evaluate, None)) if isinstance(evaluate, str) else None
    traits |= Trait.ELEMENTWISE
    if name != "nextafter":  # it is about the spacing of the narrow dtype itself
        traits |= Trait.WIDEN
    if result != "same":
        traits |= Trait.OTHER_DTYPE
    return Op(name, rule, evaluate, in_place=in_place, kinds=kinds, vjp=vjp, traits=traits, **facts)


def _at_least(kinds: str) -> str:
    """The kind to promote to: functions of floats also take integers, as the default float."""
    return "float" if KINDS[kinds] <= KINDS["floating"] else ""


def unary(
    name: str,
    doc: str,
    *methods: str,
    kinds: str,
    result: str = "same",
    evaluate: Evaluation = "",
    vjp: DerivativeRule | None = None,
    traits: Trait = Trait.NONE,
    namespace: str = "",
    **facts: Any,
) -> UnaryFunction:
    """A card and its public function of one tensor; `facts` are fields of the card."""
    op = _card(
        name,
        unary_rule(kinds, result),
        evaluate or name,
        kinds,
        None if vjp is None else (vjp,),
        traits,
        result,
        **facts,
    )
    at_least = _at_least(kinds)

    def promoted(x: Any) -> Any:
        tensor = as_tensor(x, name)
        if at_least and tensor._data.dtype.kind in "iub":
            tensor = cast(tensor, promote_weak(tensor.dtype, "float"))
        return bind(op, tensor)

    return _published(fast_unary(op, promoted), name, doc, methods, namespace)


def binary(
    name: str,
    doc: str,
    *methods: str,
    kinds: str,
    operator: str = "",
    result: str = "same",
    evaluate: Evaluation = "",
    vjp: tuple[DerivativeRule, DerivativeRule] | None = None,
    traits: Trait = Trait.NONE,
    namespace: str = "",
    **facts: Any,
) -> BinaryFunction:
    """A card and its public function of two operands; with `operator="add"` also x + y."""
    rule = binary_rule(kinds, result)
    op = _card(name, rule, evaluate or name, kinds, vjp, traits, result, **facts)
    at_least = _at_least(kinds)

    def function(x1: Operand, x2: Operand, /) -> Tensor:
        out: Tensor = bind(op, *common((x1, x2), name, at_least=at_least))
        return out

    if operator:
        _attach_operator(op, operator, at_least, arithmetic=result == "same")
    return _published(function, name, doc, methods, namespace)


def _published(function: F, name: str, doc: str, methods: tuple[str, ...], namespace: str) -> F:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = __name__
    return public(*methods, namespace=namespace)(function)


def _attach_operator(op: Op, operator: str, at_least: str, *, arithmetic: bool) -> None:
    """Give Tensor the operator, its reflected form (2 - x) and its in-place form (x -= 2)."""
    name = op.name
    kinds = "fc" if at_least else "fciu"

    def promoted(self: Tensor, other: Any) -> Any:
        if other.__class__ in NUMBERS and not (at_least and self._data.dtype.kind in "iub"):
            number = paired(self, other)
            if number is not None:
                return forward(self, number)
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return bind(op, *common((self, other), name, at_least=at_least))

    def reflected(self: Tensor, other: Any, /) -> Any:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return bind(op, *common((other, self), name, at_least=at_least))

    def in_place(self: Tensor, other: Any, /) -> Any:
        value = paired(self, other) if other.__class__ in NUMBERS else other
        fast = op.in_place is not None and value.__class__ is self._result_class
        if fast and _fits(self, value, kinds):  # type: ignore[arg-type]
            update(op, self, value)  # type: ignore[arg-type]
            return self
        out = forward(self, other)
        return out if out is NotImplemented else assign(self, out, f"{name} in place")

    forward = fast_operator(op, promoted)
    attach({f"__{operator}__": forward})
    if arithmetic:  # for comparisons, Python itself turns 2 < x into x > 2
        attach({f"__r{operator}__": reflected, f"__i{operator}__": in_place})


def _fits(x: Tensor, y: Tensor, kinds: str) -> bool:
    """Whether op(x, y) has the dtype and shape of x, so that it can be written into x."""
    a, b = x._data, y._data
    return a.dtype is b.dtype and a.dtype.kind in kinds and b.shape in (a.shape, ())


def _writer(ufunc: Any) -> Callable[..., None] | None:
    """A function that writes the result into the first operand, if the op is a NumPy ufunc."""
    if not isinstance(ufunc, np.ufunc):
        return None

    def write(x: Any, y: Any) -> None:
        ufunc(x, y, out=x)

    return write
